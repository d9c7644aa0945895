#include "strategies/parameter_server/protocol/row_contributions.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/errors.h"
#include "strategies/parameter_server/protocol/row_payload.h"
#include "strategies/parameter_server/protocol/wire.h"

namespace fleet::strategies {

RowContribution::RowContribution(const SliceGeometry& geometry, uint64_t rows)
    : height_(geometry.height),
      dtype_(geometry.dtype),
      row_dtype_(geometry.row_dtype()),
      rows_(rows),
      arrived_(std::max(1U, pieces_of(bytes_of_rows(geometry, rows)))),
      missing_(arrived_.size()),
      bytes_(bytes_of_rows(geometry, rows)) {}

Status RowContribution::check_rows(const SliceGeometry& geometry, uint64_t rows) {
  constexpr uint64_t kMostIds = uint64_t{1} << 28;  // of one gradient of a growing table
  const bool growing = geometry.height == fluid::SelectedRows::kNoHeight;
  const uint64_t most = growing ? kMostIds : static_cast<uint64_t>(geometry.height);
  if (rows <= most) return {};
  return bad_frame("a gradient has more rows than its slice", str_cat(most, " at most"),
                   str_cat(rows));
}

Status RowContribution::check(const SliceGeometry& geometry, uint64_t rows, uint32_t piece,
                              uint64_t bytes) {
  if (Status status = check_rows(geometry, rows); !status.ok()) return status;
  const uint64_t whole = bytes_of_rows(geometry, rows);
  const uint32_t pieces = std::max(1U, pieces_of(whole));
  if (piece < pieces && bytes == piece_bytes(whole, piece)) return {};
  return bad_frame("a piece of a gradient's rows has the wrong size",
                   str_cat("a piece of ", whole, " bytes"),
                   str_cat("piece ", piece, " with ", bytes, " bytes"));
}

Status RowContribution::take(uint32_t piece, transport::ConstBytes payload) {
  if (!memory_) memory_ = Buffer(bytes_);
  if (!payload.empty()) {
    std::memcpy(memory_.data() + piece_offset(piece), payload.data(), payload.size());
  }
  return finish(piece);
}

Status RowContribution::take(uint32_t piece, Buffer payload) {
  if (arrived_.size() > 1) return take(piece, {payload.data(), payload.size()});
  memory_ = std::move(payload);
  return finish(piece);
}

Status RowContribution::finish(uint32_t piece) {
  if (missing_ == 1) {
    Status status = check_numbers();
    if (!status.ok()) return status;
    widen();
  }
  arrived_[piece] = true;
  --missing_;
  return {};
}

void RowContribution::widen() {
  if (row_dtype_ == dtype_ || rows_ == 0) return;
  const uint64_t numbers = rows_ * sizeof(int64_t);
  const size_t count = (bytes_ - numbers) / fluid::dtype_size(row_dtype_);
  Buffer wide(numbers + count * sizeof(float));
  std::memcpy(wide.data(), memory_.data(), numbers);
  values_of_sent(memory_.data() + numbers, row_dtype_, count,
                 reinterpret_cast<float*>(wide.data() + numbers));
  memory_ = std::move(wide);
}

Status RowContribution::check_numbers() const {
  if (height_ == fluid::SelectedRows::kNoHeight) {
    const auto all = numbers();
    const auto wrong = std::adjacent_find(all.begin(), all.end(), std::greater_equal<>());
    if (wrong == all.end()) return {};
    return bad_frame("the ids of a gradient are not strictly ascending",
                     str_cat("an id above ", *wrong), str_cat(*(wrong + 1)));
  }
  int64_t least = 0;
  for (const int64_t number : numbers()) {
    if (number < least || number >= height_) {
      return bad_frame("the rows of a gradient are not strictly ascending inside their slice",
                       str_cat("a row from ", least, " to ", height_ - 1), str_cat(number));
    }
    least = number + 1;
  }
  return {};
}

transport::PayloadTarget PieceMemory::lend(uint64_t session, uint64_t bytes) {
  Buffer& buffer = buffers_[session];
  if (buffer.size() != bytes || !buffer.unique()) buffer = Buffer(bytes);
  return transport::PayloadTarget::into({buffer.data(), bytes}, buffer.owner());
}

bool PieceMemory::holds(uint64_t session, transport::ConstBytes payload) const {
  const auto found = buffers_.find(session);
  return found != buffers_.end() && !payload.empty() && payload.data() == found->second.data() &&
         payload.size() == found->second.size();
}

Buffer PieceMemory::take(uint64_t session, transport::ConstBytes payload) {
  if (!holds(session, payload)) return {};
  Buffer memory = std::move(buffers_.at(session));
  buffers_.erase(session);
  return memory;
}

uint64_t PieceMemory::bytes() const {
  uint64_t bytes = 0;
  for (const auto& [session, buffer] : buffers_) bytes += buffer.size();
  return bytes;
}

}  // namespace fleet::strategies
