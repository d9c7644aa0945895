// Tiles of a few elements, so that small cases have several: the threads that compute them change
// no bit of any op, alone or in nets, nor of its gradients.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "base/strings.h"
#include "tests/base/process/tile_threads.h"
#include "tests/fluid/kernels/one_op.h"
#include "tests/fluid/kernels/typed_net.h"

namespace fleet::fluid {
namespace {

constexpr int64_t kElements = 2;

// The pool's, of this process; they begin with the first op that has several tiles.
bool tile_threads() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name.starts_with("tiles-")) return true;
  }
  return false;
}

class OpTiles : public ::testing::Test {
 private:
  const SmallTiles small_{kElements};
};

void expect_same_bits(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].shape(), wanted[i].shape());
    EXPECT_EQ(std::memcmp(got[i].raw(), wanted[i].raw(), got[i].bytes()), 0) << "tensor " << i;
  }
}

void expect_same_at_any_number(const std::function<std::vector<Tensor>()>& compute) {
  compare_thread_counts(compute, expect_same_bits);
}

TEST_F(OpTiles, HaveTheBitsOfOneThreadInEveryOp) {
  std::set<std::string> all;
  std::set<std::string> parallel;
  for (const OpCase& op_case : op_cases()) {
    all.insert(op_case.type);
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      SCOPED_TRACE(str_cat(op_case.type, " of ", dtype_name(dtype)));
      const bool has_gradient =
          OpTable::standard().at(op_case.type).gradient &&
          std::any_of(op_case.inputs.begin(), op_case.inputs.end(),
                      [](const Input& input) { return input.differentiable; });
      expect_same_at_any_number([&] {
        OneOp op(op_case, dtype);
        std::vector<std::string> names;
        for (const std::string& slot : op_case.outputs) {
          if (slot == "XShape") continue;
          for (size_t i = 0; i < op_case.output_copies; ++i) names.push_back(str_cat(slot, i));
        }
        if (has_gradient) {
          for (const std::string& name : op.append_gradients()) names.push_back(name);
        }
        std::vector<Tensor> results;
        Executor executor;
        results.reserve(names.size());
        for (const std::string& name : names) results.push_back(op.fetch(executor, name));
        if (tile_threads()) parallel.insert(op_case.type);
        return results;
      });
    }
  }
  std::string alone;
  for (const std::string& op : all) {
    if (!parallel.contains(op)) alone += " " + op;
  }
  EXPECT_EQ(alone, " increment shape split_byref") << "and no other";
}

TEST_F(OpTiles, HaveTheBitsOfOneThreadInEveryNet) {
  for (const NetCase& net : net_cases()) {
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      SCOPED_TRACE(str_cat(net.name, " of ", dtype_name(dtype)));
      expect_same_at_any_number([&] {
        TypedNet typed(net, dtype);
        std::vector<Tensor> results;
        for (int step = 0; step < 3; ++step) {
          for (Tensor& result : typed.run(step)) results.push_back(std::move(result));
        }
        for (auto& [name, tensor] : typed.kept()) results.push_back(std::move(tensor));
        return results;
      });
    }
  }
}

}  // namespace
}  // namespace fleet::fluid
