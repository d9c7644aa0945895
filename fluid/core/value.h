// What a variable of a scope can hold.
#pragma once

#include <any>
#include <variant>
#include <vector>

#include "fluid/core/tensor.h"

namespace fleet::fluid {

// Some rows of a tensor of `height` rows: value[i] is row rows[i]. A row may occur several times;
// the meaning is then the sum.
struct SelectedRows {
  // The height of rows of a growing table (fluid/tables/growing_table.h). Row numbers are then its
  // ids, 64 bits cast to int64: any number is one. Whoever needs a height refuses such rows.
  static constexpr int64_t kNoHeight = -1;

  std::vector<int64_t> rows;
  int64_t height = 0;
  Tensor value;
};

using TensorArray = std::vector<Tensor>;

// Raw holds what belongs to a runtime, such as a communicator's state, and growing tables
// (fluid/tables/lookup/shared_table.h).
struct Raw {
  std::any content;
};

using ValueKinds = std::variant<std::monostate, Tensor, SelectedRows, TensorArray, Raw>;

// A type of its own, because nearly every source has it: what copies and destroys it is compiled
// once, in value.cc.
struct Value : ValueKinds {
  using ValueKinds::ValueKinds;
  Value();  // nothing
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(const Value& other);
  Value& operator=(Value&& other) noexcept;
  ~Value();
};

// Makes `to` hold the elements of `from`, at `place`: in its own memory where that fits. What is
// neither a tensor nor selected rows is the same at every place.
void copy_value(const Value& from, Value& to, const Place& place);

// Brings what the value holds to `place`, if it is elsewhere.
void move_value(Value& value, const Place& place);

}  // namespace fleet::fluid
