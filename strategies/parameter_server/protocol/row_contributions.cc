#include "strategies/parameter_server/protocol/row_contributions.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/errors.h"
#include "strategies/parameter_server/protocol/wire.h"

namespace fleet::strategies {
namespace {

uint64_t bytes_of(const SliceGeometry& geometry, uint64_t rows) {
  return rows * (sizeof(int64_t) + geometry.row_bytes);
}

}  // namespace

RowContribution::RowContribution(const SliceGeometry& geometry, uint64_t rows)
    : height_(geometry.height),
      rows_(rows),
      arrived_(std::max(1U, pieces_of(bytes_of(geometry, rows)))),
      missing_(arrived_.size()),
      memory_(bytes_of(geometry, rows)) {}

Status RowContribution::check(const SliceGeometry& geometry, uint64_t rows, uint32_t piece,
                              uint64_t bytes) {
  if (rows > static_cast<uint64_t>(geometry.height)) {
    return bad_frame("a gradient has more rows than its slice",
                     str_cat(geometry.height, " at most"), str_cat(rows));
  }
  const uint64_t whole = bytes_of(geometry, rows);
  const uint32_t pieces = std::max(1U, pieces_of(whole));
  if (piece < pieces && bytes == piece_bytes(whole, piece)) return {};
  return bad_frame("a piece of a gradient's rows has the wrong size",
                   str_cat("a piece of ", whole, " bytes"),
                   str_cat("piece ", piece, " with ", bytes, " bytes"));
}

Status RowContribution::take(uint32_t piece, transport::ConstBytes payload) {
  if (!payload.empty()) {
    std::memcpy(memory_.data() + piece_offset(piece), payload.data(), payload.size());
  }
  if (missing_ == 1) {
    Status status = check_numbers();
    if (!status.ok()) return status;
  }
  arrived_[piece] = true;
  --missing_;
  return {};
}

Status RowContribution::check_numbers() const {
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

}  // namespace fleet::strategies
