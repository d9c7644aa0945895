// Rows of a table that ids name, read while those of the next ids are on their way to the caches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fluid/kernels/nn/lookup.h"

namespace fleet::fluid::cpu {

template <class T>
class LookedUpRows {
 public:
  LookedUpRows(const Lookup& lookup, const KernelContext& c)
      : lookup_(lookup), table_(c.in<T>(lookup.w)), ids_(c.in<int64_t>(lookup.ids)) {}

  // The row of id i of all; null for padding. Throws UsageError for an id that is no row.
  const T* at(int64_t i) const {
    if (i + kAhead < lookup_.count) prefetch(ids_[i + kAhead]);
    const int64_t id = ids_[i];
    if (lookup_.is_padding(id)) return nullptr;
    lookup_.check(id);
    return table_ + id * lookup_.width;
  }

 private:
  static constexpr int64_t kAhead = 16;
  static constexpr size_t kLine = 64;

  void prefetch(int64_t id) const {
    if (id < 0 || id >= lookup_.height) return;
    const auto* const row = reinterpret_cast<const char*>(table_ + id * lookup_.width);
    const size_t bytes = static_cast<size_t>(lookup_.width) * sizeof(T);
    for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(row + at);
    __builtin_prefetch(row + bytes - 1);
  }

  const Lookup& lookup_;
  const T* const table_;
  const int64_t* const ids_;
};

}  // namespace fleet::fluid::cpu
