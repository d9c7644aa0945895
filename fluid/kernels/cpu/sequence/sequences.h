// What kernels of sequence ops share: where each sequence begins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fluid/kernels/cpu/register.h"

namespace fleet::fluid::cpu {

using Offsets = std::vector<int64_t>;

// An input whose rows belong to sequences. The structure is looked at in every run: it is no part
// of what a kernel is prepared for.
struct SequenceInput {
  SequenceInput() = default;
  SequenceInput(const PrepareContext& context, std::string_view slot, size_t i = 0);

  const Tensor& tensor(const KernelContext& c) const { return c.input(position); }
  // Offsets of the last level; throws ProgramError when there is none, or it does not cover the
  // rows.
  const Offsets& offsets(const KernelContext& c) const;
  // Offsets of a level; -1 is the last.
  const Offsets& offsets(const KernelContext& c, int level) const;

  int position = -1;
  int64_t width = 0;  // elements of a row
  std::string where;
};

// The structure without its last level.
LoD outer_levels(const LoD& lod);

inline int64_t sequence_count(const Offsets& offsets) {
  return static_cast<int64_t>(offsets.size()) - 1;
}

// The dense tensor behind an output of own_output, made with `rows` rows like `like`.
Tensor& make_rows_like(const KernelContext& c, int out, const Tensor& like, int64_t rows);

void register_sequence_conv(KernelTable& table);
void register_sequence_joining(KernelTable& table);
void register_sequence_padding(KernelTable& table);
void register_sequence_pool(KernelTable& table);
void register_gru(KernelTable& table);
void register_lstm(KernelTable& table);

}  // namespace fleet::fluid::cpu
