// Sizes of nets that nets.cc and torch/torch_steps.cc share.
#pragma once

#include <cstdint>

namespace fleet::benchmarks {

// Of lstm_ragged: batches that take turns, and the length of a row's sequence.
inline constexpr int64_t kRaggedBatches = 16;
constexpr int64_t ragged_length(int64_t batch, int64_t row) {
  return 8 + (row * 7 + batch * 13) % 57;
}

// Of lm_vocab30k: words that there are, and words of a sequence.
inline constexpr int64_t kVocabulary = 30000;
inline constexpr int64_t kSentence = 20;

// Of ctr_dnn_*: a sample has dense features and one id in each of 26 slots; a slot has ids of its
// own, a million in all.
inline constexpr int64_t kCtrDense = 13;
inline constexpr int64_t kCtrSlots = 26;
inline constexpr int64_t kCtrSlotIds = 38462;
inline constexpr int64_t kCtrWidth = 10;  // values of an id
inline constexpr int64_t kCtrBatches = 64;

// Of embedding_bag_*: ids of the table, and batches that take turns; a bag's length.
inline constexpr int64_t kBagIds = 1'000'000;
inline constexpr int64_t kBagBatches = 32;
constexpr int64_t bag_length(int64_t batch, int64_t row) {
  return 1 + (row * 7 + batch * 13) % 39;
}

// The i-th draw of a batch, below `ids`: some are frequent, most are rare, as ids of ranking models
// are. peers/jax_steps.py has the same.
constexpr int64_t skewed_id(int64_t batch, int64_t i, int64_t ids) {
  uint64_t bits = (static_cast<uint64_t>(batch) << 40 | static_cast<uint64_t>(i)) + 1;
  for (const int shift : {32, 29, 32}) {
    bits = (bits ^ bits >> shift) * 0x9e3779b97f4a7c15ULL;
  }
  const double drawn = static_cast<double>(bits >> 40) * 0x1p-24;
  const auto rank = static_cast<int64_t>(drawn * drawn * drawn * static_cast<double>(ids));
  // Frequent ids lie anywhere. A prime that divides no number of ids here.
  return rank * 7919 % ids;
}
// In the slot.
constexpr int64_t ctr_id(int64_t batch, int64_t row, int64_t slot) {
  return skewed_id(batch, row * kCtrSlots + slot, kCtrSlotIds);
}

}  // namespace fleet::benchmarks
