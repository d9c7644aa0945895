#include "strategies/parameter_server/worker/background_client.h"

#include <algorithm>
#include <utility>

#include "base/caught.h"
#include "base/error.h"
#include "base/strings.h"
#include "strategies/parameter_server/worker/remote_values.h"

namespace fleet::strategies {

using transport::DoneHandler;
using transport::Phase;

BackgroundClient::BackgroundClient(ParameterServerConfig config, AsyncOptions options,
                                   WorkerLoops loops, Logger logger)
    : config_(std::move(config)),
      options_(options),
      loops_(std::move(loops)),
      data_(*loops_.requests) {
  data_.set_on_exception([this](const Status& why) { note_failure(why); });
  data_.on_loop([&] {
    node_ = std::make_unique<WorkerNode<AsyncClient>>(loops_.node, config_, std::move(logger));
    node_->client().work_by(options_, events());
    node_->set_on_failure([this](const Status& why) { note_failure(why); });
    node_->set_on_joined([this] { note_ready(); });
    node_->client().set_on_idle([this] { note_ready(); });
  });
}

BackgroundClient::~BackgroundClient() {
  data_.on_loop([this] { node_.reset(); });
}

AsyncClient::Events BackgroundClient::events() {
  AsyncClient::Events events;
  events.on_room = [this](uint32_t gradient) {
    const std::lock_guard lock(mutex_);
    --queued_[gradient];
    changed_.notify_all();
  };
  events.on_values = [this](const SharedValues& values) {
    const std::lock_guard lock(mutex_);
    latest_ = values;
  };
  events.on_failure = [this] { note_failure(node_->status()); };
  return events;
}

// ---- on the loop's thread

void BackgroundClient::note_failure(const Status& why) {
  complete(std::make_shared<bool>(), why);
}

void BackgroundClient::note_ready() {
  node_->check();
  if (!node_->ready()) return;
  const std::lock_guard lock(mutex_);
  ready_ = true;
  changed_.notify_all();
}

// What only the loop's thread meets is the job's failure.
void BackgroundClient::guarded(const std::function<void()>& work) {
  try {
    work();
  } catch (...) {
    note_failure(caught_status(str_cat("worker ", config_.index)));
  }
}

// From the trainers to the client's queues. What several threads queued for one exchange is merged
// in the order of the threads, whichever came first, so that its bits do not depend on that.
void BackgroundClient::take_queued() {
  std::vector<Queued> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(inbox_);
    inbox_bytes_ = 0;
    pump_posted_ = false;
  }
  std::stable_sort(taken.begin(), taken.end(),
                   [](const Queued& a, const Queued& b) { return a.order < b.order; });
  for (Queued& queued : taken) node_->client().enqueue(queued.gradient, std::move(queued.content));
}

