#include "transpiler/parameter_server/distributed_table.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/distributed/server_program.h"
#include "fluid/ops/distributed/table_ops.h"
#include "fluid/ops/nn/growing_table.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/shape/fill.h"
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

bool is_distributed_lookup(const Program& program, const Operator& op) {
  if (!fluid::schema_of(program, op).gives_table_rows) return false;
  const fluid::Attribute* attr = op.attr("is_distributed");
  const bool* distributed = attr == nullptr ? nullptr : std::get_if<bool>(attr);
  return distributed != nullptr && *distributed;
}

const std::string& table_of_lookup(const Program& program, const Operator& lookup) {
  return lookup.input(fluid::schema_of(program, lookup).table_slot).front();
}

std::string in_name(const ServerPlan& plan, size_t table, size_t server) {
  return str_cat("prefetch_compress_in_tmp_", table * plan.endpoints.size() + server);
}

std::string out_name(const ServerPlan& plan, size_t table, size_t server) {
  return str_cat("prefetch_compress_out_tmp_", table * plan.endpoints.size() + server);
}

// The part of a gradient for one server.
std::string part_name(const ServerPlan& plan, const PlacedParam& table, int shard, int server) {
  const std::string suffix = plan.averages() ? shard_suffix(shard) : "";
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

// The lookups of a table that one server keeps are those of a sparse table like others.
void look_up_whole(Block& block, const std::string& table) {
  for (size_t i = 0; i < block.op_count(); ++i) {
    const Operator& op = *block.ops()[i];
    const fluid::OpSchema& row = fluid::schema_of(block.program(), op);
    const std::string& slot = row.gives_table_rows ? row.table_slot : row.table_gradient_slot;
    if (slot.empty() || op.input(slot).front() != table) continue;
    auto& attrs = block.edit_op(i).attrs;
    attrs["is_distributed"] = false;
    attrs["remote_prefetch"] = true;
  }
}

bool is_growing_lookup(const Operator& op) {
  return op.type == "lookup_growing_table";
}

[[noreturn]] void refuse_growing(const std::string& table, std::string what, std::string got,
                                 std::string fix) {
  throw_error(ErrorCode::kNotSupported, {.what = std::move(what),
                                         .where = "parameter '" + table + "'",
                                         .expected = "a table whose rows this job can train",
                                         .got = std::move(got),
                                         .fix = std::move(fix)});
}

// Servers have parts of a gradient.
void check_growing(const Block& block, const UpdatedParam& table,
                   const DistributeTranspilerConfig& config) {
  for (const size_t position : table.ops) {
    const Operator& op = *block.ops()[position];
    const Names inputs = op.input_names();
    const bool takes_rows = std::any_of(inputs.begin(), inputs.end(), [&block](const auto& name) {
      return block.var(name).kind == VarKind::kSelectedRows;
    });
    if (!takes_rows || position == table.update || op.type == "clip") continue;
    refuse_growing(table.param, "servers cannot clip a growing table's gradient by a norm",
                   "op '" + op.type + "'", "clip by value, or leave the table out (need_clip)");
  }
  if (config.enable_dc_asgd) {
    refuse_growing(table.param, "delays of a growing table's gradients cannot be compensated",
                   "enable_dc_asgd", "leave it off");
  }
}

// Servers of trainers that train alone hear of changes of rows, and of no lookup.
void check_counts(const Block& block, const Program& startup, const std::string& table) {
  const auto refuse = [&table](const char* got, const char* fix) {
    refuse_growing(table, "servers do not count lookups of trainers that train alone (GEO, EASGD)",
                   got, fix);
  };
  for (const auto& op : block.ops()) {
    if (op->type != "add_growing_table_shows" || op->input("Table").front() != table) continue;
    refuse("ShowClickEntry", "use ProbabilityEntry, or train in another mode");
  }
  for (const auto& op : startup.global_block().ops()) {
    if (op->type != "make_growing_table" || op->output("Out").front() != table) continue;
    const auto attrs = fluid::parse_attributes<fluid::MakeGrowingTableAttrs>(op->type, op->attrs);
    if (attrs.admission == "count" && attrs.admission_count > 1) {
      refuse("CountFilterEntry", "use ProbabilityEntry, or train in another mode");
    }
    if (attrs.keeps_count || attrs.keeps_score) {
      refuse(attrs.keeps_count ? "fields.count" : "fields.score",
             "evict by what was seen or by norm, or train in another mode");
    }
  }
}

// Tables that programs look up without training them.
void refuse_untrained(const Block& block, const TrainingOps& ops) {
  for (const auto& op : block.ops()) {
    if (!is_growing_lookup(*op)) continue;
    const std::string& table = op->input("Table").front();
    const bool trained = std::any_of(ops.tables.begin(), ops.tables.end(),
                                     [&table](const auto& each) { return each.param == table; });
    if (trained) continue;
    refuse_growing(table, "servers have no growing table that nobody trains", "no update of it",
                   "train it, or look it up in a program of one process");
  }
}

// One op for the lookups that are gathered.
class RemoteLookups {
 public:
  explicit RemoteLookups(const ServerPlan& plan) { attrs_.endpoints = plan.endpoints; }

  bool empty() const { return ids_.empty(); }
  // What the lookup behind it, of the same ids, tells the servers, too.
  void add_shows(const Operator& shows) {
    check_no_shows_wait();
    waiting_shows_ = shows;
  }
  void check_no_shows_wait() const {
    if (!waiting_shows_) return;
    refuse_growing(waiting_shows_->input("Table").front(),
                   "shows and clicks of ids reach servers with the lookup of the same ids",
                   waiting_shows_->to_string(), "give ShowClickEntry to sparse_embedding");
  }
  void add(const Operator& lookup) {
    const auto given =
        fluid::parse_attributes<fluid::LookupGrowingTableAttrs>(lookup.type, lookup.attrs);
    const std::string& table = lookup.input("Table").front();
    const auto known = std::find(tables_.begin(), tables_.end(), table);
    const auto at = static_cast<int64_t>(known - tables_.begin());
    if (known == tables_.end()) tables_.push_back(table);
    const bool shown = waiting_shows_ && waiting_shows_->input("Ids") == lookup.input("Ids") &&
                       waiting_shows_->input("Table").front() == table;
    if (shown) {
      shows_.push_back(waiting_shows_->input("Show").front());
      clicks_.push_back(waiting_shows_->input("Click").front());
      waiting_shows_.reset();
    }
    check_no_shows_wait();
    for (size_t i = 0; i < lookup.input("Ids").size(); ++i) {
      attrs_.shown.push_back(shown ? static_cast<int64_t>(shows_.size()) - 1 : -1);
      ids_.push_back(lookup.input("Ids")[i]);
      outputs_.push_back(lookup.output("Out")[i]);
      attrs_.table_of.push_back(at);
      attrs_.ids_end_in_one.push_back(given.ids_end_in_one ? 1 : 0);
      attrs_.has_padding.push_back(given.has_padding ? 1 : 0);
      attrs_.padding_idx.push_back(given.padding_idx);
    }
    attrs_.is_test = given.is_test;
  }
  // What it asks is of training or of a test alone; and it cannot stand behind an op that reads
  // what it makes, or changes what it reads.
  bool takes(const Operator& lookup) const {
    const fluid::Attribute* attr = lookup.attr("is_test");
    const bool* test = attr == nullptr ? nullptr : std::get_if<bool>(attr);
    return empty() || (test != nullptr && *test) == attrs_.is_test;
  }
  bool must_precede(const Operator& op) const {
    const auto touches = [](const Names& names, const Names& others) {
      return std::any_of(names.begin(), names.end(), [&others](const std::string& name) {
        return std::find(others.begin(), others.end(), name) != others.end();
      });
    };
    const Names changed = op.output_names();
    return touches(op.input_names(), outputs_) || touches(changed, ids_) ||
           touches(changed, outputs_) || touches(changed, shows_) || touches(changed, clicks_);
  }
  Operator take() {
    Operator op = make("lookup_remote_growing_tables",
                       {{"Ids", std::exchange(ids_, {})},
                        {"Tables", std::exchange(tables_, {})},
                        {"Shows", std::exchange(shows_, {})},
                        {"Clicks", std::exchange(clicks_, {})}},
                       {{"Outputs", std::exchange(outputs_, {})}}, fluid::to_attributes(attrs_),
                       OpRole::kRpc);
    attrs_ = {.endpoints = attrs_.endpoints};
    return op;
  }

 private:
  Names ids_;
  Names tables_;
  Names outputs_;
  Names shows_;
  Names clicks_;
  std::optional<Operator> waiting_shows_;  // for their lookup
  fluid::LookupRemoteGrowingTablesAttrs attrs_;
};

}  // namespace

