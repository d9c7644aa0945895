#include "transpiler/parameter_server/tables.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "fluid/ops/distributed/names.h"
#include "fluid/ops/distributed/table_ops.h"
#include "fluid/ops/shape/fill.h"
#include "transpiler/parameter_server/trainer_ops.h"

namespace fleet::transpiler {
namespace {

using fluid::Block;
using fluid::Operator;
using fluid::OpList;
using fluid::Program;

bool is_lookup(const Program& program, const Operator& op) {
  return fluid::schema_of(program, op).gives_table_rows;
}

bool is_tree(const Operator& op) {
  return op.type == "hierarchical_sigmoid";
}

// The table that an op looks up; empty for other ops.
std::string table_of(const Program& program, const Operator& op) {
  const std::string& slot = fluid::schema_of(program, op).table_slot;
  return slot.empty() ? std::string() : op.input(slot).front();
}

bool flag(const Operator& op, std::string_view name) {
  const fluid::Attribute* attr = op.attr(name);
  const bool* value = attr == nullptr ? nullptr : std::get_if<bool>(attr);
  return value != nullptr && *value;
}

bool prefetches(const Operator& op) {
  return flag(op, "remote_prefetch") && flag(op, "is_sparse");
}

// GEO makes no difference between tables with rows that travel.
bool changes_rows(const Program& program, const Operator& op) {
  return is_lookup(program, op) && flag(op, "is_sparse") &&
         (flag(op, "remote_prefetch") || flag(op, "is_distributed"));
}

// Lookups that become one op.
struct Group {
  const PlacedParam* table = nullptr;
  std::string version;
  int64_t padding = -1;
  Names ids;
  Names outputs;
};

Operator make_lookup(const Block& block, const Group& group, const ServerPlan& plan,
                     int trainer_id) {
  fluid::DistributedLookupTableAttrs attrs;
  attrs.table_names = slice_names(*group.table);
  attrs.height_sections = sections_of(*group.table);
  attrs.endpoints = endpoints_of(plan, *group.table);
  attrs.padding_idx = group.padding;
  attrs.trainer_id = trainer_id;
  attrs.lookup_table_version = group.version;
  attrs.dtype = block.var(group.table->param).dtype;
  Operator op;
  op.type = "distributed_lookup_table";
  op.inputs["Ids"] = group.ids;
  op.inputs["W"] = {group.table->param};
  op.outputs["Outputs"] = group.outputs;
  op.attrs = fluid::to_attributes(std::move(attrs));
  return op;
}

// Where a table's rows are, for an op that fetches them itself.
void locate_table(Operator& op, const PlacedParam& table, const ServerPlan& plan, int trainer_id) {
  op.attrs["epmap"] = endpoints_of(plan, table);
  op.attrs[fluid::kTableNames] = slice_names(table);
  op.attrs["height_sections"] = sections_of(table);
  op.attrs["trainer_id"] = int64_t{trainer_id};
}

std::map<std::string, const PlacedParam*> remote_params(const ServerPlan& plan) {
  std::map<std::string, const PlacedParam*> tables;
  for (const PlacedParam& param : plan.params) {
    if (param.remote) tables[param.param] = &param;
  }
  return tables;
}

// Table, padding and version.
using GroupKey = std::tuple<std::string, int64_t, std::string>;

// Takes the lookups of remote tables out of the ops.
std::map<GroupKey, Group> take_lookups(const Program& program, OpList& ops,
                                       const std::map<std::string, const PlacedParam*>& tables) {
  std::map<GroupKey, Group> groups;
  std::erase_if(ops, [&](const auto& op) {
    if (!is_lookup(program, *op) || !prefetches(*op)) return false;
    const auto table = tables.find(table_of(program, *op));
    if (table == tables.end()) return false;
    const int64_t padding = fluid::padding_of(*op);
    const std::string version =
        fluid::schema_of(program, *op).ids_end_in_one ? "lookup_table" : "lookup_table_v2";
    Group& group = groups[{table->first, padding, version}];
    group.table = table->second;
    group.version = version;
    group.padding = padding;
    group.ids.push_back(op->input("Ids").front());
    group.outputs.push_back(op->output("Out").front());
    return true;
  });
  return groups;
}

}  // namespace

std::set<std::string, std::less<>> remote_tables(const Program& program,
                                                 const DistributeTranspilerConfig& config) {
  const bool geo = server_mode(config) == fluid::ServerMode::kGeo;
  std::set<std::string, std::less<>> tables;
  for (const auto& op : program.global_block().ops()) {
    const bool whole = is_tree(*op) && (geo || !config.prefetch_trees);
    const bool rows = prefetches(*op) || (geo && changes_rows(program, *op));
    const std::string table = table_of(program, *op);
    if (!table.empty() && rows && !whole) tables.insert(table);
  }
  return tables;
}

void place_remote_lookups(Program& program, const ServerPlan& plan, int trainer_id) {
  const auto tables = remote_params(plan);
  if (tables.empty()) return;
  Block& block = program.global_block();
  OpList ops = block.take_ops();
  auto groups = take_lookups(program, ops, tables);
  std::unordered_map<std::string, size_t> maker;
  for (size_t i = 0; i < ops.size(); ++i) {
    const std::string table = table_of(program, *ops[i]);
    const auto found = tables.find(table);
    if (found != tables.end() && prefetches(*ops[i])) {
      locate_table(ops[i].edit(), *found->second, plan, trainer_id);
    }
    if (ops[i]->type.ends_with("_grad")) continue;
    for (std::string& name : ops[i]->output_names()) maker[std::move(name)] = i + 1;
  }
  // By position: before op 0, after op 0, … Of several at one place the last table goes first.
  std::map<size_t, std::vector<const Group*>> places;
  for (const PlacedParam& param : plan.params) {
    for (auto at = groups.lower_bound({param.param, INT64_MIN, ""});
         at != groups.end() && std::get<0>(at->first) == param.param; ++at) {
      size_t place = 0;
      for (const std::string& name : at->second.ids) {
        const auto found = maker.find(name);
        if (found != maker.end()) place = std::max(place, found->second);
      }
      places[place].push_back(&at->second);
    }
  }
  OpList rewritten;
  for (size_t i = 0; i <= ops.size(); ++i) {
    if (i > 0) rewritten.push_back(std::move(ops[i - 1]));
    const auto here = places.find(i);
    if (here == places.end()) continue;
    for (auto group = here->second.rbegin(); group != here->second.rend(); ++group) {
      rewritten.emplace_back(make_lookup(block, **group, plan, trainer_id));
    }
  }
  block.set_ops(std::move(rewritten));
}

void fake_remote_tables(Program& startup, const ServerPlan& plan) {
  auto tables = plan.empty_tables;
  for (const auto& [name, param] : remote_params(plan)) tables.insert(name);
  if (tables.empty()) return;
  Block& block = startup.global_block();
  OpList ops = block.take_ops();
  std::erase_if(ops, [&](const auto& op) {
    const Names outputs = op->output_names();
    return std::any_of(outputs.begin(), outputs.end(),
                       [&](const auto& name) { return tables.contains(name); });
  });
  block.set_ops(std::move(ops));
  for (const std::string& name : tables) {
    fluid::FakeInitAttrs attrs;
    attrs.shape = std::as_const(block).var(name).shape.to_vector();
    Operator op;
    op.type = "fake_init";
    op.outputs["Out"] = {name};
    op.attrs = fluid::to_attributes(std::move(attrs));
    block.append_op(std::move(op));
  }
}

std::set<std::string, std::less<>> unreceived_tables(const Program& program) {
  std::set<std::string, std::less<>> tables;
  for (const auto& op : program.global_block().ops()) {
    if (op->type != "lookup_table" && op->type != "nce") continue;
    if (flag(*op, "is_sparse")) tables.insert(table_of(program, *op));
  }
  return tables;
}

void keep_lookups_local(Program& program) {
  Block& block = program.global_block();
  for (size_t i = 0; i < block.op_count(); ++i) {
    if (block.ops()[i]->type != "lookup_table") continue;
    block.edit_op(i).attrs["remote_prefetch"] = false;
  }
}

std::vector<std::pair<std::string, std::string>> looked_up_rows(
    const Program& program, const std::set<std::string, std::less<>>& tables) {
  std::vector<std::pair<std::string, std::string>> rows;
  std::map<std::string, std::string> last;
  for (const auto& op : program.global_block().ops()) {
    const fluid::OpSchema& row = fluid::schema_of(program, *op);
    const std::string& slot = row.gives_table_rows ? row.table_slot : row.table_gradient_slot;
    if (slot.empty()) continue;
    const std::string& table = op->input(slot).front();
    const std::string& ids = op->input("Ids").front();
    if (!tables.contains(table) || last[ids] == table) continue;
    last[ids] = table;
    rows.emplace_back(ids, table);
  }
  return rows;
}

}  // namespace fleet::transpiler
