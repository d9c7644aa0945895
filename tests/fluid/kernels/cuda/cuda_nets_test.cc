// The nets of net_cases.h on a device: what has no CUDA kernel runs on the CPU, the rest on the
// device, and steps compute what they do on the CPU. Skipped where there is no device.
#include <gtest/gtest.h>
#include <vector>

#include "tests/fluid/kernels/cuda/device.h"
#include "tests/fluid/kernels/typed_net.h"

namespace fleet::fluid {
namespace {

class CudaNets : public ::testing::TestWithParam<NetCase> {};

TEST_P(CudaNets, ComputeWhatTheCpuDoes) {
  SKIP_WITHOUT_DEVICE();
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    SCOPED_TRACE(dtype_name(dtype));
    const double rtol = dtype == DType::kFloat32 ? 1e-4 : 1e-10;
    TypedNet cpu(GetParam(), dtype);
    TypedNet device(GetParam(), dtype, KernelTable::standard(), CUDAPlace(0));
    device.begin_as(cpu);
    for (int step = 0; step < 3; ++step) {
      const auto wanted = cpu.run(step);
      const auto got = device.run(step);
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t i = 0; i < got.size(); ++i) {
        expect_near(got[i], wanted[i], rtol, str_cat("step ", step, ", value ", i));
      }
    }
    const auto wanted = cpu.kept();
    for (const auto& [name, tensor] : device.kept()) {
      expect_near(tensor, wanted.at(name), rtol, name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Nets, CudaNets, ::testing::ValuesIn(net_cases()),
                         [](const auto& net) { return net.param.name; });

}  // namespace
}  // namespace fleet::fluid
