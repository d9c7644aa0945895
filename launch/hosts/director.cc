#include "launch/hosts/director.h"

#include <algorithm>
#include <csignal>

#include "base/strings.h"
#include "launch/process/child.h"

namespace fleet::launch {
namespace {

constexpr Duration kPing = std::chrono::seconds(1);
// For the launchers of hosts to end what runs there, beyond what they give it.
constexpr Duration kEndGrace = std::chrono::seconds(10);

}  // namespace

Director::Director(DirectorOptions options, HostLines& lines, EventLoop& loop, Console& console)
    : options_(std::move(options)),
      lines_(lines),
      loop_(loop),
      console_(console),
      restarts_(options_.restarts, loop.now(), console) {
  for (const std::string& name : options_.hosts) hosts_.push_back({.name = name});
  set_timer(options_.first_wait, [this] { give_up_waiting(); });
  ping_timer_ = loop_.call_after(kPing, [this] { ping(); });
}

Director::~Director() {
  if (timer_) loop_.cancel(*timer_);
  loop_.cancel(ping_timer_);
}

void Director::on_report(size_t at, const Report& report) {
  Host& host = hosts_.at(at);
  host.heard = loop_.now();
  if (state_ == State::kOver) return;
  const bool of_a_run = report.kind != Report::Kind::kReady && report.kind != Report::Kind::kSignal;
  if (of_a_run && !host.runs) return;
  switch (report.kind) {
    case Report::Kind::kReady:
      host.there = true;
      host.workers = report.workers;
      return begin_when_all_are_there();
    case Report::Kind::kLine:
      saves_ = saves_ || report.line.find(" saves=1") != std::string::npos;
      board_->update(report.role, report.index, report.line, loop_.now());
      return;
    case Report::Kind::kDone:
      return board_->worker_ended();
    case Report::Kind::kFailure:
      return on_failure({loop_.now() - report.ago, report.reason, report.sure, report.why_final});
    case Report::Kind::kSignal:
      if (interrupted_by_ == 0) on_signal(report.signal);
      return;
    case Report::Kind::kEnded:
      return on_ended(host, report);
    case Report::Kind::kPong:
      return;
  }
}

void Director::on_ended(Host& host, const Report& report) {
  host.runs = false;
  saved_ = saved_ || report.saved;
  if (report.signal != 0) {
    ended_by_signal_ = report.signal;
    end_everywhere(signal_name(report.signal));
  }
  settle();
}

void Director::on_lost(size_t at, const std::string& why, const std::string& why_final) {
  Host& host = hosts_.at(at);
  host.there = false;
  host.lost = std::exchange(host.dropped, "");
  if (host.lost.empty()) host.lost = why;
  if (state_ == State::kOver) return;
  RunFailure failure{loop_.now(), str_cat(host.name, " was lost: ", host.lost), true, why_final};
  const bool had_begun = board_ != nullptr;
  if (!had_begun && options_.starts_launchers) {
    failure.reason = host.lost;
    if (why_final.empty()) failure.why_final = "the job has not begun";
  }
  if (std::exchange(host.runs, false)) {
    console_.complain(failure.reason);
    on_failure(failure);
  } else if (!failure.why_final.empty()) {
    state_ = State::kEnding;
    on_failure(failure);
  }
  settle();
}

void Director::begin_when_all_are_there() {
  const bool all = std::all_of(hosts_.begin(), hosts_.end(), [](const Host& h) { return h.there; });
  if (all && state_ == State::kGathering) begin();
}

void Director::begin() {
  if (timer_) loop_.cancel(*timer_);
  if (failure_) log_heading_ = restarts_.begin(loop_.now());
  failure_.reset();
  saves_ = false;
  int workers = 0;
  for (const Host& host : hosts_) workers += host.workers;
  display_.reset();
  board_ =
      std::make_unique<ProgressBoard>(workers, options_.servers, loop_.now(), restarts_.history());
  display_ = std::make_unique<ProgressDisplay>(*board_, options_.supervision, loop_, console_);
  display_->start();
  state_ = State::kRunning;
  Order order{.kind = Order::Kind::kBegin, .attempt = options_.id_of(restarts_.count())};
  order.attempt.log_heading = log_heading_;
  for (size_t i = 0; i < hosts_.size(); ++i) {
    hosts_[i].runs = true;
    lines_.send(i, order);
  }
}

// The first reason counts, or the first that is sure.
void Director::on_failure(const RunFailure& failure) {
  if (!failure_) {
    failure_ = failure;
  } else if (failure.sure && !failure_->sure) {
    const TimePoint when = failure_->when;
    failure_ = failure;
    failure_->when = std::min(when, failure.when);
  }
  if (failure_->why_final.empty()) failure_->why_final = failure.why_final;
  end_everywhere(failure_->reason);
}

void Director::end_everywhere(const std::string& reason) {
  if (state_ == State::kRunning) state_ = State::kEnding;
  send_to_running({.kind = Order::Kind::kEnd, .reason = reason});
  set_timer(options_.supervision.term_grace + kEndGrace, [this] {
    for (size_t i = 0; i < hosts_.size(); ++i) {
      if (hosts_[i].runs) drop(i, "its processes do not end");
    }
  });
}

void Director::send_to_running(const Order& order) {
  for (size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].runs) lines_.send(i, order);
  }
}

