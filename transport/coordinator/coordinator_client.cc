#include "transport/coordinator/coordinator_client.h"

#include <future>
#include <utility>

#include "base/archive.h"
#include "base/strings.h"
#include "transport/rpc/long_message.h"

namespace fleet::transport {
namespace {

constexpr uint64_t kStepMask = (uint64_t{1} << 56) - 1;
// How long the coordinator's own verdict is awaited after an abort before ours is taken.
constexpr Duration kVerdictPatience = std::chrono::seconds(1);

Status stopped() {
  return Status(ErrorCode::kCancelled, {.what = "the control loop was stopped during a wait",
                                        .where = "coordinator client",
                                        .expected = {},
                                        .got = {},
                                        .fix = {}});
}

Status too_long(const ReduceCall& call, size_t bytes) {
  return Status(ErrorCode::kInvalidArgument,
                {.what = "a reduction has too many values for one message",
                 .where = call.name,
                 .expected = str_cat("at most ", kMaxMessageBytes, " bytes"),
                 .got = str_cat(bytes, " bytes"),
                 .fix = "reduce them in several calls"});
}

// Hands `work` to the loop and blocks until it calls back.
template <class T, class Work>
T ask(Loop& loop, const std::function<void(const std::function<bool()>&)>& wait, Work work) {
  auto promise = std::make_shared<std::promise<T>>();
  auto answer = promise->get_future();
  loop.post([promise, work = std::move(work)]() mutable {
    work([promise](T value) { promise->set_value(std::move(value)); });
  });
  promise.reset();
  if (wait) {
    wait([&] { return answer.wait_for(Duration(0)) == std::future_status::ready; });
  }
  try {
    return answer.get();
  } catch (const std::future_error&) {
    return T(stopped());
  }
}

}  // namespace

CoordinatorClient::CoordinatorClient(Loop& loop, Network& network, CoordinatorClientOptions options,
                                     Logger logger)
    : loop_(loop), options_(std::move(options)), logger_(std::move(logger)) {
  ChannelOptions channel;
  channel.endpoint = options_.endpoint;
  channel.hello = options_.hello;
  channel.hello.lane = LaneKind::kControl;
  channel.hello.lane_index = 0;
  channel.hello.callee = options_.coordinator;
  channel.secret = options_.secret;
  channel.rpc_deadline = options_.rpc_deadline;
  channel.random = options_.random;
  channel.tell_unreachable = options_.tell_unreachable;
  ChannelEvents events;
  events.on_open = [this](const Hello&) { on_open(); };
  events.on_lost = [this](const Status&) { on_lost(); };
  events.on_attempt_failed = [this](const Status& why) { on_attempt_failed(why); };
  events.on_refused = [this](const Status& why) { blame_coordinator(why.code(), one_line(why)); };
  events.on_notice = [this](const FrameHeader& header, ConstBytes control) {
    on_notice(header, control);
  };
  channel_ =
      std::make_unique<Channel>(loop_, network, std::move(channel), std::move(events), logger_);
}

CoordinatorClient::~CoordinatorClient() {
  *alive_ = false;
  stop_timers();
}

void CoordinatorClient::stop_timers() {
  for (auto* timer : {&beat_timer_, &grace_timer_, &abort_timer_}) {
    if (*timer) loop_.cancel(**timer);
    timer->reset();
  }
}

void CoordinatorClient::set_on_verdict(std::function<void(const Verdict&)> on_verdict) {
  on_verdict_ = std::move(on_verdict);
}

void CoordinatorClient::set_on_joined(std::function<void()> on_joined) {
  on_joined_ = std::move(on_joined);
}

void CoordinatorClient::set_on_workers_complete(std::function<void()> on_workers_complete) {
  on_workers_complete_ = std::move(on_workers_complete);
}

void CoordinatorClient::set_phase(Phase phase, uint64_t step) {
  phase_and_step_.store((static_cast<uint64_t>(phase) << 56) | (step & kStepMask),
                        std::memory_order_relaxed);
}

Phase CoordinatorClient::phase() const {
  return static_cast<Phase>(phase_and_step_.load(std::memory_order_relaxed) >> 56);
}

uint64_t CoordinatorClient::step() const {
  return phase_and_step_.load(std::memory_order_relaxed) & kStepMask;
}

std::optional<Verdict> CoordinatorClient::verdict() const {
  const std::scoped_lock lock(mutex_);
  return verdict_;
}

// ---- heartbeats

void CoordinatorClient::start() {
  channel_->start();
  last_beat_ = loop_.now();
  send_heartbeat();
  beat_timer_ = loop_.call_after(options_.heartbeat_interval, [this] { beat(); });
}

void CoordinatorClient::send_heartbeat() {
  Request request;
  request.frames.emplace_back();
  request.frames.back().header.verb = Verb::kHeartbeat;
  request.frames.back().control =
      encode(HeartbeatNote{phase(), step(), progress_.load(std::memory_order_relaxed),
                           options_.awaits ? options_.awaits() : std::string()});
  request.on_done = [this](const Status& status) {
    beat_under_way_ = false;
    silent_ = Duration(0);
    if (!status.ok()) blame_coordinator(status.code(), one_line(status));
  };
  beat_under_way_ = true;
  channel_->submit(std::move(request));
}

void CoordinatorClient::beat() {
  beat_timer_.reset();
  const Duration interval = options_.heartbeat_interval;
  const Duration elapsed = std::min<Duration>(loop_.now() - last_beat_, interval * 2);
  last_beat_ = loop_.now();
  // A heartbeat may stand behind a long message.
  const bool moved = channel_->moved_since(beat_mark_);
  if (!beat_under_way_) {
    send_heartbeat();
  } else if (joined_) {
    silent_ = moved ? Duration(0) : silent_ + elapsed;
    if (silent_ >= options_.heartbeat_timeout) {
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(silent_).count();
      return blame_coordinator(ErrorCode::kPeerSilent,
                               str_cat("it has not answered heartbeats for ", ms, " ms"));
    }
  }
  beat_timer_ = loop_.call_after(interval, [this] { beat(); });
}

void CoordinatorClient::on_open() {
  same_machine_ = channel_->same_machine();
  if (grace_timer_) loop_.cancel(*grace_timer_);
  grace_timer_.reset();
  if (!std::exchange(joined_, true) && on_joined_) on_joined_();
}

void CoordinatorClient::on_lost() {
  if (completed_ || grace_timer_) return;
  lost_at_ = loop_.now();
  arm_grace(options_.reconnect_grace.after_loss(same_machine_));
}

void CoordinatorClient::on_attempt_failed(const Status& why) {
  if (grace_timer_ && is_connection_refused(why)) {
    arm_grace(options_.reconnect_grace.after_loss(true));
  }
}

// Counted from the loss.
void CoordinatorClient::arm_grace(Duration grace) {
  if (grace_timer_) loop_.cancel(*grace_timer_);
  grace_timer_ = loop_.call_at(lost_at_ + grace, [this] {
    grace_timer_.reset();
    if (!channel_->open()) give_up();
  });
}

void CoordinatorClient::give_up() {
  const std::string why = "its connection closed, and it cannot be reached any more";
  if (!completing_) return blame_coordinator(ErrorCode::kPeerLost, why);
  // It ended when all members had completed, this one too; only the answer was lost.
  left_ = true;
  channel_->fail_all(Status(ErrorCode::kPeerLost, {.what = why}));
}

void CoordinatorClient::on_notice(const FrameHeader& header, ConstBytes control) {
  if (header.verb == Verb::kAbort) {
    auto verdict = decode<Verdict>(control, "abort");
    if (verdict.ok()) return conclude(verdict.value());
    return blame_coordinator(ErrorCode::kBadFrame, one_line(verdict.status()));
  }
  if (header.verb == Verb::kSave) {
    saves_asked_.store(std::max(saves_asked(), header.step), std::memory_order_relaxed);
    return;
  }
  if (header.verb == Verb::kComplete && !std::exchange(workers_complete_, true)) {
    if (on_workers_complete_) on_workers_complete_();
  }
}

// ---- the verdict

void CoordinatorClient::blame_coordinator(ErrorCode code, std::string reason) {
  conclude(Verdict{options_.coordinator, Phase::kServing, step(), code, std::move(reason)});
}

void CoordinatorClient::conclude(const Verdict& verdict) {
  if (completed_) return;
  {
    const std::scoped_lock lock(mutex_);
    if (verdict_) return;
    verdict_ = verdict;
  }
  stop_timers();
  const auto alive = alive_;
  channel_->fail_all(verdict.to_status());
  if (*alive && on_verdict_) on_verdict_(verdict);
}

void CoordinatorClient::abort_async(const Verdict& verdict) {
  if (completed_ || this->verdict() || abort_timer_) return;
  Request request;
  request.frames.emplace_back();
  request.frames.back().header.verb = Verb::kAbort;
  request.frames.back().control = encode(verdict);
  channel_->submit(std::move(request));
  abort_timer_ = loop_.call_after(kVerdictPatience, [this, verdict] {
    abort_timer_.reset();
    conclude(verdict);
  });
}

void CoordinatorClient::ask_to_save_async() {
  if (completing_ || this->verdict()) return;
  Request request;
  request.frames.emplace_back();
  request.frames.back().header.verb = Verb::kSave;
  channel_->submit(std::move(request));
}

// ---- meetings

void CoordinatorClient::reduce_async(Group group, std::string name, ReduceOp op,
                                     ReduceValues values, Duration deadline, ReduceHandler handler,
                                     std::optional<uint64_t> saves) {
  ReduceCall call;
  call.group = group;
  call.name = std::move(name);
  call.op = op;
  call.values = std::move(values);
  call.saves = saves;
  uint64_t& sequence = sequences_[str_cat(static_cast<int>(group), '|', call.name)];
  call.sequence = ++sequence;
  call.deadline_ms = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline).count());
  const auto message = std::make_shared<const std::vector<std::byte>>(encode(call));
  if (message->size() > kMaxMessageBytes) {
    return loop_.post([handler = std::move(handler), status = too_long(call, message->size())] {
      handler(status);
    });
  }
  FrameHeader header;
  header.verb = Verb::kReduce;
  Request request;
  request.frames = message_frames(header, message);
  auto result = std::make_shared<Result<ReduceValues>>(stopped());
  const auto reader = std::make_shared<MessageReader>();
  request.reply_target = [reader](const FrameHeader& answer, ConstBytes) {
    return reader->target(answer);
  };
  request.on_reply = [result, reader](const FrameHeader& answer, ConstBytes control, MutableBytes) {
    const auto whole = reader->take(answer, control);
    if (whole) *result = decode<ReduceValues>(*whole, "answer of the coordinator");
  };
  request.on_done = [result, &sequence, handler = std::move(handler)](const Status& status) {
    if (is_save_first(status)) --sequence;
    handler(status.ok() ? std::move(*result) : Result<ReduceValues>(status));
  };
  channel_->submit(std::move(request));
}

