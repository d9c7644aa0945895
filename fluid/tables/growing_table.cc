#include "fluid/tables/growing_table.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/tables/float_copy_impl.h"
#include "fluid/tables/store/row_store.h"
#include "fluid/tables/waiting_ids_impl.h"

namespace fleet::fluid::tables {
namespace {

// What a key costs beside its floats, in elements of a simple loop.
constexpr size_t kKeyCost = 64;
constexpr size_t kInsertsAhead = 12;

template <class T>
T get(const std::byte* row, size_t at) {
  T value{};
  std::memcpy(&value, row + at, sizeof value);
  return value;
}
template <class T>
void set(std::byte* row, size_t at, T value) {
  std::memcpy(row + at, &value, sizeof value);
}

}  // namespace

TableStatistics& TableStatistics::operator+=(const TableStatistics& other) {
  rows += other.rows;
  bytes += other.bytes;
  reserved_bytes += other.reserved_bytes;
  counted_ids += other.counted_ids;
  hits += other.hits;
  misses += other.misses;
  admitted += other.admitted;
  refused += other.refused;
  dropped += other.dropped;
  evicted += other.evicted;
  return *this;
}

// Rows that a call made, and the places of their ids in the call.
struct GrowingTable::Made {
  size_t at = 0;
  RowPlace place;
};

GrowingTable::GrowingTable(TableOptions options)
    : options_((check_options(options), std::move(options))),
      layout_(options_.width, options_.states, options_.fields),
      draws_(options_),
      rows_(std::make_unique<RowStore>(layout_.bytes(), options_.deltas)),
      waiting_(std::make_unique<RowStore>(kWaitingBytes)) {
  for (const RowState& state : options_.states) state_widths_.push_back(state.width);
}

GrowingTable::~GrowingTable() = default;

uint64_t GrowingTable::size() const {
  return rows_->size();
}

bool GrowingTable::contains(uint64_t key) const {
  return rows_->find(key).found();
}

bool GrowingTable::is_being_saved() const {
  return rows_->has_snapshots();
}

TableStatistics GrowingTable::statistics() const {
  TableStatistics now = counts_;
  now.rows = rows_->size();
  now.counted_ids = waiting_->size() - settled_;
  now.bytes = rows_->bytes() + waiting_->bytes() + gone_.capacity() * sizeof(uint64_t);
  now.reserved_bytes =
      rows_->reserved_bytes() + waiting_->reserved_bytes() + gone_.capacity() * sizeof(uint64_t);
  return now;
}

int64_t GrowingTable::tile_keys(size_t floats) const {
  return Tiles::items(static_cast<int64_t>(kKeyCost + floats));
}

void GrowingTable::saw(RowPlace place, std::byte* row, bool looked_up) {
  const RowFields fields = layout_.fields();
  if (!fields.seen && !(fields.count && looked_up)) return;
  rows_->change(place);
  layout_.set_seen(row, clock_);
  const uint32_t count = layout_.count(row);
  if (looked_up && count != std::numeric_limits<uint32_t>::max()) {
    layout_.set_count(row, count + 1);
  }
}

void GrowingTable::rows(std::span<const uint64_t> keys, float* values, Tiles tiles) {
  const size_t width = layout_.width();
  const int64_t size = tile_keys(width);
  const auto n = static_cast<int64_t>(keys.size());
  Lacking lacking(static_cast<size_t>((n + size - 1) / size));
  tiles.ranges(n, size, [&](int64_t begin, int64_t end) {
    const auto first = static_cast<size_t>(begin);
    std::vector<size_t>& mine = lacking[static_cast<size_t>(begin / size)];
    rows_->visit(keys.subspan(first, static_cast<size_t>(end - begin)),
                 layout_.bytes_to_values_end(), [&](size_t i, std::byte* row, RowPlace place) {
                   if (row == nullptr) {
                     mine.push_back(first + i);
                     return;
                   }
                   saw(place, row, true);
                   copy_floats(layout_.values(row), values + (first + i) * width, width);
                 });
  });
  make_rows(keys, lacking, values, tiles);
  limit_memory();
}

void GrowingTable::make_rows(std::span<const uint64_t> keys, const Lacking& lacking, float* values,
                             Tiles tiles) {
  const size_t width = layout_.width();
  std::vector<size_t> at;
  for (const auto& part : lacking) at.insert(at.end(), part.begin(), part.end());
  counts_.hits += keys.size() - at.size();
  counts_.misses += at.size();
  std::vector<Made> made;
  made.reserve(at.size());
  std::vector<std::array<float, 2>> scores;
  for (size_t i = 0; i < at.size(); ++i) {
    if (i + kInsertsAhead < at.size()) rows_->prefetch_insert(keys[at[i + kInsertsAhead]]);
    std::array<float, 2> score{};
    if (!admit(keys[at[i]], score[0], score[1])) {
      ++counts_.refused;
      continue;
    }
    bool is_new = false;
    made.push_back({at[i], rows_->insert(keys[at[i]], is_new)});
    scores.push_back(score);
    counts_.admitted += is_new ? 1 : 0;
  }
  // Values of all of them, with rows or without.
  const auto cost = static_cast<int64_t>(kKeyCost + 8 * width);
  tiles.split(static_cast<int64_t>(at.size()), cost, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      draws_.fill(keys[at[i]], {values + at[i] * width, width});
    }
  });
  for (size_t i = 0; i < made.size(); ++i) {
    std::byte* const row = rows_->row(made[i].place);
    copy_floats(values + made[i].at * width, layout_.values(row), width);
    start_row(made[i].place);
    layout_.set_count(row, layout_.count(row) + 1);
    layout_.set_score(row, scores[i][0], scores[i][1]);
  }
  forget_waiting();
}