void Director::on_signal(int signal) {
  ++signals_;
  const bool first = std::exchange(interrupted_by_, signal) == 0;
  if (state_ == State::kOver) return;
  const std::string ending = str_cat(signal_name(signal), ": ending the job on ",
                                     counted(static_cast<int>(hosts_.size()), "host"));
  if (state_ == State::kGathering || state_ == State::kPausing) {
    console_.say(ending);
    if (failure_) restarts_.cancel(signal);
    return finish(128 + signal);
  }
  if (first && signal == SIGTERM && saves_ && state_ == State::kRunning) {
    console_.say(str_cat("SIGTERM: workers save and end, in ",
                         seconds_text(options_.supervision.save_grace),
                         " at most (again to end at once)"));
    send_to_running({.kind = Order::Kind::kSave});
    return set_timer(options_.supervision.save_grace + kEndGrace,
                     [this] { end_everywhere("SIGTERM"); });
  }
  if (signals_ > 2) {
    for (size_t i = 0; i < hosts_.size(); ++i) drop(i, signal_name(signal));
    return;
  }
  console_.say(ending + " (again to kill at once)");
  end_everywhere(signal_name(signal));
}

// Nothing runs any more: what follows?
void Director::settle() {
  const bool runs = std::any_of(hosts_.begin(), hosts_.end(), [](const Host& h) { return h.runs; });
  if (runs || (state_ != State::kRunning && state_ != State::kEnding)) return;
  if (timer_) loop_.cancel(*timer_);
  decide();
}

void Director::decide() {
  console_.finish_progress();
  if (!failure_) {
    if (saved_ && ended_by_signal_ == 0) return finish(kExitRequeue);
    const int signal = ended_by_signal_ != 0 ? ended_by_signal_ : interrupted_by_;
    const bool ended_well = state_ == State::kRunning && ended_by_signal_ == 0;
    return finish(ended_well || signal == 0 ? kExitOk : 128 + signal);
  }
  if (interrupted_by_ != 0) {
    restarts_.cancel(interrupted_by_);
    return finish(options_.restarts.most > 0 ? 128 + interrupted_by_ : kExitFailed);
  }
  if (board_ != nullptr && !board_->nonfinite().empty()) {
    failure_->why_final = "a value is not finite, and the same steps would give it again";
  }
  const StepsSeen steps = board_ != nullptr ? board_->steps_seen() : StepsSeen();
  const auto delay =
      restarts_.after({failure_->when, failure_->reason, failure_->why_final, steps});
  if (!delay) return finish(kExitFailed);
  state_ = State::kPausing;
  set_timer(*delay, [this] {
    state_ = State::kGathering;
    for (const Host& host : hosts_) {
      if (host.there) continue;
      console_.say(
          str_cat("waits for ", host.name, ", for ", seconds_text(options_.host_wait), " at most"));
    }
    set_timer(options_.host_wait, [this] { give_up_waiting(); });
    begin_when_all_are_there();
  });
}

void Director::give_up_waiting() {
  for (const Host& host : hosts_) {
    if (host.there) continue;
    const bool first = restarts_.count() == 0 && !failure_;
    console_.complain(str_cat(host.name,
                              first ? " did not come within " : " did not come back within ",
                              seconds_text(first ? options_.first_wait : options_.host_wait),
                              host.lost.empty() ? "" : ": " + host.lost));
  }
  finish(kExitFailed);
}

void Director::finish(int code) {
  if (timer_) loop_.cancel(*timer_);
  state_ = State::kOver;
  show_end(code);
  display_.reset();
  for (size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].there) lines_.send(i, {.kind = Order::Kind::kOver, .exit_code = code});
  }
  lines_.on_over(code);
}

void Director::show_end(int code) {
  if (display_ != nullptr) display_->show_end();
  if (code == kExitRequeue) {
    console_.say(str_cat("the job has saved and ended, as it was told (exit code ", kExitRequeue,
                         "); start it again to go on"));
  }
  if (code == kExitFailed && failure_) console_.complain("failed: " + failure_->reason);
  if (code != kExitOk) return;
  const std::string restarts = board_->restarts_text(loop_.now());
  console_.say(str_cat("ended well on ", counted(static_cast<int>(hosts_.size()), "host"),
                       restarts.empty() ? "" : " after " + restarts));
}

bool Director::waits_for(size_t host) const {
  return state_ != State::kOver && options_.restarts.most > 0 && interrupted_by_ == 0 &&
         !hosts_.at(host).there && board_ != nullptr;
}

void Director::ping() {
  for (size_t i = 0; i < hosts_.size(); ++i) {
    if (!hosts_[i].there || state_ == State::kOver) continue;
    if (loop_.now() - hosts_[i].heard >= options_.supervision.heartbeat_timeout + kPing) {
      drop(i, "it does not answer");
    } else {
      lines_.send(i, {.kind = Order::Kind::kPing});
    }
  }
  ping_timer_ = loop_.call_after(kPing, [this] { ping(); });
}

void Director::drop(size_t host, const std::string& why) {
  hosts_[host].dropped = why;
  lines_.drop(host);
}

void Director::set_timer(Duration delay, EventLoop::Handler handler) {
  if (timer_) loop_.cancel(*timer_);
  timer_ = loop_.call_after(delay, std::move(handler));
}

}  // namespace fleet::launch
