#include "transpiler/parameter_server/update_phases.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/distributed/server_ops.h"
#include "fluid/ops/math/reduce.h"
#include "fluid/ops/no_attrs.h"

namespace fleet::transpiler {
namespace {

using fluid::Block;
using fluid::Operator;
using fluid::VarDesc;
using Names = std::vector<std::string>;

using SharedOp = fluid::Shared<Operator>;

// f(name) for every name in the slots.
template <class F>
void each_name(const fluid::SlotMap& slots, F f) {
  for (const auto& [slot, names] : slots) {
    for (const std::string& name : names) {
      if (!name.empty()) f(name);
    }
  }
}

// Where a variable that update ops make is to be had.
struct Made {
  size_t phase = 0;         // from this phase on
  bool shared = false;      // on every server
  std::set<size_t> params;  // whose slices it was made from
};

class Planner {
 public:
  Planner(const fluid::Program& program, const TrainingOps& ops, const ServerPlan& plan)
      : table_(fluid::op_table(program)), block_(program.global_block()), ops_(ops), plan_(plan) {
    for (size_t i = 0; i < updated_count(plan); ++i) {
      for (const size_t position : update_of(ops, placed(i)).ops) order_.emplace_back(position, i);
    }
    std::sort(order_.begin(), order_.end());
    phases_.params.resize(updated_count(plan));
    made_.reserve(2 * order_.size());
    uses_.reserve(4 * order_.size());
  }

  UpdatePhases run() {
    for (const auto& [position, param] : order_) {
      place(block_.ops()[position], param, position == update_of(ops_, placed(param)).update);
    }
    for (auto& chain : phases_.params) {
      if (chain.empty()) chain.emplace_back();
    }
    return std::move(phases_);
  }

 private:
  const PlacedParam& placed(size_t param) const { return updated_at(plan_, param); }
  const VarDesc& var(const std::string& name) const { return block_.var(name); }

  bool is_scalar(const std::string& name) const { return var(name).shape.numel() == 1; }

  // Has one element for each of the parameter's.
  bool is_like(const std::string& name, size_t param) const {
    return var(name).shape == placed(param).shape && !(is_scalar(name) && made_.contains(name));
  }

  void place(const SharedOp& shared, size_t param, bool update) {
    const Operator& op = *shared;
    const Names inputs = op.input_names();
    const Names outputs = op.output_names();
    const auto like = [&](const std::string& name) { return is_like(name, param); };
    const bool reads_slice = std::any_of(inputs.begin(), inputs.end(), like);
    const bool writes_slice = std::any_of(outputs.begin(), outputs.end(), like);
    const bool scalar_out = !outputs.empty() && std::all_of(outputs.begin(), outputs.end(),
                                                            [&](auto& n) { return is_scalar(n); });
    if (placed(param).sliced && placed(param).sparse && place_row_squares(op, param)) {
      return;
    }
    if (inputs.empty() && scalar_out) {
      constants_[outputs.front()] = {op, param};
    } else if (takes_norms_of_others(op, param, update)) {
      place_norms(op, param, update);
    } else if (reads_slice && scalar_out && !writes_slice) {
      place_reduction(op, param);
    } else if (!reads_slice && !writes_slice && needs_others(inputs)) {
      place_shared(op);
    } else {
      append(shared, param, phase_for(op, param), update);
    }
  }

  bool takes_norms_of_others(const Operator& op, size_t param, bool update) const {
    const bool exchanged = placed(param).sliced && (plan_.form.whole_norms || !update);
    return exchanged && takes_whole_norms(table_.at(op.type));
  }

  // Scalars of several parameters, or of one that is cut.
  bool needs_others(const Names& inputs) const {
    std::set<size_t> params;
    for (const std::string& name : inputs) {
      const auto found = made_.find(name);
      if (found == made_.end()) continue;
      if (found->second.shared) return true;
      params.insert(found->second.params.begin(), found->second.params.end());
    }
    return params.size() > 1;
  }

  size_t& last_use(const std::string& name) { return uses_[name]; }

