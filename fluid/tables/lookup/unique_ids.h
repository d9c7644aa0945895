// Which of many ids are equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"

namespace fleet::fluid::tables {

// Numbers ids by their first occurrence. One thread at a time; reusing one keeps its memory.
class UniqueIds {
 public:
  // Forgets all, and makes room for so many ids.
  void begin(size_t most);
  // The position of the id in ids().
  uint32_t add(uint64_t id) {
    for (size_t at = mix64(id) & mask_;; at = (at + 1) & mask_) {
      const uint32_t there = slots_[at];
      if (there == kFree) {
        slots_[at] = static_cast<uint32_t>(ids_.size());
        ids_.push_back(id);
        return slots_[at];
      }
      if (ids_[there] == id) return there;
    }
  }

  // Each id once, in the order in which they came.
  std::span<const uint64_t> ids() const { return ids_; }

 private:
  static constexpr uint32_t kFree = 0xffffffff;

  std::vector<uint64_t> ids_;
  std::vector<uint32_t> slots_;  // positions in ids_, a power of two of them
  size_t mask_ = 0;
};

}  // namespace fleet::fluid::tables