void CoordinatorClient::leave_behind(std::string name, std::vector<double> values) {
  const std::scoped_lock lock(mutex_);
  left_behind_ = CompleteNote{std::move(name), std::move(values)};
}

void CoordinatorClient::complete_async(DoneHandler handler) {
  Request request;
  request.frames.emplace_back();
  request.frames.back().header.verb = Verb::kComplete;
  {
    const std::scoped_lock lock(mutex_);
    if (left_behind_) request.frames.back().control = encode(*left_behind_);
  }
  completing_ = true;
  request.on_done = [this, handler = std::move(handler)](const Status& answer) {
    const Status status = left_ ? Status() : answer;
    if (status.ok()) {
      completed_ = true;
      stop_timers();
      channel_->finish();
    }
    if (handler) handler(status);
  };
  channel_->submit(std::move(request));
}

// ---- blocking forms

Status CoordinatorClient::barrier(Group group, const std::string& name, Duration deadline,
                                  std::optional<uint64_t> saves) {
  return reduce(group, name, ReduceOp::kSum, std::vector<int64_t>(), deadline, saves).status();
}

Result<ReduceValues> CoordinatorClient::reduce(Group group, const std::string& name, ReduceOp op,
                                               ReduceValues values, Duration deadline,
                                               std::optional<uint64_t> saves) {
  return ask<Result<ReduceValues>>(
      loop_, options_.wait,
      [this, group, name, op, values = std::move(values), deadline, saves](auto answer) mutable {
        reduce_async(group, name, op, std::move(values), deadline, std::move(answer), saves);
      });
}

Status CoordinatorClient::complete() {
  return ask<Status>(loop_, options_.wait, [this](auto answer) {
    complete_async([answer = std::move(answer)](const Status& status) mutable { answer(status); });
  });
}

void CoordinatorClient::ask_to_save() {
  loop_.post([this, alive = alive_] {
    if (*alive) ask_to_save_async();
  });
}

void CoordinatorClient::abort(Verdict verdict) {
  loop_.post([this, alive = alive_, verdict = std::move(verdict)] {
    if (*alive) abort_async(verdict);
  });
}

}  // namespace fleet::transport
