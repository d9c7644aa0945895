// What tests of growing tables share: awkward ids, updates, and all that a table holds, plainly.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "fluid/tables/growing_table.h"

namespace fleet::fluid::tables::testing {

// 0, -1, the ends of int64, neighbours, and ids that differ in their highest bits only.
std::vector<uint64_t> awkward_keys();
// So many different ids, from a few bits of a range or all 64.
std::vector<uint64_t> random_keys(std::mt19937_64& random, size_t count, int bits);
// So many different ids of one bucket.
std::vector<uint64_t> keys_of_bucket(uint32_t bucket, size_t count);
std::vector<float> random_floats(std::mt19937_64& random, size_t count);

struct PlainRow {
  std::vector<float> values;
  std::vector<float> states;
  uint32_t seen = 0;
  uint32_t count = 0;
  float show = 0;
  float click = 0;
  bool operator==(const PlainRow&) const = default;
};
using PlainTable = std::map<uint64_t, PlainRow>;

PlainTable contents(const GrowingTable& table);

// value -= rate * gradient, and what the states add: state 0 is the sum of squared gradients, state
// 1 counts updates in its first element.
class SampleUpdate : public BlockUpdate, public InPlaceUpdate {
 public:
  SampleUpdate(size_t width, std::vector<size_t> state_widths)
      : width_(width), state_widths_(std::move(state_widths)) {}
  void update(const RowBlock& block) const override;
  void update(std::span<const RowInPlace> rows) const override;
  void one(float* values, const std::vector<float*>& states, const float* gradient) const;

 private:
  size_t width_;
  std::vector<size_t> state_widths_;
};

// Width 5, states of 5 and 1.
TableOptions sample_options();
SampleUpdate sample_update();

}  // namespace fleet::fluid::tables::testing
