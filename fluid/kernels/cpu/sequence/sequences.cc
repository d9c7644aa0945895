#include "fluid/kernels/cpu/sequence/sequences.h"

namespace fleet::fluid::cpu {

void register_sequence(KernelTable& table) {
  register_sequence_conv(table);
  register_sequence_joining(table);
  register_sequence_padding(table);
  register_sequence_pool(table);
  register_gru(table);
  register_lstm(table);
}

}  // namespace fleet::fluid::cpu
