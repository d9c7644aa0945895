// Gradients of selected rows as they come in: each contribution has its own rows, and is put
// together from its pieces.
//
// A contribution's bytes are the numbers of its rows (int64, strictly ascending) and then their
// values, as they are on the wire; pieces count from their start. Without rows it is one empty
// piece.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/buffer.h"
#include "strategies/parameter_server/protocol/server_calls.h"
#include "transport/session/session.h"

namespace fleet::strategies {

// On the wire, and in memory.
constexpr uint64_t bytes_of_rows(const SliceGeometry& geometry, uint64_t rows) {
  return rows * (sizeof(int64_t) + geometry.row_bytes);
}
inline uint64_t memory_of_rows(const SliceGeometry& geometry, uint64_t rows) {
  const uint64_t elements = geometry.row_bytes / fluid::dtype_size(geometry.row_dtype());
  return rows * (sizeof(int64_t) + elements * fluid::dtype_size(geometry.dtype));
}

// One contribution. What came of it once is dropped when it comes again.
class RowContribution {
 public:
  RowContribution() = default;
  RowContribution(const SliceGeometry& geometry, uint64_t rows);

  // More rows than such a slice has; ok if not.
  static Status check_rows(const SliceGeometry& geometry, uint64_t rows);
  // A piece that does not belong to a contribution of `rows` rows to such a slice; ok if it does.
  static Status check(const SliceGeometry& geometry, uint64_t rows, uint32_t piece, uint64_t bytes);

  uint64_t rows() const { return rows_; }
  bool has(uint32_t piece) const { return arrived_[piece]; }
  // kBadFrame when the last piece shows that the numbers are not strictly ascending, or leave
  // the slice.
  Status take(uint32_t piece, transport::ConstBytes payload);
  // The same; keeps the memory of a piece that is the whole contribution.
  Status take(uint32_t piece, Buffer payload);
  bool complete() const { return missing_ == 0; }
  std::span<const int64_t> numbers() const {
    return {reinterpret_cast<const int64_t*>(memory_.data()), static_cast<size_t>(rows_)};
  }
  // In the type that sums have: 16-bit values become float32 when the last piece has come.
  const std::byte* values() const { return memory_.data() + rows_ * sizeof(int64_t); }

 private:
  Status finish(uint32_t piece);
  Status check_numbers() const;

  void widen();

  int64_t height_ = 0;
  fluid::DType dtype_ = fluid::DType::kFloat32;
  fluid::DType row_dtype_ = fluid::DType::kFloat32;
  uint64_t rows_ = 0;
  std::vector<bool> arrived_;
  size_t missing_ = 0;
  uint64_t bytes_ = 0;
  Buffer memory_;  // from the first piece on
};

// Memory for pieces on their way in, one for each connection: a connection that was replaced may
// still be writing.
class PieceMemory {
 public:
  transport::PayloadTarget lend(uint64_t session, uint64_t bytes);
  // Whether the payload is what was lent last.
  bool holds(uint64_t session, transport::ConstBytes payload) const;
  // What was lent last, if the payload is that; empty else.
  Buffer take(uint64_t session, transport::ConstBytes payload);
  void drop_session(uint64_t session) { buffers_.erase(session); }
  uint64_t bytes() const;

 private:
  std::unordered_map<uint64_t, Buffer> buffers_;
};

}  // namespace fleet::strategies
