#include "strategies/parameter_server/server/server_program.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "base/strings.h"
#include "fluid/ops/distributed/names.h"
#include "fluid/ops/math/scale.h"
#include "strategies/parameter_server/server/server_variables.h"
#include "strategies/parameter_server/server/table_checkpoint.h"

namespace fleet::strategies {
namespace {

bool makes(const fluid::Operator& op, const std::string& name) {
  const auto outputs = op.output_names();
  return std::find(outputs.begin(), outputs.end(), name) != outputs.end();
}

using NextBlocks = std::map<int32_t, int32_t>;

NextBlocks read_next_blocks(const fluid::Program& program,
                            const fluid::ListenAndServAttrs& listen) {
  NextBlocks next;
  for (const auto& binding : listen.next_blocks) {
    const auto [from, to] = read_binding(program, binding, "next_blocks");
    const auto block = parse_int(from);
    if (!block || *block < 1 || *block >= program.block_count() ||
        !next.emplace(static_cast<int32_t>(*block), to).second) {
      throw_server_program("a chain of blocks cannot be followed", "listen_and_serv.next_blocks",
                           "\"<block>:<next>\", each block once", binding);
    }
  }
  return next;
}

void read_average(const fluid::Block& block, OptimizeBlock& found) {
  for (size_t i = 0; i < block.op_count(); ++i) {
    const fluid::Operator& op = block.op(i);
    const auto& inputs = op.input("X");
    const bool sums = op.type == "sum" && i == 0 && makes(op, found.gradient) &&
                      std::find(inputs.begin(), inputs.end(), found.gradient) == inputs.end();
    if (sums) found.sum = static_cast<int>(i);
    if (op.type == "scale" && found.sum >= 0 && static_cast<int>(i) == found.sum + 1 &&
        makes(op, found.gradient)) {
      found.scale = static_cast<int>(i);
    }
  }
}

OptimizeBlock read_block(const fluid::Program& program, const std::string& binding,
                         const NextBlocks& next, size_t exchanges) {
  OptimizeBlock found;
  const auto [gradient, first] = read_binding(program, binding, "grad_to_block_id");
  found.gradient = gradient;
  found.chain.push_back(first);
  for (auto at = next.find(first); at != next.end(); at = next.find(at->second)) {
    if (found.chain.size() > exchanges) {
      throw_server_program("a chain of blocks is longer than the exchanges allow", binding,
                           str_cat("at most ", exchanges + 1, " blocks"), "more");
    }
    found.chain.push_back(at->second);
  }
  read_average(program.block(first), found);
  for (const int32_t block : found.chain) {
    for (const auto& op : program.block(block).ops()) {
      const auto& updated = op->output("ParamOut");
      if (!updated.empty()) found.value = updated.front();
      // Moving statistics: the average is the new value.
      const bool replaces = op->type == "assign" && op->input("X") == std::vector{found.gradient};
      if (!replaces || !found.value.empty()) continue;
      found.value = op->output("Out").front();
      found.plain = true;
    }
  }
  if (found.value.empty()) {
    throw_server_program("an optimize block updates nothing", str_cat("block ", first),
                         "an op with output ParamOut, or an assignment of the average", "none");
  }
  return found;
}

ExchangedRows read_rows(const fluid::Program& program, const fluid::Operator& op) {
  const auto attrs = fluid::parse_attributes<fluid::ExchangeRowsAttrs>(op.type, op.attrs);
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
  const fluid::VarDesc* whole = program.global_block().find_var(rows.whole);
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

ExchangeBlock read_exchange(const fluid::Program& program, fluid::BlockRef ref) {
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

// Steps are counted here, not by what trainers report.
void count_steps(fluid::Block& schedule) {
  for (size_t i = 0; i < schedule.op_count(); ++i) {
    if (schedule.ops()[i]->type != "sum" || !counts_steps(*schedule.ops()[i])) continue;
    fluid::Operator& op = schedule.op(i);
    op.type = "increment";
    op.inputs["X"] = {fluid::kStepCounter};
    op.attrs = fluid::to_attributes(fluid::IncrementAttrs{});
  }
}

}  // namespace

ServerProgram read_server_program(const fluid::Program& program, const fluid::Operator& listen,
                                  int shards) {
  ServerProgram parsed;
  parsed.listen = fluid::parse_attributes<fluid::ListenAndServAttrs>(listen.type, listen.attrs);
  const bool sync =
      parsed.listen.distributed_mode == static_cast<int32_t>(fluid::ServerMode::kSync);
  if (!sync || parsed.listen.dc_asgd) {
    throw_error(ErrorCode::kNotSupported,
                {.what = "this server trains synchronously",
                 .where = "listen_and_serv",
                 .expected = "distributed_mode 0, no dc_asgd",
                 .got = str_cat("distributed_mode ", parsed.listen.distributed_mode),
                 .fix = "transpile with sync_mode"});
  }
  if (parsed.listen.fanin != shards) {
    throw_server_program("the server program is for another number of contributors",
                         "listen_and_serv.Fanin", str_cat(shards), str_cat(parsed.listen.fanin));
  }
  for (const auto& block : parsed.listen.exchange_blocks) {
    parsed.exchanges.push_back(read_exchange(program, block));
  }
  const NextBlocks next = read_next_blocks(program, parsed.listen);
  for (const auto& binding : parsed.listen.grad_to_block_id) {
    parsed.blocks.push_back(read_block(program, binding, next, parsed.exchanges.size()));
    if (shards > 1 && parsed.blocks.back().sum < 0) {
      throw_server_program("an optimize block does not begin with the sum over contributors",
                           binding, "sum and scale", "another op");
    }
  }
  std::sort(parsed.blocks.begin(), parsed.blocks.end(),
            [](const OptimizeBlock& a, const OptimizeBlock& b) { return a.value < b.value; });
  return parsed;
}

ServerSteps::ServerSteps(const fluid::Program& program, ServerProgram parsed, int shards,
                         fluid::Scope& scope)
    : program_(program),
      parsed_(std::move(parsed)),
      shards_(shards),
      scope_(scope),
      executor_(fluid::CPUPlace(), scope) {
  executor_.set_finite_watch(&watch_);
  share_between_blocks();
  for (size_t i = 0; i < parsed_.blocks.size(); ++i) slice_executors_.push_back(executor_.share());
  full_ = &program_for(shards);
  for (int32_t i = 1; i < full_->block_count(); ++i) make_kept(full_->block(i));
}

// What a block keeps in the scope or finds there is made before any runs: slices may be updated
// beside each other, and then no one may make variables.
void ServerSteps::make_kept(const fluid::Block& block) {
  std::set<std::string> made;
  const auto make = [&](const std::string& name) {
    if (!name.empty() && scope_.find(name) == nullptr) scope_.var(name);
  };
  for (const auto& op : block.ops()) {
    for (const auto& name : op->input_names()) {
      if (!made.contains(name)) make(name);
    }
    for (const auto& name : op->output_names()) {
      const fluid::VarDesc* desc = block.find_var_recursive(name);
      if (desc != nullptr && desc->persistable) make(name);
      made.insert(name);
    }
  }
}

// What one block makes and another reads lives in the scope.
void ServerSteps::share_between_blocks() {
  std::vector<int32_t> blocks;
  for (const auto& parsed : parsed_.blocks) {
    if (parsed.chain.size() > 1) {
      blocks.insert(blocks.end(), parsed.chain.begin(), parsed.chain.end());
    }
  }
  for (const auto& exchange : parsed_.exchanges) blocks.push_back(exchange.block);
  std::map<std::string, int32_t> made;
  std::set<std::string> shared;
  for (const int32_t block : blocks) {
    for (const auto& op : program_.block(block).ops()) {
      for (const auto& name : op->output_names()) {
        if (!made.emplace(name, block).second && made[name] != block) shared.insert(name);
      }
    }
  }
  for (const int32_t block : blocks) {
    for (const auto& op : program_.block(block).ops()) {
      for (const auto& name : op->input_names()) {
        const auto found = made.find(name);
        if (found != made.end() && found->second != block) shared.insert(name);
      }
    }
  }
  for (const auto& exchange : parsed_.exchanges) {
    for (const auto& rows : exchange.rows) shared.insert(rows.whole);
  }
  for (const auto& name : shared) {
    if (!name.empty() && scope_.find(name) == nullptr) scope_.var(name);
  }
}

// The program without the sums over contributors, averaging over `shards` of them, and without
// what servers exchange.
fluid::Program ServerSteps::rewrite(int shards) const {
  fluid::Program program = program_;
  program.set_runtime(nullptr);
  for (const auto& parsed : parsed_.blocks) {
    fluid::Block& block = program.block(parsed.chain.front());
    if (parsed.scale >= 0 && shards != shards_) {
      block.op(static_cast<size_t>(parsed.scale)).attrs["scale"] = 1.0 / shards;
    }
    if (parsed.sum >= 0) block.remove_op(static_cast<size_t>(parsed.sum));
  }
  for (const auto& exchange : parsed_.exchanges) {
    for (size_t i = 0; i < exchange.rows.size(); ++i) program.block(exchange.block).remove_op(0);
  }
  if (parsed_.listen.lr_decay_block_id >= 0) {
    count_steps(program.block(parsed_.listen.lr_decay_block_id));
  }
  return program;
}

const fluid::Program& ServerSteps::program_for(int shards) {
  const std::lock_guard lock(programs_mutex_);
  auto& program = programs_[shards];
  if (!program) program = std::make_unique<fluid::Program>(rewrite(shards));
  return *program;
}

void ServerSteps::run_rate() {
  executor_.run_block(*full_, parsed_.listen.lr_decay_block_id, scope_);
}

void ServerSteps::run_slice(size_t block, const StepUpdate& update) {
  const int32_t index = parsed_.blocks[block].chain[static_cast<size_t>(update.stage)];
  if (update.shards == 0) return clear_parts(index);
  const fluid::Program& program = update.shards == shards_ ? *full_ : program_for(update.shards);
  slice_executors_[block].run_block(program, index, scope_, update.step - 1);
  const OptimizeBlock& parsed = parsed_.blocks[block];
  if (!parsed.plain) return;
  watch_.look_at(parsed.value, scope_.tensor(parsed.value), scope_.var(parsed.gradient),
                 update.step - 1);
}

// Nobody contributed: what the block would make for an exchange is zero.
void ServerSteps::clear_parts(int32_t block) {
  std::set<std::string> names;
  for (const auto& op : program_.block(block).ops()) {
    const auto outputs = op->output_names();
    names.insert(outputs.begin(), outputs.end());
  }
  for (const auto& exchange : parsed_.exchanges) {
    for (const auto& rows : exchange.rows) {
      for (size_t i = 0; i < rows.parts.size(); ++i) {
        if (!names.contains(rows.parts[i])) continue;
        const fluid::VarDesc& whole = program_.global_block().var(rows.whole);
        fluid::Shape shape = whole.shape;
        shape.set(0, rows.rows[i]);
        auto& tensor = scope_.var(rows.parts[i]).emplace<fluid::Tensor>(whole.dtype, shape);
        std::memset(tensor.raw(), 0, tensor.bytes());
      }
    }
  }
}

transport::MutableBytes ServerSteps::place_of(const ExchangedRows& rows, size_t part) {
  const fluid::VarDesc& desc = program_.global_block().var(rows.whole);
  fluid::Value& value = scope_.var(rows.whole);
  auto* tensor = std::get_if<fluid::Tensor>(&value);
  if (tensor == nullptr || !tensor->initialized() || !(tensor->shape() == desc.shape)) {
    tensor = &value.emplace<fluid::Tensor>(desc.dtype, desc.shape);
  }
  const size_t row_bytes = tensor->bytes() / static_cast<size_t>(desc.shape[0]);
  const int64_t before =
      std::accumulate(rows.rows.begin(), rows.rows.begin() + static_cast<long>(part), int64_t{0});
  return {tensor->raw() + static_cast<size_t>(before) * row_bytes,
          static_cast<size_t>(rows.rows[part]) * row_bytes};
}

Exchange ServerSteps::make_exchange(size_t index) {
  const ExchangeBlock& block = parsed_.exchanges[index];
  Exchange exchange;
  std::vector<std::pair<size_t, size_t>> places;  // position among the rows, part
  for (size_t i = 0; i < block.rows.size(); ++i) {
    const ExchangedRows& rows = block.rows[i];
    for (size_t part = 0; part < rows.parts.size(); ++part) {
      places.emplace_back(i, part);
      exchange.parts.push_back({rows.parts[part], rows.servers[part], place_of(rows, part).size()});
    }
  }
  const auto made = [this, &block, places](size_t at) {
    const auto [i, part] = places[at];
    return scope_.tensor(block.rows[i].parts[part]);
  };
  const auto place = [this, &block, places](size_t at) {
    const auto [i, part] = places[at];
    return place_of(block.rows[i], part);
  };
  exchange.made = made;
  exchange.place = place;
  exchange.run = [this, &block] { executor_.run_block(*full_, block.block, scope_); };
  return exchange;
}

// The sum of the trainers' counters begins below 0, where no model has said a last step.
void ServerSteps::start_counting() {
  if (parsed_.listen.lr_decay_block_id < 0 || initialised(scope_, fluid::kStepCounter) == nullptr)
    return;
  fluid::Tensor& counter = scope_.tensor(fluid::kStepCounter);
  const auto& ops = program_.block(parsed_.listen.lr_decay_block_id).ops();
  const bool sums = std::any_of(ops.begin(), ops.end(), [](const auto& op) {
    return op->type == "sum" && counts_steps(*op);
  });
  if (!sums || counter.item<double>() >= 0) return;
  set_number(counter, static_cast<double>(program_.distribution().lr_first_count - 1));
}

ServerModel ServerSteps::make_model() {
  start_counting();
  ServerModel model;
  model.watch = &watch_;
  std::set<std::string> taken;
  for (size_t i = 0; i < parsed_.blocks.size(); ++i) {
    const OptimizeBlock& block = parsed_.blocks[i];
    require_initial_value(scope_, block.value);
    CatalogueEntry entry = catalogue_entry(program_, scope_, block.value);
    entry.gradient = block.gradient;
    entry.rows = has_row_gradient(program_, block.gradient);
    entry.lookup = lookup_of(program_, parsed_.listen, block.value);
    make_gradient(entry, scope_);
    taken.insert({block.value, block.gradient});
    model.shards.push_back(std::make_unique<DenseShard>(
        DenseShardSpec{block.value, block.gradient,
                       updated_state(program_, scope_, block.chain, block.value, block.gradient)},
        scope_, [this, i](const StepUpdate& update) { run_slice(i, update); },
        static_cast<int>(block.chain.size())));
    model.catalogue.entries.push_back(std::move(entry));
  }
  model.catalogue.trained = static_cast<uint32_t>(model.shards.size());
  for (const fluid::VarDesc* desc : program_.global_block().vars()) {
    if (!desc->persistable || taken.contains(desc->name) ||
        initialised(scope_, desc->name) == nullptr)
      continue;
    model.catalogue.entries.push_back(catalogue_entry(program_, scope_, desc->name));
  }
  for (const auto& entry : model.catalogue.entries) {
    model.tensors.push_back(&scope_.tensor(entry.name));
  }
  for (size_t i = 0; i < parsed_.exchanges.size(); ++i) {
    model.exchanges.push_back(make_exchange(i));
  }
  model.saved_tables = saved_tables(program_, parsed_.listen);
  if (parsed_.listen.lr_decay_block_id >= 0) {
    model.learning_rate = [this](uint64_t) { run_rate(); };
  }
  return model;
}

}  // namespace fleet::strategies