  // The first phase in which everything that the op reads is there and nobody still needs what it
  // overwrites.
  size_t phase_for(const Operator& op, size_t param) {
    size_t phase = 0;
    each_name(op.inputs, [&](const std::string& name) {
      place_constant(name, param);
      const auto found = made_.find(name);
      if (found == made_.end()) return;
      Made& made = found->second;
      if (!made.shared && !made.params.contains(param) && is_scalar(name)) {
        exchange(name, *made.params.begin(), made.phase, false);
        made.shared = true;
        made.phase += 1;
      }
      phase = std::max(phase, made.phase);
    });
    each_name(op.outputs,
              [&](const std::string& name) { phase = std::max(phase, last_use(name)); });
    return phase;
  }

  // A constant goes where it is used.
  void place_constant(const std::string& name, size_t param) {
    const auto found = constants_.find(name);
    if (found == constants_.end()) return;
    Operator op = std::move(found->second.first);
    constants_.erase(found);
    append(std::move(op), param, 0, false);
  }

  void append(Operator op, size_t param, size_t phase, bool update) {
    append(SharedOp(std::move(op)), param, phase, update);
  }

  void append(const SharedOp& op, size_t param, size_t phase, bool update) {
    auto& chain = phases_.params[param];
    if (chain.size() <= phase) chain.resize(phase + 1);
    chain[phase].push_back({op, update});
    const auto use = [&](const std::string& name) {
      size_t& last = last_use(name);
      last = std::max(last, phase);
    };
    each_name(op->inputs, use);
    each_name(op->outputs, [&](const std::string& name) {
      use(name);
      if (name.ends_with(kPartSuffix)) return;
      made_[name] = {.phase = phase, .shared = false, .params = {param}};
    });
  }

  ExchangeStage& stage(size_t index) {
    if (phases_.stages.size() <= index) phases_.stages.resize(index + 1);
    return phases_.stages[index];
  }

  // Puts the parts of `name` together after `phase`; false if that is done already.
  bool exchange(const std::string& name, size_t param, size_t phase, bool rows) {
    auto& vars = stage(phase).vars;
    const auto same = [&](const ExchangedVar& each) { return each.name == name; };
    if (std::any_of(vars.begin(), vars.end(), same)) return false;
    vars.push_back({.name = name, .param = param, .rows = rows});
    phases_.shared.insert(name);
    return true;
  }

  // Declares `rows`, which begins with the parameter's rows, and puts its parts together after
  // `phase`. Returns what slices call their parts.
  std::string exchange_rows(const std::string& rows, fluid::Shape shape, fluid::DType dtype,
                            size_t param, size_t phase) {
    add_var(rows, shape, dtype);
    const PlacedParam& whole = placed(param);
    if (!whole.interleaved) {
      exchange(rows, param, phase, true);
      return str_cat(rows, kPartSuffix);
    }
    std::string by_server = rows + "@BY_SERVER";
    if (exchange(by_server, param, phase, true)) {
      const auto servers = static_cast<int64_t>(whole.slices.size());
      Operator order;
      order.type = "interleave_rows";
      order.inputs["X"] = {by_server};
      order.outputs["Out"] = {rows};
      order.attrs =
          fluid::to_attributes(fluid::InterleaveRowsAttrs{.parts = servers, .rows = shape[0]});
      order.role = fluid::OpRole::kOptimize;
      stage(phase).ops.push_back(std::move(order));
      phases_.shared.insert(rows);
      shape.set(0, servers * whole.slices.front().shape[0]);
      add_var(by_server, shape, dtype);
    }
    return std::move(by_server) + std::string(kPartSuffix);
  }

  void add_var(std::string name, const fluid::Shape& shape, fluid::DType dtype) {
    VarDesc desc;
    desc.name = std::move(name);
    desc.shape = shape;
    desc.dtype = dtype;
    std::string key = desc.name;
    phases_.added.insert_or_assign(std::move(key), std::move(desc));
  }

