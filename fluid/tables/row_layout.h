// The bytes of a row: metadata, values, states, one behind the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "fluid/tables/table_options.h"

namespace fleet::fluid::tables {

class RowLayout {
 public:
  RowLayout() = default;
  RowLayout(size_t width, const std::vector<RowState>& states, RowFields fields)
      : fields_(fields), width_(width) {
    size_t at = 0;
    if (fields.seen) seen_ = take(at);
    if (fields.count) count_ = take(at);
    if (fields.score) show_ = take(at);
    if (fields.score) take(at);
    values_ = at;
    floats_ = width;
    for (const RowState& state : states) floats_ += state.width;
    bytes_ = at + floats_ * sizeof(float);
  }

  size_t bytes() const { return bytes_; }
  size_t width() const { return width_; }
  // Of values and states.
  size_t floats() const { return floats_; }
  // Bytes before the values, and with them.
  size_t values_at() const { return values_; }
  size_t bytes_to_values_end() const { return values_ + width_ * sizeof(float); }
  RowFields fields() const { return fields_; }

  // Values, and all states behind them.
  float* values(std::byte* row) const { return reinterpret_cast<float*>(row + values_); }
  const float* values(const std::byte* row) const {
    return reinterpret_cast<const float*>(row + values_);
  }
  // 0 where rows have no such field.
  uint32_t seen(const std::byte* row) const { return get<uint32_t>(row, seen_); }
  uint32_t count(const std::byte* row) const { return get<uint32_t>(row, count_); }
  float show(const std::byte* row) const { return get<float>(row, show_); }
  float click(const std::byte* row) const {
    return get<float>(row, show_ == kNone ? kNone : show_ + sizeof(float));
  }
  // Nothing where rows have no such field.
  void set_seen(std::byte* row, uint32_t seen) const { set(row, seen_, seen); }
  void set_count(std::byte* row, uint32_t count) const { set(row, count_, count); }
  void set_score(std::byte* row, float show, float click) const {
    set(row, show_, show);
    set(row, show_ == kNone ? kNone : show_ + sizeof(float), click);
  }

 private:
  static constexpr size_t kNone = ~size_t{0};

  static size_t take(size_t& at) {
    const size_t begin = at;
    at += 4;
    return begin;
  }
  template <class T>
  static T get(const std::byte* row, size_t at) {
    T value{};
    if (at != kNone) std::memcpy(&value, row + at, sizeof value);
    return value;
  }
  template <class T>
  static void set(std::byte* row, size_t at, T value) {
    if (at != kNone) std::memcpy(row + at, &value, sizeof value);
  }

  RowFields fields_;
  size_t width_ = 0;
  size_t floats_ = 0;
  size_t seen_ = kNone;
  size_t count_ = kNone;
  size_t show_ = kNone;
  size_t values_ = 0;
  size_t bytes_ = 0;
};

}  // namespace fleet::fluid::tables
