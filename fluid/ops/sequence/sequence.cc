#include "fluid/ops/sequence/sequence.h"

#include <algorithm>

#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

// A variable whose rows belong to sequences. Level 0 is let pass: programs may be built without
// saying it, and kernels look at the tensor itself.
void check_rows(const InferContext& context, std::string_view slot, int least_rank = 1) {
  const VarDesc& x = context.input(slot);
  context.require(x.shape.rank() >= least_rank, slot,
                  str_cat("rows of sequences, at least ", least_rank, " dimensions"),
                  x.shape.to_string());
}

void infer_pool(InferContext& context) {
  check_rows(context, "X");
  const VarDesc& x = context.input("X");
  const auto attrs = context.attrs<SequencePoolAttrs>();
  static const std::vector<std::string> known = {"SUM", "AVERAGE", "SQRT", "MAX", "LAST", "FIRST"};
  context.require(std::find(known.begin(), known.end(), attrs.pooltype) != known.end(), "X",
                  "pooltype " + join(known, ", "),
                  attrs.pooltype + did_you_mean(attrs.pooltype, known), "use a known one");
  Shape out = x.shape;
  out.set(0, Shape::kUnknown);
  context.set_output("Out", out, x.dtype, 0, std::max(x.lod_level - 1, 0));
  if (attrs.pooltype == "MAX") context.set_output("MaxIndex", out, x.dtype);
}

std::vector<Operator> pool_gradient(const GradContext& context) {
  const auto attrs = parse_attributes<SequencePoolAttrs>("sequence_pool", context.forward().attrs);
  GradSpec spec{.inputs = {"X"}};
  if (attrs.pooltype == "MAX") spec.outputs = {"MaxIndex"};
  return usual_gradient(spec)(context);
}

void infer_softmax(InferContext& context) {
  check_rows(context, "X");
  const Shape& x = context.input("X").shape;
  context.require(x.rank() == 1 || x.numel(1, x.rank()) <= 1, "X", "[rows, 1]", x.to_string());
  context.share("X", "Out");
}

void infer_expand(InferContext& context) {
  check_rows(context, "X");
  const VarDesc& x = context.input("X");
  Shape out = x.shape;
  out.set(0, Shape::kUnknown);
  context.set_output("Out", out, x.dtype, 0, x.lod_level);
}

void infer_concat(InferContext& context) {
  const VarDesc& first = context.input("X");
  Shape out = first.shape;
  for (size_t i = 0; i < context.input_count("X"); ++i) {
    const VarDesc& x = context.input("X", i);
    Shape wanted = first.shape;
    if (x.shape.rank() > 0 && wanted.rank() > 0) wanted.set(0, x.shape[0]);
    context.require(x.shape.rank() > 0 && x.shape.compatible(wanted), "X",
                    str_cat(first.shape, ", except for the rows"),
                    str_cat(x.shape, " ('", x.name, "')"));
  }
  context.require_dtype("X", first.dtype);
  out.set(0, Shape::kUnknown);
  context.set_output("Out", out, first.dtype, 0, std::max(first.lod_level, 1));
}

void infer_conv(InferContext& context) {
  const VarDesc& x = context.input("X");
  const VarDesc& filter = context.input("Filter");
  const auto attrs = context.attrs<SequenceConvAttrs>();
  context.require(x.shape.rank() == 2, "X", "[rows, width]", x.shape.to_string());
  context.require(attrs.context_stride == 1 && attrs.context_length >= 1, "X",
                  "contextStride 1 and contextLength of at least 1",
                  str_cat(attrs.context_stride, " and ", attrs.context_length),
                  "leave the stride at 1, and give how many rows a context has");
  const int64_t rows = attrs.context_length * x.shape[1];
  context.require(filter.shape.rank() == 2 && (x.shape[1] < 0 || filter.shape[0] == rows), "Filter",
                  str_cat("[", rows, ", outputs]"), filter.shape.to_string());
  context.require(attrs.padding_trainable == context.has_input("PaddingData"), "X",
                  "PaddingData exactly with paddingTrainable",
                  attrs.padding_trainable ? "none" : "PaddingData");
  context.set_output("Out", Shape{x.shape[0], filter.shape[1]}, x.dtype, 0, x.lod_level);
}

void infer_pad(InferContext& context) {
  check_rows(context, "X");
  const VarDesc& x = context.input("X");
  context.require_dtype("PadValue", x.dtype);
  const int32_t length = context.attrs<SequencePadAttrs>().padded_length;
  context.require(length == -1 || length > 0, "X", "padded_length -1 or positive", str_cat(length),
                  "give -1 for the longest sequence of a batch, or a length");
  Shape out{Shape::kUnknown, length};
  for (int d = 1; d < x.shape.rank(); ++d) out.push_back(x.shape[d]);
  context.set_output("Out", out, x.dtype);
  context.set_output("Length", Shape{Shape::kUnknown}, DType::kInt64);
}

void infer_unpad(InferContext& context) {
  check_rows(context, "X", 2);
  const VarDesc& x = context.input("X");
  context.require_dtype("Length", DType::kInt64);
  Shape out{Shape::kUnknown};
  for (int d = 2; d < x.shape.rank(); ++d) out.push_back(x.shape[d]);
  if (out.rank() == 1) out.push_back(1);
  context.set_output("Out", out, x.dtype, 0, 1);
}

