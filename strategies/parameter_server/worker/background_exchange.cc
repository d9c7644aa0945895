#include "strategies/parameter_server/worker/background_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::strategies {
namespace {

std::vector<std::string> persistables_written(const fluid::Block& block, const BoundBlock& bound) {
  std::vector<std::string> names;
  for (const auto& op : block.ops()) {
    if (bound.contains(op.get())) continue;
    for (const std::string& name : op->output_names()) {
      const fluid::VarDesc* var = block.find_var_recursive(name);
      if (var != nullptr && var->persistable) names.push_back(name);
    }
  }
  return names;
}

// Another program of this worker may have received them, as values that all threads share.
void own_written(const std::vector<std::string>& names, const fluid::Scope& scope) {
  for (const std::string& name : names) {
    fluid::Value* value = scope.find(name);
    auto* tensor = value == nullptr ? nullptr : std::get_if<fluid::Tensor>(value);
    if (tensor != nullptr && tensor->initialized() && !tensor->buffer().unique()) {
      *tensor = tensor->clone();
    }
  }
}

// What a bound promises of values is not true of rows that were looked up before.
void check_hot_rows(const ParameterServerConfig& config, const AsyncOptions& options) {
  if (config.hot_row_steps == 0 || !options.staleness_bound) return;
  throw_error(
      ErrorCode::kInvalidArgument,
      {.what = "rows cannot be used again where staleness has a bound",
       .where = "FLEET_HOT_ROW_STEPS and staleness_bound",
       .expected = "one of them",
       .got = str_cat(config.hot_row_steps, " steps, and a bound of ", *options.staleness_bound),
       .fix = "unset FLEET_HOT_ROW_STEPS, or leave staleness_bound unset"});
}

}  // namespace

// Of a send or recv op.
struct BackgroundExchange::Notes final : ExchangeNotes {
  std::vector<uint32_t> numbers;  // of its variables as gradients or values
  // Of recv ops.
  bool initial = false;  // the block sends nothing
  bool first_of_step = false;
  bool meets = false;  // threads meet here
  // Variables that other ops of the program write to, which stay when the step is over.
  std::vector<std::string> written;
};

BackgroundExchange::BackgroundExchange(const ParameterServerConfig& config,
                                       const AsyncOptions& options, WorkerLoops loops,
                                       Logger logger)
    : BackgroundClient(config, options, std::move(loops), std::move(logger)),
      hot_row_steps_(config.hot_row_steps) {
  check_hot_rows(config, options);
  set_on_failure([this] {
    const std::lock_guard lock(meeting_mutex_);
    failed_ = true;
    met_.notify_all();
  });
}

std::vector<std::shared_ptr<KeptRows>> BackgroundExchange::kept_rows(
    fluid::Scope&, const RemoteGrowingTables& tables) {
  std::vector<std::shared_ptr<KeptRows>> rows;
  if (hot_row_steps_ == 0 || tables.attrs.is_test) return rows;
  const std::lock_guard lock(hot_mutex_);
  for (size_t t = 0; t < tables.tables.size(); ++t) {
    auto& own = hot_[tables.names[t]];
    if (own == nullptr) {
      own = std::make_shared<HotRows>(static_cast<size_t>(tables.tables[t].width), hot_row_steps_);
    }
    rows.push_back(own);
  }
  return rows;
}

void BackgroundExchange::forget_kept_rows() {
  const std::lock_guard lock(hot_mutex_);
  hot_.clear();
}

// ---- threads

void BackgroundExchange::enter_thread(uint32_t thread, fluid::Scope& scope,
                                      const fluid::Scope& parent) {
  BackgroundClient::enter_thread(thread, scope, parent);
  {
    const std::lock_guard lock(threads_mutex_);
    threads_[&scope].number = thread;
  }
  const std::lock_guard lock(meeting_mutex_);
  ++training_;
}

void BackgroundExchange::leave_thread(fluid::Scope& scope, fluid::Scope& /*parent*/) {
  {
    const std::lock_guard lock(threads_mutex_);
    threads_.erase(&scope);
  }
  std::unique_lock lock(meeting_mutex_);
  --training_;
  if (arrived_ > 0 && arrived_ >= training_ && !failed_) exchange_of_all(lock);
}

BackgroundExchange::Thread& BackgroundExchange::thread_of(const fluid::Scope& scope) {
  const std::lock_guard lock(threads_mutex_);
  return threads_[&scope];
}

