#include "strategies/parameter_server/asynchronous/async_link.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "base/caught.h"
#include "base/strings.h"
#include "fluid/core/interleaved_rows.h"

namespace fleet::strategies {

using transport::DoneHandler;
using transport::Phase;

namespace {

// A part of a variable between whose rows others' lie.
struct RowsApart {
  RowsApart(const RemoteTensor& place, const RemotePart& part, fluid::Tensor whole_value)
      : whole(std::move(whole_value)), stride(part.stride) {
    const auto row_bytes = static_cast<int64_t>(place.bytes()) / place.shape[0];
    first = static_cast<int64_t>(part.offset) / row_bytes;
    fluid::Shape shape = place.shape;
    shape.set(0, static_cast<int64_t>(part.bytes) / row_bytes);
    rows = fluid::Tensor(place.dtype, shape);
  }

  fluid::Tensor whole;  // shares the variable's memory
  fluid::Tensor rows;
  int64_t first = 0;
  int64_t stride = 1;
};

}  // namespace

AsyncLink::AsyncLink(ParameterServerConfig config, AsyncOptions options,
                     transport::TransportChoice transport, Logger logger)
    : config_(std::move(config)),
      options_(options),
      environment_(transport,
                   [this](const Status& why) { complete(std::make_shared<bool>(), why); }) {
  environment_.data().on_loop([&] {
    node_ = std::make_unique<AsyncWorkerNode>(environment_.node(), config_, std::move(logger));
    worker_ = std::make_unique<AsyncWorker>(node_->communicator(), options_, events());
    node_->set_on_failure([this](const Status&) { note_failure(); });
    node_->set_on_joined([this] { note_ready(); });
    node_->communicator().set_on_idle([this] { note_ready(); });
  });
}

AsyncLink::~AsyncLink() {
  environment_.data().on_loop([this] {
    worker_.reset();
    node_.reset();
  });
}

AsyncWorker::Events AsyncLink::events() {
  AsyncWorker::Events events;
  events.on_room = [this](uint32_t gradient) {
    const std::lock_guard lock(mutex_);
    --queued_[gradient];
    changed_.notify_all();
  };
  events.on_values = [this](const ReceivedValues& received) {
    auto values = std::make_shared<const std::vector<fluid::Tensor>>(received.tensors);
    const std::lock_guard lock(mutex_);
    latest_ = std::move(values);
  };
  events.on_failure = [this] { note_failure(); };
  return events;
}

// ---- on the loop's thread

void AsyncLink::note_failure() {
  complete(std::make_shared<bool>(), node_->status());
}

void AsyncLink::note_ready() {
  node_->check();
  if (!node_->ready()) return;
  const std::lock_guard lock(mutex_);
  ready_ = true;
  changed_.notify_all();
}

// What only the loop's thread meets is the job's failure.
void AsyncLink::guarded(const std::function<void()>& work) {
  try {
    work();
  } catch (...) {
    complete(std::make_shared<bool>(), caught_status(str_cat("worker ", config_.index)));
  }
}

// From the trainers to the worker's queues.
void AsyncLink::take_queued() {
  std::vector<Queued> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(inbox_);
    inbox_bytes_ = 0;
    pump_posted_ = false;
  }
  std::stable_sort(taken.begin(), taken.end(),
                   [](const Queued& a, const Queued& b) { return a.order < b.order; });
  for (Queued& queued : taken) worker_->enqueue(queued.gradient, std::move(queued.content));
}

void AsyncLink::complete(const std::shared_ptr<bool>& done, const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (!status.ok() && failure_.ok()) failure_ = status;
    *done = true;
    changed_.notify_all();
  }
  if (!status.ok() && on_failure_) on_failure_();
}

// ---- waiting

// Drives the loop, where nobody else does, and sleeps else.
template <class Done>
void AsyncLink::wait(Lock& lock, Phase phase, std::string_view what, const Done& done) {
  if (failure_.ok() && done()) return;
  set_phase(phase);
  const TimePoint begin = steady_clock().now();
  const auto over = [&] { return done() || !failure_.ok(); };
  while (!over()) {
    lock.unlock();
    const bool driven = environment_.data().try_drive_until([&] {
      const Lock own(mutex_);
      return over();
    });
    lock.lock();
    if (driven && sleeping_ > 0) changed_.notify_all();  // one of them drives now
    if (driven || over()) continue;
    ++sleeping_;
    changed_.wait(lock);  // the loop is never without a driver for long
    --sleeping_;
  }
  if (!failure_.ok()) {
    lock.unlock();
    fail(phase, what, steady_clock().now() - begin);
  }
  set_phase(Phase::kComputing);
}

void AsyncLink::check() {
  Lock lock(mutex_);
  wait(lock, Phase::kComputing, "training", [] { return true; });
}

