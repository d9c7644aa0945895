#include "examples/quick_start/data.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <numeric>
#include <zlib.h>

#include "base/error.h"
#include "base/philox.h"
#include "base/shard_tree.h"

namespace quick_start {
namespace {

constexpr int kDigitsWidth = 64;
constexpr int kDigitsClasses = 10;
constexpr int kDigitsTestRows = 500;
// Pixels are 0 to 16; this puts their mean near zero.
constexpr float kPixelScale = 1.0f / 16.0f;
constexpr float kPixelShift = 0.3f;

[[noreturn]] void refuse_file(const std::string& path, std::string what, std::string got) {
  fleet::throw_error(fleet::ErrorCode::kInput,
                     {.what = std::move(what),
                      .where = path,
                      .expected = "the digits as examples/data/digits holds them",
                      .got = std::move(got),
                      .fix = "give that folder with --data_dir, or train with --synthetic"});
}

std::string read_gzip(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) refuse_file(path, "the file cannot be opened", "");
  std::string text;
  char block[1 << 14];
  for (;;) {
    const int n = gzread(file.get(), block, sizeof block);
    if (n < 0) refuse_file(path, "the file is not a whole gzip file", "");
    if (n == 0) return text;
    text.append(block, static_cast<size_t>(n));
  }
}

std::vector<std::vector<int>> read_rows(const std::string& path) {
  std::vector<std::vector<int>> rows;
  for (const std::string& line : fleet::split(read_gzip(path), '\n')) {
    if (line.empty()) continue;
    std::vector<int>& row = rows.emplace_back();
    for (const std::string& cell : fleet::split(line, ',')) {
      const auto value = fleet::parse_int(fleet::trim(cell));
      if (!value) refuse_file(path, "a cell is not a whole number", cell);
      row.push_back(static_cast<int>(*value));
    }
    if (row.size() != kDigitsWidth + 1) {
      refuse_file(path, "a line needs 64 pixels and a label", fleet::str_cat(row.size(), " cells"));
    }
  }
  return rows;
}

}  // namespace

Data::Data(const Options& options) : options_(options) {
  if (!options_.synthetic) load_digits(options_.data_dir);
}

void Data::load_digits(const std::string& directory) {
  const auto rows = read_rows(directory + "/digits.csv.gz");
  const std::string order_path = directory + "/order_1234.txt";
  std::ifstream order(order_path);
  size_t index = 0;
  while (order >> index) {
    if (index >= rows.size()) refuse_file(order_path, "no such row", std::to_string(index));
    for (int i = 0; i < kDigitsWidth; ++i) {
      features_.push_back(static_cast<float>(rows[index][static_cast<size_t>(i)]) * kPixelScale -
                          kPixelShift);
    }
    labels_.push_back(rows[index].back());
  }
  if (labels_.size() != rows.size()) {
    refuse_file(order_path, "the order must name every row once",
                fleet::str_cat(labels_.size(), " of ", rows.size()));
  }
  width_ = kDigitsWidth;
  classes_ = kDigitsClasses;
  train_rows_ = static_cast<int>(labels_.size()) - kDigitsTestRows;
  if (options_.batch_size > train_rows_) {
    fleet::throw_error(fleet::ErrorCode::kInvalidArgument,
                       {.what = "a step needs more rows than there are",
                        .where = "--batch_size",
                        .expected = fleet::str_cat("at most ", train_rows_),
                        .got = std::to_string(options_.batch_size),
                        .fix = "use a smaller batch"});
  }
}

// A random permutation of the training rows (Fisher and Yates), drawn anew for each epoch.
const std::vector<int>& Data::order_of_epoch(int epoch) {
  if (epoch == epoch_) return order_;
  order_.resize(static_cast<size_t>(train_rows_));
  std::iota(order_.begin(), order_.end(), 0);
  const auto key = fleet::RandomKey::of(options_.seed, "order");
  for (size_t i = order_.size() - 1; i > 0; --i) {
    const double u = fleet::uniform_double(key, i, static_cast<uint64_t>(epoch));
    std::swap(order_[i], order_[static_cast<size_t>(u * static_cast<double>(i + 1))]);
  }
  epoch_ = epoch;
  return order_;
}

