// Tables that grow (fluid/tables/growing_table.h): variables of kind kGrowingTable and shape
// [-1, width], float32. Ids are int64; all 64 bits are ids.
//
//   make_growing_table         -> Out: an empty table, in startup programs
//   lookup_growing_table       Table, Ids… [..., 1] or [...] -> Out…, [..., width] for each of Ids
//   lookup_growing_table_grad  Table, Ids…, Out@GRAD… -> Table@GRAD: selected rows without a height
//                              (SelectedRows::kNoHeight), a row for each id: the last slot's first
//   add_growing_table_shows    Table, Ids…, Show, Click: int64 or float32, one number for each row
//                              of Ids, or for each sequence
//   update_growing_table       Param, Grad, and what the update takes of LearningRate, Beta1Pow,
//                              Beta2Pow, Beta1Tensor, Beta2Tensor -> ParamOut, Beta1PowOut?,
//                              Beta2PowOut?
//
// Lookups of training make rows, those of tests (is_test) change nothing; an id without a row reads
// what its row would start from. The padding id reads zeros, has no gradient and gets no row.
// All slots that one op looks up are one call of the table, with each id once.
//
// update_growing_table is an update op (fluid/ops/optimize/optimize.h) on the rows that a gradient
// names, and on no others. Its attributes are its own and those of that op.
#pragma once

#include "fluid/ops/op_schema.h"
#include "fluid/tables/table_options.h"

namespace fleet::fluid {

// tables::TableOptions as attributes.
struct MakeGrowingTableAttrs {
  std::string table_name;  // of which rows' first values are a function; empty: that of Out
  int64_t seed = 0;        // 0: the program's
  int64_t width = 0;
  std::string initializer = "constant";  // or "uniform", "normal", "truncated_normal"
  double initializer_a = 0;              // as in tables::RowInitializer
  double initializer_b = 0;
  std::vector<std::string> state_names;
  std::vector<int64_t> state_widths;
  std::vector<double> state_values;
  std::string admission = "always";  // or "probability", "count", "score"
  double admission_probability = 1;
  int64_t admission_count = 1;
  double admission_threshold = 0;
  int64_t counted_ids = int64_t{1} << 40;
  double show_coefficient = 0.1;
  double click_coefficient = 0.9;
  bool keeps_seen = false;
  bool keeps_count = false;
  bool keeps_score = false;
  bool deltas = false;
  int64_t memory_bytes = 0;
  std::string memory_rank = "seen";  // or "count", "score", "norm"
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(table_name), CEREAL_NVP(seed), CEREAL_NVP(width), CEREAL_NVP(initializer),
       CEREAL_NVP(initializer_a), CEREAL_NVP(initializer_b), CEREAL_NVP(state_names),
       CEREAL_NVP(state_widths), CEREAL_NVP(state_values), CEREAL_NVP(admission),
       CEREAL_NVP(admission_probability), CEREAL_NVP(admission_count),
       CEREAL_NVP(admission_threshold), CEREAL_NVP(counted_ids), CEREAL_NVP(show_coefficient),
       CEREAL_NVP(click_coefficient), CEREAL_NVP(keeps_seen), CEREAL_NVP(keeps_count),
       CEREAL_NVP(keeps_score), CEREAL_NVP(deltas), CEREAL_NVP(memory_bytes),
       CEREAL_NVP(memory_rank));
  }
};

// Throws UsageError for attributes that say nothing sensible. `name` and `seed` stand for those
// that attributes leave out.
tables::TableOptions table_options(const MakeGrowingTableAttrs& attrs, const std::string& name,
                                   uint64_t seed);
// Whose table_options() these are.
MakeGrowingTableAttrs table_attributes(const tables::TableOptions& options);

struct LookupGrowingTableAttrs {
  bool is_test = false;
  bool ids_end_in_one = true;  // Ids are [..., 1], and that dimension is not one of Out
  bool has_padding = false;
  int64_t padding_idx = 0;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(is_test), CEREAL_NVP(ids_end_in_one), CEREAL_NVP(has_padding),
       CEREAL_NVP(padding_idx));
  }
};

// What update_growing_table has beside the attributes of the op that it applies.
struct UpdateGrowingTableAttrs {
  std::string update;  // "adam": an op with updates_parts
  // States that rows have, by their names in the table, with the slots of that op.
  std::vector<std::string> states;
  std::vector<std::string> state_inputs;
  std::vector<std::string> state_outputs;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(update), CEREAL_NVP(states), CEREAL_NVP(state_inputs), CEREAL_NVP(state_outputs));
  }
};

// Whether update_growing_table can apply an op of this type to rows.
bool updates_rows(std::string_view type);
// The op that an update_growing_table applies to rows. Its Param and Grad are those of the whole
// op, its states have the names that the table has for them.
Operator row_update_of(const Operator& update);
UpdateGrowingTableAttrs row_update_attributes(const Operator& update);

void add_growing_table_ops(OpTable& table);

}  // namespace fleet::fluid
