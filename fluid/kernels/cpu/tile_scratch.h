// Memory that tiles of kernels (KernelContext::parallel_tiles) need while they are computed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fleet::fluid {
class Scratch;
}

namespace fleet::fluid::cpu {

// The calling thread's: 64-byte aligned, uninitialised, valid until its next call.
std::byte* tile_scratch(size_t bytes);

template <class T>
T* tile_scratch(int64_t elements) {
  return reinterpret_cast<T*>(tile_scratch(static_cast<size_t>(elements) * sizeof(T)));
}

// Further memory of the calling thread, for kernels that tiles call.
Scratch& scratch_of_thread();

}  // namespace fleet::fluid::cpu
