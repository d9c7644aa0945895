// fused_embedding_seq_pool against embedding and sequence_pool.
#include <cstring>

#include "base/strings.h"
#include "tests/fluid/gradient_check.h"

namespace fleet::fluid {
namespace {

namespace contrib_layers = contrib::layers;

class EmbeddingBags : public GradientCheck {
 protected:
  static constexpr int64_t kHeight = 50;

  // Ids of bags, some of them empty.
  static Tensor bags(const std::vector<int64_t>& lengths, int64_t height) {
    const LoD lod = sequences(lengths);
    Tensor tensor(DType::kInt64, {lod[0].back(), 1});
    for (int64_t i = 0; i < tensor.numel(); ++i) tensor.data<int64_t>()[i] = i * i * 7 % height;
    tensor.set_lod(lod);
    return tensor;
  }
  Value& gradient(Executor& executor, const std::string& name) {
    return *executor.scope().find(name + "@GRAD");
  }
};

void expect_bits_of(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.numel(), b.numel()) << what;
  EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0) << what;
}

struct BagCase {
  bool is_sparse;
  std::optional<int64_t> padding;
  int64_t width;
};

TEST_F(EmbeddingBags, HaveTheBitsOfRowsThatArePooled) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 300; ++i) lengths.push_back(i * 5 % 23);
  for (const BagCase& c : {BagCase{true, {}, 10}, BagCase{true, 7, 64}, BagCase{false, -1, 65},
                           BagCase{true, {}, 93}, BagCase{false, {}, 1}}) {
    for (const int threads : {1, 3}) {
      const std::string what = str_cat(c.is_sparse, ", width ", c.width, ", ", threads, " threads");
      Program main;
      Program startup;
      const ProgramGuard programs(main, startup);
      const unique_name::Guard names;
      const Variable x = ids("ids", {1}, 1);
      const Variable fused = contrib_layers::fused_embedding_seq_pool(
          x, {kHeight, c.width},
          {.is_sparse = c.is_sparse, .padding_idx = c.padding, .param_attr = {.name = "fused"}});
      const EmbeddingOptions options{
          .is_sparse = c.is_sparse, .padding_idx = c.padding, .param_attr = {.name = "plain"}};
      const Variable pooled =
          layers::sequence_pool(layers::embedding(x, {kHeight, c.width}, options), "sum");
      const auto loss = [](const Variable& of) { return layers::mean(layers::square(of)); };
      for (const ParamGrad& pair : append_backward(loss(fused) + loss(pooled))) {
        pair.grad.set_persistable(true);
      }
      Executor executor(CPUPlace(), {.threads = 1, .op_threads = threads});
      executor.run(startup);
      const Tensor& table = executor.scope().tensor("plain");
      std::memcpy(executor.scope().tensor("fused").raw(), table.raw(), table.bytes());
      const auto results = executor.run(main, {{"ids", bags(lengths, kHeight)}}, {fused, pooled});
      expect_bits_of(results[0], results[1], what);
      if (!c.is_sparse) {
        expect_bits_of(std::get<Tensor>(gradient(executor, "fused")),
                       std::get<Tensor>(gradient(executor, "plain")), what);
        continue;
      }
      const auto& ours = std::get<SelectedRows>(gradient(executor, "fused"));
      const auto& theirs = std::get<SelectedRows>(gradient(executor, "plain"));
      EXPECT_EQ(ours.rows, theirs.rows) << what;
      EXPECT_EQ(ours.height, kHeight) << what;
      expect_bits_of(ours.value, theirs.value, what);
    }
  }
}

class GradientsOfEmbeddingBags : public EmbeddingBags, public testing::WithParamInterface<bool> {};

TEST_P(GradientsOfEmbeddingBags, AreThoseOfFiniteDifferences) {
  const Variable x = ids("ids", {1}, 1);
  const Variable sums = contrib_layers::fused_embedding_seq_pool(
      x, {9, 3}, {.is_sparse = GetParam(), .padding_idx = 4, .dtype = DType::kFloat64});
  EXPECT_EQ(sums.shape(), Shape({-1, 3}));
  expect_gradients(loss_of(sums), {{"ids", bags({4, 0, 6, 1}, 9)}}, 27);
}

INSTANTIATE_TEST_SUITE_P(DenseAndSparse, GradientsOfEmbeddingBags, testing::Bool());

TEST_F(EmbeddingBags, LookupsWantIdsThatEndInOne) {
  const Variable x = layers::data("x", {-1}, DType::kInt64);
  const Variable rows = layers::embedding(x, {9, 3});
  executor_.run(startup_);
  expect_error(
      [&] {
        executor_.run(main_, {{"x", int_tensor({1, 2, 3}, {3})}}, {rows});
      },
      ErrorCode::kShapeMismatch, {"Ids", "a last dimension of 1"});
}

TEST_F(EmbeddingBags, OfEmptySequencesAreZeros) {
  const Variable x = ids("ids", {1}, 1);
  const Variable sums = contrib_layers::fused_embedding_seq_pool(
      x, {9, 3}, {.param_attr = {.initializer = initializer::Constant(2)}});
  executor_.run(startup_);
  const auto result = executor_.run(main_, {{"ids", bags({0, 2, 0}, 9)}}, {sums})[0];
  EXPECT_THAT(result.values<float>(), testing::ElementsAre(0, 0, 0, 4, 4, 4, 0, 0, 0));
}

TEST_F(EmbeddingBags, RefuseWhatTheyCannotSum) {
  const Variable x = ids("ids", {1}, 1);
  const auto build = [&](const contrib_layers::FusedEmbeddingSeqPoolOptions& options) {
    return [=] { contrib_layers::fused_embedding_seq_pool(x, {9, 3}, options); };
  };
  expect_error(build({.combiner = "mean"}), ErrorCode::kShapeMismatch, {"combiner", "'mean'"});
  expect_error(build({.padding_idx = 9}), ErrorCode::kInvalidArgument, {"padding_idx", "9"});
  const Variable two = ids("two", {2}, 1);
  expect_error(
      [&] {
        contrib_layers::fused_embedding_seq_pool(two, {9, 3});
      },
      ErrorCode::kShapeMismatch, {"'two'", "[rows, 1]"});
  const Variable sums = contrib_layers::fused_embedding_seq_pool(x, {9, 3});
  executor_.run(startup_);
  Tensor outside = bags({1, 1}, 9);
  outside.data<int64_t>()[1] = 9;
  expect_error(
      [&] {
        executor_.run(main_, {{"ids", outside}}, {sums});
      },
      ErrorCode::kInvalidArgument, {"outside of the table", "'ids'"});
  const Tensor plain = int_tensor({1, 2}, {2, 1});
  expect_error(
      [&] {
        executor_.run(main_, {{"ids", plain}}, {sums});
      },
      ErrorCode::kInvalidArgument, {"fused_embedding_seq_pool", "set_lod"});
}

}  // namespace
}  // namespace fleet::fluid