void BackgroundClient::complete(const std::shared_ptr<bool>& done, const Status& status) {
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
void BackgroundClient::wait(Lock& lock, Phase phase, std::string_view what, const Done& done) {
  if (failure_.ok() && done()) return;
  set_phase(phase);
  const TimePoint begin = steady_clock().now();
  const auto over = [&] { return done() || !failure_.ok(); };
  while (!over()) {
    lock.unlock();
    const bool driven = data_.try_drive_until([&] {
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

void BackgroundClient::check() {
  Lock lock(mutex_);
  wait(lock, Phase::kComputing, "training", [] { return true; });
}

void BackgroundClient::fail(Phase phase, std::string_view what, Duration elapsed) {
  Status why;
  {
    const Lock lock(mutex_);
    why = failure_;
  }
  node_->abort(why, phase, steps());
  // The verdict counts for more than the broken connections that come with it.
  if (const auto verdict = node_->member().verdict()) why = verdict->to_status();
  std::vector<std::string> peers;
  data_.on_loop([&] { peers = node_->give_up(why); });
  node_->throw_failure(why, phase, what, steps(), elapsed, peers);
}

// Runs `work` on the loop; the ticket is for what it began.
BackgroundClient::Ticket BackgroundClient::begin(const std::function<void(DoneHandler)>& work) {
  const auto done = std::make_shared<bool>(false);
  run_or_post(
      [this, work, done] { work([this, done](const Status& status) { complete(done, status); }); });
  return done;
}

// On the calling thread where the loop is free.
void BackgroundClient::run_or_post(const std::function<void()>& work) {
  const auto safely = [this, work] { guarded(work); };
  if (!data_.try_run(safely)) data_.loop().post(safely);
}

void BackgroundClient::wait_for(const Ticket& ticket, Phase phase, std::string_view what) {
  Lock lock(mutex_);
  wait(lock, phase, what, [&] { return *ticket; });
}

void BackgroundClient::set_phase(Phase phase) {
  node_->set_phase(phase, steps());
}

// ---- life

void BackgroundClient::start() {
  if (started_) return;
  started_ = true;
  data_.on_loop([this] { node_->start(); });
}

const ServerClient& BackgroundClient::ready() {
  start();
  Lock lock(mutex_);
  if (!ready_) wait(lock, Phase::kConnecting, "connecting to servers", [this] { return ready_; });
  return node_->client();
}

std::vector<uint32_t> BackgroundClient::add_gradients(const std::vector<RemoteTensor>& gradients) {
  std::vector<uint32_t> numbers;
  size_t known = 0;
  data_.on_loop([&] {
    for (const auto& gradient : gradients)
      numbers.push_back(node_->client().add_gradient(gradient));
    known = node_->client().gradients();
  });
  const Lock lock(mutex_);
  queued_.resize(std::max(queued_.size(), known));
  buffers_.resize(std::max(buffers_.size(), known));
  return numbers;
}

std::vector<uint32_t> BackgroundClient::add_values(const std::vector<RemoteTensor>& values) {
  std::vector<uint32_t> numbers;
  data_.on_loop([&] {
    for (const auto& value : values) numbers.push_back(node_->client().add_value(value));
  });
  return numbers;
}

void BackgroundClient::ask_coordinator(Phase phase, std::string_view what,
                                       const std::function<Status()>& call) {
  start();
  set_phase(phase);
  const TimePoint begin = steady_clock().now();
  const Status status = call();
  if (!status.ok()) {
    data_.on_loop([&] { note_failure(status); });
    fail(phase, what, steady_clock().now() - begin);
  }
  set_phase(Phase::kComputing);
}

// A meeting that the program asks for. Another worker may have asked all to save, and wait for this
// one in the meeting that saving begins with.
void BackgroundClient::meet(Phase phase, const std::string& name, const Meet& call) {
  while (true) {
    bool asked = false;
    ask_coordinator(phase, name, [&] {
      const Status status = call(on_save_ ? std::optional(saves_made_) : std::nullopt);
      asked = transport::is_save_first(status);
      return asked ? Status() : status;
    });
    if (!asked) return;
    on_save_();
  }
}

void BackgroundClient::barrier(transport::Group group, const std::string& name) {
  if (group == transport::Group::kWorkers) {
    return meet(Phase::kBarrier, name,
                [&](const auto& saves) { return node_->barrier(group, name, saves); });
  }
  ask_coordinator(Phase::kBarrier, name, [&] { return node_->barrier(group, name); });
}

std::vector<double> BackgroundClient::all_reduce(transport::Group group, const std::string& name,
                                                 std::vector<double> values) {
  if (group == transport::Group::kWorkers) {
    meet(Phase::kReducing, name,
         [&](const auto& saves) { return node_->all_reduce(group, name, values, saves); });
  } else {
    ask_coordinator(Phase::kReducing, name, [&] { return node_->all_reduce(group, name, values); });
  }
  return values;
}

void BackgroundClient::meet_to_save() {
  constexpr const char* kName = "meet_to_save";
  meet(Phase::kSaving, kName, [&](const auto& saves) {
    return node_->barrier(transport::Group::kTraining, kName, saves);
  });
}

void BackgroundClient::stop() {
  if (stopped_) return;
  ready();
  run(Phase::kFinishing, "stop_worker", [this](DoneHandler done) {
    take_queued();
    node_->client().when_drained([this, done = std::move(done)]() mutable {
      // Not from inside the round that has just ended.
      data_.loop().post([this, done = std::move(done)] {
        node_->client().set_on_idle(nullptr);
        node_->stop_async(done);
      });
    });
  });
  stopped_ = true;
  end_threads();
}

void BackgroundClient::end_threads() {
  if (loops_.node.end_threads) loops_.node.end_threads();
}

void BackgroundClient::enter_thread(uint32_t thread, fluid::Scope&, const fluid::Scope&) {
  if (thread < options_.trainer_threads) return;
  throw_error(
      ErrorCode::kInvalidArgument,
      {.what = "there are more trainer threads than the job was configured for",
       .where = "trainer_threads",
       .expected = str_cat(options_.trainer_threads, " at most"),
       .got = str_cat(thread + 1),
       .fix = "set CPU_NUM to the number of threads, or train with fewer (DatasetRun::thread)"});
}

void BackgroundClient::begin_step() {
  ready();
  set_phase(Phase::kComputing);
}

// ---- gradients and values

Buffer BackgroundClient::take_buffer(uint32_t gradient, uint64_t bytes) {
  for (const Buffer& buffer : buffers_[gradient]) {
    if (buffer.unique() && buffer.size() == bytes) return buffer;
  }
  return buffers_[gradient].emplace_back(bytes);
}

Buffer BackgroundClient::memory_for(uint32_t gradient, uint64_t bytes) {
  Lock lock(mutex_);
  wait_for_room(lock, gradient);
  return take_buffer(gradient, bytes);
}

void BackgroundClient::queue(uint32_t gradient, Buffer memory, uint32_t order) {
  const uint64_t bytes = memory.size();
  put(gradient, order, {std::move(memory)}, bytes);
}

void BackgroundClient::queue_rows(uint32_t gradient, const fluid::SelectedRows& rows,
                                  uint32_t order) {
  {
    Lock lock(mutex_);
    wait_for_room(lock, gradient);
  }
  const auto copy = std::make_shared<const fluid::SelectedRows>(
      fluid::SelectedRows{.rows = rows.rows, .height = rows.height, .value = rows.value.clone()});
  put(gradient, order, {Buffer(), copy}, copy->value.bytes());
}

// Counts a gradient that comes. A queue's room is for both sides of the loop: what is still in the
// inbox, and what the client has not merged yet. A trainer that finds it full lets the inbox leave,
// and waits until on_room has counted one down.
void BackgroundClient::wait_for_room(Lock& lock, uint32_t gradient) {
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

void BackgroundClient::put(uint32_t gradient, uint32_t order, QueuedGradient content,
                           uint64_t bytes) {
  Lock lock(mutex_);
  inbox_.push_back({gradient, order, std::move(content)});
  inbox_bytes_ += bytes;
  // Large gradients travel while the rest is computed; half-asynchronous ones wait for each other.
  if (inbox_bytes_ >= config_.flush_bytes && options_.independent_recv) pump(lock);
}

// Lets go of the lock meanwhile.
void BackgroundClient::pump(Lock& lock) {
  if (pump_posted_ || inbox_.empty()) return;
  pump_posted_ = true;
  lock.unlock();
  run_or_post([this] {
    take_queued();
    node_->client().pump();
  });
  lock.lock();
}

void BackgroundClient::flush() {
  Lock lock(mutex_);
  pump(lock);
}

BackgroundClient::Ticket BackgroundClient::begin_synchronize() {
  return begin([this](DoneHandler done) {
    take_queued();
    node_->client().synchronize(std::move(done));
  });
}

bool BackgroundClient::is_over(const Ticket& ticket) const {
  const Lock lock(mutex_);
  return *ticket || !failure_.ok();
}

SharedValues BackgroundClient::finish(const Ticket& ticket) {
  wait_for(ticket, Phase::kReceiving, "exchange");
  return latest();
}

SharedValues BackgroundClient::fetch_values() {
  run(Phase::kReceiving, "recv",
      [this](DoneHandler done) { node_->client().fetch(std::move(done)); });
  return latest();
}

SharedValues BackgroundClient::latest() const {
  const Lock lock(mutex_);
  return latest_;
}

void BackgroundClient::fetch(Phase, std::span<const RemoteMemory> values) {
  ready();
  run(Phase::kReceiving, "recv",
      [&](DoneHandler done) { node_->client().receive(values, std::move(done)); });
}

void BackgroundClient::receive_initial(const fluid::CommCall& call, const BoundOp& bound) {
  RemoteValues values;
  for (size_t i = 0; i < bound.tensors.size(); ++i) {
    values.add_wanted(bound.tensors[i], dense(*call.outputs[i]));
  }
  BackgroundClient::fetch(Phase::kReceiving, values.memory());
  values.finish();
}

void BackgroundClient::request(Phase phase, std::string_view what, const Ask& ask) {
  run(phase, what, [&](DoneHandler done) { ask(node_->client(), std::move(done)); });
}

void BackgroundClient::assign(std::span<const RemoteMemory> values) {
  ready();
  const auto idle = std::make_shared<bool>(false);
  data_.loop().post([this, values, idle] {
    guarded([&] {
      AsyncClient& client = node_->client();
      for (const RemoteMemory& value : values) {
        client.assign(value.remote, value.memory, value.bytes);
      }
      client.set_on_idle([this, idle] {
        node_->client().set_on_idle([this] { node_->check(); });
        complete(idle, node_->status());
      });
      if (client.idle()) complete(idle, node_->status());
    });
  });
  Lock lock(mutex_);
  wait(lock, Phase::kLoading, "assign", [&] { return *idle; });
}

}  // namespace fleet::strategies
