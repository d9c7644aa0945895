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

}  // namespace fleet::benchmarks
