#include "fluid/layers/control_flow.h"

#include <algorithm>

#include "base/strings.h"
#include "fluid/layers/ops.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/layers/tensor.h"
#include "fluid/ops/control/control_flow.h"
#include "fluid/ops/control/print.h"
#include "fluid/ops/control/tensor_array.h"

namespace fleet::fluid::layers {
namespace {

// What Paddle calls the variables that it makes for the cases of a Switch.
constexpr const char* kScopes = "_generated_var";

// Layers that are built while the guard lives go to a new block inside the current one.
class BlockGuard {
 public:
  explicit BlockGuard(Program& program)
      : program_(program),
        outer_(program.current_block().index()),
        inner_(program.add_block(outer_).index()) {
    program.set_current_block(inner_);
  }
  ~BlockGuard() { program_.set_current_block(outer_); }
  BlockGuard(const BlockGuard&) = delete;
  BlockGuard& operator=(const BlockGuard&) = delete;

  Block& outer() const { return program_.block(outer_); }
  Block& inner() const { return program_.block(inner_); }

 private:
  Program& program_;
  int32_t outer_;
  int32_t inner_;
};

void add_once(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

// What a block reads from outside, and what it writes there.
struct Crossing {
  std::vector<std::string> reads;
  std::vector<std::string> writes;

  explicit Crossing(const Block& inner) {
    for (const auto& op : inner.ops()) {
      for (const std::string& name : op->input_names()) {
        if (inner.find_var(name) == nullptr) add_once(reads, name);
      }
      for (const std::string& name : op->output_names()) {
        if (inner.find_var(name) == nullptr) add_once(writes, name);
      }
    }
  }
};

Variable special(Block& block, const std::string& name, VarKind kind, DType dtype, bool typed) {
  VarDesc desc;
  desc.name = unique_name::generate(name);
  desc.kind = kind;
  desc.dtype = dtype;
  desc.typed = typed;
  return Variable(block, block.add_var(std::move(desc)));
}

Variable step_scopes(const LayerHelper& helper, Block& block) {
  return special(block, helper.name() + ".scopes", VarKind::kStepScopes, DType::kFloat32, false);
}

void check_condition(const LayerHelper& helper, const Variable& cond, std::string_view argument) {
  helper.check_input(cond, argument);
  if (cond.dtype() == DType::kBool && (cond.shape().numel() == 1 || !cond.shape().known())) return;
  helper.fail(str_cat("variable '", cond.name(), "' is no condition"), "bool[1]",
              str_cat(dtype_name(cond.dtype()), cond.shape()), "compare, or reduce it");
}

Variable copy_in_block(Block& block, const Variable& like, const std::string& name) {
  VarDesc desc;
  desc.name = name;
  desc.kind = like.desc().kind;
  desc.dtype = like.dtype();
  desc.shape = like.shape();
  desc.lod_level = like.desc().lod_level;
  return Variable(block, block.add_var(std::move(desc)));
}

}  // namespace

Variable create_array(DType dtype) {
  const LayerHelper helper("array");
  return special(helper.block(), helper.name() + ".out", VarKind::kLodTensorArray, dtype, true);
}

Variable array_write(const Variable& x, const Variable& i, const Variable& array) {
  const LayerHelper helper("array_write");
  helper.check_input(x, "x");
  helper.check_input(i, "i");
  const Variable out = array ? array : create_array(x.dtype());
  helper.append("write_to_array", {{"X", {x.name()}}, {"I", {i.name()}}}, {{"Out", {out.name()}}});
  return out;
}

Variable array_read(const Variable& array, const Variable& i) {
  const LayerHelper helper("array_read");
  helper.check_input(array, "array");
  helper.check_input(i, "i");
  const Variable out = helper.temp(array.dtype());
  helper.append("read_from_array", {{"X", {array.name()}}, {"I", {i.name()}}},
                {{"Out", {out.name()}}});
  return out;
}

Variable array_length(const Variable& array) {
  const LayerHelper helper("array_length");
  helper.check_input(array, "array");
  const Variable out = helper.temp(DType::kInt64, true);
  helper.append("lod_array_length", {{"X", {array.name()}}}, {{"Out", {out.name()}}});
  return out;
}

ArrayToTensor tensor_array_to_tensor(const Variable& input, int axis, bool use_stack,
                                     const std::string& name) {
  const LayerHelper helper("tensor_array_to_tensor", name);
  helper.check_input(input, "input");
  const Variable out = helper.temp(input.dtype());
  const Variable sizes = helper.temp(DType::kInt32, true);
  helper.append("tensor_array_to_tensor", {{"X", {input.name()}}},
                {{"Out", {out.name()}}, {"OutIndex", {sizes.name()}}},
                to_attributes(TensorArrayToTensorAttrs{.axis = axis, .use_stack = use_stack}));
  return {out, sizes};
}

Variable Print(const Variable& input, const PrintOptions& options) {
  const LayerHelper helper("print");
  helper.check_input(input, "input");
  PrintAttrs attrs{.first_n = options.first_n,
                   .message = options.message,
                   .summarize = options.summarize,
                   .print_tensor_name = options.print_tensor_name,
                   .print_tensor_type = options.print_tensor_type,
                   .print_tensor_shape = options.print_tensor_shape,
                   .print_tensor_lod = options.print_tensor_lod};
  if (options.print_phase == "forward") {
    attrs.print_phase = "FORWARD";
  } else if (options.print_phase == "backward") {
    attrs.print_phase = "BACKWARD";
  } else if (options.print_phase != "both") {
    helper.fail("there is no such phase to print in", "forward, backward or both",
                "'" + options.print_phase + "'", "use one of them as print_phase");
  }
  const Variable out = helper.temp(input.dtype());
  helper.append("print", {{"In", {input.name()}}}, {{"Out", {out.name()}}}, to_attributes(attrs));
  return out;
}

void assign(const Variable& input, const Variable& output) {
  const LayerHelper helper("assign");
  helper.check_input(input, "input");
  helper.check_input(output, "output");
  helper.append("assign", {{"X", {input.name()}}}, {{"Out", {output.name()}}});
}

While::While(const Variable& cond, bool is_test, const std::string& name)
    : cond_(cond), is_test_(is_test), name_(name) {
  check_condition(LayerHelper("while", name), cond, "cond");
}

void While::block(const std::function<void()>& build) {
  const LayerHelper helper("while", name_);
  Operator op;
  Block* outer = nullptr;
  {
    const BlockGuard guard(helper.main());
    build();
    const Crossing crossing(guard.inner());
    outer = &guard.outer();
    op.inputs["X"] = crossing.reads;
    op.outputs["Out"] = crossing.writes;
    op.attrs = to_attributes(WhileAttrs{.sub_block = {guard.inner().index()}, .is_test = is_test_});
    const auto& writes = crossing.writes;
    if (std::find(writes.begin(), writes.end(), cond_.name()) == writes.end()) {
      helper.fail(str_cat("the block never writes the condition '", cond_.name(), "'"),
                  "layers::assign(…, cond) in the block", "a loop without an end",
                  "compute the condition anew in every repetition");
    }
  }
  op.type = "while";
  op.inputs["Condition"] = {cond_.name()};
  op.outputs["StepScopes"] = {step_scopes(helper, *outer).name()};
  append_op(*outer, std::move(op));
}

std::vector<Variable> while_loop(
    const std::function<Variable(const std::vector<Variable>&)>& cond,
    const std::function<std::vector<Variable>(const std::vector<Variable>&)>& body,
    const std::vector<Variable>& loop_vars, bool is_test, const std::string& name) {
  const LayerHelper helper("while_loop", name);
  helper.check_inputs(loop_vars, "loop_vars");
  // Variables of the loop's own, so that what was given stays as it is.
  std::vector<Variable> states;
  for (const Variable& given : loop_vars) {
    const bool array = given.desc().kind == VarKind::kLodTensorArray;
    states.push_back(array ? given : layers::assign(given));
  }
  const Variable holds = cond(states);
  While loop(holds, is_test, name);
  loop.block([&] {
    const std::vector<Variable> next = body(states);
    if (next.size() != states.size()) {
      helper.fail("body gives another number of variables than it takes", str_cat(states.size()),
                  str_cat(next.size()), "return one per loop variable");
    }
    // First all copies: one state may be computed from another.
    std::vector<Variable> copies;
    for (size_t i = 0; i < next.size(); ++i) {
      const bool array = next[i].desc().kind == VarKind::kLodTensorArray;
      copies.push_back(array ? next[i] : layers::assign(next[i]));
    }
    for (size_t i = 0; i < next.size(); ++i) {
      if (copies[i].name() != states[i].name()) assign(copies[i], states[i]);
    }
    assign(cond(states), holds);
  });
  return states;
}

namespace {

// A block that runs when `condition` holds; `scopes` names the variable of its scopes.
void append_conditional(Program& program, const Variable& condition, const std::string& scopes,
                        const std::function<void(Block& outer)>& build) {
  Operator op;
  Block* outer = nullptr;
  {
    const BlockGuard guard(program);
    outer = &guard.outer();
    build(*outer);
    const Crossing crossing(guard.inner());
    op.inputs["Input"] = crossing.reads;
    op.outputs["Out"] = crossing.writes;
    op.attrs = to_attributes(
        ConditionalBlockAttrs{.sub_block = {guard.inner().index()}, .is_scalar_condition = true});
  }
  op.type = "conditional_block";
  op.inputs["Cond"] = {condition.name()};
  op.outputs["Scope"] = {
      special(*outer, scopes, VarKind::kStepScopes, DType::kFloat32, false).name()};
  append_op(*outer, std::move(op));
}

// One branch: its results, copied to variables outside.
std::vector<Variable> branch(const LayerHelper& helper, const Variable& pred,
                             const std::function<std::vector<Variable>()>& build) {
  std::vector<Variable> results;
  append_conditional(helper.main(), pred, helper.name() + ".scopes", [&](Block& outer) {
    for (const Variable& made : build()) {
      results.push_back(copy_in_block(outer, made, unique_name::generate(helper.name() + ".tmp")));
      assign(made, results.back());
    }
  });
  return results;
}

}  // namespace

std::vector<Variable> cond(const Variable& pred,
                           const std::function<std::vector<Variable>()>& true_fn,
                           const std::function<std::vector<Variable>()>& false_fn,
                           const std::string& name) {
  const LayerHelper helper("cond", name);
  check_condition(helper, pred, "pred");
  const std::vector<Variable> yes = branch(helper, pred, true_fn);
  const Variable otherwise = helper.temp(DType::kBool, true);
  helper.append("logical_not", {{"X", {pred.name()}}}, {{"Out", {otherwise.name()}}});
  const std::vector<Variable> no = branch(helper, otherwise, false_fn);
  if (yes.size() != no.size()) {
    helper.fail("the branches give different numbers of variables", str_cat(yes.size()),
                str_cat(no.size()), "return as many in both");
  }
  const Variable mask = cast(pred, DType::kInt32);
  std::vector<Variable> results;
  for (size_t i = 0; i < yes.size(); ++i) {
    const Variable out = helper.temp(yes[i].dtype());
    helper.append("select_input", {{"X", {no[i].name(), yes[i].name()}}, {"Mask", {mask.name()}}},
                  {{"Out", {out.name()}}});
    results.push_back(out);
  }
  return results;
}

void Switch::when(const Variable& condition, const std::function<void()>& build) {
  const LayerHelper helper("switch");
  check_condition(helper, condition, "condition");
  Variable guard = condition;
  Variable none_before = logical_not(condition);
  if (none_) {
    const Variable not_this = none_before;
    none_before = logical_and(none_, not_this);
    guard = logical_and(none_, condition);
  }
  none_ = none_before;
  append_conditional(helper.main(), guard, kScopes, [&](Block&) { build(); });
}

void Switch::otherwise(const std::function<void()>& build) {
  const LayerHelper helper("switch");
  if (!none_) {
    helper.fail("otherwise follows no case", "when(condition, …) before it", "none",
                "call when first");
  }
  append_conditional(helper.main(), none_, kScopes, [&](Block&) { build(); });
}

StaticRNN::StaticRNN(const std::string& name) : name_(name) {}

void StaticRNN::step(const std::function<void()>& build) {
  const LayerHelper helper("static_rnn", name_);
  name_ = helper.name();
  const BlockGuard guard(helper.main());
  building_ = true;
  build();
  building_ = false;
  complete(guard.outer(), guard.inner());
}

Variable StaticRNN::step_input(const Variable& x) {
  const LayerHelper helper("static_rnn", name_);
  helper.check_input(x, "x");
  if (!building_ || x.shape().rank() < 1) {
    helper.fail(building_ ? "a step input has no time" : "step_input is called outside of step",
                "a variable [time, …], inside of step", x.shape().to_string(),
                "call it in the function given to step");
  }
  if (length_ < 0) length_ = x.shape()[0];
  VarDesc desc;
  desc.name = x.name();
  desc.dtype = x.dtype();
  desc.shape = Shape(x.shape().dims().subspan(1));
  const Variable row(helper.block(), helper.block().add_var(std::move(desc)));
  inputs_.emplace_back(x, row);
  return row;
}

Variable StaticRNN::memory(const MemoryOptions& options) {
  const LayerHelper helper("static_rnn", name_);
  Block& inner = helper.block();
  Variable init = options.init;
  if (!init) {
    if (!options.batch_ref || inputs_.empty()) {
      helper.fail("a memory has neither init nor batch_ref", "one of them", "none",
                  "give init, or shape and batch_ref");
    }
    // Made outside, with the batch of a whole step input.
    Variable whole = options.batch_ref;
    for (const auto& [outside, row] : inputs_) {
      if (row.name() == options.batch_ref.name()) whole = outside;
    }
    Block& outer = helper.main().block(inner.parent());
    VarDesc desc;
    desc.name = unique_name::generate(name_ + ".memory_init");
    desc.dtype = whole.dtype();
    desc.stop_gradient = true;
    init = Variable(outer, outer.add_var(std::move(desc)));
    Operator op;
    op.type = "fill_constant_batch_size_like";
    op.inputs["Input"] = {whole.name()};
    op.outputs["Out"] = {init.name()};
    op.attrs = {{"shape", options.shape.to_vector()},
                {"value", options.init_value},
                {"dtype", std::string(dtype_name(whole.dtype()))},
                {"input_dim_idx", static_cast<int64_t>(options.ref_batch_dim_idx)},
                {"output_dim_idx", static_cast<int64_t>(options.init_batch_dim_idx)}};
    append_op(outer, std::move(op));
  }
  const Variable before = copy_in_block(inner, init, unique_name::generate(name_ + ".memory"));
  memories_.push_back({.init = init.name(), .before = before.name(), .after = {}});
  return before;
}

void StaticRNN::update_memory(const Variable& memory, const Variable& value) {
  for (Memory& known : memories_) {
    if (known.before == memory.name()) known.after = value.name();
  }
}

void StaticRNN::step_output(const Variable& out) {
  outputs_.push_back(out);
}
void StaticRNN::output(const std::vector<Variable>& outs) {
  for (const Variable& out : outs) step_output(out);
}

void StaticRNN::complete(Block& outer, Block& inner) {
  const LayerHelper helper("static_rnn", name_);
  if (inputs_.empty() || outputs_.empty()) {
    helper.fail("a recurrent net needs inputs and outputs", "step_input and step_output",
                inputs_.empty() ? "no step_input" : "no step_output", "call both in step");
  }
  RecurrentAttrs attrs{.sub_block = {inner.index()}, .has_states = !memories_.empty()};
  Operator op;
  op.type = "recurrent";
  for (const auto& [outside, row] : inputs_) op.inputs["inputs"].push_back(outside.name());
  for (const Memory& memory : memories_) {
    if (memory.after.empty()) {
      helper.fail(str_cat("memory '", memory.before, "' is never updated"), "update_memory",
                  "nothing", "call update_memory in step");
    }
    op.inputs["initial_states"].push_back(memory.init);
    attrs.ex_states.push_back(memory.before);
    attrs.states.push_back(memory.after);
  }
  for (const std::string& name : Crossing(inner).reads) op.inputs["parameters"].push_back(name);
  for (const Variable& out : outputs_) {
    VarDesc desc;
    desc.name = out.name();
    desc.dtype = out.dtype();
    desc.shape = Shape{length_};
    for (const int64_t dim : out.shape()) desc.shape.push_back(dim);
    results_.emplace_back(outer, outer.add_var(std::move(desc)));
    op.outputs["outputs"].push_back(out.name());
  }
  op.outputs["step_scopes"] = {step_scopes(helper, outer).name()};
  op.attrs = to_attributes(attrs);
  append_op(outer, std::move(op));
}

}  // namespace fleet::fluid::layers
