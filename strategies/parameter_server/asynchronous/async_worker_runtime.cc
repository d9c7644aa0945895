#include "strategies/parameter_server/asynchronous/async_worker_runtime.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/strings.h"
#include "fluid/kernels/table_rows.h"
#include "fluid/ops/distributed/comm.h"
#include "strategies/parameter_server/mistakes.h"
#include "strategies/parameter_server/remote_places.h"

namespace fleet::strategies {
namespace {

using transport::Phase;

fluid::Tensor& dense(fluid::Value& value) {
  auto* tensor = std::get_if<fluid::Tensor>(&value);
  return tensor != nullptr ? *tensor : value.emplace<fluid::Tensor>();
}

// Threads of a half-asynchronous worker merge one gradient each, whatever is asked for; whoever
// waits for values in step asks for them there.
AsyncOptions resolved(AsyncOptions options) {
  validate(options);
  if (options.staleness_bound == 0U) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "a staleness bound of 0 is synchronous training",
                 .where = "staleness_bound",
                 .expected = "1 or more, or none",
                 .got = "0",
                 .fix = "use the programs and the runtime of SyncStrategy"});
  }
  const bool exchanges = options.mode == AsyncMode::kGeo || options.mode == AsyncMode::kEasgd;
  if (options.mode == AsyncMode::kHalfAsync) {
    options.max_merge_var_num = options.send_queue_size = options.trainer_threads;
  }
  if (exchanges) {
    // Differences add up, whichever thread makes them.
    options.max_merge_var_num = options.send_queue_size = options.trainer_threads;
    options.merge_by_sum = true;
  }
  if (options.mode != AsyncMode::kAsync || options.staleness_bound) {
    options.independent_recv = false;
  }
  return options;
}

bool is_start_notice(const fluid::SendAttrs& attrs) {
  return attrs.send_varnames == std::vector<std::string>{"param_init"};
}

}  // namespace

AsyncWorkerRuntime::AsyncWorkerRuntime(ParameterServerConfig config, AsyncOptions options,
                                       transport::TransportChoice transport, fluid::Program origin,
                                       std::vector<std::string> server_names, Logger logger)
    : config_(std::move(config)),
      options_(resolved(options)),
      origin_(std::move(origin)),
      server_names_(std::move(server_names)),
      link_(config_, options_, transport, std::move(logger)),
      local_(link_, options, config_.worker_num) {
  if (server_names_.empty()) {
    for (const auto& endpoint : config_.servers) server_names_.push_back(endpoint.to_string());
  }
  link_.set_on_failure([this] {
    const std::lock_guard lock(meeting_mutex_);
    failed_ = true;
    met_.notify_all();
  });
}

AsyncWorkerRuntime::~AsyncWorkerRuntime() = default;

bool AsyncWorkerRuntime::trains_locally() const {
  return options_.mode == AsyncMode::kGeo || options_.mode == AsyncMode::kEasgd;
}

void AsyncWorkerRuntime::stop_worker() {
  if (link_.stopped()) return;
  local_.leave_all();
  link_.stop();
  // Behind the leave: the job's others are not to fail for it.
  local_.check_lost();
}

// ---- threads

void AsyncWorkerRuntime::enter_thread(uint32_t thread, fluid::Scope& scope,
                                      const fluid::Scope& parent) {
  if (thread >= options_.trainer_threads) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "there are more trainer threads than the job was told of",
                 .where = "trainer_threads",
                 .expected = str_cat(options_.trainer_threads),
                 .got = str_cat("thread ", thread),
                 .fix = "set CPU_NUM to the number of threads"});
  }
  {
    const std::lock_guard lock(mutex_);
    threads_[&scope].number = thread;
  }
  if (trains_locally()) local_.begin_from(scope, parent);
  const std::lock_guard lock(meeting_mutex_);
  ++training_;
}

