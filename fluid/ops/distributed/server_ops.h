// Ops that only transpilers place, for what servers compute. docs/transpiler.md says where.
//
//   ref_by_trainer_id  X+ (one for each trainer), TrainerId [1], int64 -> Out: X[TrainerId]
//   dc_compensate      Param, Grad, Backup, MeanSquare? -> Out, MeanSquareOut?
//   squared_row_sums   X [R, …] -> Out [R], float64: the sum of squares of each row, in order
//   marked_row_sums    X selected rows of [R, …] -> Out [R, 2]: for each row that came the sum of
//                      its squared values and 1, for the others zeros
//   sum_marked_rows    X [R, 2] -> Out [1]: the sum of the marked ones, in order
//   interleave_rows    X [parts R, …], parts after each other -> Out [rows, …]: row r is row
//                      r / parts of part r modulo parts, a distributed table's from those of each
//                      server; attributes parts, rows
//   lamb_direction     Param, Grad, Moment1, Moment2, Beta1Pow, Beta2Pow -> Direction, Moment1Out,
//                      Moment2Out, Beta1PowOut?, Beta2PowOut?: the first half of lamb
//                      (fluid/ops/optimize/optimize.h), with its attributes
//   lamb_apply         Param, Direction, LearningRate, ParamSquaredRowSums, DirectionSquaredRowSums
//                      [rows], float64 -> ParamOut: the second half
//
// dc_compensate is the gradient of a trainer that saw Backup when the server has Param (Zheng et
// al., ICML 2017, arXiv 1609.08326, algorithm 2). g gradient, d = Param - Backup:
//   "constant"  Out = g + lambda g g d
//   "adaptive"  MS = m MS + (1 - m) g g;  Out = g + lambda / sqrt(MS + epsilon) g g d
//   "clipped"   MS as above;              Out = g + g clip(lambda g d / sqrt(MS + epsilon), -1, 1)
// The last is ours: the correction may cancel or double a component, never turn it round. Of
// selected rows Out has the rows of Grad, each once, and MS changes in those rows alone.
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct DcCompensateAttrs {
  std::string form = "clipped";
  float lambda = 4.0f;
  float m = 0.95f;
  float epsilon = 1e-7f;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(form), CEREAL_NVP(lambda), CEREAL_NVP(m), CEREAL_NVP(epsilon));
  }
};

struct InterleaveRowsAttrs {
  int64_t parts = 1;
  int64_t rows = 1;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(parts), CEREAL_NVP(rows));
  }
};

void add_server_ops(OpTable& table);

}  // namespace fleet::fluid