void place_growing_lookups(Program& program, const ServerPlan& plan) {
  Block& block = program.global_block();
  RemoteLookups lookups(plan);
  OpList rewritten;
  OpList ops = block.take_ops();
  for (auto& op : ops) {
    const bool lookup = is_growing_lookup(*op);
    const bool before =
        !lookups.empty() && (lookups.must_precede(*op) || (lookup && !lookups.takes(*op)));
    if (before) rewritten.emplace_back(lookups.take());
    if (lookup) {
      lookups.add(*op);
    } else if (op->type == "add_growing_table_shows") {
      lookups.add_shows(*op);
    } else {
      rewritten.push_back(std::move(op));
    }
  }
  lookups.check_no_shows_wait();
  if (!lookups.empty()) rewritten.emplace_back(lookups.take());
  block.set_ops(std::move(rewritten));
}

void take_distributed_tables(Program& program, TrainingOps& ops,
                             const DistributeTranspilerConfig& config) {
  Block& block = program.global_block();
  std::set<std::string> tables;
  for (const auto& op : block.ops()) {
    if (is_distributed_lookup(program, *op)) tables.insert(table_of_lookup(program, *op));
  }
  std::vector<UpdatedParam> others;
  for (UpdatedParam& param : ops.params) {
    if (block.var(param.param).kind == VarKind::kGrowingTable) {
      check_growing(block, param, config);
      ops.tables.push_back(std::move(param));
      continue;
    }
    if (!tables.contains(param.param)) {
      others.push_back(std::move(param));
      continue;
    }
    if (block.var(param.grad).kind != VarKind::kSelectedRows) {
      throw_error(ErrorCode::kNotSupported,
                  {.what = "a distributed table has a gradient that is not sparse",
                   .where = "parameter '" + param.param + "'",
                   .expected = "is_sparse",
                   .got = "a dense gradient",
                   .fix = "set is_sparse, or set is_distributed to false"});
    }
    const bool whole = stays_whole(program, param, config);
    if (whole) look_up_whole(block, param.param);
    (whole ? others : ops.tables).push_back(std::move(param));
  }
  ops.params = std::move(others);
  refuse_untrained(block, ops);
}

