#include "fluid/layers/sparse_embedding.h"

#include <limits>
#include <map>

#include "fluid/executor/executor.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/tables/lookup/shared_table.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr const char* kTable = "emb";

class SparseEmbedding : public NetFixture {
 protected:
  static Tensor column(const std::vector<int64_t>& ids) {
    return Tensor::from(ids, {static_cast<int64_t>(ids.size()), 1});
  }
  static Variable data(const std::string& name, int lod_level = 0) {
    return layers::data(name, {1}, DType::kInt64, {.lod_level = lod_level});
  }
  tables::TableStatistics statistics() {
    return growing_table(executor_.scope(), kTable)->statistics();
  }
  static SparseEmbeddingOptions named() { return {.param_attr = {.name = kTable}}; }

  Executor executor_;
};

TEST_F(SparseEmbedding, HasRowsOfAnyId) {
  const Variable rows = layers::sparse_embedding(data("ids"), 3, named());
  EXPECT_EQ(rows.shape(), Shape({-1, 3}));
  executor_.run(startup_);
  const std::vector<int64_t> ids = {0, -1, std::numeric_limits<int64_t>::min(),
                                    std::numeric_limits<int64_t>::max(), -1};
  const auto first = executor_.run(main_, {{"ids", column(ids)}}, {rows})[0];
  EXPECT_EQ(first.shape(), Shape({5, 3}));
  EXPECT_EQ(statistics().rows, 4U);
  const float* values = first.data<float>();
  EXPECT_TRUE(std::equal(values + 3, values + 6, values + 12));
  EXPECT_FALSE(std::equal(values, values + 3, values + 3));
  EXPECT_EQ(executor_.run(main_, {{"ids", column(ids)}}, {rows})[0].values<float>()[4], values[4]);
}