std::vector<Operator> reverse_gradient(const GradContext& context) {
  Operator op;
  op.type = "sequence_reverse";
  op.inputs["X"] = context.grad_of_output("Y");
  set_slot(op.outputs, "Y", context.grad_of_input("X"));
  return {op};
}

void infer_mask(InferContext& context) {
  const VarDesc& x = context.input("X");
  const auto attrs = context.attrs<SequenceMaskAttrs>();
  require_whole_numbers(context, "MaxLenTensor", 1);
  Shape out = x.shape;
  const bool open = attrs.maxlen <= 0 || context.has_input("MaxLenTensor");
  out.push_back(open ? Shape::kUnknown : attrs.maxlen);
  context.set_output("Y", out, attrs.out_dtype);
}

void add_pooling(OpTable& table) {
  const std::vector<SlotSpec> outputs = {one("Out"), maybe("MaxIndex")};
  table.add(make_schema<SequencePoolAttrs>("sequence_pool", {one("X")}, outputs, infer_pool,
                                           pool_gradient));
  const std::vector<SlotSpec> grad_inputs = {one("X"), maybe("MaxIndex"), one("Out@GRAD")};
  table.add(make_schema<SequencePoolAttrs>("sequence_pool_grad", grad_inputs, {one("X@GRAD")},
                                           infer_like({{"X", "X@GRAD"}})));
  const GradSpec softmax{.inputs = {"X"}, .outputs = {"Out"}};
  table.add(make_schema<SequenceSoftmaxAttrs>("sequence_softmax", {one("X")}, {one("Out")},
                                              infer_softmax, usual_gradient(softmax)));
  const std::vector<SlotSpec> softmax_grad = {one("X"), one("Out"), one("Out@GRAD")};
  table.add(make_schema<SequenceSoftmaxAttrs>(
      "sequence_softmax_grad", softmax_grad, {one("X@GRAD")}, infer_shape_like({{"X", "X@GRAD"}})));
}

void add_joining(OpTable& table) {
  const GradSpec from_both{.inputs = {"X", "Y"}};
  table.add(make_schema<SequenceExpandAttrs>("sequence_expand", {one("X"), one("Y")}, {one("Out")},
                                             infer_expand, usual_gradient(from_both)));
  const std::vector<SlotSpec> expand_grad = {one("X"), one("Y"), one("Out@GRAD")};
  table.add(make_schema<SequenceExpandAttrs>("sequence_expand_grad", expand_grad, {one("X@GRAD")},
                                             infer_like({{"X", "X@GRAD"}})));
  const GradSpec from_x{.inputs = {"X"}};
  table.add(make_schema<NoAttrs>("sequence_concat", {many("X")}, {one("Out")}, infer_concat,
                                 usual_gradient(from_x)));
  table.add(make_schema<NoAttrs>("sequence_concat_grad", {many("X"), one("Out@GRAD")},
                                 {many("X@GRAD")}, infer_shape_like({{"X", "X@GRAD"}})));
  const std::vector<SlotSpec> conv = {one("X"), one("Filter"), maybe("PaddingData")};
  std::vector<SlotSpec> conv_grad = conv;
  conv_grad.push_back(one("Out@GRAD"));
  const GradSpec from_conv{.inputs = {"X", "Filter", "PaddingData"},
                           .wanted = {"X", "Filter", "PaddingData"}};
  table.add(make_schema<SequenceConvAttrs>("sequence_conv", conv, {one("Out")}, infer_conv,
                                           usual_gradient(from_conv)));
  table.add(make_schema<SequenceConvAttrs>(
      "sequence_conv_grad", conv_grad,
      {maybe("X@GRAD"), maybe("Filter@GRAD"), maybe("PaddingData@GRAD")},
      infer_like(
          {{"X", "X@GRAD"}, {"Filter", "Filter@GRAD"}, {"PaddingData", "PaddingData@GRAD"}})));
}

void add_padding(OpTable& table) {
  const GradSpec from_x{.inputs = {"X"}};
  const std::vector<SlotSpec> padded = {one("Out"), one("Length")};
  table.add(make_schema<SequencePadAttrs>("sequence_pad", {one("X"), one("PadValue")}, padded,
                                          infer_pad, usual_gradient(from_x)));
  const std::vector<SlotSpec> pad_grad = {one("X"), one("Out@GRAD")};
  table.add(make_schema<SequencePadAttrs>("sequence_pad_grad", pad_grad, {one("X@GRAD")},
                                          infer_like({{"X", "X@GRAD"}})));
  table.add(make_schema<NoAttrs>("sequence_unpad", {one("X"), one("Length")}, {one("Out")},
                                 infer_unpad, usual_gradient(from_x)));
  const std::vector<SlotSpec> unpad_grad = {one("X"), one("Out@GRAD")};
  table.add(make_schema<NoAttrs>("sequence_unpad_grad", unpad_grad, {one("X@GRAD")},
                                 infer_like({{"X", "X@GRAD"}})));
  table.add(make_schema<NoAttrs>("sequence_reverse", {one("X")}, {one("Y")},
                                 infer_like({{"X", "Y"}}), reverse_gradient));
  const std::vector<SlotSpec> mask = {one("X"), maybe_attribute("MaxLenTensor")};
  table.add(make_schema<SequenceMaskAttrs>("sequence_mask", mask, {one("Y")}, infer_mask));
}

}  // namespace

void add_sequence_ops(OpTable& table) {
  add_pooling(table);
  add_joining(table);
  add_padding(table);
}

}  // namespace fleet::fluid