void AsyncLink::fail(Phase phase, std::string_view what, Duration elapsed) {
  Status why;
  {
    const Lock lock(mutex_);
    why = failure_;
  }
  node_->abort(why, phase, steps());
  // The verdict counts for more than the broken connections that come with it.
  if (const auto verdict = node_->member().verdict()) why = verdict->to_status();
  std::vector<std::string> peers;
  environment_.data().on_loop([&] {
    for (const uint32_t server : node_->communicator().waiting_for()) {
      peers.push_back(str_cat("server ", server));
    }
    node_->communicator().fail_all(why);
  });
  ErrorText text = why.text();
  text.where = str_cat(text.where, text.where.empty() ? "" : "; ", "worker ", config_.index,
                       " in phase ", transport::phase_name(phase), " (", what, ") of step ",
                       steps(), ", after ", std::chrono::duration<double>(elapsed).count(), " s",
                       peers.empty() ? "" : ", waiting for ", join(peers, ", "));
  throw_error(why.code(), std::move(text));
}

// Runs `work` on the loop; the ticket is for what it began.
AsyncLink::Ticket AsyncLink::begin(const std::function<void(DoneHandler)>& work) {
  const auto done = std::make_shared<bool>(false);
  run_or_post(
      [this, work, done] { work([this, done](const Status& status) { complete(done, status); }); });
  return done;
}

// On the calling thread where the loop is free.
void AsyncLink::run_or_post(const std::function<void()>& work) {
  const auto safely = [this, work] { guarded(work); };
  if (!environment_.data().try_run(safely)) environment_.post(safely);
}

void AsyncLink::wait_for(const Ticket& ticket, Phase phase, std::string_view what) {
  Lock lock(mutex_);
  wait(lock, phase, what, [&] { return *ticket; });
}

void AsyncLink::set_phase(Phase phase) {
  node_->set_phase(phase, steps());
}

// ---- life

void AsyncLink::start() {
  if (started_) return;
  started_ = true;
  environment_.data().on_loop([this] { node_->start(); });
}

const ServerClient& AsyncLink::ready() {
  start();
  Lock lock(mutex_);
  if (!ready_) wait(lock, Phase::kConnecting, "connecting to servers", [this] { return ready_; });
  return node_->communicator();
}

std::vector<uint32_t> AsyncLink::add_gradients(const std::vector<RemoteTensor>& gradients) {
  std::vector<uint32_t> numbers;
  size_t known = 0;
  environment_.data().on_loop([&] {
    for (const auto& gradient : gradients) numbers.push_back(worker_->add_gradient(gradient));
    known = worker_->gradients().size();
  });
  const Lock lock(mutex_);
  queued_.resize(std::max(queued_.size(), known));
  buffers_.resize(std::max(buffers_.size(), known));
  return numbers;
}

std::vector<uint32_t> AsyncLink::add_values(const std::vector<RemoteTensor>& values) {
  std::vector<uint32_t> numbers;
  environment_.data().on_loop([&] {
    for (const auto& value : values) numbers.push_back(worker_->add_value(value));
  });
  return numbers;
}

void AsyncLink::barrier(const std::string& name) {
  start();
  set_phase(Phase::kBarrier);
  const TimePoint begin = steady_clock().now();
  const Status status = node_->member().barrier(transport::Group::kWorkers, name);
  if (!status.ok()) {
    environment_.data().on_loop([&] { complete(std::make_shared<bool>(), status); });
    fail(Phase::kBarrier, name, steady_clock().now() - begin);
  }
  set_phase(Phase::kComputing);
}

std::vector<double> AsyncLink::all_reduce(std::span<const double> values) {
  start();
  set_phase(Phase::kReducing);
  const TimePoint begin = steady_clock().now();
  auto result = node_->member().reduce(transport::Group::kWorkers, "all_reduce_worker",
                                       transport::ReduceOp::kSum,
                                       std::vector<double>(values.begin(), values.end()));
  if (!result.ok()) {
    environment_.data().on_loop([&] { complete(std::make_shared<bool>(), result.status()); });
    fail(Phase::kReducing, "all_reduce_worker", steady_clock().now() - begin);
  }
  set_phase(Phase::kComputing);
  return std::get<std::vector<double>>(std::move(result).value());
}

void AsyncLink::stop() {
  if (stopped_) return;
  ready();
  run(Phase::kFinishing, "stop_worker", [this](DoneHandler done) {
    take_queued();
    worker_->when_settled([this, done = std::move(done)]() mutable {
      // Not from inside the round that has just ended.
      environment_.post([this, done = std::move(done)] {
        node_->communicator().set_on_idle(nullptr);
        node_->stop(done);
      });
    });
  });
  stopped_ = true;
  environment_.end();
}

// ---- gradients and values

Buffer AsyncLink::take_buffer(uint32_t gradient, uint64_t bytes) {
  for (const Buffer& buffer : buffers_[gradient]) {
    if (buffer.unique() && buffer.size() == bytes) return buffer;
  }
  return buffers_[gradient].emplace_back(bytes);
}

Buffer AsyncLink::memory_for(uint32_t gradient, uint64_t bytes) {
  Lock lock(mutex_);
  wait_for_room(lock, gradient);
  return take_buffer(gradient, bytes);
}

void AsyncLink::send(uint32_t gradient, Buffer memory, uint32_t order) {
  const uint64_t bytes = memory.size();
  put(gradient, order, {std::move(memory)}, bytes);
}

