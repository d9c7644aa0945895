// What kernels of sequence ops share on every device: where each sequence begins, which is in host
// memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fluid/kernels/kernel.h"

namespace fleet::fluid {

using SequenceOffsets = std::vector<int64_t>;

// An input whose rows belong to sequences. The structure is looked at in every run: it is no part
// of what a kernel is prepared for.
struct SequenceInput {
  SequenceInput() = default;
  SequenceInput(const PrepareContext& context, std::string_view slot, size_t i = 0);

  const Tensor& tensor(const KernelContext& c) const { return c.input(position); }
  // Offsets of the last level; throws ProgramError when there is none, or it does not cover the
  // rows.
  const SequenceOffsets& offsets(const KernelContext& c) const;
  // Offsets of a level; -1 is the last.
  const SequenceOffsets& offsets(const KernelContext& c, int level) const;

  int position = -1;
  int64_t width = 0;  // elements of a row
  std::string where;
};

// The structure without its last level.
LoD outer_levels(const LoD& lod);

inline int64_t sequence_count(const SequenceOffsets& offsets) {
  return static_cast<int64_t>(offsets.size()) - 1;
}

// The dense tensor behind an output of own_output, made with `rows` rows like `like`.
Tensor& make_rows_like(const KernelContext& c, int out, const Tensor& like, int64_t rows);

// Throws ProgramError: inputs have different numbers of sequences.
[[noreturn]] void throw_sequence_count(const std::string& where, int64_t expected, int64_t got);

// Of op sequence_concat: inputs X, whose rows are alike.
class SequenceParts {
 public:
  explicit SequenceParts(const PrepareContext& context);

  const std::vector<SequenceInput>& inputs() const { return inputs_; }
  int64_t width() const { return inputs_.front().width; }
  // f(input, first row, rows) for sequence 0 of every input, sequence 1 of every input, …
  template <class F>
  void each(const KernelContext& c, F f) const {
    const int64_t count = sequence_count(inputs_.front().offsets(c));
    for (const SequenceInput& input : inputs_) {
      const int64_t own = sequence_count(input.offsets(c));
      if (own != count) throw_sequence_count(input.where, count, own);
    }
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      for (size_t k = 0; k < inputs_.size(); ++k) {
        const SequenceOffsets& offsets = inputs_[k].offsets(c);
        f(k, offsets[i], offsets[i + 1] - offsets[i]);
      }
    }
  }
  // The sequences of Out.
  SequenceOffsets joined(const KernelContext& c) const;

 private:
  std::vector<SequenceInput> inputs_;
};

// Positions of outputs X@GRAD of sequence_concat_grad, -1 where nobody wants one. Throws
// ProgramError unless Out@GRAD has as many elements.
std::vector<int> concat_gradients(PrepareContext& context, DType dtype);

// Of op sequence_expand: which sequences of X (rows, without structure) come how often.
class SequenceRepeats {
 public:
  explicit SequenceRepeats(const PrepareContext& context);

  const SequenceInput& x() const { return x_; }
  // f(first row of x, rows) for every repetition, in order.
  template <class F>
  void each(const KernelContext& c, F f) const {
    const SequenceOffsets sequences = x_offsets(c);
    const SequenceOffsets& repeats = y_.offsets(c, ref_level_);
    if (sequences.size() != repeats.size()) {
      throw_sequence_count(x_.where, sequence_count(repeats), sequence_count(sequences));
    }
    for (size_t i = 0; i + 1 < sequences.size(); ++i) {
      for (int64_t k = repeats[i]; k < repeats[i + 1]; ++k) {
        f(sequences[i], sequences[i + 1] - sequences[i]);
      }
    }
  }
  // The sequences of Out.
  LoD lod(const KernelContext& c) const;

 private:
  SequenceOffsets x_offsets(const KernelContext& c) const;

  SequenceInput x_;
  SequenceInput y_;
  int ref_level_ = -1;
};

}  // namespace fleet::fluid