// The last thread that comes sends for all.
void BackgroundExchange::meet() {
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
  check();
}

void BackgroundExchange::exchange_of_all(std::unique_lock<std::mutex>& lock) {
  lock.unlock();
  std::exception_ptr failure;
  try {
    synchronize();
  } catch (...) {
    failure = std::current_exception();
  }
  lock.lock();
  meeting_failure_ = failure;
  arrived_ = 0;
  ++meetings_;
  met_.notify_all();
}

// ---- steps

void BackgroundExchange::prepare(const fluid::Block& block, BoundBlock& bound) {
  std::vector<BoundOp*> receives;
  bool trains = false;
  bool barrier = false;
  for (const auto& op : block.ops()) {
    const auto found = bound.find(op.get());
    if (found == bound.end()) continue;
    BoundOp& own = found->second;
    barrier = barrier || own.kind == BoundOp::Kind::kSendBarrier;
    if (own.kind == BoundOp::Kind::kReceive) receives.push_back(&own);
    if (own.kind != BoundOp::Kind::kSend || own.tensors.empty()) continue;
    trains = true;
    auto notes = std::make_unique<Notes>();
    notes->numbers = add_gradients(own.tensors);
    own.notes = std::move(notes);
  }
  for (BoundOp* receive : receives) {
    auto notes = std::make_unique<Notes>();
    notes->initial = !trains;
    if (trains) {
      notes->numbers = add_values(receive->tensors);
      notes->first_of_step = receive == receives.front();
      if (notes->first_of_step) notes->written = persistables_written(block, bound);
      notes->meets = notes->first_of_step && !barrier && options().mode == ServerMode::kHalfAsync;
    }
    receive->notes = std::move(notes);
  }
}

void BackgroundExchange::end_step() {
  // Threads that meet send together.
  if (options().independent_recv) flush();
}

Exchange::Token BackgroundExchange::send(const fluid::CommCall& call, const BoundOp& bound) {
  const uint32_t order = thread_of(call.scope).number;
  for (size_t i = 0; i < bound.tensors.size(); ++i) {
    const uint32_t number = static_cast<const Notes&>(*bound.notes).numbers[i];
    check_gradient(call.op, bound.tensors[i], *call.inputs[i]);
    if (const auto* rows = std::get_if<fluid::SelectedRows>(call.inputs[i])) {
      queue_rows(number, *rows, order);
      continue;
    }
    const auto& tensor = std::get<fluid::Tensor>(std::as_const(*call.inputs[i]));
    Buffer copy = memory_for(number, tensor.bytes());
    std::memcpy(copy.data(), tensor.raw(), tensor.bytes());
    queue(number, std::move(copy), order);
  }
  return nullptr;
}

void BackgroundExchange::send_barrier() {
  if (options().mode == ServerMode::kHalfAsync) meet();
}

SharedValues BackgroundExchange::values_of_step() {
  count_step();
  if (options().mode == ServerMode::kHalfAsync) return latest();
  if (!options().independent_recv) return synchronize();
  flush();
  check();
  return latest();
}

Exchange::Token BackgroundExchange::receive(const fluid::CommCall& call, const BoundOp& bound) {
  const auto& notes = static_cast<const Notes&>(*bound.notes);
  if (notes.initial) {
    receive_initial(call, bound);
    return nullptr;
  }
  Thread& thread = thread_of(call.scope);
  if (notes.meets) meet();
  if (notes.first_of_step) {
    thread.values = values_of_step();
    own_written(notes.written, call.scope);
  }
  for (size_t i = 0; i < notes.numbers.size(); ++i) {
    fluid::Tensor& value = dense(*call.outputs[i]);
    const auto has_come = [&] {
      return thread.values != nullptr && notes.numbers[i] < thread.values->size();
    };
    // None have come since the startup program's, or what another program asked for before this
    // one was known: what is here stays, where anything is.
    if (!has_come() && !value.initialized()) thread.values = fetch_values();
    if (has_come()) value = (*thread.values)[notes.numbers[i]];
  }
  return nullptr;
}

void BackgroundExchange::fetch(transport::Phase phase, std::span<const RemoteMemory> values) {
  drain();
  BackgroundClient::fetch(phase, values);
}

}  // namespace fleet::strategies
