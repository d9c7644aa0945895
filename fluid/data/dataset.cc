#include "fluid/data/dataset.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/core/lod.h"

namespace fleet::fluid::data {
namespace {

int64_t row_count(const Tensor& column) {
  if (!column.lod().empty()) return static_cast<int64_t>(column.lod()[0].size()) - 1;
  return column.shape().rank() == 0 ? 1 : column.shape()[0];
}

size_t row_bytes(const Tensor& column) {
  const int64_t outer = column.shape()[0];
  return outer == 0 ? 0 : column.bytes() / static_cast<size_t>(outer);
}

Tensor gather_rows(const Tensor& column, std::span<const int64_t> rows) {
  Shape shape = column.shape();
  shape.set(0, static_cast<int64_t>(rows.size()));
  Tensor out(column.dtype(), shape);
  const size_t bytes = row_bytes(column);
  std::byte* to = out.raw();
  for (const int64_t row : rows) {
    std::memcpy(to, column.raw() + static_cast<size_t>(row) * bytes, bytes);
    to += bytes;
  }
  return out;
}

Tensor gather_sequences(const Tensor& column, std::span<const int64_t> rows) {
  const std::vector<int64_t>& offsets = column.lod()[0];
  std::vector<int64_t> lengths{0};
  for (const int64_t row : rows) {
    const auto i = static_cast<size_t>(row);
    lengths.push_back(lengths.back() + offsets[i + 1] - offsets[i]);
  }
  Shape shape = column.shape();
  shape.set(0, lengths.back());
  Tensor out(column.dtype(), shape);
  const size_t bytes = row_bytes(column);
  std::byte* to = out.raw();
  for (const int64_t row : rows) {
    const auto i = static_cast<size_t>(row);
    const size_t size = static_cast<size_t>(offsets[i + 1] - offsets[i]) * bytes;
    std::memcpy(to, column.raw() + static_cast<size_t>(offsets[i]) * bytes, size);
    to += size;
  }
  out.set_lod({std::move(lengths)});
  return out;
}

[[noreturn]] void refuse_columns(const std::string& name, std::string expected, std::string got) {
  throw_error(ErrorCode::kInvalidArgument, {.what = "the columns of a data set do not fit together",
                                            .where = str_cat("column '", name, "'"),
                                            .expected = std::move(expected),
                                            .got = std::move(got),
                                            .fix = "pass tensors with a row for each example"});
}

}  // namespace

TensorDataset::TensorDataset(Feed columns) : columns_(std::move(columns)) {
  if (columns_.empty()) refuse_columns("", "at least one column", "none");
  for (const auto& [name, column] : columns_) {
    if (!column.initialized() || column.shape().rank() == 0) {
      refuse_columns(name, "a tensor with a first dimension", "none");
    }
    if (std::string fault = fault_of_lod(column); !fault.empty()) {
      refuse_columns(name, "sequence offsets that ascend from 0 to the number of rows",
                     std::move(fault));
    }
    if (column.lod().size() > 1) {
      refuse_columns(name, "at most one level of sequences",
                     str_cat(column.lod().size(), " levels"));
    }
    if (&column == &columns_.front().second) {
      rows_ = row_count(column);
    } else if (row_count(column) != rows_) {
      refuse_columns(name, str_cat(rows_, " rows, like '", columns_.front().first, "'"),
                     str_cat(row_count(column), " rows"));
    }
  }
}

Feed TensorDataset::read(std::span<const int64_t> rows, const ReadContext& /*context*/) const {
  for (const int64_t row : rows) {
    if (row < 0 || row >= rows_) {
      throw_error(ErrorCode::kInvalidArgument, {.what = "the data set has no such row",
                                                .where = "TensorDataset::read",
                                                .expected = str_cat("0 to ", rows_ - 1),
                                                .got = std::to_string(row),
                                                .fix = "ask for rows below rows()"});
    }
  }
  Feed feed;
  feed.reserve(columns_.size());
  for (const auto& [name, column] : columns_) {
    feed.emplace_back(
        name, column.lod().empty() ? gather_rows(column, rows) : gather_sequences(column, rows));
  }
  return feed;
}

}  // namespace fleet::fluid::data