  // reduce_sum of everything: of a parameter that is cut from sums over rows.
  void place_reduction(const Operator& op, size_t param) {
    const std::string out = op.output_names().front();
    if (!placed(param).sliced) {
      append(op, param, phase_for(op, param), false);
      return;
    }
    if (op.type != "reduce_sum" || op.input_names().size() != 1) {
      throw_error(ErrorCode::kNotSupported,
                  {.what = "an update reduces a gradient in a way that cannot be cut into slices",
                   .where = "op '" + op.type + "' of parameter '" + placed(param).param + "'",
                   .expected = "reduce_sum of all elements",
                   .got = op.to_string(),
                   .fix = placed(param).interleaved ? "set is_distributed to false"
                                                    : "set slice_var_up to false"});
    }
    const size_t phase = phase_for(op, param);
    const std::string in = op.input_names().front();
    const std::string rows = out + "@ROWS";
    const fluid::Shape& shape = placed(param).shape;
    Operator part;
    part.inputs["X"] = {in};
    fluid::Shape reduced = shape;
    if (shape.rank() > 1) {
      reduced.set(shape.rank() - 1, 1);
      part.type = "reduce_sum";
      part.attrs = fluid::to_attributes(
          fluid::ReduceAttrs{.dim = {shape.rank() - 1}, .keep_dim = true, .reduce_all = false});
    } else {
      part.type = "assign";
      part.attrs = fluid::to_attributes(fluid::NoAttrs{});
    }
    part.role = op.role;
    part.role_var = op.role_var;
    part.outputs["Out"] = {exchange_rows(rows, reduced, var(in).dtype, param, phase)};
    append(std::move(part), param, phase, false);
    Operator whole = op;
    whole.inputs["X"] = {rows};
    stage(phase).ops.push_back(std::move(whole));
    phases_.shared.insert(out);
    made_[out] = {.phase = phase + 1, .shared = true, .params = {param}};
  }

  // An op of scalars of several parameters: once on every server.
  void place_shared(const Operator& op) {
    size_t at = 0;
    for (const std::string& name : op.input_names()) {
      const auto found = made_.find(name);
      if (found == made_.end()) continue;
      const Made& made = found->second;
      at = std::max(at, made.shared ? made.phase - 1 : made.phase);
    }
    for (const std::string& name : op.input_names()) {
      const auto constant = constants_.find(name);
      if (constant != constants_.end()) {
        stage(at).ops.push_back(constant->second.first);
        phases_.shared.insert(name);
        made_[name] = {.phase = at + 1, .shared = true, .params = {}};
        constants_.erase(constant);
      }
      const auto found = made_.find(name);
      if (found == made_.end() || found->second.shared) continue;
      exchange(name, *found->second.params.begin(), found->second.phase, false);
      found->second.shared = true;
      found->second.phase += 1;
    }
    stage(at).ops.push_back(op);
    for (const std::string& name : op.output_names()) {
      phases_.shared.insert(name);
      made_[name] = {.phase = at + 1, .shared = true, .params = {}};
    }
  }

  // The ops of a global norm over the rows that came: merge, take the values, square, add up. The
  // last makes all of them, over the rows of every slice. False for other ops.
  bool place_row_squares(const Operator& op, size_t param) {
    constexpr std::array<std::string_view, 4> kChain = {
        "merge_selected_rows", "get_tensor_from_selected_rows", "square", "reduce_sum"};
    const std::string in = op.input("X").empty() ? std::string() : op.input("X").front();
    const auto found = row_squares_.find(in);
    const RowSquares made = found == row_squares_.end() ? RowSquares{in, 0} : found->second;
    if (made.ops >= kChain.size() || op.type != kChain[made.ops]) return false;
    const std::string out = op.output_names().front();
    if (made.ops + 1 < kChain.size()) {
      row_squares_[out] = {made.of, made.ops + 1};
      return true;
    }
    const size_t phase = rows_phase(made.of);
    const std::string rows = out + "@ROWS";
    Operator part;
    part.type = "marked_row_sums";
    part.inputs["X"] = {made.of};
    part.outputs["Out"] = {exchange_rows(rows, fluid::Shape{placed(param).shape[0], 2},
                                         var(made.of).dtype, param, phase)};
    part.attrs = fluid::to_attributes(fluid::NoAttrs{});
    part.role = op.role;
    append(std::move(part), param, phase, false);
    Operator whole;
    whole.type = "sum_marked_rows";
    whole.inputs["X"] = {rows};
    whole.outputs["Out"] = {out};
    whole.attrs = fluid::to_attributes(fluid::NoAttrs{});
    whole.role = op.role;
    stage(phase).ops.push_back(std::move(whole));
    phases_.shared.insert(out);
    made_[out] = {.phase = phase + 1, .shared = true, .params = {param}};
    return true;
  }

