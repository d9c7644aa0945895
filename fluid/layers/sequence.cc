#include "fluid/layers/sequence.h"

#include <algorithm>
#include <cctype>

#include "base/strings.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/ops/sequence/rnn.h"
#include "fluid/ops/sequence/sequence.h"

namespace fleet::fluid::layers {

Variable sequence_pool(const Variable& input, const std::string& pool_type,
                       const SequencePoolOptions& options) {
  const LayerHelper helper("sequence_pool");
  helper.check_input(input, "input");
  std::string type = pool_type;
  std::transform(type.begin(), type.end(), type.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  const Variable out = helper.temp(input.dtype());
  const Variable max_index = helper.temp(input.dtype());
  const SequencePoolAttrs attrs{.pooltype = type,
                                .pad_value = static_cast<float>(options.pad_value),
                                .is_test = options.is_test};
  helper.append("sequence_pool", {{"X", {input.name()}}},
                {{"Out", {out.name()}}, {"MaxIndex", {max_index.name()}}}, to_attributes(attrs));
  if (type == "MAX") max_index.set_stop_gradient(true);
  return out;
}

Variable sequence_first_step(const Variable& input) {
  return sequence_pool(input, "first");
}
Variable sequence_last_step(const Variable& input) {
  return sequence_pool(input, "last");
}

Variable sequence_softmax(const Variable& input, const std::string& name) {
  const LayerHelper helper("sequence_softmax", name);
  helper.check_input(input, "input");
  return helper.append_unary("sequence_softmax", input);
}

Variable sequence_expand(const Variable& x, const Variable& y, int ref_level,
                         const std::string& name) {
  const LayerHelper helper("sequence_expand", name);
  helper.check_input(x, "x");
  helper.check_input(y, "y");
  const Variable out = helper.temp(x.dtype());
  helper.append("sequence_expand", {{"X", {x.name()}}, {"Y", {y.name()}}}, {{"Out", {out.name()}}},
                to_attributes(SequenceExpandAttrs{.ref_level = ref_level}));
  return out;
}

Variable sequence_concat(const std::vector<Variable>& input, const std::string& name) {
  const LayerHelper helper("sequence_concat", name);
  helper.check_inputs(input, "input");
  const Variable out = helper.temp(input.front().dtype());
  helper.append("sequence_concat", {{"X", names_of(input)}}, {{"Out", {out.name()}}});
  return out;
}

Variable sequence_reverse(const Variable& x, const std::string& name) {
  const LayerHelper helper("sequence_reverse", name);
  helper.check_input(x, "x");
  const Variable out = helper.temp(x.dtype());
  helper.append("sequence_reverse", {{"X", {x.name()}}}, {{"Y", {out.name()}}});
  return out;
}

Variable sequence_conv(const Variable& input, int64_t num_filters,
                       const SequenceConvOptions& options) {
  const LayerHelper helper("sequence_conv", options.name);
  helper.check_input(input, "input");
  if (input.shape().rank() != 2 || input.shape()[1] < 1) {
    helper.fail(str_cat("variable '", input.name(), "' is no matrix of known width"),
                "[rows, width]", input.shape().to_string(), "reshape it, or declare the width");
  }
  const Shape shape{options.filter_size * input.shape()[1], num_filters};
  const Variable filter = helper.parameter(options.param_attr, shape, input.dtype(), false);
  const Variable out = helper.temp(input.dtype());
  const SequenceConvAttrs attrs{
      .context_length = options.filter_size,
      .context_start = options.padding_start.value_or(-(options.filter_size / 2)),
      .context_stride = options.filter_stride};
  helper.append("sequence_conv", {{"X", {input.name()}}, {"Filter", {filter.name()}}},
                {{"Out", {out.name()}}}, to_attributes(attrs));
  return helper.activate(helper.add_bias(out, options.bias_attr, 1), options.act);
}

Padded sequence_pad(const Variable& x, const Variable& pad_value, int maxlen,
                    const std::string& name) {
  const LayerHelper helper("sequence_pad", name);
  helper.check_input(x, "x");
  helper.check_input(pad_value, "pad_value");
  const Variable out = helper.temp(x.dtype());
  const Variable length = helper.temp(DType::kInt64, true);
  pad_value.set_stop_gradient(true);
  helper.append("sequence_pad", {{"X", {x.name()}}, {"PadValue", {pad_value.name()}}},
                {{"Out", {out.name()}}, {"Length", {length.name()}}},
                to_attributes(SequencePadAttrs{.padded_length = maxlen}));
  return {out, length};
}

Variable sequence_unpad(const Variable& x, const Variable& length, const std::string& name) {
  const LayerHelper helper("sequence_unpad", name);
  helper.check_input(x, "x");
  helper.check_input(length, "length");
  const Variable out = helper.temp(x.dtype());
  length.set_stop_gradient(true);
  helper.append("sequence_unpad", {{"X", {x.name()}}, {"Length", {length.name()}}},
                {{"Out", {out.name()}}});
  return out;
}

Variable sequence_mask(const Variable& x, const Number& maxlen, DType dtype,
                       const std::string& name) {
  const LayerHelper helper("sequence_mask", name);
  helper.check_input(x, "x");
  SlotMap inputs = {{"X", {x.name()}}};
  const SequenceMaskAttrs attrs{
      .maxlen = static_cast<int32_t>(maxlen.attribute(helper, "MaxLenTensor", inputs, -1)),
      .out_dtype = dtype};
  const Variable out = helper.temp(dtype, true);
  helper.append("sequence_mask", std::move(inputs), {{"Y", {out.name()}}}, to_attributes(attrs));
  return out;
}

HiddenAndCell dynamic_lstm(const Variable& input, int64_t size, const DynamicLstmOptions& options) {
  const LayerHelper helper("lstm", options.name);
  helper.check_input(input, "input");
  if (size < 4 || size % 4 != 0) {
    helper.fail("size is not four times the hidden width", "a multiple of 4", str_cat(size),
                "give 4 d");
  }
  if (static_cast<bool>(options.h_0) != static_cast<bool>(options.c_0)) {
    helper.fail("h_0 and c_0 go together", "both or none", "one of them", "give the other too");
  }
  const int64_t d = size / 4;
  const DType dtype = input.dtype();
  const Variable w = helper.parameter(options.param_attr, Shape{d, 4 * d}, dtype, false);
  const Shape bias{1, (options.use_peepholes ? 7 : 4) * d};
  const Variable b = helper.parameter(options.bias_attr, bias, dtype, true);
  const Variable hidden = helper.temp(dtype);
  const Variable cell = helper.temp(dtype);
  const Variable gate = helper.temp(dtype);
  const Variable before = helper.temp(dtype);
  SlotMap inputs = {{"Input", {input.name()}}, {"Weight", {w.name()}}, {"Bias", {b.name()}}};
  if (options.h_0) inputs["H0"] = {options.h_0.name()};
  if (options.c_0) inputs["C0"] = {options.c_0.name()};
  const LstmAttrs attrs{.use_peepholes = options.use_peepholes,
                        .is_reverse = options.is_reverse,
                        .gate_activation = options.gate_activation,
                        .cell_activation = options.cell_activation,
                        .candidate_activation = options.candidate_activation};
  helper.append("lstm", std::move(inputs),
                {{"Hidden", {hidden.name()}},
                 {"Cell", {cell.name()}},
                 {"BatchGate", {gate.name()}},
                 {"BatchCellPreAct", {before.name()}}},
                to_attributes(attrs));
  return {hidden, cell};
}

Variable dynamic_gru(const Variable& input, int64_t size, const DynamicGruOptions& options) {
  const LayerHelper helper("gru");
  helper.check_input(input, "input");
  const DType dtype = input.dtype();
  const Variable w = helper.parameter(options.param_attr, Shape{size, 3 * size}, dtype, false);
  SlotMap inputs = {{"Input", {input.name()}}, {"Weight", {w.name()}}};
  if (!options.bias_attr.omit) {
    inputs["Bias"] = {helper.parameter(options.bias_attr, Shape{1, 3 * size}, dtype, true).name()};
  }
  if (options.h_0) inputs["H0"] = {options.h_0.name()};
  const Variable hidden = helper.temp(dtype);
  const Variable gate = helper.temp(dtype);
  const Variable reset = helper.temp(dtype);
  const Variable batch_hidden = helper.temp(dtype);
  const GruAttrs attrs{.activation = options.candidate_activation,
                       .gate_activation = options.gate_activation,
                       .is_reverse = options.is_reverse,
                       .origin_mode = options.origin_mode};
  helper.append("gru", std::move(inputs),
                {{"Hidden", {hidden.name()}},
                 {"BatchGate", {gate.name()}},
                 {"BatchResetHiddenPrev", {reset.name()}},
                 {"BatchHidden", {batch_hidden.name()}}},
                to_attributes(attrs));
  return hidden;
}

}  // namespace fleet::fluid::layers
