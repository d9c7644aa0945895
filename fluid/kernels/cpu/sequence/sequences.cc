#include "fluid/kernels/cpu/sequence/sequences.h"

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid::cpu {

SequenceInput::SequenceInput(const PrepareContext& context, std::string_view slot, size_t i)
    : position(context.input(slot, i)) {
  const Shape& shape = context.in(slot, i).shape;
  context.require(shape.rank() >= 1, slot, "rows of sequences", shape.to_string());
  width = shape.numel(1, shape.rank());
  where = str_cat("op '", context.op().type, "', slot '", slot, "', variable '",
                  context.op().input(slot)[i], "'");
}

const Offsets& SequenceInput::offsets(const KernelContext& c, int level) const {
  const Tensor& rows = c.input(position);
  const LoD& lod = rows.lod();
  const size_t at = level < 0 ? lod.size() - 1 : static_cast<size_t>(level);
  if (lod.empty() || at >= lod.size() || lod[at].empty()) {
    throw_error(
        ErrorCode::kInvalidArgument,
        {.what = lod.empty() ? "the variable has no sequences"
                             : "the variable has fewer levels of sequences",
         .where = where,
         .expected = level < 0 ? std::string("sequence structure (LoD)") : str_cat("level ", level),
         .got = str_cat(lod.size(), " levels"),
         .fix = "feed a tensor with set_lod, and declare data with lod_level"});
  }
  const Offsets& found = lod[at];
  if (at + 1 == lod.size() && found.back() != rows.shape()[0]) {
    throw_error(ErrorCode::kShapeMismatch, {.what = "the sequences do not cover the rows",
                                            .where = where,
                                            .expected = str_cat(rows.shape()[0], " rows"),
                                            .got = str_cat(found.back(), " in the last offset"),
                                            .fix = "correct the offsets given to set_lod"});
  }
  return found;
}

const Offsets& SequenceInput::offsets(const KernelContext& c) const {
  return offsets(c, -1);
}

LoD outer_levels(const LoD& lod) {
  if (lod.size() < 2) return {};
  return {lod.begin(), lod.end() - 1};
}

Tensor& make_rows_like(const KernelContext& c, int out, const Tensor& like, int64_t rows) {
  Shape shape = like.shape();
  shape.set(0, rows);
  return c.make_dense(out, like.dtype(), shape);
}

void register_sequence(KernelTable& table) {
  register_sequence_conv(table);
  register_sequence_joining(table);
  register_sequence_padding(table);
  register_sequence_pool(table);
  register_gru(table);
  register_lstm(table);
}

}  // namespace fleet::fluid::cpu
