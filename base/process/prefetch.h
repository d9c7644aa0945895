// Memory that is used soon.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fleet {

// Starts to bring the cache line of an address, which may be any, close to the core.
//
// Not __builtin_prefetch: GCC 12 takes a function that does nothing else for one without effect,
// and leaves its calls out.
inline void prefetch(const void* address) {
  asm volatile("prefetcht0 %0" : : "m"(*static_cast<const char*>(address)));
}

// The same for all lines of these bytes.
inline void prefetch(const void* begin, size_t bytes) {
  constexpr size_t kLine = 64;
  const size_t before = reinterpret_cast<uintptr_t>(begin) % kLine;
  for (size_t at = 0; at < bytes; at += at == 0 ? kLine - before : kLine) {
    prefetch(static_cast<const char*>(begin) + at);
  }
}

}  // namespace fleet
