#include "fluid/data/data_loader.h"

#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <numeric>

#include "base/error.h"

namespace fleet::fluid::data {
namespace {

std::shared_ptr<TensorDataset> numbers(int64_t rows) {
  std::vector<int64_t> values(static_cast<size_t>(rows));
  std::iota(values.begin(), values.end(), 0);
  return std::make_shared<TensorDataset>(Feed{{"x", Tensor::from(values, {rows, 1})}});
}

std::vector<int64_t> values_of(const Feed& feed) {
  const auto values = feed.at(0).second.values<int64_t>();
  return {values.begin(), values.end()};
}

TEST(DataLoader, GivesTheSameFeedsWithAnyNumberOfThreads) {
  const auto dataset = numbers(100);
  DataLoaderOptions options{.batch_size = 8, .seed = 4, .threads = 0};
  DataLoader plain(dataset, options);
  std::vector<std::vector<int64_t>> expected;
  for (int i = 0; i < 50; ++i) expected.push_back(values_of(plain.next()));
  for (const int threads : {1, 3}) {
    for (const int prefetch : {1, 2, 7}) {
      options.threads = threads;
      options.prefetch = prefetch;
      DataLoader loader(dataset, options);
      for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(loader.position(), i);
        EXPECT_EQ(values_of(loader.next()), expected[static_cast<size_t>(i)]);
      }
    }
  }
}

TEST(DataLoader, GoesOnAtAPosition) {
  const auto dataset = numbers(64);
  DataLoader first(dataset, {.batch_size = 8, .seed = 4});
  for (int i = 0; i < 13; ++i) first.next();
  DataLoader second(dataset, {.batch_size = 8, .seed = 4, .threads = 2});
  second.next();
  second.seek(first.position());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(values_of(first.next()), values_of(second.next()));
  first.seek(0);
  EXPECT_EQ(first.position(), 0);
  EXPECT_THROW(first.seek(-1), UsageError);
}

class Watched : public Dataset {
 public:
  int64_t rows() const override { return 1000; }
  Feed read(std::span<const int64_t> rows, const ReadContext&) const override {
    ++reads;
    if (rows[0] == fail_at) {
      fail_at = -1;
      throw_error(ErrorCode::kInput, {.what = "bad row"});
    }
    return {{"x", Tensor::from(std::vector<int64_t>(rows.begin(), rows.end()), {1})}};
  }
  mutable std::atomic<int> reads = 0;
  mutable std::atomic<int64_t> fail_at = -1;
};

TEST(DataLoader, ThrowsForTheStepThatFailedAndGoesOnFromThere) {
  const auto dataset = std::make_shared<Watched>();
  dataset->fail_at = 5;
  DataLoader loader(dataset, {.batch_size = 1, .shuffle = false, .threads = 2, .prefetch = 3});
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(values_of(loader.next()), std::vector<int64_t>{i});
  EXPECT_THROW(loader.next(), ResourceError);
  EXPECT_EQ(loader.position(), 5);
  for (int64_t i = 5; i < 9; ++i) EXPECT_EQ(values_of(loader.next()), std::vector<int64_t>{i});
}

TEST(DataLoader, ReadsNoFurtherAheadThanAsked) {
  const auto dataset = std::make_shared<Watched>();
  DataLoader loader(dataset, {.batch_size = 1, .shuffle = false, .threads = 4, .prefetch = 3});
  for (int i = 0; i < 10; ++i) {
    loader.next();
    EXPECT_LE(dataset->reads, i + 1 + 3);
  }
}

// Each row with a number that is drawn for it.
class Drawn : public Dataset {
 public:
  int64_t rows() const override { return 20; }
  Feed read(std::span<const int64_t> rows, const ReadContext& context) const override {
    std::vector<double> drawn;
    for (const int64_t row : rows) {
      drawn.push_back(static_cast<double>(100 * context.epoch + row) +
                      uniform_double(context.key, 0, static_cast<uint64_t>(row)));
    }
    return {{"x", Tensor::from(drawn, {static_cast<int64_t>(rows.size())})}};
  }
};

std::vector<double> drawn_by(const DataLoaderOptions& options, int64_t begin, int64_t end) {
  DataLoader loader(std::make_shared<Drawn>(), options);
  loader.seek(begin);
  std::vector<double> all;
  for (int64_t step = begin; step < end; ++step) {
    const Feed feed = loader.next();
    const auto values = feed[0].second.values<double>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST(DataLoader, DrawsTheSameNumbersForARowWithAnyNumberOfThreads) {
  DataLoaderOptions options{.batch_size = 5, .seed = 4, .threads = 0};
  const std::vector<double> expected = drawn_by(options, 0, 12);
  ASSERT_EQ(expected.size(), 60U);
  for (const int threads : {1, 3}) {
    options.threads = threads;
    EXPECT_EQ(drawn_by(options, 0, 12), expected);
    const std::vector<double> late(expected.begin() + 35, expected.end());
    EXPECT_EQ(drawn_by(options, 7, 12), late);
  }
  // The numbers of epochs differ, and so do those of seeds; the rows of an epoch are all rows.
  const auto fractions = [](std::vector<double> all, int64_t epoch) {
    std::vector<double> mine(all.begin() + 20 * epoch, all.begin() + 20 * (epoch + 1));
    std::sort(mine.begin(), mine.end());
    for (double& value : mine) {
      EXPECT_EQ(static_cast<int64_t>(value) / 100, epoch);
      value -= static_cast<double>(static_cast<int64_t>(value));
    }
    return mine;
  };
  EXPECT_NE(fractions(expected, 0), fractions(expected, 1));
  options.seed = 5;
  EXPECT_NE(fractions(drawn_by(options, 0, 12), 0), fractions(expected, 0));
}

TEST(DataLoader, NamesTheWrongField) {
  EXPECT_THROW(DataLoader(numbers(4), {.batch_size = 0}), UsageError);
  EXPECT_THROW(DataLoader(numbers(4), {.threads = -1}), UsageError);
  EXPECT_THROW(DataLoader(numbers(4), {.prefetch = 0}), UsageError);
}

TEST(TensorDataset, GathersRowsAndSequences) {
  Tensor words = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {6, 1});
  words.set_lod({{0, 2, 3, 6}});
  const TensorDataset dataset(
      {{"words", words}, {"y", Tensor::from(std::vector<int64_t>{7, 8, 9}, {3, 1})}});
  ASSERT_EQ(dataset.rows(), 3);
  const Feed feed = dataset.read(std::vector<int64_t>{2, 0, 2});
  EXPECT_EQ(feed[0].second.lod(), (LoD{{0, 3, 5, 8}}));
  const auto values = feed[0].second.values<float>();
  EXPECT_EQ(std::vector<float>(values.begin(), values.end()),
            (std::vector<float>{4, 5, 6, 1, 2, 4, 5, 6}));
  EXPECT_EQ(feed[1].second.values<int64_t>()[1], 7);
  EXPECT_THROW(dataset.read(std::vector<int64_t>{3}), UsageError);
}

TEST(TensorDataset, RefusesColumnsOfDifferentLengths) {
  const Tensor two = Tensor::zeros(DType::kFloat32, {2, 1});
  const Tensor three = Tensor::zeros(DType::kFloat32, {3, 1});
  EXPECT_THROW(TensorDataset({{"a", two}, {"b", three}}), UsageError);
  EXPECT_THROW(TensorDataset(Feed{}), UsageError);
}

TEST(TensorDataset, RefusesSequencesThatDoNotFitTheirRows) {
  for (const LoD& wrong : std::vector<LoD>{{{}}, {{0, 5, 2}}, {{1, 2}}, {{0, 3}}}) {
    Tensor words = Tensor::from(std::vector<int64_t>{1, 2}, {2, 1});
    words.set_lod(wrong);
    EXPECT_THROW(TensorDataset({{"words", words}}), UsageError);
  }
}

TEST(TensorDataset, MayHaveNoRows) {
  Tensor words(DType::kInt64, {0, 1});
  words.set_lod({{0}});
  const TensorDataset none({{"words", words}, {"x", Tensor(DType::kFloat32, {0, 3})}});
  EXPECT_EQ(none.rows(), 0);
  EXPECT_EQ(none.read({})[1].second.shape(), (Shape{0, 3}));
  const std::vector<int64_t> first{0};
  EXPECT_THROW(none.read(first), UsageError);
  EXPECT_THROW(DataLoader(std::make_shared<TensorDataset>(none), {}), UsageError);
}

}  // namespace
}  // namespace fleet::fluid::data
