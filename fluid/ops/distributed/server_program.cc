#include "fluid/ops/distributed/server_program.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/distributed/names.h"
#include "fluid/ops/distributed/table_ops.h"
#include "fluid/ops/math/scale.h"
#include "fluid/ops/nn/growing_table.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/shape/fill.h"

namespace fleet::fluid {
namespace {

using Names = std::vector<std::string>;

Operator make_op(std::string type, SlotMap inputs, SlotMap outputs, AttributeMap attrs) {
  Operator op;
  op.type = std::move(type);
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  op.attrs = std::move(attrs);
  return op;
}

bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string binding(const std::string& name, int32_t block) {
  return str_cat(name, ":", block);
}

// "<name>:<block>" of an attribute of listen_and_serv.
std::pair<std::string, int32_t> read_binding(const Program& program, const std::string& text,
                                             const char* attribute) {
  const size_t colon = text.rfind(':');
  const auto index = colon == std::string::npos
                         ? std::nullopt
                         : parse_int(std::string_view(text).substr(colon + 1));
  if (!index || *index < 1 || *index >= program.block_count()) {
    throw_server_program("a gradient is bound to no block", str_cat("listen_and_serv.", attribute),
                         "\"<name>:<block>\"", text);
  }
  return {text.substr(0, colon), static_cast<int32_t>(*index)};
}

// The block of an attribute that may name none.
const Block* read_block(const Program& program, int32_t index, const char* what,
                        const char* attribute) {
  if (index < 0) return nullptr;
  if (index >= program.block_count()) {
    throw_server_program(str_cat(what, " is not there"), str_cat("listen_and_serv.", attribute),
                         str_cat("a block below ", program.block_count()), str_cat(index));
  }
  return &program.block(index);
}

using NextBlocks = std::map<int32_t, int32_t>;

NextBlocks read_next_blocks(const Program& program, const ListenAndServAttrs& listen) {
  NextBlocks next;
  for (const auto& text : listen.next_blocks) {
    const auto [from, to] = read_binding(program, text, "next_blocks");
    const auto block = parse_int(from);
    if (!block || *block < 1 || *block >= program.block_count() ||
        !next.emplace(static_cast<int32_t>(*block), to).second) {
      throw_server_program("a chain of blocks cannot be followed", "listen_and_serv.next_blocks",
                           "\"<block>:<next>\", each block once", text);
    }
  }
  return next;
}

// As append_average writes it, in front.
void read_average(const Block& block, ServerSlice& slice) {
  if (block.op_count() == 0) return;
  const Operator& sum = block.op(0);
  const Names& parts = sum.input("X");
  const bool sums = sum.type == "sum" && contains(sum.output_names(), slice.gradient) &&
                    !contains(parts, slice.gradient);
  if (!sums) return;
  slice.contributions = parts;
  slice.averages = block.op_count() > 1 && block.op(1).type == "scale" &&
                   contains(block.op(1).output_names(), slice.gradient);
}

// The variable that the op changes for good, as the writers here and update ops do; empty: none.
std::string changed_by(const Operator& op, const std::string& gradient) {
  const Names& updated = op.output("ParamOut");
  if (!updated.empty()) return updated.front();
  const Names& inputs = op.input("X");
  const bool adds =
      op.type == "sum" && contains(inputs, gradient) && op.output("Out").front() != gradient;
  const bool replaces = op.type == "assign" && inputs == Names{gradient};
  return adds || replaces ? op.output("Out").front() : std::string();
}

void read_updates(const Block& block, ServerSlice& slice) {
  for (const auto& op : block.ops()) {
    const bool updates = !op->output("ParamOut").empty();
    if (updates) slice.plain = false;
    std::string changed = changed_by(*op, slice.gradient);
    if (!changed.empty() && (updates || slice.value.empty())) slice.value = std::move(changed);
    if (op->type == "ref_by_trainer_id") slice.backups = op->input("X");
    if (op->type == "dc_compensate" && !op->input("MeanSquare").empty()) {
      slice.mean_square = op->input("MeanSquare").front();
    }
  }
}

ServerSlice read_slice(const Program& program, const std::string& text, const NextBlocks& next,
                       size_t exchanges) {
  ServerSlice slice;
  const auto [gradient, first] = read_binding(program, text, "grad_to_block_id");
  slice.gradient = gradient;
  slice.chain.push_back(first);
  for (auto at = next.find(first); at != next.end(); at = next.find(at->second)) {
    if (slice.chain.size() > exchanges) {
      throw_server_program("a chain of blocks is longer than the exchanges allow", text,
                           str_cat("at most ", exchanges + 1, " blocks"), "more");
    }
    slice.chain.push_back(at->second);
  }
  read_average(program.block(first), slice);
  slice.plain = true;
  for (const int32_t block : slice.chain) read_updates(program.block(block), slice);
  if (slice.value.empty()) {
    throw_server_program("an optimize block updates nothing", str_cat("block ", first),
                         "an op with output ParamOut, a sum, or an assignment of the average",
                         "none");
  }
  const VarDesc* var = program.global_block().find_var(slice.gradient);
  slice.rows = var != nullptr && var->kind == VarKind::kSelectedRows;
  return slice;
}

void check_contributors(const ServerSlice& slice, const ServerProgram& server) {
  if (is_synchronous(server.mode) && server.contributors > 1 && slice.contributions.empty()) {
    throw_server_program("an optimize block does not begin with the sum over contributors",
                         slice.gradient, "sum and scale", "another op");
  }
  const auto trainers = static_cast<size_t>(server.contributors);
  if (!slice.backups.empty() && slice.backups.size() != trainers) {
    throw_server_program("the server program compensates delays of another number of trainers",
                         slice.value, str_cat(trainers), str_cat(slice.backups.size()));
  }
}

ExchangedRows read_rows(const Program& program, const Operator& op) {
  const auto attrs = parse_attributes<ExchangeRowsAttrs>(op.type, op.attrs);
  ExchangedRows rows;
  rows.whole = op.output("Out").front();
  rows.parts = attrs.varnames;
  rows.rows = attrs.sections;
  const auto& endpoints = program.distribution().endpoints;
  for (const auto& endpoint : attrs.epmap) {
    const auto found = std::find(endpoints.begin(), endpoints.end(), endpoint);
    if (found == endpoints.end()) {
      throw_server_program("a part of an exchange is made by no server of the job", op.to_string(),
                           str_cat("one of ", join(endpoints, ", ")), endpoint);
    }
    rows.servers.push_back(static_cast<uint32_t>(found - endpoints.begin()));
  }
  const VarDesc* whole = program.global_block().find_var(rows.whole);
  const int64_t sum = std::accumulate(rows.rows.begin(), rows.rows.end(), int64_t{0});
  const bool fits =
      rows.parts.size() == rows.rows.size() && rows.parts.size() == rows.servers.size() &&
      whole != nullptr && whole->shape.rank() > 0 && whole->shape[0] == sum &&
      std::all_of(rows.rows.begin(), rows.rows.end(), [](int64_t n) { return n > 0; });
  if (!fits) {
    throw_server_program("the parts of an exchange do not make up their whole", op.to_string(),
                         "a name, a server and the rows of each part, and a variable of block 0",
                         whole == nullptr ? "no such variable" : whole->shape.to_string());
  }
  return rows;
}

ExchangeBlock read_exchange(const Program& program, BlockRef ref) {
  if (ref.index < 1 || ref.index >= program.block_count()) {
    throw_server_program("an exchange block is not there", "listen_and_serv.exchange_blocks",
                         str_cat("a block below ", program.block_count()), str_cat(ref.index));
  }
  ExchangeBlock exchange;
  exchange.block = ref.index;
  bool first = true;
  for (const auto& op : program.block(ref.index).ops()) {
    const bool rows = op->type == "exchange_rows";
    if (rows && !first) {
      throw_server_program("an exchange block exchanges after it has computed", op->to_string(),
                           "exchange_rows ops before all others", "one after another op");
    }
    first = rows;
    if (rows) exchange.rows.push_back(read_rows(program, *op));
  }
  return exchange;
}

ServerSchedule read_schedule(const Program& program, int32_t index) {
  ServerSchedule schedule{.block = index};
  const Block* block = read_block(program, index, "the block of the schedule", "lr_decay_block_id");
  if (block == nullptr) return schedule;
  for (size_t i = 0; i < block->op_count(); ++i) {
    const Operator& op = block->op(i);
    const bool sums = op.type == "sum";
    if ((!sums && op.type != "increment") || !contains(op.output_names(), kStepCounter)) continue;
    schedule.counter = static_cast<int>(i);
    schedule.sums_trainers = sums;
    return schedule;
  }
  return schedule;
}

void read_tables(const Program& program, const ListenAndServAttrs& listen, ServerProgram& server) {
  for (const auto& text : listen.prefetch_var_name_to_block_id) {
    const auto [name, index] = read_binding(program, text, "prefetch_var_name_to_block_id");
    for (const auto& op : program.block(index).ops()) {
      if (op->type != "lookup_sparse_table") continue;
      for (ServerSlice& slice : server.slices) {
        if (op->input("W").front() == slice.value) slice.lookup = name;
      }
    }
  }
  const Block* block = read_block(program, listen.checkpint_block_id, "the block that saves tables",
                                  "checkpint_block_id");
  if (block == nullptr) return;
  for (const auto& op : block->ops()) {
    if (op->type == "save") server.saved_tables.push_back(op->input("X").front());
  }
}

void check_mode(const ListenAndServAttrs& listen, ServerMode mode, int contributors) {
  const bool in_step = listen.distributed_mode == distributed_mode_of(ServerMode::kSync, false);
  const bool wanted = is_synchronous(mode);
  if (in_step != wanted || (wanted && listen.dc_asgd)) {
    throw_error(
        ErrorCode::kNotSupported,
        {.what = wanted ? "this server trains synchronously" : "this server trains asynchronously",
         .where = "listen_and_serv",
         .expected = wanted ? "distributed_mode 0, no dc_asgd" : "distributed_mode 1 to 3",
         .got = str_cat("distributed_mode ", listen.distributed_mode,
                        listen.dc_asgd ? ", dc_asgd" : ""),
         .fix = str_cat("transpile for mode ", to_string(mode))});
  }
  if (wanted && listen.fanin != contributors) {
    throw_server_program("the server program is for another number of contributors",
                         "listen_and_serv.Fanin", str_cat(contributors), str_cat(listen.fanin));
  }
}

}  // namespace

bool is_server_program(const Program& program) {
  const auto& ops = program.global_block().ops();
  return std::any_of(ops.begin(), ops.end(),
                     [](const auto& op) { return op->type == "listen_and_serv"; });
}

ServerProgram read_server_program(const Program& program, const Operator& listen, ServerMode mode,
                                  int contributors) {
  const auto attrs = parse_attributes<ListenAndServAttrs>(listen.type, listen.attrs);
  check_mode(attrs, mode, contributors);
  ServerProgram server;
  server.mode = mode;
  server.endpoint = attrs.endpoint;
  server.contributors = contributors;
  for (const auto& block : attrs.exchange_blocks) {
    server.exchanges.push_back(read_exchange(program, block));
  }
  const NextBlocks next = read_next_blocks(program, attrs);
  for (const auto& text : attrs.grad_to_block_id) {
    server.slices.push_back(read_slice(program, text, next, server.exchanges.size()));
    check_contributors(server.slices.back(), server);
  }
  server.schedule = read_schedule(program, attrs.lr_decay_block_id);
  read_tables(program, attrs, server);
  return server;
}

Program executable(const Program& program, const ServerProgram& server, int contributors) {
  Program result = program;
  result.set_runtime(nullptr);
  for (const ServerSlice& slice : server.slices) {
    if (slice.contributions.empty()) continue;
    Block& block = result.block(slice.chain.front());
    if (slice.averages && contributors != server.contributors) {
      block.op(1).attrs["scale"] = 1.0 / contributors;
    }
    block.remove_op(0);
  }
  for (const ExchangeBlock& exchange : server.exchanges) {
    result.block(exchange.block).remove_ops(0, exchange.rows.size());
  }
  const ServerSchedule& schedule = server.schedule;
  if (schedule.counter >= 0 && (schedule.sums_trainers || !is_synchronous(server.mode))) {
    result.block(schedule.block).remove_op(static_cast<size_t>(schedule.counter));
  }
  return result;
}

void throw_server_program(std::string what, std::string where, std::string expected,
                          std::string got) {
  throw_error(ErrorCode::kInvalidProgram,
              {.what = std::move(what),
               .where = std::move(where),
               .expected = std::move(expected),
               .got = std::move(got),
               .fix = "use the server program that the transpiler made, for this very cluster"});
}

void append_average(Block& block, Names contributions, const std::string& gradient) {
  ScaleAttrs attrs;
  attrs.scale = 1.0 / static_cast<int>(contributions.size());
  block.append_op(make_op("sum", {{"X", std::move(contributions)}}, {{"Out", {gradient}}},
                          to_attributes(NoAttrs{})));
  block.append_op(
      make_op("scale", {{"X", {gradient}}}, {{"Out", {gradient}}}, to_attributes(attrs)));
}

void append_addition(Block& block, const std::string& value, const std::string& difference) {
  block.append_op(
      make_op("sum", {{"X", {value, difference}}}, {{"Out", {value}}}, to_attributes(NoAttrs{})));
}

// Gradient descent with a rate of -1.
void append_row_addition(Block& block, const std::string& table, const std::string& difference) {
  const std::string rate = difference + "@RATE";
  VarDesc var;
  var.name = rate;
  var.shape = Shape{1};
  block.add_var(std::move(var));
  FillConstantAttrs minus_one;
  minus_one.shape = {1};
  minus_one.value = -1;
  block.append_op(make_op("fill_constant", {}, {{"Out", {rate}}}, to_attributes(minus_one)));
  block.append_op(make_op("update_growing_table",
                          {{"Param", {table}}, {"Grad", {difference}}, {"LearningRate", {rate}}},
                          {{"ParamOut", {table}}},
                          to_attributes(UpdateGrowingTableAttrs{.update = "sgd"})));
}

void append_replacement(Block& block, const std::string& value, const std::string& gradient) {
  block.append_op(
      make_op("assign", {{"X", {gradient}}}, {{"Out", {value}}}, to_attributes(NoAttrs{})));
}

void append_backup(Block& block, Names backups, const std::string& backup) {
  block.append_op(make_op("ref_by_trainer_id",
                          {{"X", std::move(backups)}, {"TrainerId", {kTrainerId}}},
                          {{"Out", {backup}}}, to_attributes(NoAttrs{})));
}

void append_compensation(Block& block, const Compensation& names, DcCompensateAttrs attrs) {
  Operator op =
      make_op("dc_compensate",
              {{"Param", {names.value}}, {"Grad", {names.gradient}}, {"Backup", {names.backup}}},
              {{"Out", {names.out}}}, to_attributes(std::move(attrs)));
  if (!names.mean_square.empty()) {
    op.inputs["MeanSquare"] = {names.mean_square};
    op.outputs["MeanSquareOut"] = {names.mean_square};
  }
  block.append_op(std::move(op));
}

void append_exchange(Block& block, const ExchangedRows& rows, const Names& endpoints,
                     uint32_t own) {
  ExchangeRowsAttrs attrs;
  attrs.varnames = rows.parts;
  attrs.sections = rows.rows;
  Operator op = make_op("exchange_rows", {}, {{"Out", {rows.whole}}}, {});
  for (size_t i = 0; i < rows.parts.size(); ++i) {
    attrs.epmap.push_back(endpoints[rows.servers[i]]);
    if (rows.servers[i] == own) op.inputs["X"].push_back(rows.parts[i]);
  }
  op.attrs = to_attributes(std::move(attrs));
  op.role = OpRole::kRpc;
  block.append_op(std::move(op));
}

void append_table_lookup(Block& block, const std::string& table, const std::string& ids,
                         const std::string& rows) {
  block.append_op(make_op("lookup_sparse_table", {{"W", {table}}, {"Ids", {ids}}},
                          {{"Out", {rows}}}, to_attributes(LookupSparseTableAttrs{})));
}

void append_table_save(Block& block, const std::string& table) {
  block.append_op(make_op("save", {{"X", {table}}}, {}, to_attributes(SaveAttrs{})));
}

void bind_update(ListenAndServAttrs& listen, const std::string& gradient, int32_t block) {
  listen.grad_to_block_id.push_back(binding(gradient, block));
  listen.optimize_blocks.push_back({block});
}

void bind_next(ListenAndServAttrs& listen, int32_t block, int32_t next) {
  listen.next_blocks.push_back(binding(str_cat(block), next));
  listen.optimize_blocks.push_back({next});
}

void bind_rows(ListenAndServAttrs& listen, const std::string& gradient, const std::string& value) {
  listen.sparse_grad_to_param.push_back(str_cat(gradient, ":", value));
}

void bind_lookup(ListenAndServAttrs& listen, const std::string& ids, int32_t block) {
  listen.prefetch_var_name_to_block_id.push_back(binding(ids, block));
}

void bind_schedule(ListenAndServAttrs& listen, int32_t block) {
  listen.lr_decay_block_id = block;
  listen.optimize_blocks.push_back({block});
}

void bind_exchange(ListenAndServAttrs& listen, int32_t block) {
  listen.exchange_blocks.push_back({block});
  listen.optimize_blocks.push_back({block});
}

void bind_checkpoint(ListenAndServAttrs& listen, int32_t block) {
  listen.checkpint_block_id = block;
}

void append_listen(Program& program, SlotMap inputs, const ListenAndServAttrs& listen) {
  program.global_block().append_op(
      make_op("listen_and_serv", std::move(inputs), {}, to_attributes(listen)));
}

}  // namespace fleet::fluid
