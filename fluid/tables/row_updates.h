// How an optimizer's arithmetic reaches rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fleet::fluid::tables {

// Some rows, gathered: a tensor of [rows, width] for the values, for each state and for the
// gradients, small enough for the first-level cache.
struct RowBlock {
  std::span<const uint64_t> keys;
  float* values = nullptr;
  std::span<float* const> states;  // in the order of TableOptions::states
  const float* gradients = nullptr;
};

// For kernels that work on contiguous tensors.
class BlockUpdate {
 public:
  virtual ~BlockUpdate() = default;
  // Changes values and states. Several threads call it at once, for other rows; how rows are
  // divided into blocks must not matter.
  virtual void update(const RowBlock& block) const = 0;
};

// One row where it is in the table: its values, then its states one behind the other.
struct RowInPlace {
  float* row = nullptr;
  const float* gradient = nullptr;
};

// For updates of a row where it is, without copies.
class InPlaceUpdate {
 public:
  virtual ~InPlaceUpdate() = default;
  // As BlockUpdate::update.
  virtual void update(std::span<const RowInPlace> rows) const = 0;
};

// Sends single rows to an update. One thread.
class RowSink {
 public:
  virtual ~RowSink() = default;
  virtual void add(uint64_t key, float* row, const float* gradient) = 0;
  // Rows that were added are updated; their memory is read and written until then.
  virtual void flush() = 0;
};

class BlockSink : public RowSink {
 public:
  BlockSink(const BlockUpdate& update, size_t width, std::span<const size_t> state_widths);
  void add(uint64_t key, float* row, const float* gradient) override;
  void flush() override;

 private:
  const float* gathered_gradients();

  const BlockUpdate& update_;
  const size_t width_;
  const std::span<const size_t> state_widths_;
  size_t most_ = 0;  // rows of a block
  std::vector<uint64_t> keys_;
  std::vector<float*> rows_;
  std::vector<const float*> row_gradients_;
  std::vector<float> memory_;  // values, states, gradients
  float* values_ = nullptr;
  std::vector<float*> states_;
  float* gradients_ = nullptr;
};

class InPlaceSink : public RowSink {
 public:
  explicit InPlaceSink(const InPlaceUpdate& update) : update_(update) {}
  void add(uint64_t key, float* row, const float* gradient) override;
  void flush() override;

 private:
  const InPlaceUpdate& update_;
  std::vector<RowInPlace> rows_;
};

}  // namespace fleet::fluid::tables
