// The CPU's kernels of sequence ops, family by family.
#pragma once

#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/sequence/sequences.h"

namespace fleet::fluid::cpu {

using Offsets = SequenceOffsets;

void register_sequence_conv(KernelTable& table);
void register_sequence_joining(KernelTable& table);
void register_sequence_padding(KernelTable& table);
void register_sequence_pool(KernelTable& table);
void register_gru(KernelTable& table);
void register_lstm(KernelTable& table);

}  // namespace fleet::fluid::cpu
