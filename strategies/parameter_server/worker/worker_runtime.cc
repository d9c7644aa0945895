#include "strategies/parameter_server/worker/worker_runtime.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/strings.h"
#include "fluid/kernels/table_rows.h"
#include "strategies/parameter_server/errors.h"
#include "strategies/parameter_server/worker/remote_places.h"
#include "strategies/parameter_server/worker/remote_values.h"

namespace fleet::strategies {

using transport::Phase;

WorkerRuntime::WorkerRuntime(const ParameterServerConfig& config, const AsyncOptions& options,
                             transport::TransportChoice transport, fluid::Program origin,
                             std::vector<std::string> server_names, Logger logger)
    : WorkerRuntime(
          config.index,
          make_exchange(config, options, loops_of_process(options, transport), std::move(logger)),
          std::move(origin), std::move(server_names)) {
  if (server_names_.empty()) {
    for (const auto& endpoint : config.servers) server_names_.push_back(endpoint.to_string());
  }
}

WorkerRuntime::WorkerRuntime(uint32_t index, std::unique_ptr<Exchange> exchange,
                             fluid::Program origin, std::vector<std::string> server_names)
    : index_(index),
      origin_(std::move(origin)),
      server_names_(std::move(server_names)),
      exchange_(std::move(exchange)) {}

void WorkerRuntime::stop_worker() {
  if (!exchange_->stopped()) exchange_->stop();
}

void WorkerRuntime::enter_thread(uint32_t thread, fluid::Scope& scope, const fluid::Scope& parent) {
  if (!exchange_->has_trainer_threads()) StrategyRuntime::enter_thread(thread, scope, parent);
  exchange_->enter_thread(thread, scope, parent);
}

// ---- ops

std::unique_ptr<fluid::CommToken> WorkerRuntime::run(const fluid::CommCall& call) {
  if (exchange_->stopped()) throw_left(call.op);
  const BoundOp& bound = bind(call);
  switch (bound.kind) {
    case BoundOp::Kind::kSend:
      finish_making();
      return exchange_->send(call, bound);
    case BoundOp::Kind::kSendBarrier:
      ask_ahead(call);
      exchange_->send_barrier();
      break;
    case BoundOp::Kind::kReceive:
      return exchange_->receive(call, bound);
    case BoundOp::Kind::kFetchBarrier:
      exchange_->fetch_barrier();
      break;
    case BoundOp::Kind::kLookup:
      look_up(call, bound);
      break;
    case BoundOp::Kind::kRows:
      receive_rows(call, bound);
      break;
    case BoundOp::Kind::kPrefetch:
      exchange_->request(
          Phase::kReceiving, call.op.type, [&](ServerClient& client, transport::DoneHandler done) {
            prefetch_rows(bound.prefetch, call.inputs, call.outputs, client, std::move(done));
          });
      break;
    case BoundOp::Kind::kGrowingLookup:
      look_up_growing(call, bound);
      break;
    case BoundOp::Kind::kSaveTable:
      exchange_->drain();
      exchange_->request(Phase::kSaving, call.op.type,
                         [&](ServerClient& client, transport::DoneHandler done) {
                           save_tables(bound.snapshots, client, std::move(done));
                         });
      break;
    case BoundOp::Kind::kNothing:
      break;
  }
  return nullptr;
}

const BoundOp& WorkerRuntime::bind(const fluid::CommCall& call) {
  const std::lock_guard lock(mutex_);
  BoundBlock& program = bound_[call.program.id()];
  if (const auto found = program.find(&call.op); found != program.end()) return found->second;
  const ServerClient& client = exchange_->ready();
  BoundBlock block = bind_ops(call.block, client, server_names_, exchange_->sends_gradients());
  exchange_->prepare(call.block, block);
  program.merge(block);
  if (const auto found = program.find(&call.op); found != program.end()) return found->second;
  return program
      .emplace(&call.op, bind_by_name(call.op, fluid::schema_of(call.program, call.op), client))
      .first->second;
}

void WorkerRuntime::fetch_rows(const fluid::CommCall& call, RowLookup& lookup) {
  exchange_->request(Phase::kReceiving, call.op.type,
                     [&](ServerClient& client, transport::DoneHandler done) {
                       lookup.ask(client, std::move(done));
                     });
}

void WorkerRuntime::look_up(const fluid::CommCall& call, const BoundOp& bound) {
  std::vector<const fluid::Tensor*> ids;
  size_t first = 0;  // among the inputs: where those of slot Ids begin
  for (const auto& [slot, names] : call.op.inputs) {
    if (slot < "Ids") first += names.size();
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) ids.push_back(&dense(*call.inputs[first + i]));
  RowLookup lookup(bound.table, std::move(ids));
  fetch_rows(call, lookup);
  lookup.fill(call.outputs);
}

void WorkerRuntime::look_up_growing(const fluid::CommCall& call, const BoundOp& bound) {
  std::vector<const fluid::Tensor*> ids;
  for (size_t i = 0; i < call.outputs.size(); ++i) ids.push_back(&dense(*call.inputs[i]));
  if (auto ahead = take_asked(call, ids)) {
    ahead->lookup->fill(ids, call.outputs);
    ++lookups_ahead_;
    ahead->request =
        exchange_->begin_request([&](ServerClient& client, transport::DoneHandler done) {
          ahead->lookup->ask(client, GrowingGet::kMakesRowsOnly, false, std::move(done));
        });
    making_.push_back(std::move(ahead));
    return;
  }
  GrowingLookup lookup(bound.growing, ids, exchange_->kept_rows(call.scope, bound.growing), runs_);
  const bool makes_rows = !lookup.is_test() && exchange_->sends_gradients();
  const GrowingGet what = makes_rows ? GrowingGet::kMakesRows : GrowingGet::kReads;
  exchange_->request(Phase::kReceiving, call.op.type,
                     [&](ServerClient& client, transport::DoneHandler done) {
                       lookup.ask(client, what, false, std::move(done));
                     });
  if (!lookup.is_test()) lookup.keep();
  lookup.fill(ids, call.outputs);
}

// ---- lookups of the next step

void WorkerRuntime::will_feed(const fluid::Program& program, NextFeed feed) {
  if (!exchange_->asks_ahead()) return;
  for (const auto& op : program.global_block().ops()) {
    if (op->type != "lookup_remote_growing_tables") continue;
    std::vector<fluid::Tensor> ids;
    for (const std::string& name : op->input("Ids")) {
      const auto fed = std::find_if(feed.begin(), feed.end(),
                                    [&name](const auto& each) { return each.first == name; });
      if (fed != feed.end()) ids.push_back(fed->second);
    }
    if (ids.size() != op->input("Ids").size()) ids.clear();
    next_[{program.id(), op.get()}].ids = std::move(ids);
  }
}

// Asks what the next step's lookups read, which is answered when this step is over. Rows are made
// when that step begins: whoever saves in between is to find those that one machine has then.
void WorkerRuntime::ask_ahead(const fluid::CommCall& call) {
  for (auto& [key, next] : next_) {
    if (key.first != call.program.id() || next.ids.empty()) continue;
    auto ahead = std::make_unique<AheadLookup>();
    ahead->ids = std::exchange(next.ids, {});
    std::vector<const fluid::Tensor*> ids;
    for (const fluid::Tensor& each : ahead->ids) ids.push_back(&each);
    const BoundOp* bound = bound_op(key);
    if (bound == nullptr || bound->growing.attrs.is_test) continue;
    try {
      ahead->lookup = std::make_unique<GrowingLookup>(bound->growing, std::move(ids));
    } catch (const Error&) {
      continue;  // the next step says it
    }
    ahead->step = exchange_->steps() + 1;
    if (next.asked != nullptr) finish(*next.asked);
    next.asked = std::move(ahead);
    next.asked->request = exchange_->begin_request(
        [&asked = *next.asked](ServerClient& client, transport::DoneHandler done) {
          asked.lookup->ask(client, GrowingGet::kReads, true, std::move(done));
        });
  }
}

const BoundOp* WorkerRuntime::bound_op(const LookupOp& op) {
  const std::lock_guard lock(mutex_);
  const BoundBlock& program = bound_[op.first];
  const auto found = program.find(op.second);
  return found == program.end() ? nullptr : &found->second;
}

void WorkerRuntime::finish(const AheadLookup& lookup) {
  exchange_->finish_request(Phase::kReceiving, "lookup_remote_growing_tables", lookup.request);
}

std::unique_ptr<WorkerRuntime::AheadLookup> WorkerRuntime::take_asked(
    const fluid::CommCall& call, std::span<const fluid::Tensor* const> ids) {
  const auto found = next_.find({call.program.id(), &call.op});
  if (found == next_.end() || found->second.asked == nullptr) return nullptr;
  auto ahead = std::move(found->second.asked);
  finish(*ahead);
  const bool current = ahead->step == exchange_->steps();
  return current && ahead->lookup->is_of(ids) ? std::move(ahead) : nullptr;
}

// Gradients come behind lookups, on every lane.
void WorkerRuntime::finish_making() {
  if (making_.empty()) return;  // as always where several threads train
  for (const auto& lookup : std::exchange(making_, {})) finish(*lookup);
}

// The rows that the op is about to look at; those that are here in this version stay.
void WorkerRuntime::receive_rows(const fluid::CommCall& call, const BoundOp& bound) {
  auto [table, rows] =
      fluid::rows_looked_at(call.block, call.op, call.inputs, call.step, call.shard);
  const auto version = exchange_->version_of_rows();
  if (!version) {
    RowLookup lookup(bound.table, std::move(rows));
    fetch_rows(call, lookup);
    return lookup.place(dense(table));
  }
  FetchedRows& here = fetched_[&table];
  if (here.version != *version || here.memory.lock() != dense(table).buffer().owner()) {
    here = {.version = *version, .memory = {}, .rows = {}};
  }
  std::vector<int64_t> missing;
  std::set_difference(rows.begin(), rows.end(), here.rows.begin(), here.rows.end(),
                      std::back_inserter(missing));
  if (missing.empty()) return;
  RowLookup lookup(bound.table, missing);
  fetch_rows(call, lookup);
  lookup.place(dense(table));
  here.memory = dense(table).buffer().owner();
  std::vector<int64_t> all;
  std::set_union(missing.begin(), missing.end(), here.rows.begin(), here.rows.end(),
                 std::back_inserter(all));
  here.rows = std::move(all);
}

// ---- whole variables

std::vector<std::string> WorkerRuntime::pull(const std::vector<std::string>& names,
                                             fluid::Scope& scope) {
  const ServerClient& client = exchange_->ready();
  std::vector<std::string> unknown;
  RemoteValues values;
  for (const auto& name : names) {
    const RemoteTensor place = places_of_origin(name, client);
    if (place.parts.empty()) {
      unknown.push_back(name);
    } else {
      values.add_wanted(place, dense(scope.var(name)));
    }
  }
  exchange_->fetch(Phase::kSaving, values.memory());
  values.finish();
  return unknown;
}

bool WorkerRuntime::assign(const std::string& name, const fluid::Tensor& value) {
  const RemoteTensor place = places_of_origin(name, exchange_->ready(), Copies::kAll);
  if (place.parts.empty()) return false;
  RemoteValues values;
  values.add_given(place, value);
  exchange_->assign(values.memory());
  return true;
}

std::vector<std::string> WorkerRuntime::checkpoint_names() const {
  std::vector<std::string> names;
  for (const fluid::VarDesc* desc : origin_.global_block().vars()) {
    if (desc->persistable && desc->kind == fluid::VarKind::kLodTensor) names.push_back(desc->name);
  }
  return names;
}

bool WorkerRuntime::gather_persistables(fluid::Scope& scope) {
  return gather(checkpoint_names(), scope);
}

bool WorkerRuntime::gather(std::span<const std::string> names, fluid::Scope& scope) {
  if (index_ != 0) return false;
  pull({names.begin(), names.end()}, scope);
  return true;
}

void WorkerRuntime::spread_persistables(fluid::Scope& scope) {
  if (index_ == 0) give_values(checkpoint_names(), scope);
  start_from(scope);
}

void WorkerRuntime::give_values(std::span<const std::string> names, fluid::Scope& scope) {
  for (const auto& name : names) {
    fluid::Value* value = scope.find(name);
    const auto* tensor = value == nullptr ? nullptr : std::get_if<fluid::Tensor>(value);
    if (tensor != nullptr && tensor->initialized()) assign(name, *tensor);
  }
}

std::vector<std::string> WorkerRuntime::server_variables() {
  const ServerClient& client = exchange_->ready();
  std::set<std::string> names;
  for (uint32_t server = 0; server < client.config().server_num(); ++server) {
    for (const auto& entry : client.parameter_index(server).entries) {
      if (!entry.growing) names.insert(entry.origin);
    }
  }
  return {names.begin(), names.end()};
}

std::string WorkerRuntime::write_server_parts(const std::string& folder, int first, int parts) {
  std::string why;
  exchange_->request(
      Phase::kSaving, "write_server_parts", [&](ServerClient& client, transport::DoneHandler done) {
        client.save_parts({.folder = folder, .part = first, .parts = parts, .variables = {}}, why,
                          std::move(done));
      });
  return why;
}

std::string WorkerRuntime::load_server_parts(const PartSource& source) {
  std::string why;
  exchange_->request(Phase::kSaving, "load_server_parts",
                     [&](ServerClient& client, transport::DoneHandler done) {
                       client.load_parts(source, why, std::move(done));
                     });
  return why;
}

std::string WorkerRuntime::check_server_parts(const std::string& folder, uint32_t checksum) {
  return load_server_parts({.folder = folder, .checksum = checksum, .check = true});
}

void WorkerRuntime::read_server_parts(const std::string& folder, uint32_t checksum) {
  const std::string why = load_server_parts({.folder = folder, .checksum = checksum});
  if (why.empty()) return;
  throw_error(ErrorCode::kInput, {.what = "a server cannot read a checkpoint that it has checked",
                                  .where = folder,
                                  .expected = "files that stay as they are",
                                  .got = why,
                                  .fix = "start the job again"});
}

// Workers that train alone have states of optimizers that no server has; those of EASGD differ from
// the servers in parameters, too.
std::vector<std::string> WorkerRuntime::own_variables() {
  std::vector<std::string> names;
  if (exchange_->sends_gradients()) return names;
  const ServerClient& client = exchange_->ready();
  for (std::string& name : checkpoint_names()) {
    if (exchange_->parameters_differ() || places_of_origin(name, client).parts.empty()) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

void WorkerRuntime::set_steps_before(uint64_t steps) {
  exchange_->request(Phase::kSaving, "set_steps_before",
                     [&](ServerClient& client, transport::DoneHandler done) {
                       client.set_steps_before(steps, std::move(done));
                     });
}

void WorkerRuntime::start_from(fluid::Scope& scope) {
  barrier_worker();
  exchange_->restarted(scope);
}

}  // namespace fleet::strategies
