// Rows of a table that ids name, read while those of the next ids are on their way to the caches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/process/prefetch.h"
#include "fluid/kernels/nn/lookup.h"

namespace fleet::fluid::cpu {

template <class T>
class LookedUpRows {
 public:
  LookedUpRows(const Lookup& lookup, const KernelContext& c)
      : lookup_(lookup),
        table_(c.in<T>(lookup.w)),
        ids_(c.in<int64_t>(lookup.ids)),
        count_(lookup.count),
        height_(lookup.height),
        width_(lookup.width),
        fetched_(static_cast<size_t>(lookup.width) * sizeof(T)),
        padding_(lookup.padding) {}

  // The same rows from a column on, none of them fetched again.
  LookedUpRows from(int64_t column) const {
    LookedUpRows rows = *this;
    rows.table_ += column;
    if (column > 0) rows.fetched_ = 0;
    return rows;
  }

  // The row of id i of all; null for padding. Throws UsageError for an id that is no row.
  const T* at(int64_t i) const {
    if (i + kAhead < count_) fetch(ids_[i + kAhead]);
    const int64_t id = ids_[i];
    if (id == padding_ && id >= 0) return nullptr;
    if (!has(id)) lookup_.check(id);
    return table_ + id * width_;
  }

 private:
  static constexpr int64_t kAhead = 16;

  bool has(int64_t id) const { return static_cast<uint64_t>(id) < static_cast<uint64_t>(height_); }
  void fetch(int64_t id) const {
    if (has(id)) prefetch(table_ + id * width_, fetched_);
  }

  const Lookup& lookup_;
  const T* table_;
  const int64_t* const ids_;
  const int64_t count_;
  const int64_t height_;
  const int64_t width_;
  size_t fetched_;  // bytes of a row
  const int64_t padding_;
};

}  // namespace fleet::fluid::cpu
