// The nets of net_cases.h on a device: what has no CUDA kernel runs on the CPU, the rest on the
// device, and steps compute what they do on the CPU. Skipped where there is no device.
#include <cstring>
#include <gtest/gtest.h>
#include <vector>

#include "tests/fluid/kernels/cuda/device.h"
#include "tests/fluid/kernels/typed_net.h"
#ifdef FLEET_CUDA_ON_HOST
#include "tests/testing/cuda_on_host/stream.h"
#endif

namespace fleet::fluid {
namespace {

#ifdef FLEET_CUDA_ON_HOST
constexpr bool counts_runs = true;
using testing::recorded_runs;
#else
constexpr bool counts_runs = false;
uint64_t recorded_runs() {
  return 0;
}
#endif

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

// Batches of two sizes: a step is recorded for the first, for the second, and for the first again.
TEST_P(CudaNets, HaveTheSameBitsWhenStepsAreRecorded) {
  SKIP_WITHOUT_DEVICE();
  const uint64_t before = recorded_runs();
  TypedNet plain(GetParam(), DType::kFloat32, KernelTable::standard(), CUDAPlace(0));
  TypedNet recorded(GetParam(), DType::kFloat32, KernelTable::standard(), CUDAPlace(0), true);
  recorded.begin_as(plain);
  for (int step = 0; step < 18; ++step) {
    const int64_t rows = step / 6 == 1 ? 4 : 6;
    const std::vector<int64_t> offsets = {0, 2, rows};
    const auto wanted = plain.run(step, rows, offsets);
    const auto got = recorded.run(step, rows, offsets);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].shape(), wanted[i].shape());
      EXPECT_EQ(std::memcmp(got[i].raw(), wanted[i].raw(), got[i].bytes()), 0)
          << "step " << step << ", value " << i;
    }
  }
  // Of each six steps, those that come after two alike.
  if (counts_runs && GetParam().name == "momentum_dense") {
    EXPECT_GE(recorded_runs() - before, 9U);
  }
}

INSTANTIATE_TEST_SUITE_P(Nets, CudaNets, ::testing::ValuesIn(net_cases()),
                         [](const auto& net) { return net.param.name; });

}  // namespace
}  // namespace fleet::fluid
