// Running sums of parameters, and parameters that go back part of their way.
//
//   average_accumulates  param, in_sum_1, in_sum_2, in_sum_3, in_num_accumulates [1],
//                        in_old_num_accumulates [1], in_num_updates [1] (int64) -> out_* of the
//                        last six: adds param to the sums, once a step
//
// sum_1 takes the newest values and is moved to sum_2 every 16384 updates, so that no float32 sum
// grows long. When the window is full (num_accumulates >= min_average_window and >=
// min(max_average_window, average_window * num_updates)), both become sum_3, and a new one begins.
// The average is (sum_1 + sum_2 + sum_3) / (num_accumulates + old_num_accumulates).
//
//   lookahead            Param, SlowParam, Step [1] (int64) -> ParamOut, SlowParamOut, StepOut:
//                        behind an update of Param. In steps k, 2k, ... SlowParam goes alpha of the
//                        way to Param, which takes its value (Zhang, Lucas, Hinton and Ba 2019)
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct AverageAccumulatesAttrs {
  float average_window = 0.0f;
  int64_t min_average_window = 10000;
  int64_t max_average_window = 10000;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(average_window), CEREAL_NVP(min_average_window), CEREAL_NVP(max_average_window));
  }
};

struct LookaheadAttrs {
  double alpha = 0.5;
  int64_t k = 5;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(alpha), CEREAL_NVP(k));
  }
};

void add_average_ops(OpTable& table);

}  // namespace fleet::fluid