void GrowingTable::start_row(RowPlace place) {
  std::byte* const row = rows_->row(place);
  layout_.set_seen(row, clock_);
  float* state = layout_.values(row) + layout_.width();
  for (const RowState& one : options_.states) {
    std::fill_n(state, one.width, one.initial);
    state += one.width;
  }
}

bool GrowingTable::admit(uint64_t key, float& show, float& click) {
  switch (options_.admission.kind) {
    case Admission::Kind::kAlways:
      return true;
    case Admission::Kind::kProbability:
      return draws_.admits(key);
    case Admission::Kind::kCount:
      return admit_by_count(key);
    case Admission::Kind::kScore:
      return admit_by_score(key, show, click);
  }
  return false;
}

bool GrowingTable::admit_by_count(uint64_t key) {
  if (options_.admission.count <= 1) return true;
  bool made = false;
  const RowPlace place = waiting_->insert(key, made);
  waiting_->change(place);
  std::byte* const id = waiting_->row(place);
  uint32_t count = get<uint32_t>(id, 0);
  if (count == kSettled) {
    count = 0;
    --settled_;
  }
  ++count;
  const bool admitted = count >= options_.admission.count;
  settled_ += admitted ? 1 : 0;
  set(id, 0, admitted ? kSettled : count);
  set(id, 4, clock_);
  return admitted;
}

bool GrowingTable::admit_by_score(uint64_t key, float& show, float& click) {
  const RowPlace place = waiting_->find(key);
  std::byte* const id = place.found() ? waiting_->row(place) : nullptr;
  const bool waits = id != nullptr && get<uint32_t>(id, 0) != kSettled;
  show = waits ? get<float>(id, 0) : 0;
  click = waits ? get<float>(id, 4) : 0;
  const ScoreRule& rule = options_.score;
  if (rule.show_coefficient * show + rule.click_coefficient * click <
      options_.admission.threshold) {
    return false;
  }
  if (waits) settle(key);
  return true;
}

// The id waits no longer for a row.
void GrowingTable::settle(uint64_t key) {
  const RowPlace place = waiting_->find(key);
  if (!place.found()) return;
  std::byte* const id = waiting_->row(place);
  if (get<uint32_t>(id, 0) == kSettled) return;
  waiting_->change(place);
  set(id, 0, kSettled);
  ++settled_;
}

void GrowingTable::add_waiting(uint64_t key, float show, float click) {
  bool made = false;
  const RowPlace place = waiting_->insert(key, made);
  waiting_->change(place);
  std::byte* const id = waiting_->row(place);
  const bool settled = get<uint32_t>(id, 0) == kSettled;
  settled_ -= settled ? 1 : 0;
  set(id, 0, (settled ? 0 : get<float>(id, 0)) + show);
  set(id, 4, (settled ? 0 : get<float>(id, 4)) + click);
}

void GrowingTable::add_shows(std::span<const uint64_t> keys, std::span<const float> shows,
                             std::span<const float> clicks) {
  if (shows.size() != keys.size() || clicks.size() != keys.size()) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "shows and clicks do not belong to these ids",
                 .where = str_cat("growing table '", options_.name, "', add_shows"),
                 .expected = str_cat(keys.size(), " shows and clicks"),
                 .got = str_cat(shows.size(), " and ", clicks.size()),
                 .fix = "give one of each for every id"});
  }
  const bool waits = options_.admission.kind == Admission::Kind::kScore;
  rows_->visit(keys, std::max<size_t>(1, layout_.values_at()),
               [&](size_t i, std::byte* row, RowPlace place) {
                 if (row != nullptr && layout_.fields().score) {
                   rows_->change(place);
                   layout_.set_score(row, layout_.show(row) + shows[i],
                                     layout_.click(row) + clicks[i]);
                 } else if (row == nullptr && waits) {
                   add_waiting(keys[i], shows[i], clicks[i]);
                 }
               });
  forget_waiting();
  limit_memory();
}

void GrowingTable::find(std::span<const uint64_t> keys, float* values, Missing missing,
                        Tiles tiles) const {
  const size_t width = layout_.width();
  tiles.ranges(static_cast<int64_t>(keys.size()), tile_keys(width),
               [&](int64_t begin, int64_t end) {
                 const std::span mine =
                     keys.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
                 float* to = values + static_cast<size_t>(begin) * width;
                 rows_->visit(mine, layout_.bytes_to_values_end(),
                              [&](size_t i, const std::byte* row, RowPlace) {
                                if (row != nullptr) {
                                  copy_floats(layout_.values(row), to, width);
                                } else if (missing == Missing::kZero) {
                                  std::fill_n(to, width, 0.0f);
                                } else {
                                  draws_.fill(mine[i], {to, width});
                                }
                                to += width;
                              });
               });
}

