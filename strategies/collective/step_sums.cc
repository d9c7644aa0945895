#include "strategies/collective/step_sums.h"

#include "strategies/collective/rank_ops.h"

namespace fleet::strategies {

StepSums::StepSums(const fluid::RankProgram& program) {
  for (const fluid::RankSum& sum : program.sums) {
    const fluid::VarDesc& var = *sum.var;
    const bool rows = var.kind == fluid::VarKind::kSelectedRows;
    const auto type = element_type(var.dtype);
    std::optional<ReductionShape> dense;
    if (type && var.shape.numel() >= 0) {
      dense = {*type, static_cast<size_t>(var.shape.numel()), sum.at_once};
    }
    if (sum.compression != nullptr && dense) {
      const auto& op = *sum.compression;
      sums_.push_back({dense, fluid::parse_attributes<fluid::DgcAttrs>(op.type, op.attrs)});
      change_ = true;
    } else if (rows) {
      sums_.push_back({std::nullopt});
    } else if (dense) {
      sums_.push_back({dense});
    }
  }
}

StepSums::OfStep StepSums::in(int64_t step) const {
  OfStep found;
  for (const Sum& sum : sums_) {
    const bool rows =
        !sum.dense ||
        (sum.compression &&
         fluid::dgc_sent(*sum.compression, step, static_cast<int64_t>(sum.dense->count)).as_rows);
    if (rows) {
      ++found.rows;
    } else {
      found.dense.push_back(*sum.dense);
    }
  }
  return found;
}

}  // namespace fleet::strategies