  size_t rows_phase(const std::string& rows) const {
    const auto found = made_.find(rows);
    return found == made_.end() ? 0 : found->second.phase;
  }

  // The sums over rows of squares of `of`, whole after the phase; returns their name.
  std::string square_rows(const std::string& of, size_t param, size_t phase) {
    std::string rows = of + "@SQUARED_ROWS";
    Operator part;
    part.type = "squared_row_sums";
    part.inputs["X"] = {of};
    part.outputs["Out"] = {exchange_rows(rows, fluid::Shape{placed(param).shape[0]},
                                         fluid::DType::kFloat64, param, phase)};
    part.attrs = fluid::to_attributes(fluid::NoAttrs{});
    part.role = fluid::OpRole::kOptimize;
    append(std::move(part), param, phase, false);
    return rows;
  }

  void place_norms(const Operator& op, size_t param, bool update) {
    const size_t phase = phase_for(op, param);
    if (table_.at(op.type).norms.empty()) {
      place_split_update(op, param, phase, update);
    } else {
      append_with_norms(op, param, phase, update);
    }
  }

  // The sums over rows in the phase, the op behind it.
  void append_with_norms(Operator op, size_t param, size_t phase, bool update) {
    for (const fluid::NormInput& norm : table_.at(op.type).norms) {
      op.inputs[norm.row_sums] = {square_rows(op.input(norm.of).front(), param, phase)};
    }
    append(std::move(op), param, phase + 1, update);
  }

  void place_split_update(const Operator& op, size_t param, size_t phase, bool update) {
    const fluid::SplitUpdate& split = table_.at(op.type).split_update;
    const std::string& value = op.input("Param").front();
    const std::string direction = value + "@DIRECTION";
    add_var(direction, placed(param).shape, placed(param).dtype);
    Operator first = op;
    first.type = split.direction;
    first.inputs.erase("LearningRate");
    first.outputs.erase("ParamOut");
    first.outputs["Direction"] = {direction};
    append(std::move(first), param, phase, false);
    Operator last;
    last.type = split.apply;
    last.role = op.role;
    last.role_var = op.role_var;
    last.inputs["Param"] = {value};
    last.inputs["Direction"] = {direction};
    last.inputs["LearningRate"] = op.input("LearningRate");
    last.outputs["ParamOut"] = op.output("ParamOut");
    last.attrs = fluid::to_attributes(fluid::NoAttrs{});
    append_with_norms(std::move(last), param, phase, update);
  }

  const fluid::OpTable& table_;
  const Block& block_;
  const TrainingOps& ops_;
  const ServerPlan& plan_;
  std::vector<std::pair<size_t, size_t>> order_;  // position, parameter
  std::unordered_map<std::string, Made> made_;
  std::unordered_map<std::string, size_t> uses_;  // the last phase that reads or writes it
  std::unordered_map<std::string, std::pair<Operator, size_t>> constants_;
  // What a variable becomes on the way from rows to the sum of their squares: `ops` are done.
  struct RowSquares {
    std::string of;
    size_t ops = 0;
  };
  std::unordered_map<std::string, RowSquares> row_squares_;
  UpdatePhases phases_;
};

// Each parameter's ops as they are, one phase.
UpdatePhases as_they_are(const Block& block, const TrainingOps& ops, const ServerPlan& plan) {
  UpdatePhases phases;
  for (size_t i = 0; i < updated_count(plan); ++i) {
    const UpdatedParam& updated = update_of(ops, updated_at(plan, i));
    auto& chain = phases.params.emplace_back(1);
    for (const size_t position : updated.ops) {
      chain.front().push_back({block.ops()[position], position == updated.update});
    }
  }
  return phases;
}

}  // namespace

UpdatePhases plan_phases(const fluid::Program& program, const TrainingOps& ops,
                         const ServerPlan& plan) {
  if (!plan.form.exchanges()) return as_they_are(program.global_block(), ops, plan);
  return Planner(program, ops, plan).run();
}

}  // namespace fleet::transpiler
