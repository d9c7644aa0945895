#include "fluid/kernels/cpu/tile_scratch.h"

#include "fluid/kernels/kernel.h"

namespace fleet::fluid::cpu {

std::byte* tile_scratch(size_t bytes) {
  thread_local Scratch scratch;
  return scratch.get(bytes);
}

Scratch& scratch_of_thread() {
  thread_local Scratch scratch;
  return scratch;
}

}  // namespace fleet::fluid::cpu
