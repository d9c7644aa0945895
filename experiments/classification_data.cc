#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/data/files.h"

#include "experiments/testbed.h"

namespace fleet::experiments {
namespace {

using fluid::DType;
using fluid::Tensor;

constexpr int64_t kDigitsTestRows = 500;

[[noreturn]] void refuse(const std::filesystem::path& path, std::string what, std::string expected,
                         std::string got) {
  throw_error(ErrorCode::kInput, {.what = std::move(what),
                                  .where = "file " + path.string(),
                                  .expected = std::move(expected),
                                  .got = std::move(got),
                                  .fix = "pass another file, or other options"});
}

void check_test_rows(const std::filesystem::path& path, int64_t rows, int64_t test_rows) {
  if (rows < 2)
    refuse(path, "there are not rows to train on and to test", "two or more", str_cat(rows));
  if (test_rows >= 1 && test_rows < rows) return;
  refuse(path, "the test rows must leave rows to train on", str_cat("1 to ", rows - 1),
         std::to_string(test_rows));
}

Tensor pick_rows(const Tensor& rows, const std::vector<int64_t>& order) {
  const int64_t width = rows.numel() / rows.shape()[0];
  Tensor out(rows.dtype(), {static_cast<int64_t>(order.size()), width});
  const size_t bytes = static_cast<size_t>(width) * fluid::dtype_size(rows.dtype());
  for (size_t i = 0; i < order.size(); ++i) {
    std::copy_n(rows.raw() + static_cast<size_t>(order[i]) * bytes, bytes, out.raw() + i * bytes);
  }
  return out;
}

ClassificationData split(std::string name, const std::filesystem::path& path, const Tensor& x,
                         const Tensor& y, int64_t test_rows) {
  const int64_t rows = x.shape()[0];
  check_test_rows(path, rows, test_rows);
  if (x.numel() == 0)
    refuse(path, "there is nothing to tell classes by", "columns or pixels", "none");
  const auto labels = y.values<int64_t>();
  ClassificationData data{.name = std::move(name),
                          .train_x = x.rows(0, rows - test_rows),
                          .train_y = y.rows(0, rows - test_rows),
                          .test_x = x.rows(rows - test_rows, rows),
                          .test_y = y.rows(rows - test_rows, rows)};
  if (*std::min_element(labels.begin(), labels.end()) < 0) {
    refuse(path, "a class is negative", "classes from 0 on", "");
  }
  data.classes = *std::max_element(labels.begin(), labels.end()) + 1;
  return data;
}

std::vector<int64_t> read_order(const std::filesystem::path& path, int64_t rows) {
  std::ifstream file(path);
  std::vector<int64_t> order;
  for (int64_t index = 0; file >> index;) {
    if (index < 0 || index >= rows) {
      refuse(path, "there is no such row", str_cat("0 to ", rows - 1), std::to_string(index));
    }
    order.push_back(index);
  }
  if (static_cast<int64_t>(order.size()) != rows) {
    refuse(path, "the order must name every row once", str_cat(rows, " numbers"),
           str_cat(order.size(), " numbers"));
  }
  return order;
}

bool is_number(std::string_view cell) {
  return parse_double(cell).has_value();
}

// The columns that a column of the table becomes: a standardised number, or one for each word.
std::vector<std::vector<float>> encode(const fluid::data::CsvTable& table,
                                       const std::string& column, int64_t train_rows) {
  bool numeric = true;
  for (int64_t row = 0; row < table.rows() && numeric; ++row) {
    numeric = is_number(table.cell(row, column));
  }
  std::vector<std::vector<float>> columns;
  if (!numeric) {
    std::vector<std::string> words;
    const Tensor codes = table.categories(column, words);
    columns.assign(words.size(), std::vector<float>(static_cast<size_t>(table.rows()), 0.0f));
    for (size_t row = 0; row < static_cast<size_t>(table.rows()); ++row) {
      columns[static_cast<size_t>(codes.values<int64_t>()[row])][row] = 1.0f;
    }
    return columns;
  }
  const Tensor numbers = table.numbers(std::vector{column}, DType::kFloat64);
  const auto values = numbers.values<double>();
  double mean = 0;
  double square = 0;
  for (const double value : values.first(static_cast<size_t>(train_rows))) {
    mean += value;
    square += value * value;
  }
  mean /= static_cast<double>(train_rows);
  const double variance = square / static_cast<double>(train_rows) - mean * mean;
  const double scale = variance > 0 ? 1 / std::sqrt(variance) : 1;
  std::vector<float>& out = columns.emplace_back();
  for (const double value : values) out.push_back(static_cast<float>((value - mean) * scale));
  return columns;
}

}  // namespace

ClassificationData load_digits(const std::filesystem::path& folder) {
  const auto path = folder / "digits.csv.gz";
  const auto table = fluid::data::CsvTable::load(path, {.header = false});
  check_test_rows(path, table.rows(), kDigitsTestRows);
  const auto order = read_order(folder / "order_1234.txt", table.rows());
  std::vector<std::string> pixels = table.names();
  const std::vector<std::string> label = {pixels.back()};
  pixels.pop_back();
  Tensor x = pick_rows(table.numbers(pixels, DType::kFloat32), order);
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] = x.data<float>()[i] / 16.0f - 0.3f;
  }
  const Tensor y = pick_rows(table.numbers(label, DType::kInt64), order);
  return split("digits", path, x, y, kDigitsTestRows);
}

ClassificationData load_csv(const std::filesystem::path& path, int64_t test_rows,
                            const std::string& label) {
  const auto table = fluid::data::CsvTable::load(path);
  check_test_rows(path, table.rows(), test_rows);
  const std::string target = label.empty() ? table.names().back() : label;
  std::vector<std::string> classes;
  const Tensor y = table.categories(target, classes);
  std::vector<std::vector<float>> columns;
  for (const std::string& name : table.names()) {
    if (name == target) continue;
    for (auto& column : encode(table, name, table.rows() - test_rows)) {
      columns.push_back(std::move(column));
    }
  }
  Tensor x(DType::kFloat32, {table.rows(), static_cast<int64_t>(columns.size())});
  float* out = x.data<float>();
  for (size_t row = 0; row < static_cast<size_t>(table.rows()); ++row) {
    for (const auto& column : columns) *out++ = column[row];
  }
  return split(path.filename().string(), path, x, y, test_rows);
}

ClassificationData load_idx(const std::filesystem::path& images,
                            const std::filesystem::path& labels, int64_t test_rows) {
  const Tensor pixels = fluid::data::load_idx(images);
  const Tensor marks = fluid::data::load_idx(labels);
  const int64_t rows = pixels.shape()[0];
  if (pixels.dtype() != DType::kUInt8 || marks.dtype() != DType::kUInt8 || rows == 0 ||
      marks.numel() != rows) {
    refuse(images, "images and labels do not belong together", "bytes, and a label for each image",
           str_cat(rows, " images, ", marks.numel(), " labels"));
  }
  Tensor x(DType::kFloat32, {rows, pixels.numel() / rows});
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] = static_cast<float>(pixels.data<uint8_t>()[i]) / 255.0f - 0.3f;
  }
  Tensor y(DType::kInt64, {rows, 1});
  for (int64_t i = 0; i < rows; ++i) y.data<int64_t>()[i] = marks.data<uint8_t>()[i];
  return split(images.filename().string(), images, x, y, test_rows);
}

}  // namespace fleet::experiments