void take_growing_tables(const Program& program, const Program& startup, TrainingOps& ops) {
  const Block& block = program.global_block();
  const auto grows = [&block](const UpdatedParam& param) {
    return block.var(param.param).kind == VarKind::kGrowingTable;
  };
  for (UpdatedParam& param : ops.params) {
    if (!grows(param)) continue;
    check_counts(block, startup, param.param);
    ops.tables.push_back(param);
  }
  std::erase_if(ops.params, grows);
  refuse_untrained(block, ops);
}

void place_tables(const Program& program, const TrainingOps& ops, ServerPlan& plan) {
  const int servers = static_cast<int>(plan.endpoints.size());
  for (size_t i = 0; i < ops.tables.size(); ++i) {
    const VarDesc& var = program.global_block().var(ops.tables[i].param);
    PlacedParam table{.param = ops.tables[i].param,
                      .grad = ops.tables[i].grad,
                      .shape = var.shape,
                      .dtype = var.dtype,
                      .updated = i,
                      .sliced = servers > 1,
                      .sparse = true,
                      .remote = true,
                      .received = false,
                      .interleaved = true,
                      .growing = var.kind == VarKind::kGrowingTable,
                      .slices = {}};
    fluid::Shape part = var.shape;
    if (!table.growing) part.set(0, (var.shape[0] + servers - 1) / servers);
    for (int server = 0; server < servers; ++server) {
      table.slices.push_back(
          {.param = table.param,
           .grad = plan.averages() ? table.grad : part_name(plan, table, 0, server),
           .shape = part,
           .offset = table.growing ? 0 : server * var.shape.numel(1, var.shape.rank()),
           .block_id = server,
           .server = server});
    }
    plan.tables.push_back(std::move(table));
  }
}

