#include "tests/fluid/tables/table_model.h"

#include <algorithm>
#include <limits>
#include <set>

namespace fleet::fluid::tables::testing {

std::vector<uint64_t> awkward_keys() {
  std::vector<uint64_t> keys = {0, 1, ~uint64_t{0}, ~uint64_t{0} - 1};
  keys.push_back(static_cast<uint64_t>(std::numeric_limits<int64_t>::min()));
  keys.push_back(static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  for (int bit = 1; bit < 63; ++bit) keys.push_back(uint64_t{1} << bit);
  for (uint64_t low = 2; low < 100; ++low) {
    if ((low & (low - 1)) != 0) keys.push_back(low);
  }
  for (uint64_t high = 3; high < 50; high += 2) keys.push_back(high << 58 | 7);
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  return keys;
}

std::vector<uint64_t> random_keys(std::mt19937_64& random, size_t count, int bits) {
  std::set<uint64_t> seen;
  std::vector<uint64_t> keys;
  while (keys.size() < count) {
    const uint64_t key = bits == 64 ? random() : random() & ((uint64_t{1} << bits) - 1);
    if (seen.insert(key).second) keys.push_back(key);
  }
  return keys;
}

std::vector<uint64_t> keys_of_bucket(uint32_t bucket, size_t count) {
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; keys.size() < count; ++key) {
    if (bucket_of(key) == bucket) keys.push_back(key);
  }
  return keys;
}

std::vector<float> random_floats(std::mt19937_64& random, size_t count) {
  std::vector<float> values(count);
  std::normal_distribution<float> draw;
  for (float& value : values) value = draw(random);
  return values;
}

PlainTable contents(const GrowingTable& table) {
  PlainTable all;
  table.scan(0, kBuckets, [&](const RowView& row) {
    PlainRow plain{{row.values.begin(), row.values.end()},
                   {row.states.begin(), row.states.end()},
                   row.seen,
                   row.count,
                   row.show,
                   row.click};
    if (!all.emplace(row.key, std::move(plain)).second) throw std::logic_error("an id twice");
  });
  return all;
}

void SampleUpdate::one(float* values, const std::vector<float*>& states,
                       const float* gradient) const {
  for (size_t i = 0; i < width_; ++i) {
    states[0][i] += gradient[i] * gradient[i];
    values[i] -= 0.1f * gradient[i] / (1 + states[0][i]);
  }
  states[1][0] += 1;
}

void SampleUpdate::update(const RowBlock& block) const {
  for (size_t r = 0; r < block.keys.size(); ++r) {
    std::vector<float*> states;
    for (size_t s = 0; s < state_widths_.size(); ++s) {
      states.push_back(block.states[s] + r * state_widths_[s]);
    }
    one(block.values + r * width_, states, block.gradients + r * width_);
  }
}

void SampleUpdate::update(std::span<const RowInPlace> rows) const {
  for (const RowInPlace& row : rows) {
    one(row.row, {row.row + width_, row.row + 2 * width_}, row.gradient);
  }
}

TableOptions sample_options() {
  return {.name = "ids",
          .seed = 7,
          .width = 5,
          .states = {{"moment", 5, 0.5f}, {"steps", 1, 0}},
          .initializer = RowInitializer::uniform(-1, 1),
          .fields = {.seen = true, .count = true, .score = false}};
}

SampleUpdate sample_update() {
  return {5, {5, 1}};
}

}  // namespace fleet::fluid::tables::testing
