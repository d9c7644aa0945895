// The CPU's table of cases (op_cases.h), run on a device too: every op that has a CUDA kernel, with
// its gradients. What needs a device is skipped where there is none.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <vector>

#include "base/strings.h"
#include "tests/fluid/kernels/cuda/device.h"
#include "tests/fluid/kernels/one_op.h"

namespace fleet::fluid {
namespace {

bool has_cuda_kernel(const std::string& op) {
  return KernelTable::standard().knows(op, DeviceKind::kCuda);
}

std::vector<OpCase> cases_of_cuda() {
  std::vector<OpCase> cases = op_cases();
  std::erase_if(cases, [](const OpCase& op_case) { return !has_cuda_kernel(op_case.type); });
  return cases;
}

class CudaOpCases : public ::testing::TestWithParam<OpCase> {};

// Its outputs, and the gradients of its inputs.
std::vector<Fetch> results_of(OneOp& op, const OpCase& op_case) {
  std::vector<Fetch> results;
  for (const std::string& slot : op_case.outputs) {
    for (size_t i = 0; slot != "XShape" && i < op_case.output_copies; ++i) {
      results.emplace_back(str_cat(slot, i));
    }
  }
  const bool differentiable = std::any_of(op_case.inputs.begin(), op_case.inputs.end(),
                                          [](const Input& input) { return input.differentiable; });
  if (differentiable && OpTable::standard().at(op_case.type).gradient) {
    for (const std::string& name : op.append_gradients()) results.emplace_back(name);
  }
  return results;
}

std::vector<Tensor> run_on(const Place& place, OneOp& op, const std::vector<Fetch>& results) {
  Executor executor(place, {.strict_place = !place.is_cpu()});
  return executor.run(op.block().program(), op.feed(), results);
}

void expect_near(const Tensor& got, const Tensor& wanted, double rtol) {
  ASSERT_EQ(got.shape(), wanted.shape());
  double scale = 1e-30;
  for (int64_t i = 0; i < wanted.numel(); ++i) {
    scale = std::max(scale, std::abs(element(wanted, i)));
  }
  for (int64_t i = 0; i < got.numel(); ++i) {
    ASSERT_NEAR(element(got, i), element(wanted, i), rtol * scale) << "element " << i;
  }
}

TEST_P(CudaOpCases, AgreeWithTheCpu) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    SCOPED_TRACE(dtype_name(dtype));
    OneOp op(GetParam(), dtype);
    const std::vector<Fetch> results = results_of(op, GetParam());
    const std::vector<Tensor> wanted = run_on(CPUPlace(), op, results);
    ASSERT_EQ(wanted.size(), results.size());
    SKIP_WITHOUT_DEVICE();
    const std::vector<Tensor> got = run_on(CUDAPlace(0), op, results);
    for (size_t i = 0; i < results.size(); ++i) {
      SCOPED_TRACE(results[i].name);
      expect_near(got[i], wanted[i], dtype == DType::kFloat32 ? 3e-6 : 1e-13);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, CudaOpCases, ::testing::ValuesIn(cases_of_cuda()),
                         [](const auto& one) { return str_cat(one.param.type, "_", one.index); });

// A forward kernel without the backward one would send its gradient to the CPU and back.
TEST(CudaOpCases, OpsWithAKernelHaveOneForTheirGradient) {
  for (const OpCase& op_case : cases_of_cuda()) {
    const std::string gradient = op_case.type + "_grad";
    if (OpTable::standard().find(gradient) == nullptr) continue;
    EXPECT_TRUE(has_cuda_kernel(gradient)) << gradient;
  }
}

}  // namespace
}  // namespace fleet::fluid