void AsyncWorkerRuntime::leave_thread(fluid::Scope& scope) {
  if (trains_locally()) local_.leave(scope);
  {
    const std::lock_guard lock(mutex_);
    threads_.erase(&scope);
  }
  std::unique_lock lock(meeting_mutex_);
  --training_;
  if (arrived_ > 0 && arrived_ >= training_ && !failed_) exchange_of_all(lock);
}

AsyncWorkerRuntime::Thread& AsyncWorkerRuntime::thread_of(const fluid::Scope& scope) {
  const std::lock_guard lock(mutex_);
  return threads_[&scope];
}

// The last thread that comes sends for all.
void AsyncWorkerRuntime::meet() {
  std::unique_lock lock(meeting_mutex_);
  if (++arrived_ >= std::max(1U, training_)) {
    exchange_of_all(lock);
  } else {
    const uint64_t meeting = meetings_;
    met_.wait(lock, [&] { return meetings_ != meeting || failed_; });
  }
  const std::exception_ptr failure = meeting_failure_;
  lock.unlock();
  if (failure) std::rethrow_exception(failure);
  link_.check();
}

void AsyncWorkerRuntime::exchange_of_all(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  std::exception_ptr failure;
  try {
    link_.synchronize();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  meeting_failure_ = failure;
  arrived_ = 0;
  ++meetings_;
  met_.notify_all();
}

// ---- ops

void AsyncWorkerRuntime::begin_step(const fluid::Program&, uint64_t) {
  link_.ready();
  link_.set_phase(Phase::kComputing);
}

void AsyncWorkerRuntime::end_step(const fluid::Program&, uint64_t) {
  // Threads that meet send together.
  if (options_.independent_recv) link_.flush();
}

std::unique_ptr<fluid::CommToken> AsyncWorkerRuntime::run(const fluid::CommCall& call) {
  if (link_.stopped()) throw_left(call.op);
  const BoundOp& bound = bind(call);
  switch (bound.kind) {
    case Kind::kNothing:
      break;
    case Kind::kGradient:
      send(call, bound);
      break;
    case Kind::kMeet:
      meet();
      break;
    case Kind::kInitial:
      receive_initial(call, bound);
      break;
    case Kind::kValues:
      take_values(call, bound);
      break;
    case Kind::kLookup:
      look_up(call, bound);
      break;
    case Kind::kRows:
      receive_rows(call, bound);
      break;
    case Kind::kPrefetch:
      link_.look_up([&](ServerClient& client, transport::DoneHandler done) {
        prefetch_rows(bound.prefetch, call.inputs, call.outputs, client, std::move(done));
      });
      break;
    case Kind::kSaveTable:
      link_.synchronize();
      link_.save([&](ServerClient& client, transport::DoneHandler done) {
        save_tables(bound.snapshots, client, std::move(done));
      });
      break;
    case Kind::kStart:
      start(call.scope, bound);
      break;
    case Kind::kLocalStep:
      link_.count_step();
      local_.step(call.scope);
      break;
  }
  return nullptr;
}

void AsyncWorkerRuntime::send(const fluid::CommCall& call, const BoundOp& bound) {
  const uint32_t order = thread_of(call.scope).number;
  for (size_t i = 0; i < bound.tensors.size(); ++i) {
    const auto* rows = std::get_if<fluid::SelectedRows>(call.inputs[i]);
    if ((rows != nullptr) != bound.tensors[i].rows) {
      throw_error(ErrorCode::kShapeMismatch,
                  {.what = "a gradient is of rows, and its slices on the servers are not",
                   .where = call.op.to_string(),
                   .expected = bound.tensors[i].rows ? "rows" : "a dense tensor",
                   .got = rows != nullptr ? "rows" : "a dense tensor",
                   .fix = "transpile every role of the job from the same program"});
    }
    if (rows != nullptr) {
      link_.send_rows(bound.numbers[i], *rows, order);
      continue;
    }
    const fluid::Tensor& tensor = std::as_const(dense(*call.inputs[i]));
    if (tensor.bytes() != bound.tensors[i].bytes()) {
      throw_error(ErrorCode::kShapeMismatch,
                  {.what = "a gradient and its slices on the servers differ in size",
                   .where = call.op.to_string(),
                   .expected = str_cat(bound.tensors[i].bytes(), " bytes"),
                   .got = str_cat(tensor.bytes(), " bytes"),
                   .fix = "transpile every role of the job from the same program"});
    }
    Buffer copy = link_.memory_for(bound.numbers[i], tensor.bytes());
    std::memcpy(copy.data(), tensor.raw(), tensor.bytes());
    link_.send(bound.numbers[i], std::move(copy), order);
  }
}

void AsyncWorkerRuntime::look_up(const fluid::CommCall& call, const BoundOp& bound) {
  std::vector<const fluid::Tensor*> ids;
  for (size_t i = 0; i < call.outputs.size(); ++i) ids.push_back(&dense(*call.inputs[i]));
  RowLookup lookup(bound.table, std::move(ids));
  link_.look_up([&](ServerClient& client, transport::DoneHandler done) {
    lookup.ask(client, std::move(done));
  });
  lookup.fill(call.outputs);
}

// The rows that the op is about to look at.
void AsyncWorkerRuntime::receive_rows(const fluid::CommCall& call, const BoundOp& bound) {
  auto [table, rows] =
      fluid::rows_looked_at(call.block, call.op, call.inputs, call.step, call.shard);
  RowLookup lookup(bound.table, std::move(rows));
  link_.look_up([&](ServerClient& client, transport::DoneHandler done) {
    lookup.ask(client, std::move(done));
  });
  lookup.place(dense(table));
}

void AsyncWorkerRuntime::take_values(const fluid::CommCall& call, const BoundOp& bound) {
  Thread& thread = thread_of(call.scope);
  if (bound.meets) meet();
  if (bound.first_of_step) {
    link_.count_step();
    if (options_.mode == AsyncMode::kHalfAsync) {
      thread.values = link_.latest();
    } else if (options_.independent_recv) {
      link_.flush();
      link_.check();
      thread.values = link_.latest();
    } else {
      thread.values = link_.synchronize();
    }
  }
  for (size_t i = 0; i < bound.numbers.size(); ++i) {
    fluid::Tensor& value = dense(*call.outputs[i]);
    const auto has_come = [&] {
      return thread.values != nullptr && bound.numbers[i] < thread.values->size();
    };
    // None have come since the startup program's, or what another program asked for before this
    // one was known: what is here stays, where anything is.
    if (!has_come() && !value.initialized()) thread.values = link_.fetch();
    if (has_come()) value = (*thread.values)[bound.numbers[i]];
  }
}

void AsyncWorkerRuntime::receive_initial(const fluid::CommCall& call, const BoundOp& bound) {
  std::vector<AsyncLink::Target> targets;
  for (size_t i = 0; i < bound.tensors.size(); ++i) {
    const RemoteTensor& wanted = bound.tensors[i];
    fluid::Tensor& tensor = dense(*call.outputs[i]);
    tensor.reset(wanted.dtype, wanted.shape);
    targets.push_back({wanted, &tensor});
  }
  link_.receive(targets);
}

// With the servers' tables too, which may be those of a saved model: workers that began with values
// of their own would never train these.
void AsyncWorkerRuntime::start(fluid::Scope& scope, const BoundOp& bound) {
  std::vector<AsyncLink::Target> targets;
  for (const RemoteTensor& wanted : bound.tensors) {
    fluid::Value* value = scope.find(wanted.name);
    fluid::Tensor& tensor = dense(value != nullptr ? *value : scope.var(wanted.name));
    tensor.reset(wanted.dtype, wanted.shape);
    targets.push_back({wanted, &tensor});
  }
  if (!targets.empty()) link_.receive(targets);
  local_.begin(scope);
}

// ---- binding: names of the program to places on servers, once for each block of a program

const AsyncWorkerRuntime::BoundOp& AsyncWorkerRuntime::bind(const fluid::CommCall& call) {
  const std::lock_guard lock(mutex_);
  BoundProgram& program = bound_[call.program.id()];
  auto found = program.find(&call.op);
  if (found == program.end()) {
    if (const BoundOp* bound = bind_by_name(call)) return *bound;
    bind_block(call.block, program);
    found = program.find(&call.op);
  }
  return found->second;
}

// A lookup of a program that was not transpiled; null for other ops.
const AsyncWorkerRuntime::BoundOp* AsyncWorkerRuntime::bind_by_name(const fluid::CommCall& call) {
  const std::pair key(call.program.id(), &call.op);
  if (const auto found = named_.find(key); found != named_.end()) return &found->second;
  auto table = table_by_name(call.op, link_.ready());
  if (!table) return nullptr;
  BoundOp& bound = named_[key];
  bound.kind = gives_rows(call.op) ? Kind::kLookup : Kind::kRows;
  bound.table = *std::move(table);
  return &bound;
}

AsyncWorkerRuntime::BoundOp AsyncWorkerRuntime::bind_send(const fluid::Operator& op) {
  BoundOp bound;
  const auto attrs = fluid::parse_attributes<fluid::SendAttrs>(op.type, op.attrs);
  if (trains_locally()) {
    bound.kind = is_start_notice(attrs) ? Kind::kStart : Kind::kLocalStep;
    return bound;
  }
  // The step counter of a schedule: servers count gradients themselves.
  if (!attrs.use_send_handler || op.input("X").empty()) return bound;
  bound.kind = Kind::kGradient;
  bound.tensors = places_of_send(op, link_.ready(), server_names_);
  bound.numbers = link_.add_gradients(bound.tensors);
  return bound;
}

void AsyncWorkerRuntime::bind_start(const fluid::Block& block, BoundProgram& program) {
  std::set<RemoteVariable> received;
  for (const auto& op : block.ops()) {
    if (op->type != "recv") continue;
    for (const RemoteTensor& tensor : program[op.get()].tensors) {
      for (const auto& part : tensor.parts) received.insert(part.remote);
    }
  }
  for (const auto& op : block.ops()) {
    if (op->type != "send" || program[op.get()].kind != Kind::kStart) continue;
    for (RemoteTensor& tensor : trained_variables(link_.ready())) {
      const bool comes =
          std::all_of(tensor.parts.begin(), tensor.parts.end(),
                      [&](const auto& part) { return received.contains(part.remote); });
      if (!comes) program[op.get()].tensors.push_back(std::move(tensor));
    }
  }
}

void AsyncWorkerRuntime::bind_block(const fluid::Block& block, BoundProgram& program) {
  bool trains = false;
  bool meets = false;
  for (const auto& op : block.ops()) {
    if (op->type == "send") {
      BoundOp& bound = program[op.get()] = bind_send(*op);
      trains = trains || bound.kind == Kind::kGradient;
    } else if (op->type == "send_barrier") {
      BoundOp& bound = program[op.get()];
      if (options_.mode == AsyncMode::kHalfAsync) bound.kind = Kind::kMeet;
      meets = true;
    } else if (op->type == "fetch_barrier") {
      program[op.get()];
    } else if (op->type == "distributed_lookup_table") {
      BoundOp& bound = program[op.get()];
      bound.kind = Kind::kLookup;
      bound.table = table_of_lookup(*op, link_.ready(), server_names_);
    } else if (op->type == "prefetch") {
      BoundOp& bound = program[op.get()];
      bound.kind = Kind::kPrefetch;
      bound.prefetch = prefetch_of(*op, link_.ready(), server_names_);
    } else if (op->type == "checkpoint_notify") {
      BoundOp& bound = program[op.get()];
      bound.kind = Kind::kSaveTable;
      bound.snapshots = snapshots_of(*op, server_names_);
    } else if (auto table = table_of_op(*op, link_.ready(), server_names_)) {
      BoundOp& bound = program[op.get()];
      bound.kind = Kind::kRows;
      bound.table = *std::move(table);
    }
  }
  bool first = true;
  for (const auto& op : block.ops()) {
    if (op->type != "recv") continue;
    BoundOp& bound = program[op.get()];
    if (fluid::parse_attributes<fluid::RecvAttrs>(op->type, op->attrs).do_not_run != 0) continue;
    bound.kind = trains ? Kind::kValues : Kind::kInitial;
    bound.tensors = places_of_recv(*op, link_.ready(), server_names_);
    if (!trains) continue;
    bound.numbers = link_.add_values(bound.tensors);
    bound.first_of_step = std::exchange(first, false);
    bound.meets = bound.first_of_step && !meets && options_.mode == AsyncMode::kHalfAsync;
  }
  bind_start(block, program);
  for (const auto& op : block.ops()) {
    if (op->type != "listen_and_serv") continue;
    throw_error(ErrorCode::kInvalidProgram,
                {.what = "a worker of an asynchronous job cannot run this op",
                 .where = op->to_string(),
                 .expected = "an op of a trainer program",
                 .got = op->type,
                 .fix = "run the server program in a server"});
  }
}

// ---- whole variables

std::vector<std::string> AsyncWorkerRuntime::pull(const std::vector<std::string>& names,
                                                  fluid::Scope& scope) {
  const ServerClient& client = link_.ready();
  if (!trains_locally()) link_.synchronize();
  std::vector<std::string> unknown;
  std::vector<AsyncLink::Target> targets;
  for (const auto& name : names) {
    RemoteTensor wanted = places_of_origin(name, client);
    if (wanted.parts.empty()) {
      unknown.push_back(name);
      continue;
    }
    fluid::Tensor& tensor = dense(scope.var(name));
    tensor.reset(wanted.dtype, wanted.shape);
    targets.push_back({std::move(wanted), &tensor});
  }
  link_.receive(targets);
  return unknown;
}

bool AsyncWorkerRuntime::assign(const std::string& name, const fluid::Tensor& value) {
  const RemoteTensor place = places_of_origin(name, link_.ready());
  if (place.parts.empty()) return false;
  if (value.dtype() != place.dtype || value.numel() != place.shape.numel()) {
    throw_error(ErrorCode::kShapeMismatch,
                {.what = "a value does not fit the variable that it is given to",
                 .where = name,
                 .expected = str_cat(fluid::dtype_name(place.dtype), place.shape),
                 .got = str_cat(fluid::dtype_name(value.dtype()), value.shape()),
                 .fix = "load a model of the same network"});
  }
  link_.assign(place, value);
  return true;
}

bool AsyncWorkerRuntime::gather_persistables(fluid::Scope& scope) {
  std::vector<std::string> names;
  for (const fluid::VarDesc* desc : origin_.global_block().vars()) {
    if (desc->persistable && desc->kind == fluid::VarKind::kLodTensor) names.push_back(desc->name);
  }
  return gather(names, scope);
}

bool AsyncWorkerRuntime::gather(std::span<const std::string> names, fluid::Scope& scope) {
  if (config_.index != 0) return false;
  pull({names.begin(), names.end()}, scope);
  return true;
}

void AsyncWorkerRuntime::spread_persistables(fluid::Scope& scope) {
  if (config_.index == 0) {
    for (const fluid::VarDesc* desc : origin_.global_block().vars()) {
      if (!desc->persistable || desc->kind != fluid::VarKind::kLodTensor) continue;
      fluid::Value* value = scope.find(desc->name);
      const auto* tensor = value == nullptr ? nullptr : std::get_if<fluid::Tensor>(value);
      if (tensor != nullptr && tensor->initialized()) assign(desc->name, *tensor);
    }
  }
  barrier_worker();
  if (trains_locally()) local_.begin(scope);
}

}  // namespace fleet::strategies
