#include "fluid/ops/sequence/rnn.h"

#include <algorithm>

#include "base/strings.h"
#include "fluid/ops/grad_names.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void check_activation(const InferContext& context, const std::string& name) {
  static const std::vector<std::string> known = {"sigmoid", "tanh", "relu", "identity"};
  context.require(std::find(known.begin(), known.end(), name) != known.end(), "Input",
                  "an activation of " + join(known, ", "), name + did_you_mean(name, known),
                  "use a known one");
}

// Input [rows, parts d] and Weight [d, parts d]; gives d.
int64_t check_sizes(const InferContext& context, int64_t parts) {
  const VarDesc& input = context.input("Input");
  const VarDesc& weight = context.input("Weight");
  context.require(input.shape.rank() == 2, "Input", "[rows, columns]", input.shape.to_string());
  const bool square = weight.shape.rank() == 2 && weight.shape[1] == parts * weight.shape[0];
  context.require(square && (input.shape[1] < 0 || input.shape[1] == weight.shape[1]), "Weight",
                  str_cat("[d, ", parts, " d], ", parts, " d the width of Input, ", input.shape[1]),
                  weight.shape.to_string(),
                  "give the layer the size that its input has, or the input as many columns by fc");
  const int64_t d = weight.shape[0];
  for (const char* slot : {"H0", "C0"}) {
    if (!context.has_input(slot)) continue;
    const Shape& first = context.input(slot).shape;
    context.require(first.rank() == 2 && first[1] == d, slot, str_cat("[sequences, ", d, "]"),
                    first.to_string());
  }
  return d;
}

void check_bias(const InferContext& context, int64_t columns) {
  const Shape& bias = context.input("Bias").shape;
  context.require(bias.numel() == columns, "Bias", str_cat("[1, ", columns, "]"), bias.to_string());
}

void infer_lstm(InferContext& context) {
  const int64_t d = check_sizes(context, 4);
  const auto attrs = context.attrs<LstmAttrs>();
  for (const auto& name :
       {attrs.gate_activation, attrs.cell_activation, attrs.candidate_activation}) {
    check_activation(context, name);
  }
  check_bias(context, (attrs.use_peepholes ? 7 : 4) * d);
  context.require(context.has_input("H0") == context.has_input("C0"), "Input", "H0 and C0 together",
                  "one of them", "give both or none");
  const VarDesc& input = context.input("Input");
  for (const char* slot : {"Hidden", "Cell"}) {
    context.set_output(slot, Shape{input.shape[0], d}, input.dtype, 0, input.lod_level);
  }
  context.set_output("BatchGate", Shape{input.shape[0], 4 * d}, input.dtype);
  context.set_output("BatchCellPreAct", Shape{input.shape[0], d}, input.dtype);
}

void infer_gru(InferContext& context) {
  const int64_t d = check_sizes(context, 3);
  const auto attrs = context.attrs<GruAttrs>();
  for (const auto& name : {attrs.activation, attrs.gate_activation}) {
    check_activation(context, name);
  }
  if (context.has_input("Bias")) check_bias(context, 3 * d);
  const VarDesc& input = context.input("Input");
  context.set_output("Hidden", Shape{input.shape[0], d}, input.dtype, 0, input.lod_level);
  context.set_output("BatchGate", Shape{input.shape[0], 3 * d}, input.dtype);
  for (const char* slot : {"BatchResetHiddenPrev", "BatchHidden"}) {
    context.set_output(slot, Shape{input.shape[0], d}, input.dtype);
  }
}

// In Paddle's form of an LSTM, which does not hear of cells' gradients.
GradientFunction without_cells(GradientFunction usual) {
  return [usual = std::move(usual)](const GradContext& context) {
    std::vector<Operator> ops = usual(context);
    const Attribute* form = context.forward().attr("paddle_form");
    if (form != nullptr && *form == Attribute(true)) {
      for (Operator& op : ops) op.inputs.erase("Cell@GRAD");
    }
    return ops;
  };
}

struct RnnSlots {
  std::string type;
  std::vector<SlotSpec> inputs;
  std::vector<SlotSpec> outputs;
  std::vector<std::string> incoming;
};

template <class Attrs>
void add_rnn(OpTable& table, const RnnSlots& slots, InferFunction infer) {
  GradSpec spec{.inputs = {}, .outputs = {}, .incoming = slots.incoming, .wanted = {}};
  std::vector<SlotSpec> grad_inputs = slots.inputs;
  std::vector<SlotSpec> grads;
  std::vector<std::pair<std::string, std::string>> like;
  for (const SlotSpec& slot : slots.inputs) {
    spec.inputs.push_back(slot.name);
    spec.wanted.push_back(slot.name);
    grads.push_back(maybe(grad_name(slot.name)));
    like.emplace_back(slot.name, grad_name(slot.name));
  }
  for (const SlotSpec& slot : slots.outputs) {
    spec.outputs.push_back(slot.name);
    grad_inputs.push_back(slot);
  }
  grad_inputs.push_back(one("Hidden@GRAD"));
  if (slots.incoming.size() > 1) grad_inputs.push_back(maybe("Cell@GRAD"));
  table.add(make_schema<Attrs>(slots.type, slots.inputs, slots.outputs, std::move(infer),
                               without_cells(usual_gradient(spec))));
  table.add(make_schema<Attrs>(slots.type + "_grad", grad_inputs, grads, infer_shape_like(like)));
}

}  // namespace

void add_rnn_ops(OpTable& table) {
  const RnnSlots lstm{
      .type = "lstm",
      .inputs = {one("Input"), maybe("H0"), maybe("C0"), one("Weight"), one("Bias")},
      .outputs = {one("Hidden"), one("Cell"), one("BatchGate"), one("BatchCellPreAct")},
      .incoming = {"Hidden", "Cell"}};
  add_rnn<LstmAttrs>(table, lstm, infer_lstm);
  const RnnSlots gru{
      .type = "gru",
      .inputs = {one("Input"), maybe("H0"), one("Weight"), maybe("Bias")},
      .outputs = {one("Hidden"), one("BatchGate"), one("BatchResetHiddenPrev"), one("BatchHidden")},
      .incoming = {"Hidden"}};
  add_rnn<GruAttrs>(table, gru, infer_gru);
}

}  // namespace fleet::fluid