void AsyncLink::send_rows(uint32_t gradient, const fluid::SelectedRows& rows, uint32_t order) {
  {
    Lock lock(mutex_);
    wait_for_room(lock, gradient);
  }
  const auto copy = std::make_shared<const fluid::SelectedRows>(
      fluid::SelectedRows{.rows = rows.rows, .height = rows.height, .value = rows.value.clone()});
  put(gradient, order, {Buffer(), copy}, copy->value.bytes());
}

// Counts a gradient that comes.
void AsyncLink::wait_for_room(Lock& lock, uint32_t gradient) {
  if (queued_[gradient] >= options_.send_queue_size) {
    // Else the rest of the step would leave in parts: what has left the inbox goes by itself.
    const bool here = std::any_of(inbox_.begin(), inbox_.end(), [gradient](const Queued& queued) {
      return queued.gradient == gradient;
    });
    if (here) pump(lock);
    wait(lock, Phase::kSending, "send",
         [&] { return queued_[gradient] < options_.send_queue_size; });
  }
  ++queued_[gradient];
}

void AsyncLink::put(uint32_t gradient, uint32_t order, QueuedGradient content, uint64_t bytes) {
  Lock lock(mutex_);
  inbox_.push_back({gradient, order, std::move(content)});
  inbox_bytes_ += bytes;
  // Large gradients travel while the rest is computed; half-asynchronous ones wait for each other.
  if (inbox_bytes_ >= config_.flush_bytes && options_.independent_recv) pump(lock);
}

// Lets go of the lock meanwhile.
void AsyncLink::pump(Lock& lock) {
  if (pump_posted_ || inbox_.empty()) return;
  pump_posted_ = true;
  lock.unlock();
  run_or_post([this] {
    take_queued();
    worker_->pump();
  });
  lock.lock();
}

void AsyncLink::flush() {
  Lock lock(mutex_);
  pump(lock);
}

AsyncLink::Ticket AsyncLink::begin_synchronize() {
  return begin([this](DoneHandler done) {
    take_queued();
    worker_->synchronize(std::move(done));
  });
}

bool AsyncLink::is_over(const Ticket& ticket) const {
  const Lock lock(mutex_);
  return *ticket || !failure_.ok();
}

SharedValues AsyncLink::finish(const Ticket& ticket) {
  wait_for(ticket, Phase::kReceiving, "exchange");
  return latest();
}

SharedValues AsyncLink::fetch() {
  run(Phase::kReceiving, "recv", [this](DoneHandler done) { worker_->fetch(std::move(done)); });
  return latest();
}

SharedValues AsyncLink::latest() const {
  const Lock lock(mutex_);
  return latest_;
}

void AsyncLink::receive(const std::vector<Target>& targets) {
  ready();
  const auto apart = std::make_shared<std::deque<RowsApart>>();
  run(Phase::kReceiving, "recv", [&, apart](DoneHandler done) {
    AsyncCommunicator& communicator = node_->communicator();
    for (const Target& target : targets) {
      for (const RemotePart& part : target.place.parts) {
        std::byte* memory = target.value->raw() + part.offset;
        if (part.stride > 1) {
          apart->emplace_back(target.place, part, *target.value);
          memory = apart->back().rows.raw();
        }
        communicator.receive(part.remote, memory, part.bytes);
      }
    }
    communicator.exchange([apart, done = std::move(done)](const Status& status) { done(status); });
  });
  for (RowsApart& part : *apart) {
    fluid::put_rows(part.rows, part.first, part.stride, part.whole);
  }
}

void AsyncLink::look_up(const Ask& ask) {
  run(Phase::kReceiving, "lookup",
      [&](DoneHandler done) { ask(node_->communicator(), std::move(done)); });
}

void AsyncLink::save(const Ask& ask) {
  run(Phase::kSaving, "checkpoint_notify",
      [&](DoneHandler done) { ask(node_->communicator(), std::move(done)); });
}

void AsyncLink::assign(const RemoteTensor& place, const fluid::Tensor& value) {
  ready();
  const auto idle = std::make_shared<bool>(false);
  const auto apart = std::make_shared<std::deque<RowsApart>>();
  environment_.post([this, &place, value, apart, idle] {
    guarded([&] {
      AsyncCommunicator& communicator = node_->communicator();
      for (const RemotePart& part : place.parts) {
        const std::byte* memory = value.raw() + part.offset;
        if (part.stride > 1) {
          RowsApart& own = apart->emplace_back(place, part, value);
          own.rows = fluid::take_rows(value, own.first, own.stride, own.rows.shape()[0]);
          memory = std::as_const(own.rows).raw();
        }
        communicator.assign(part.remote, memory, part.bytes);
      }
      communicator.set_on_idle([this, apart, idle] {
        node_->communicator().set_on_idle([this] { node_->check(); });
        complete(idle, node_->status());
      });
      if (communicator.idle()) complete(idle, node_->status());
    });
  });
  Lock lock(mutex_);
  wait(lock, Phase::kLoading, "assign", [&] { return *idle; });
}

}  // namespace fleet::strategies
