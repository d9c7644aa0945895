#include "fluid/kernels/sequence/sequences.h"

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/sequence/sequence.h"

namespace fleet::fluid {

SequenceInput::SequenceInput(const PrepareContext& context, std::string_view slot, size_t i)
    : position(context.input(slot, i)) {
  const Shape& shape = context.in(slot, i).shape;
  context.require(shape.rank() >= 1, slot, "rows of sequences", shape.to_string());
  width = shape.numel(1, shape.rank());
  where = str_cat("op '", context.op().type, "', slot '", slot, "', variable '",
                  context.op().input(slot)[i], "'");
}

const SequenceOffsets& SequenceInput::offsets(const KernelContext& c, int level) const {
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
  const SequenceOffsets& found = lod[at];
  if (at + 1 == lod.size() && found.back() != rows.shape()[0]) {
    throw_error(ErrorCode::kShapeMismatch, {.what = "the sequences do not cover the rows",
                                            .where = where,
                                            .expected = str_cat(rows.shape()[0], " rows"),
                                            .got = str_cat(found.back(), " in the last offset"),
                                            .fix = "correct the offsets given to set_lod"});
  }
  return found;
}

const SequenceOffsets& SequenceInput::offsets(const KernelContext& c) const {
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

void throw_sequence_count(const std::string& where, int64_t expected, int64_t got) {
  throw_error(ErrorCode::kShapeMismatch, {.what = "inputs have different numbers of sequences",
                                          .where = where,
                                          .expected = str_cat(expected, " sequences"),
                                          .got = str_cat(got),
                                          .fix = "feed tensors whose LoD have as many sequences"});
}

SequenceParts::SequenceParts(const PrepareContext& context) {
  for (size_t i = 0; i < context.input_count("X"); ++i) {
    inputs_.emplace_back(context, "X", i);
    context.require(inputs_[i].width == width(), "X", str_cat("rows of ", width(), " elements"),
                    context.in("X", i).shape.to_string());
  }
}

SequenceOffsets SequenceParts::joined(const KernelContext& c) const {
  SequenceOffsets offsets = {0};
  int64_t total = 0;
  each(c, [&](size_t k, int64_t, int64_t rows) {
    total += rows;
    if (k + 1 == inputs_.size()) offsets.push_back(total);
  });
  return offsets;
}

std::vector<int> concat_gradients(PrepareContext& context, DType dtype) {
  int64_t total = 0;
  std::vector<int> outs;
  for (size_t i = 0; i < context.input_count("X"); ++i) {
    const Shape& x = context.in("X", i).shape;
    total += x.numel();
    outs.push_back(context.set_output("X@GRAD", x, dtype, i));
  }
  const Shape& grad = context.in("Out@GRAD").shape;
  context.require(grad.numel() == total, "Out@GRAD", str_cat(total, " elements"), grad.to_string());
  return outs;
}

SequenceRepeats::SequenceRepeats(const PrepareContext& context)
    : x_(context, "X"),
      y_(context, "Y"),
      ref_level_(context.attrs<SequenceExpandAttrs>().ref_level) {}

SequenceOffsets SequenceRepeats::x_offsets(const KernelContext& c) const {
  if (!x_.tensor(c).lod().empty()) return x_.offsets(c);
  SequenceOffsets each;
  for (int64_t row = 0; row <= x_.tensor(c).shape()[0]; ++row) each.push_back(row);
  return each;
}

LoD SequenceRepeats::lod(const KernelContext& c) const {
  if (x_.tensor(c).lod().empty()) return {};
  SequenceOffsets offsets = {0};
  each(c, [&](int64_t, int64_t rows) { offsets.push_back(offsets.back() + rows); });
  return {std::move(offsets)};
}

}  // namespace fleet::fluid