void place_table_lookups(Program& program, const ServerPlan& plan, int trainer_id) {
  Block& block = program.global_block();
  place_growing_lookups(program, plan);
  for (size_t table = 0; table < plan.tables.size(); ++table) {
    if (plan.tables[table].growing) continue;
    OpList ops = block.take_ops();
    LookupsByPadding lookups;
    size_t place = 0;
    std::unordered_map<std::string, size_t> after;  // the op that makes a variable
    OpList kept;
    for (auto& op : ops) {
      const bool lookup = is_distributed_lookup(program, *op) &&
                          table_of_lookup(program, *op) == plan.tables[table].param;
      if (!lookup) {
        kept.push_back(std::move(op));
        for (std::string& name : kept.back()->output_names()) after[std::move(name)] = kept.size();
        continue;
      }
      if (lookups.empty()) place = kept.size();
      Lookups& group = lookups[fluid::padding_of(*op)];
      group.ids.push_back(op->input("Ids").front());
      group.outputs.push_back(op->output("Out").front());
      const auto maker = after.find(group.ids.back());
      if (maker != after.end()) place = std::max(place, maker->second);
    }
    if (!lookups.empty()) {
      auto made = make_lookups(block, plan, table, lookups, trainer_id);
      for (size_t i = 0; i < made.size(); ++i) {
        kept.emplace(kept.begin() + static_cast<std::ptrdiff_t>(place + i), std::move(made[i]));
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
  std::multimap<size_t, const PlacedParam*> after;
  for (const PlacedParam& table : plan.tables) after.emplace(last.at(table.grad), &table);
  OpList rewritten;
  OpList ops = block.take_ops();
  for (size_t i = 0; i < ops.size(); ++i) {
    rewritten.push_back(std::move(ops[i]));
    const auto [begin, end] = after.equal_range(i);
    for (auto at = begin; at != end; ++at) {
      const PlacedParam& table = *at->second;
      Names parts;
      for (const PlacedSlice& slice : table.slices) {
        parts.push_back(part_name(plan, table, trainer_id, slice.server));
        VarDesc part = like(block.var(table.grad), parts.back());
        part.shape = slice.shape;
        block.add_var(std::move(part));
      }
      rewritten.emplace_back(make(table.growing ? "split_growing_rows" : "split_ids",
                                  {{table.growing ? "X" : "Ids", {table.grad}}}, {{"Out", parts}},
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
  for (const PlacedParam& table : plan.tables) {
    OpList ops = block.take_ops();
    std::erase_if(ops, [&table](const auto& op) {
      const Names outputs = op->output_names();
      return std::find(outputs.begin(), outputs.end(), table.param) != outputs.end();
    });
    block.set_ops(std::move(ops));
    if (table.growing) continue;
    fluid::FakeInitAttrs attrs;
    attrs.shape = table.shape.to_vector();
    block.append_op(make("fake_init", {}, {{"Out", {table.param}}},
                         fluid::to_attributes(std::move(attrs)), OpRole::kForward));
  }
}

Names table_gradients(const ServerPlan& plan, const PlacedParam& table, int server) {
  Names parts;
  for (int shard = 0; shard < (plan.averages() ? plan.shards : 1); ++shard) {
    parts.push_back(part_name(plan, table, shard, server));
  }
  return parts;
}

void declare_table(Block& global, const Block& origin, const ServerPlan& plan,
                   const PlacedParam& table, int server) {
  const PlacedSlice& slice = table.slices[static_cast<size_t>(server)];
  VarDesc value = like(origin.var(table.param), slice.param);
  if (!table.growing) value.kind = VarKind::kSelectedRows;
  value.shape = slice.shape;
  value.persistable = true;
  if (!table.growing)
    value.slice = fluid::SliceInfo{.origin = table.param,
                                   .origin_shape = table.shape.to_vector(),
                                   .offset = slice.offset,
                                   .block_id = slice.block_id};
  global.add_var(std::move(value));
  VarDesc grad = like(origin.var(table.grad), slice.grad);
  grad.shape = slice.shape;
  grad.persistable = true;
  global.add_var(grad);
  if (!plan.averages()) return;
  grad.persistable = false;
  for (std::string& part : table_gradients(plan, table, server)) {
    grad.name = std::move(part);
    global.add_var(grad);
  }
}

void add_table_services(Program& program, const ServerPlan& plan, int server, int32_t parent,
                        fluid::ListenAndServAttrs& listen) {
  Block& global = program.global_block();
  const auto here = static_cast<size_t>(server);
  const auto grows = [](const PlacedParam& table) { return table.growing; };
  if (std::all_of(plan.tables.begin(), plan.tables.end(), grows)) return;
  for (size_t i = 0; i < plan.tables.size(); ++i) {
    const PlacedParam& table = plan.tables[i];
    if (table.growing) continue;
    VarDesc ids;
    ids.name = in_name(plan, i, here);
    ids.dtype = fluid::DType::kInt64;
    ids.shape = fluid::Shape{fluid::Shape::kUnknown, 1};
    VarDesc rows;
    rows.name = out_name(plan, i, here);
    rows.dtype = table.dtype;
    rows.shape = fluid::Shape{fluid::Shape::kUnknown, table.shape[1]};
    Block& lookup = program.add_block(parent);
    append_table_lookup(lookup, table.param, ids.name, rows.name);
    bind_lookup(listen, ids.name, lookup.index());
    global.add_var(std::move(ids));
    global.add_var(std::move(rows));
  }
  VarDesc path;
  path.name = "kLookupTablePath";
  path.kind = VarKind::kRaw;
  path.typed = false;
  path.persistable = true;
  global.add_var(std::move(path));
  Block& save = program.add_block(parent);
  for (const PlacedParam& table : plan.tables) {
    if (!table.growing) append_table_save(save, table.param);
  }
  bind_checkpoint(listen, save.index());
}

}  // namespace fleet::transpiler
