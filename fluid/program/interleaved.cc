#include "fluid/program/interleaved.h"

namespace fleet::fluid {

int64_t row_stride(const Program& program, const VarDesc& var) {
  if (!var.slice) return 1;
  const DistributionInfo& info = program.distribution();
  bool like_a_table = false;
  for (const DistributedVar& row : info.vars) {
    const bool table = row.vtype == kDistributedTable;
    if (!table && row.slice == var.name) return 1;
    like_a_table = like_a_table || (table && row.origin_shape == var.slice->origin_shape &&
                                    row.slice_shape == var.shape.to_vector());
  }
  return like_a_table ? static_cast<int64_t>(info.endpoints.size()) : 1;
}

}  // namespace fleet::fluid
