// The buckets of a table's rows.
#pragma once

#include <cstdint>

#include "base/hash.h"

namespace fleet::fluid::tables {

inline constexpr uint32_t kBuckets = 4096;

// The same in every process, for every table: resizing a cluster moves whole buckets.
inline uint32_t bucket_of(uint64_t key) {
  return static_cast<uint32_t>(mix64(key) >> 52);
}

}  // namespace fleet::fluid::tables
