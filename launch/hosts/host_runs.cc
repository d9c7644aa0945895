#include "launch/hosts/host_runs.h"

#include <csignal>

#include "base/error.h"

namespace fleet::launch {
namespace {

// What an attempt has left may hold its ports a little longer.
constexpr Duration kPortsLimit = std::chrono::seconds(15);
constexpr Duration kPortsLook = std::chrono::milliseconds(250);

}  // namespace

HostRuns::HostRuns(Factory make, int workers, const SupervisorOptions& supervision, Tell tell,
                   EventLoop& loop, Console& console)
    : make_(std::move(make)),
      workers_(workers),
      supervision_(supervision),
      tell_(std::move(tell)),
      loop_(loop),
      console_(console) {
  supervision_.listener = this;
}

int HostRuns::run() {
  while (!code_) {
    if (!next_) await_orders(std::nullopt);
    if (!next_) continue;
    const Order order = *std::exchange(next_, std::nullopt);
    told_to_end_ = false;
    idle_ = false;
    const Report ended = carry_out(order.attempt);
    idle_ = true;
    if (is_new_line_) {
      tell_ready();
    } else {
      tell_(ended);
    }
  }
  return *code_;
}

void HostRuns::await_orders(std::optional<Duration> limit) {
  waits_ = true;
  loop_.handle_launcher_signals([this](int signal) {
    if (signal != SIGCHLD) on_signal(signal);
  });
  std::optional<EventLoop::Timer> timer;
  if (limit) timer = loop_.call_after(*limit, [this] { loop_.stop(); });
  loop_.run();
  if (timer) loop_.cancel(*timer);
  waits_ = false;
}

Report HostRuns::carry_out(const AttemptId& attempt) {
  Report ended{.kind = Report::Kind::kEnded};
  try {
    const std::unique_ptr<AttemptParts> parts = make_parts(attempt);
    if (!parts) return ended;
    Supervisor supervisor(parts->job, parts->with_notice(supervision_), loop_, console_);
    supervisor_ = &supervisor;
    const RunEnd end = supervisor.run(*parts->host);
    supervisor_ = nullptr;
    supervisor.show_end();
    parts->finish();
    ended.saved = end.saved;
    if (!end.saved) ended.signal = end.interrupted_by;
  } catch (const std::exception& error) {
    supervisor_ = nullptr;
    console_.complain(error.what());
    const std::string text = error.what();
    const bool misused = exit_code(error) == kExitUsage;
    on_failure({.when = loop_.now(),
                .reason = "the job cannot be started: " + text.substr(0, text.find('\n')),
                .sure = true,
                .why_final = misused ? misuse_text() : ""});
  }
  return ended;
}

std::unique_ptr<AttemptParts> HostRuns::make_parts(const AttemptId& attempt) {
  const TimePoint limit = loop_.now() + kPortsLimit;
  while (!told_to_end_ && !code_) {
    try {
      return make_(attempt);
    } catch (const Error& error) {
      const bool waits = error.code() == ErrorCode::kAddressInUse && attempt.restarts > 0;
      if (!waits || loop_.now() >= limit) throw;
    }
    await_orders(kPortsLook);
  }
  return nullptr;
}

void HostRuns::obey(const Order& order) {
  heard_ = loop_.now();
  switch (order.kind) {
    case Order::Kind::kPing:
      return tell_({.kind = Report::Kind::kPong});
    case Order::Kind::kBegin:
      if (!idle_ || code_) return;
      next_ = order;
      return wake();
    case Order::Kind::kSave:
      if (supervisor_ != nullptr) return supervisor_->save();
      return drop_next();
    case Order::Kind::kEnd:
      if (supervisor_ != nullptr) return supervisor_->end(order.reason);
      return drop_next();
    case Order::Kind::kOver:
      return leave(order.exit_code);
  }
}

// What was to begin, and has not, is over.
void HostRuns::drop_next() {
  told_to_end_ = true;
  if (next_) tell_({.kind = Report::Kind::kEnded});
  next_.reset();
  wake();
}

void HostRuns::leave(int code) {
  code_ = code;
  next_.reset();
  if (supervisor_ != nullptr) supervisor_->end("the job is over");
  wake();
}

void HostRuns::wake() {
  if (waits_) loop_.stop();
}

void HostRuns::on_connected() {
  connected_ = true;
  heard_ = loop_.now();
  is_new_line_ = true;
  if (idle_) tell_ready();
}

void HostRuns::tell_ready() {
  is_new_line_ = false;
  tell_({.kind = Report::Kind::kReady, .workers = workers_});
}

void HostRuns::on_disconnected(const std::string& why, bool may_come_again) {
  connected_ = false;
  is_new_line_ = false;
  told_to_end_ = true;
  next_.reset();
  if (supervisor_ != nullptr) supervisor_->end(why);
  if (!may_come_again) code_ = kExitFailed;
  wake();
}

void HostRuns::on_line(Role role, int index, std::string_view line) {
  tell_({.kind = Report::Kind::kLine, .role = role, .index = index, .line = std::string(line)});
}

void HostRuns::on_worker_done() {
  tell_({.kind = Report::Kind::kDone});
}

void HostRuns::on_failure(const RunFailure& failure) {
  tell_({.kind = Report::Kind::kFailure,
         .reason = failure.reason,
         .why_final = failure.why_final,
         .sure = failure.sure,
         .ago = loop_.now() - failure.when});
}

void HostRuns::on_signal(int signal) {
  if (!connected_) {
    code_ = 128 + signal;
    return wake();
  }
  tell_({.kind = Report::Kind::kSignal, .signal = signal});
}

}  // namespace fleet::launch