void Data::digits_row(int step, int row, float* x, int64_t* y) {
  const int steps_in_epoch = train_rows_ / options_.batch_size;
  const auto& order = order_of_epoch(step / steps_in_epoch);
  const int position = step % steps_in_epoch * options_.batch_size + row;
  const auto index = static_cast<size_t>(order[static_cast<size_t>(position)]);
  std::copy_n(features_.data() + index * kDigitsWidth, kDigitsWidth, x);
  *y = labels_[index];
}

void Data::synthetic_row(int step, int row, float* x, int64_t* y) const {
  const auto key = fleet::RandomKey::of(options_.seed, "synthetic");
  const auto first = static_cast<uint64_t>(row) * static_cast<uint64_t>(width_ + 1);
  for (int i = 0; i < width_; ++i) {
    x[i] = fleet::uniform_float(key, first + static_cast<uint64_t>(i), static_cast<uint64_t>(step));
  }
  *y = fleet::uniform_float(key, first + static_cast<uint64_t>(width_),
                            static_cast<uint64_t>(step)) < 0.5f
           ? 0
           : 1;
}

fluid::Feed Data::batch(int64_t number, int worker, int workers) {
  const auto step = static_cast<int>(number);
  const int shards = options_.shards == 0 ? workers : options_.shards;
  if (options_.batch_size % shards != 0) {
    fleet::throw_error(fleet::ErrorCode::kUnevenBatch,
                       {.what = "the rows of a step do not fall into equal shards",
                        .where = "--batch_size",
                        .expected = fleet::str_cat("a multiple of ", shards, " shards"),
                        .got = std::to_string(options_.batch_size),
                        .fix = "change --batch_size or --shards"});
  }
  const int shard_rows = options_.batch_size / shards;
  const fleet::ShardRange mine = fleet::owned_shards(worker, workers, shards);
  const int rows = mine.size() * shard_rows;
  fluid::Tensor x(fluid::DType::kFloat32, {rows, width_});
  fluid::Tensor y(fluid::DType::kInt64, {rows, 1});
  for (int i = 0; i < rows; ++i) {
    const int row = mine.begin * shard_rows + i;
    float* x_row = x.data<float>() + static_cast<ptrdiff_t>(i) * width_;
    int64_t* y_row = y.data<int64_t>() + i;
    options_.synthetic ? synthetic_row(step, row, x_row, y_row)
                       : digits_row(step, row, x_row, y_row);
  }
  return {{"x", x}, {"y", y}};
}

fluid::Feed Data::test_set() {
  constexpr int kRows = kDigitsTestRows;
  fluid::Tensor x(fluid::DType::kFloat32, {kRows, width_});
  fluid::Tensor y(fluid::DType::kInt64, {kRows, 1});
  for (int i = 0; i < kRows; ++i) {
    float* x_row = x.data<float>() + static_cast<ptrdiff_t>(i) * width_;
    if (options_.synthetic) {
      synthetic_row(-1, i, x_row, y.data<int64_t>() + i);
    } else {
      const auto index = static_cast<size_t>(train_rows_) + static_cast<size_t>(i);
      std::copy_n(features_.data() + index * kDigitsWidth, kDigitsWidth, x_row);
      y.data<int64_t>()[i] = labels_[index];
    }
  }
  return {{"x", x}, {"y", y}};
}

double Data::accuracy(const fluid::Tensor& prediction) {
  const fluid::Tensor labels = test_set()[1].second;
  const auto probabilities = prediction.values<float>();
  const auto classes = static_cast<size_t>(classes_);
  size_t right = 0;
  for (size_t i = 0; i < static_cast<size_t>(labels.numel()); ++i) {
    const auto row = probabilities.subspan(i * classes, classes);
    const auto best = std::max_element(row.begin(), row.end()) - row.begin();
    if (best == labels.values<int64_t>()[i]) ++right;
  }
  return static_cast<double>(right) / static_cast<double>(labels.numel());
}

}  // namespace quick_start