TEST_F(SparseEmbedding, TakesIdsOfAnyShape) {
  const Variable ids = layers::data("ids", {2, 3}, DType::kInt64, {.append_batch_size = false});
  const Variable rows = sparse_embedding(ids, 4, named());
  EXPECT_EQ(rows.shape(), Shape({2, 3, 4}));
  executor_.run(startup_);
  const Tensor fed = Tensor::from(std::vector<int64_t>{1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(executor_.run(main_, {{"ids", fed}}, {rows})[0].shape(), Shape({2, 3, 4}));
}

TEST_F(SparseEmbedding, LooksManySlotsUpInOneOpWithTheirSequences) {
  const auto rows = layers::sparse_embedding({data("a", 1), data("b", 1)}, 2, named());
  const std::vector<Variable> sums = {layers::sequence_pool(rows[0], "sum"),
                                      layers::sequence_pool(rows[1], "sum")};
  EXPECT_EQ(op_types()[0], "lookup_growing_table");
  executor_.run(startup_);
  Tensor a = column({5, 6, 7});
  a.set_lod({{0, 1, 3}});
  Tensor b = column({7});
  b.set_lod({{0, 0, 1}});
  const auto got = executor_.run(main_, {{"a", a}, {"b", b}}, {sums[0], sums[1], rows[0]});
  EXPECT_EQ(got[0].shape(), Shape({2, 2}));
  EXPECT_EQ(got[1].shape(), Shape({2, 2}));
  EXPECT_EQ(got[1].values<float>()[2], got[2].values<float>()[4]);
  EXPECT_EQ(statistics().misses, 3U) << "each id once";
}

TEST_F(SparseEmbedding, PaddingReadsZerosAndGetsNoRow) {
  SparseEmbeddingOptions options = named();
  options.padding_idx = -1;
  options.param_attr.initializer = initializer::Constant{2.5};
  const Variable rows = layers::sparse_embedding(data("ids"), 2, options);
  optimizer::SGD({.learning_rate = 1.0}).minimize(layers::mean(rows));
  executor_.run(startup_);
  const Tensor ids = column({-1, 3});
  const auto got = executor_.run(main_, {{"ids", ids}}, {rows})[0];
  EXPECT_THAT(std::vector<float>(got.data<float>(), got.data<float>() + 4),
              ElementsAre(0, 0, 2.5F, 2.5F));
  EXPECT_EQ(statistics().rows, 1U);
  const auto next = executor_.run(main_, {{"ids", ids}}, {rows})[0];
  EXPECT_EQ(next.values<float>()[0], 0);
  EXPECT_EQ(next.values<float>()[2], 2.25F);
}

TEST_F(SparseEmbedding, TestProgramsChangeNothing) {
  const Variable rows = layers::sparse_embedding(data("ids"), 2, named());
  optimizer::SGD({.learning_rate = 1.0}).minimize(layers::mean(rows));
  const Program test = main_.clone(true);
  executor_.run(startup_);
  const auto before = executor_.run(test, {{"ids", column({4, 5})}}, {rows.name()})[0];
  EXPECT_EQ(statistics().rows, 0U);
  EXPECT_EQ(statistics().misses, 0U);
  const auto trained = executor_.run(main_, {{"ids", column({4, 5})}}, {rows})[0];
  EXPECT_EQ(trained.values<float>()[1], before.values<float>()[1]);
  const auto after = executor_.run(test, {{"ids", column({4, 6})}}, {rows.name()})[0];
  EXPECT_NE(after.values<float>()[0], before.values<float>()[0]);
  EXPECT_EQ(statistics().rows, 2U);
}

TEST_F(SparseEmbedding, RowsDependOnSeedAndName) {
  const Variable a = layers::sparse_embedding(data("ids"), 2, {.param_attr = {.name = "a"}});
  const Variable b = layers::sparse_embedding(data("ids"), 2, {.param_attr = {.name = "b"}});
  const auto read = [&](uint64_t seed) {
    startup_.set_random_seed(seed);
    executor_.run(startup_);
    const auto got = executor_.run(main_, {{"ids", column({9})}}, {a, b});
    return std::pair(got[0].values<float>()[0], got[1].values<float>()[0]);
  };
  const auto one = read(1);
  EXPECT_NE(one.first, one.second);
  EXPECT_EQ(read(1), one);
  EXPECT_NE(read(2).first, one.first);
}

TEST_F(SparseEmbedding, EntriesDecideWhichIdsGetARow) {
  SparseEmbeddingOptions options = named();
  options.entry = CountFilterEntry{2};
  options.param_attr.initializer = initializer::Constant{1};
  const Variable rows = layers::sparse_embedding(data("ids"), 1, options);
  optimizer::SGD({.learning_rate = 1.0}).minimize(layers::mean(rows));
  executor_.run(startup_);
  const auto run = [&] {
    return executor_.run(main_, {{"ids", column({4})}}, {rows})[0].item<float>();
  };
  EXPECT_EQ(run(), 1);
  EXPECT_EQ(run(), 1) << "the first gradient was dropped";
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(statistics().dropped, 1U);
}

TEST_F(SparseEmbedding, ProbabilityEntriesAreForGood) {
  SparseEmbeddingOptions options = named();
  options.entry = ProbabilityEntry{0.25};
  const Variable rows = layers::sparse_embedding(data("ids"), 1, options);
  executor_.run(startup_);
  std::vector<int64_t> ids(4000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  executor_.run(main_, {{"ids", column(ids)}}, {rows});
  const uint64_t admitted = statistics().rows;
  EXPECT_GT(admitted, 850U);
  EXPECT_LT(admitted, 1150U);
  executor_.run(main_, {{"ids", column(ids)}}, {rows});
  EXPECT_EQ(statistics().rows, admitted);
}

TEST_F(SparseEmbedding, ShowsAndClicksAdmitIds) {
  const Variable show = layers::data("show", {1}, DType::kFloat32);
  const Variable click = layers::data("click", {1}, DType::kInt64);
  SparseEmbeddingOptions options = named();
  options.entry = ShowClickEntry{show, click, 2.0};
  options.score = {.show_coefficient = 0.5, .click_coefficient = 1};
  const Variable rows = layers::sparse_embedding(data("ids", 1), 1, options);
  optimizer::SGD({.learning_rate = 1.0}).minimize(layers::mean(rows));
  executor_.run(startup_);
  Tensor ids = column({1, 2, 2});
  ids.set_lod({{0, 1, 3}});
  const auto run = [&](const Program& program) {
    executor_.run(program, {{"ids", ids},
                            {"show", Tensor::from(std::vector<float>{1, 1}, {2, 1})},
                            {"click", Tensor::from(std::vector<int64_t>{0, 1}, {2, 1})}});
  };
  run(main_.clone(true));
  EXPECT_EQ(statistics().counted_ids, 0U) << "a test program adds no shows";
  run(main_);  // id 2 is there twice: score 1 + 2
  EXPECT_EQ(statistics().rows, 1U);
  for (int i = 0; i < 3; ++i) run(main_);
  EXPECT_EQ(statistics().rows, 2U);
  growing_table(executor_.scope(), kTable)->reading([](const tables::GrowingTable& table) {
    table.scan(0, tables::kBuckets, [](const tables::RowView& row) {
      EXPECT_EQ(row.show, row.key == 1 ? 4 : 8);
      EXPECT_EQ(row.click, row.key == 1 ? 0 : 8);
    });
  });
}

// One number for each sequence, whose rows have two ids each, or one for each row.
TEST_F(SparseEmbedding, ShowsBelongToRowsOrToSequences) {
  const Variable show = layers::data("show", {1});
  const Variable click = layers::data("click", {1});
  const Variable ids = layers::data("ids", {2}, DType::kInt64, {.lod_level = 1});
  SparseEmbeddingOptions options = named();
  options.entry = ShowClickEntry{show, click, 0.0};
  const Variable rows = fluid::sparse_embedding(ids, 1, options);
  optimizer::SGD({.learning_rate = 1.0}).minimize(layers::mean(rows));
  executor_.run(startup_);
  Tensor fed = Tensor::from(std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}, {4, 2});
  fed.set_lod({{0, 1, 4}});
  const auto column_of = [](const std::vector<float>& numbers) {
    return Tensor::from(numbers, {static_cast<int64_t>(numbers.size()), 1});
  };
  const auto shows = [&](const std::vector<float>& numbers) {
    executor_.run(main_, {{"ids", fed},
                          {"show", column_of(numbers)},
                          {"click", column_of(std::vector<float>(numbers.size(), 0.0f))}});
    std::map<uint64_t, float> sums;
    growing_table(executor_.scope(), kTable)->reading([&](const tables::GrowingTable& table) {
      table.scan(0, tables::kBuckets,
                 [&](const tables::RowView& row) { sums[row.key] = row.show; });
    });
    return sums;
  };
  using Sums = std::map<uint64_t, float>;
  EXPECT_EQ(shows({1, 10}),
            (Sums{{1, 1}, {2, 1}, {3, 10}, {4, 10}, {5, 10}, {6, 10}, {7, 10}, {8, 10}}));
  EXPECT_EQ(shows({1, 2, 3, 4}),
            (Sums{{1, 2}, {2, 2}, {3, 12}, {4, 12}, {5, 13}, {6, 13}, {7, 14}, {8, 14}}));
  // As many sequences as rows.
  fed.set_lod({{0, 2, 2, 3, 4}});
  EXPECT_EQ(shows({1, 2, 3, 4}),
            (Sums{{1, 3}, {2, 3}, {3, 13}, {4, 13}, {5, 16}, {6, 16}, {7, 18}, {8, 18}}));
  expect_error([&] { shows({1, 2, 3}); }, ErrorCode::kShapeMismatch, {"shows and clicks"});
  fed.set_lod({{0, 1, 4}});
  expect_error([&] { shows({1, 2, 3}); }, ErrorCode::kShapeMismatch, {"4, or 2 for sequences"});
  const float none = std::numeric_limits<float>::quiet_NaN();
  expect_error([&] { shows({none, 1}); }, ErrorCode::kInvalidArgument, {"Show", "element 0"});
}

TEST_F(SparseEmbedding, CallsWithOneNameShareATable) {
  const Variable a = layers::sparse_embedding(data("a"), 2, named());
  const Variable b = layers::sparse_embedding(data("b"), 2, named());
  EXPECT_EQ(startup_.global_block().op_count(), 1U);
  optimizer::SGD({.learning_rate = 1.0}).minimize(layers::mean(layers::elementwise_add(a, b)));
  executor_.run(startup_);
  const Feed feed = {{"a", column({1})}, {"b", column({1})}};
  const float first = executor_.run(main_, feed, {a})[0].values<float>()[0];
  EXPECT_EQ(statistics().rows, 1U);
  EXPECT_EQ(executor_.run(main_, feed, {a})[0].values<float>()[0], first - 1.0F);
}

TEST_F(SparseEmbedding, OtherOptionsOfASharedTableAreMistakes) {
  layers::sparse_embedding(data("a"), 2, named());
  const auto call = [&](int64_t dim, const SparseEmbeddingOptions& options) {
    return [=] { layers::sparse_embedding(data("a"), dim, options); };
  };
  expect_error(call(3, named()), ErrorCode::kInvalidArgument, {kTable, "width"});
  SparseEmbeddingOptions other = named();
  other.entry = CountFilterEntry{3};
  expect_error(call(2, other), ErrorCode::kInvalidArgument, {kTable, "admission"});
  other = named();
  other.deltas = true;
  expect_error(call(2, other), ErrorCode::kInvalidArgument, {kTable, "deltas"});
  layers::fc(layers::data("x", {4}), 2, {.param_attr = {.name = "w"}});
  expect_error(call(2, {.param_attr = {.name = "w"}}), ErrorCode::kInvalidArgument, {"'w'"});
}

TEST_F(SparseEmbedding, OptionsWithoutSenseAreMistakes) {
  const auto fails = [&](const SparseEmbeddingOptions& options, const std::string& text,
                         int64_t dim = 2) {
    expect_error([&] { layers::sparse_embedding(data("ids"), dim, options); },
                 ErrorCode::kInvalidArgument, {text});
  };
  fails({}, "dim", 0);
  fails({.dtype = DType::kFloat64}, "float32");
  fails({.param_attr = {.initializer = initializer::Bilinear{}}}, "initializer");
  fails({.param_attr = {.regularizer = regularizer::L2Decay(0.1)}}, "regularizer");
  fails({.param_attr = {.do_model_average = true}}, "averaged");
  fails({.entry = ProbabilityEntry{1.5}}, "probability");
  fails({.entry = CountFilterEntry{0}}, "admitted");
  expect_error([&] { layers::sparse_embedding(layers::data("x", {1}), 2); },
               ErrorCode::kDTypeMismatch, {"int64"});
}

TEST_F(SparseEmbedding, AVariableWithoutATableIsAMistake) {
  const Variable rows = layers::sparse_embedding(data("ids"), 2, named());
  expect_error(
      [&] {
        executor_.run(main_, {{"ids", column({1})}}, {rows});
      },
      ErrorCode::kInvalidProgram, {kTable, "startup program"});
  expect_error([&] { growing_table(executor_.scope(), "none"); }, ErrorCode::kInvalidProgram,
               {"none"});
}

TEST_F(SparseEmbedding, RowsWhoseValuesAreNotFiniteAreReported) {
  const Variable rows = layers::sparse_embedding(data("ids"), 2, named());
  optimizer::SGD({.learning_rate = 3e38})
      .minimize(layers::scale(layers::mean(rows), {.scale = 10.0}));
  Executor checking(CPUPlace(), {.check_nan_inf = true});
  checking.run(startup_);
  expect_error(
      [&] {
        checking.run(main_, {{"ids", column({1})}});
      },
      ErrorCode::kNumerics, {kTable, "update_growing_table", "-inf"});
}

}  // namespace
}  // namespace fleet::fluid
