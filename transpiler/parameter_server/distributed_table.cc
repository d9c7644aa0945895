#include "transpiler/parameter_server/distributed_table.h"

#include <algorithm>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/math/scale.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/shape/fill.h"
#include "fluid/ops/table.h"
#include "transpiler/parameter_server/trainer_ops.h"

namespace fleet::transpiler {
namespace {

using fluid::Block;
using fluid::Operator;
using fluid::OpList;
using fluid::OpRole;
using fluid::Program;
using fluid::VarDesc;
using fluid::VarKind;

bool is_distributed_lookup(const Operator& op) {
  if (op.type != "lookup_table" && op.type != "lookup_table_v2") return false;
  const fluid::Attribute* attr = op.attr("is_distributed");
  const bool* distributed = attr == nullptr ? nullptr : std::get_if<bool>(attr);
  return distributed != nullptr && *distributed;
}

std::string in_name(const ServerPlan& plan, size_t table, size_t server) {
  return str_cat("prefetch_compress_in_tmp_", table * plan.endpoints.size() + server);
}

std::string out_name(const ServerPlan& plan, size_t table, size_t server) {
  return str_cat("prefetch_compress_out_tmp_", table * plan.endpoints.size() + server);
}

// The part of a gradient for one server.
std::string part_name(const ServerPlan& plan, const PlacedTable& table, int shard, size_t server) {
  const std::string suffix = plan.form.averages ? shard_suffix(shard) : "";
  return str_cat(table.grad, suffix, ".pserver_", server);
}

VarDesc like(const VarDesc& var, std::string name) {
  VarDesc copy;
  copy.name = std::move(name);
  copy.kind = var.kind;
  copy.dtype = var.dtype;
  copy.shape = var.shape;
  return copy;
}

Operator make(std::string type, fluid::SlotMap inputs, fluid::SlotMap outputs,
              fluid::AttributeMap attrs, OpRole role) {
  Operator op;
  op.type = std::move(type);
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  op.attrs = std::move(attrs);
  op.role = role;
  return op;
}

// The lookups of a table that leave out the same id.
struct Lookups {
  Names ids;
  Names outputs;
};
using LookupsByPadding = std::map<int64_t, Lookups>;

// split_ids and prefetch of one table, and a merge_ids for each padding.
std::vector<Operator> make_lookups(Block& block, const ServerPlan& plan, size_t table,
                                   const LookupsByPadding& lookups, int trainer_id) {
  Names ids;
  for (const auto& [padding, group] : lookups) {
    ids.insert(ids.end(), group.ids.begin(), group.ids.end());
  }
  const std::string& output = lookups.begin()->second.outputs.front();
  Names split;
  Names rows;
  for (size_t server = 0; server < plan.endpoints.size(); ++server) {
    split.push_back(in_name(plan, table, server));
    rows.push_back(out_name(plan, table, server));
    block.add_var(like(block.var(ids.front()), split.back()));
    block.add_var(like(block.var(output), rows.back()));
  }
  fluid::PrefetchAttrs attrs;
  attrs.epmap = plan.endpoints;
  attrs.trainer_id = trainer_id;
  const auto none = fluid::to_attributes(fluid::NoAttrs{});
  std::vector<Operator> ops;
  ops.push_back(
      make("split_ids", {{"Ids", std::move(ids)}}, {{"Out", split}}, none, OpRole::kDist));
  ops.push_back(make("prefetch", {{"X", split}}, {{"Out", rows}},
                     fluid::to_attributes(std::move(attrs)), OpRole::kRpc));
  for (const auto& [padding, group] : lookups) {
    ops.push_back(make(
        "merge_ids", {{"Ids", group.ids}, {"Rows", split}, {"X", rows}}, {{"Out", group.outputs}},
        fluid::to_attributes(fluid::MergeIdsAttrs{.padding_idx = padding}), OpRole::kDist));
  }
  return ops;
}

// A table, or state of its shape, on one of several servers.
VarDesc table_var(const VarDesc& origin, const PlacedTable& table, int server) {
  VarDesc var = like(origin, origin.name);
  var.shape.set(0, table.rows);
  var.persistable = true;
  var.slice = fluid::SliceInfo{.origin = origin.name,
                               .origin_shape = origin.shape.to_vector(),
                               .offset = server * var.shape.numel(1, var.shape.rank()),
                               .block_id = server};
  return var;
}

void append_table_average(Block& block, Names parts, const std::string& grad, int shards) {
  const auto none = fluid::to_attributes(fluid::NoAttrs{});
  block.append_op(
      make("sum", {{"X", std::move(parts)}}, {{"Out", {grad}}}, none, OpRole::kForward));
  fluid::ScaleAttrs attrs;
  attrs.scale = 1.0 / shards;
  block.append_op(make("scale", {{"X", {grad}}}, {{"Out", {grad}}}, fluid::to_attributes(attrs),
                       OpRole::kForward));
}

// The user's update ops of a table, on the part that lives here.
void append_table_update(Program& program, const Program& origin, const TrainingOps& ops,
                         const UpdatedParam& updated, const PlacedTable& table, int server,
                         const std::string& grad, int32_t target) {
  Block& global = program.global_block();
  for (const size_t position : updated.ops) {
    Operator op = origin.global_block().op(position);
    for (auto* slots : {&op.inputs, &op.outputs}) {
      for (auto& [slot, names] : *slots) {
        for (std::string& name : names) {
          if (name.empty()) continue;
          const VarDesc& var = origin.global_block().var(name);
          if (name == table.grad) {
            name = grad;
          } else if (!global.has_var(name)) {
            const bool cut = !ops.learning_rates.contains(name) && var.shape == table.shape;
            VarDesc copy = cut ? table_var(var, table, server) : like(var, name);
            copy.persistable = var.persistable || !cut;
            global.add_var(std::move(copy));
          }
        }
      }
    }
    op.role_var = {table.param, table.grad};
    program.block(target).append_op(std::move(op));
  }
}

void refuse_lookahead(const Operator& op, const std::string& param) {
  if (op.type != "lookahead") return;
  throw_error(ErrorCode::kNotSupported,
              {.what = "Lookahead moves all rows of a distributed table, of which servers have "
                       "those that were looked up",
               .where = "op '" + op.type + "', parameter '" + param + "'",
               .expected = "an update of the rows of the gradient",
               .got = op.type,
               .fix = "set is_distributed to false, or train the table without Lookahead"});
}

// Servers have some of a table's rows each, and exchange no norms of them.
void check_table_updates(const Block& block, const TrainingOps& ops, const UpdatedParam& updated) {
  const fluid::Shape& shape = block.var(updated.param).shape;
  const auto is_known = [&](const std::string& name) {
    const VarDesc& var = block.var(name);
    return var.shape == shape || var.persistable || ops.learning_rates.contains(name);
  };
  for (const size_t position : updated.ops) {
    const Operator& op = block.op(position);
    refuse_lookahead(op, updated.param);
    const bool whole =
        needs_whole_param(op.type) || op.type == "dpsgd" || op.type == "clip_by_norm";
    const auto names = op.input_names();
    if (!whole && std::all_of(names.begin(), names.end(), is_known)) continue;
    throw_error(ErrorCode::kNotSupported,
                {.what = "a distributed table is updated by a norm of the whole table",
                 .where = "op '" + op.type + "', parameter '" + updated.param + "'",
                 .expected = "an update of single rows",
                 .got = op.type,
                 .fix = "set is_distributed to false, or choose another optimizer or clip"});
  }
}

}  // namespace

void take_distributed_tables(const Program& program, TrainingOps& ops) {
  const Block& block = program.global_block();
  std::set<std::string> tables;
  for (const auto& op : block.ops()) {
    if (is_distributed_lookup(*op)) tables.insert(op->input("W").front());
  }
  std::vector<UpdatedParam> dense;
  for (UpdatedParam& param : ops.params) {
    if (!tables.contains(param.param)) {
      dense.push_back(std::move(param));
      continue;
    }
    if (block.var(param.grad).kind != VarKind::kSelectedRows) {
      throw_error(ErrorCode::kNotSupported,
                  {.what = "a distributed table has a gradient that is not of rows",
                   .where = "parameter '" + param.param + "'",
                   .expected = "is_sparse",
                   .got = "a dense gradient",
                   .fix = "set is_sparse, or set is_distributed to false"});
    }
    check_table_updates(block, ops, param);
    ops.tables.push_back(std::move(param));
  }
  ops.params = std::move(dense);
}

std::vector<PlacedTable> place_tables(const Program& program, const TrainingOps& ops, int servers) {
  std::vector<PlacedTable> tables;
  for (const UpdatedParam& updated : ops.tables) {
    const VarDesc& var = program.global_block().var(updated.param);
    tables.push_back({.param = updated.param,
                      .grad = updated.grad,
                      .shape = var.shape,
                      .dtype = var.dtype,
                      .rows = (var.shape[0] + servers - 1) / servers});
  }
  return tables;
}

void place_table_lookups(Program& program, const ServerPlan& plan, int trainer_id) {
  Block& block = program.global_block();
  for (size_t table = 0; table < plan.tables.size(); ++table) {
    OpList ops = block.take_ops();
    LookupsByPadding lookups;
    size_t first = ops.size();
    OpList kept;
    for (auto& op : ops) {
      const bool lookup =
          is_distributed_lookup(*op) && op->input("W").front() == plan.tables[table].param;
      if (!lookup) {
        kept.push_back(std::move(op));
        continue;
      }
      first = std::min(first, kept.size());
      Lookups& group = lookups[std::get<int64_t>(*op->attr("padding_idx"))];
      group.ids.push_back(op->input("Ids").front());
      group.outputs.push_back(op->output("Out").front());
    }
    if (!lookups.empty()) {
      auto made = make_lookups(block, plan, table, lookups, trainer_id);
      for (size_t i = 0; i < made.size(); ++i) {
        kept.emplace(kept.begin() + static_cast<std::ptrdiff_t>(first + i), std::move(made[i]));
      }
    }
    block.set_ops(std::move(kept));
  }
}

void send_table_gradients(Program& program, const ServerPlan& plan, int trainer_id,
                          int& next_control, Names& controls) {
  if (plan.tables.empty()) return;
  Block& block = program.global_block();
  std::map<std::string, size_t> last;  // gradient -> the last op that makes it
  for (size_t i = 0; i < block.op_count(); ++i) {
    for (std::string& name : block.op(i).output_names()) last[std::move(name)] = i;
  }
  std::multimap<size_t, const PlacedTable*> after;
  for (const PlacedTable& table : plan.tables) after.emplace(last.at(table.grad), &table);
  OpList rewritten;
  OpList ops = block.take_ops();
  for (size_t i = 0; i < ops.size(); ++i) {
    rewritten.push_back(std::move(ops[i]));
    const auto [begin, end] = after.equal_range(i);
    for (auto at = begin; at != end; ++at) {
      const PlacedTable& table = *at->second;
      Names parts;
      for (size_t server = 0; server < plan.endpoints.size(); ++server) {
        parts.push_back(part_name(plan, table, trainer_id, server));
        VarDesc part = like(block.var(table.grad), parts.back());
        part.shape.set(0, table.rows);
        block.add_var(std::move(part));
      }
      rewritten.emplace_back(make("split_ids", {{"Ids", {table.grad}}}, {{"Out", parts}},
                                  fluid::to_attributes(fluid::NoAttrs{}), OpRole::kDist));
      fluid::SendAttrs attrs;
      attrs.epmap = plan.endpoints;
      controls.push_back(add_control_var(block, next_control++));
      Operator send = make("send", {{"X", parts}}, {{"Out", {controls.back()}}},
                           fluid::to_attributes(std::move(attrs)), OpRole::kRpc);
      send.role_var = {table.param, table.grad};
      rewritten.emplace_back(std::move(send));
    }
  }
  block.set_ops(std::move(rewritten));
}

void fake_tables(Program& startup, const ServerPlan& plan) {
  Block& block = startup.global_block();
  for (const PlacedTable& table : plan.tables) {
    OpList ops = block.take_ops();
    std::erase_if(ops, [&table](const auto& op) {
      const Names outputs = op->output_names();
      return std::find(outputs.begin(), outputs.end(), table.param) != outputs.end();
    });
    block.set_ops(std::move(ops));
    fluid::FakeInitAttrs attrs;
    attrs.shape = table.shape.to_vector();
    block.append_op(make("fake_init", {}, {{"Out", {table.param}}},
                         fluid::to_attributes(std::move(attrs)), OpRole::kForward));
  }
}

void add_table_blocks(Program& program, const Program& origin, const ServerPlan& plan,
                      const TrainingOps& ops, int server, int32_t parent,
                      fluid::ListenAndServAttrs& listen, Names& received) {
  if (plan.tables.empty()) return;
  Block& global = program.global_block();
  const auto here = static_cast<size_t>(server);
  int32_t first = -1;
  for (size_t i = 0; i < plan.tables.size(); ++i) {
    const PlacedTable& table = plan.tables[i];
    VarDesc value = table_var(origin.global_block().var(table.param), table, server);
    value.kind = VarKind::kSelectedRows;
    global.add_var(std::move(value));
    VarDesc grad = like(origin.global_block().var(table.grad), table.grad);
    grad.shape.set(0, table.rows);
    if (!plan.form.averages) grad.name = part_name(plan, table, 0, here);
    grad.persistable = true;
    const std::string gradient = global.add_var(grad).name;
    Names parts = {gradient};
    if (plan.form.averages) {
      parts.clear();
      grad.persistable = false;
      for (int shard = 0; shard < plan.shards; ++shard) {
        grad.name = part_name(plan, table, shard, here);
        parts.push_back(global.add_var(grad).name);
      }
    }
    received.insert(received.end(), parts.begin(), parts.end());
    const int32_t update = program.add_block(parent).index();
    if (first < 0) first = update;
    if (plan.form.averages) {
      append_table_average(program.block(update), parts, gradient, plan.shards);
    }
    append_table_update(program, origin, ops, ops.tables[i], table, server, gradient, update);
    listen.optimize_blocks.push_back({update});
    listen.grad_to_block_id.push_back(str_cat(gradient, ":", update));
    listen.sparse_grad_to_param.push_back(str_cat(gradient, ":", table.param));
  }
  for (size_t i = 0; i < plan.tables.size(); ++i) {
    const PlacedTable& table = plan.tables[i];
    VarDesc ids;
    ids.name = in_name(plan, i, here);
    ids.dtype = fluid::DType::kInt64;
    ids.shape = fluid::Shape{fluid::Shape::kUnknown, 1};
    VarDesc rows;
    rows.name = out_name(plan, i, here);
    rows.dtype = table.dtype;
    rows.shape = fluid::Shape{fluid::Shape::kUnknown, table.shape[1]};
    Block& lookup = program.add_block(first);
    lookup.append_op(make("lookup_sparse_table", {{"W", {table.param}}, {"Ids", {ids.name}}},
                          {{"Out", {rows.name}}},
                          fluid::to_attributes(fluid::LookupSparseTableAttrs{}), OpRole::kForward));
    listen.prefetch_var_name_to_block_id.push_back(str_cat(ids.name, ":", lookup.index()));
    global.add_var(std::move(ids));
    global.add_var(std::move(rows));
  }
  VarDesc path;
  path.name = "kLookupTablePath";
  path.kind = VarKind::kRaw;
  path.typed = false;
  path.persistable = true;
  global.add_var(std::move(path));
  Block& save = program.add_block(first);
  for (const PlacedTable& table : plan.tables) {
    save.append_op(make("save", {{"X", {table.param}}}, {},
                        fluid::to_attributes(fluid::SaveAttrs{}), OpRole::kForward));
  }
  listen.checkpint_block_id = save.index();
}

}  // namespace fleet::transpiler
