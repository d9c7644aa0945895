#include "transpiler/parameter_server/server_startup.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "fluid/ops/distributed/server_program.h"
#include "fluid/ops/nn/growing_table.h"
#include "fluid/ops/shape/index_ops.h"
#include "fluid/program/interleaved.h"
#include "transpiler/parameter_server/dc_asgd.h"

namespace fleet::transpiler {
namespace {

using fluid::Block;
using fluid::Operator;
using fluid::Program;
using fluid::VarDesc;

// What a startup program makes -> the variables of the server that get a part or all of it.
using Copies = std::unordered_map<std::string_view, std::vector<const VarDesc*>>;

Copies copies_by_origin(const Program& startup, const Program& server_program) {
  Copies copies;
  for (const auto& op : startup.global_block().ops()) {
    for (const auto& [slot, names] : op->outputs) {
      for (const std::string& name : names) copies.try_emplace(name);
    }
  }
  const auto add = [&copies](const std::string& origin, const VarDesc* var) {
    const auto found = copies.find(origin);
    if (found != copies.end()) found->second.push_back(var);
  };
  for (const VarDesc* var : server_program.global_block().vars_in_order()) {
    add(var->slice ? var->slice->origin : var->name, var);
  }
  // Whole state of several slices of one parameter is called "<origin>.block<i>".
  for (const fluid::DistributedVar& row : server_program.distribution().vars) {
    if (row.is_slice || row.slice == row.origin) continue;
    const VarDesc* var = server_program.global_block().find_var(row.slice);
    if (var != nullptr) add(row.origin, var);
  }
  return copies;
}

// The slice's part of the values that an initialiser lists.
template <class T>
void cut_values(fluid::Attribute& attr, const fluid::SliceInfo& slice, int64_t count) {
  auto* values = std::get_if<std::vector<T>>(&attr);
  if (values == nullptr || static_cast<int64_t>(values->size()) < slice.offset + count) return;
  const auto first = values->begin() + slice.offset;
  *values = std::vector<T>(first, first + count);
}

void cut_values(fluid::AttributeMap& attrs, const fluid::SliceInfo& slice, int64_t count) {
  for (const char* name : {"bool_values", "fp32_values", "int32_values", "int64_values"}) {
    if (!attrs.contains(name)) continue;
    cut_values<double>(attrs[name], slice, count);
    cut_values<int64_t>(attrs[name], slice, count);
  }
}

[[noreturn]] void refuse_slice(const Operator& op, const std::string& name, std::string expected,
                               std::string fix) {
  throw_error(ErrorCode::kNotSupported,
              {.what = "an initialiser cannot make a slice of its variable",
               .where = "startup program, op '" + op.type + "', variable '" + name + "'",
               .expected = std::move(expected),
               .got = op.to_string(),
               .fix = std::move(fix)});
}

Operator initialise(const Operator& origin, const std::string& name, const VarDesc& copy) {
  Operator op = origin;
  op.rename_output(name, copy.name);
  if (!copy.slice) return op;
  if (!op.attrs.contains("shape")) {
    refuse_slice(origin, name, "an initialiser with a shape",
                 "use Constant, Uniform, Normal or Xavier, or set slice_var_up to false");
  }
  op.attrs["shape"] = copy.shape.to_vector();
  cut_values(op.attrs, *copy.slice, copy.shape.numel());
  return op;
}

// Takes the copy's part from the whole value.
Operator take_part(const Operator& origin, const std::string& name, const VarDesc& copy,
                   const Program& server_program) {
  Operator op;
  op.outputs["Out"] = {copy.name};
  if (!copy.slice) {
    op.type = "assign";
    op.inputs["X"] = {name};
    return op;
  }
  if (fluid::row_stride(server_program, copy) != 1) {
    refuse_slice(origin, name, "an initialiser without inputs",
                 "initialise the distributed table by Constant, Uniform, Normal or Xavier");
  }
  const auto first = copy.slice->offset / copy.shape.numel(1, copy.shape.rank());
  op.type = "slice";
  op.inputs["Input"] = {name};
  op.attrs =
      fluid::to_attributes(fluid::SliceAttrs{.axes = {0},
                                             .starts = {static_cast<int32_t>(first)},
                                             .ends = {static_cast<int32_t>(first + copy.shape[0])},
                                             .decrease_axis = {},
                                             .infer_flags = {1}});
  return op;
}

bool same_part(const VarDesc& a, const VarDesc& b) {
  return a.shape == b.shape && a.slice.has_value() == b.slice.has_value() &&
         (!a.slice || a.slice->offset == b.slice->offset);
}

// Assignments of the parts that are here, where the op copies a variable that is cut alike: a slow
// parameter starts where the fast one does. Empty for other ops.
std::vector<Operator> copy_parts(const Operator& op, const Copies& copies) {
  if (op.type != "assign" || !copies.contains(op.input("X").front())) return {};
  const auto& sources = copies.at(op.input("X").front());
  std::vector<Operator> parts;
  for (const VarDesc* copy : copies.at(op.output("Out").front())) {
    const auto source = std::find_if(sources.begin(), sources.end(),
                                     [copy](const VarDesc* var) { return same_part(*var, *copy); });
    if (source == sources.end()) return {};
    Operator part = op;
    part.inputs["X"] = {(*source)->name};
    part.outputs["Out"] = {copy->name};
    parts.push_back(std::move(part));
  }
  return parts;
}

bool is_computed(const Operator& op) {
  return std::any_of(op.inputs.begin(), op.inputs.end(),
                     [](const auto& slot) { return !slot.second.empty(); });
}

// Of each op of the startup program, whether this server runs it as it is: it computes what lives
// here from other values (a normalised weight's norm), or makes such a value.
std::vector<bool> whole_ops(const Block& startup, const Copies& copies) {
  const auto& ops = startup.ops();
  std::vector<bool> whole(ops.size());
  std::set<std::string> wanted;
  for (size_t i = ops.size(); i-- > 0;) {
    const Operator& op = *ops[i];
    for (const std::string& name : op.output_names()) {
      const bool here = is_computed(op) && !copies.at(name).empty();
      const bool whole_here = here && copy_parts(op, copies).empty();
      whole[i] = whole[i] || whole_here || wanted.count(name) != 0;
    }
    if (whole[i]) {
      for (std::string& name : op.input_names()) wanted.insert(std::move(name));
    }
  }
  return whole;
}

void append_whole(Block& block, const Block& startup, const Operator& op) {
  for (const std::string& name : op.output_names()) {
    if (block.find_var(name) != nullptr) continue;
    VarDesc temporary = startup.var(name);
    // Drawn as the origin is, although it does not last.
    if (temporary.persistable) {
      temporary.slice =
          fluid::SliceInfo{.origin = name, .origin_shape = temporary.shape.to_vector()};
    }
    temporary.persistable = temporary.is_parameter = false;
    block.add_var(std::move(temporary));
  }
  block.append_op(op);
}

void append_initialisers(Program& program, const Program& startup, const Program& server_program) {
  Block& block = program.global_block();
  for (const VarDesc* var : server_program.global_block().vars_in_order()) {
    VarDesc copy = *var;
    copy.persistable = copy.kind != fluid::VarKind::kStepScopes;
    block.add_var(std::move(copy));
  }
  const Copies copies = copies_by_origin(startup, server_program);
  const auto& ops = startup.global_block().ops();
  const std::vector<bool> whole = whole_ops(startup.global_block(), copies);
  for (size_t i = 0; i < ops.size(); ++i) {
    const Operator& op = *ops[i];
    if (whole[i]) append_whole(block, startup.global_block(), op);
    auto parts = whole[i] ? std::vector<Operator>() : copy_parts(op, copies);
    if (!parts.empty()) {
      for (Operator& part : parts) block.append_op(std::move(part));
      continue;
    }
    for (const std::string& name : op.output_names()) {
      for (const VarDesc* copy : copies.at(name)) {
        if (whole[i] && copy->name == name) continue;
        block.append_op(is_computed(op) ? take_part(op, name, *copy, server_program)
                                        : initialise(op, name, *copy));
      }
    }
  }
  const fluid::DistributionInfo& job = server_program.distribution();
  if (job.delay_compensation.form.empty()) return;
  const auto mode = job.server_mode.value_or(fluid::ServerMode::kAsync);
  append_backup_initialisers(
      program, read_server_program(server_program, *server_program.global_block().ops().back(),
                                   mode, job.trainers));
}

// Trainers have the states of their rows.
void leave_row_states_out(Program& program) {
  Block& block = program.global_block();
  for (size_t i = 0; i < block.op_count(); ++i) {
    const Operator& op = *block.ops()[i];
    if (op.type != "make_growing_table") continue;
    auto attrs = fluid::parse_attributes<fluid::MakeGrowingTableAttrs>(op.type, op.attrs);
    attrs.state_names.clear();
    attrs.state_widths.clear();
    attrs.state_values.clear();
    block.edit_op(i).attrs = fluid::to_attributes(attrs);
  }
}

}  // namespace

Program make_server_startup(const Program& startup, const Program& server_program,
                            const PassRunner& runner) {
  Program program;
  program.set_random_seed(startup.random_seed());
  program.set_op_library(startup.op_library());
  const std::array passes = {
      Pass{"append_initialisers", "Initialises what the server holds.",
           [&](Program& target) { append_initialisers(target, startup, server_program); }},
      Pass{"leave_row_states_out", "GEO's servers add rows up, whose states trainers have.",
           leave_row_states_out,
           server_program.distribution().server_mode == fluid::ServerMode::kGeo},
  };
  runner.run(program, passes);
  program.distribution() = server_program.distribution();
  return program;
}

}  // namespace fleet::transpiler