template <class Sink>
void GrowingTable::apply_all(std::span<const uint64_t> keys, const float* gradients, Tiles tiles,
                             const Sink& make_sink) {
  const size_t width = layout_.width();
  const int64_t size = tile_keys(2 * layout_.floats());
  const auto n = static_cast<int64_t>(keys.size());
  Lacking lacking(static_cast<size_t>((n + size - 1) / size));
  tiles.ranges(n, size, [&](int64_t begin, int64_t end) {
    auto sink = make_sink();
    const auto first = static_cast<size_t>(begin);
    rows_->visit(keys.subspan(first, static_cast<size_t>(end - begin)), layout_.bytes(),
                 [&](size_t i, std::byte* row, RowPlace place) {
                   const size_t at = first + i;
                   if (row == nullptr) {
                     lacking[static_cast<size_t>(begin / size)].push_back(at);
                     return;
                   }
                   rows_->change(place);
                   rows_->mark_touched(place);
                   saw(place, row, false);
                   sink.add(keys[at], layout_.values(row), gradients + at * width);
                 });
    sink.flush();
  });
  const std::vector<size_t> made = make_for_gradients(keys, lacking);
  auto sink = make_sink();
  for (const size_t at : made) {
    sink.add(keys[at], layout_.values(rows_->row(rows_->find(keys[at]))), gradients + at * width);
  }
  sink.flush();
  limit_memory();
}

std::vector<size_t> GrowingTable::make_for_gradients(std::span<const uint64_t> keys,
                                                     const Lacking& lacking) {
  const Admission::Kind kind = options_.admission.kind;
  std::vector<size_t> made;
  for (const auto& part : lacking) {
    for (const size_t at : part) {
      const bool admitted = kind == Admission::Kind::kAlways ||
                            (kind == Admission::Kind::kProbability && draws_.admits(keys[at])) ||
                            (kind == Admission::Kind::kCount && options_.admission.count <= 1);
      if (!admitted) {
        ++counts_.dropped;
        continue;
      }
      bool is_new = false;
      const RowPlace place = rows_->insert(keys[at], is_new);
      made.push_back(at);
      if (!is_new) continue;
      ++counts_.admitted;
      draws_.fill(keys[at], {layout_.values(rows_->row(place)), layout_.width()});
      start_row(place);
    }
  }
  return made;
}

void GrowingTable::apply(std::span<const uint64_t> keys, const float* gradients,
                         const BlockUpdate& update, Tiles tiles) {
  apply_all(keys, gradients, tiles,
            [&] { return BlockSink(update, layout_.width(), state_widths_); });
}

void GrowingTable::apply(std::span<const uint64_t> keys, const float* gradients,
                         const InPlaceUpdate& update, Tiles tiles) {
  apply_all(keys, gradients, tiles, [&] { return InPlaceSink(update); });
}

void GrowingTable::put(uint64_t key, std::span<const float> values_and_states) {
  if (values_and_states.size() != layout_.floats()) {
    throw_error(ErrorCode::kShapeMismatch,
                {.what = "a row of a growing table has the wrong size",
                 .where = str_cat("growing table '", options_.name, "', put"),
                 .expected = str_cat(layout_.floats(), " floats, with states"),
                 .got = str_cat(values_and_states.size()),
                 .fix = "give the values, then each state, as layout() says"});
  }
  bool made = false;
  const RowPlace place = rows_->insert(key, made);
  rows_->change(place);
  rows_->mark_touched(place);
  std::byte* const row = rows_->row(place);
  copy_floats(values_and_states.data(), layout_.values(row), values_and_states.size());
  layout_.set_seen(row, clock_);
  counts_.admitted += made ? 1 : 0;
  if (made) settle(key);
}

void GrowingTable::set_values(std::span<const uint64_t> keys, const float* values) {
  const size_t width = layout_.width();
  rows_->visit(keys, layout_.bytes_to_values_end(), [&](size_t i, std::byte* row, RowPlace place) {
    if (row == nullptr) return;
    rows_->change(place);
    rows_->mark_touched(place);
    copy_floats(values + i * width, layout_.values(row), width);
  });
}

void GrowingTable::scan(uint32_t first, uint32_t end, const Visitor& visitor) const {
  for (uint32_t b = first; b < std::min(end, kBuckets); ++b) {
    rows_->for_each(b, [&](uint64_t key, const std::byte* row) {
      const float* const values = layout_.values(row);
      const size_t width = layout_.width();
      visitor({.key = key,
               .values = {values, width},
               .states = {values + width, layout_.floats() - width},
               .seen = layout_.seen(row),
               .count = layout_.count(row),
               .show = layout_.show(row),
               .click = layout_.click(row)});
    });
  }
}

}  // namespace fleet::fluid::tables
