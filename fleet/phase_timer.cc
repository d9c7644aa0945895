#include "fleet/phase_timer.h"

#include <cstdio>
#include <utility>

#include "base/strings.h"
#include "fluid/ops/op_schema.h"
#include "strategies/forwarding.h"
#include "strategies/strategies.h"

namespace fleet {
namespace {

using Phase = PhaseTimer::Phase;

int64_t now_ns() {
  return steady_clock().now().time_since_epoch().count();
}

double seconds(int64_t ns) {
  return 1e-9 * static_cast<double>(ns);
}

constexpr std::array<std::string_view, PhaseTimer::kPhases> kKeys = {
    "compute_s", "send_s", "receive_s", "reduce_s", "barrier_s"};
constexpr std::array<std::string_view, PhaseTimer::kPhases> kWords = {
    "computing", "sending", "receiving", "reducing", "in a barrier"};

std::string three_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", value);
  return text;
}

Phase phase_of(fluid::CommKind kind) {
  if (kind == fluid::CommKind::kSends) return Phase::kSending;
  return kind == fluid::CommKind::kReduces ? Phase::kReducing : Phase::kReceiving;
}

class ScopedPhase {
 public:
  ScopedPhase(PhaseTimer& timer, Phase phase) : timer_(timer) { timer_.enter(phase); }
  ~ScopedPhase() { timer_.leave(); }
  ScopedPhase(const ScopedPhase&) = delete;
  ScopedPhase& operator=(const ScopedPhase&) = delete;

 private:
  PhaseTimer& timer_;
};

class TimedToken final : public fluid::CommToken {
 public:
  TimedToken(std::unique_ptr<fluid::CommToken> token, std::shared_ptr<PhaseTimer> timer,
             Phase phase)
      : token_(std::move(token)), timer_(std::move(timer)), phase_(phase) {}
  bool done() const override { return token_->done(); }
  void wait() override {
    if (token_->done()) return token_->wait();
    const ScopedPhase scoped(*timer_, phase_);
    token_->wait();
  }

 private:
  std::unique_ptr<fluid::CommToken> token_;
  std::shared_ptr<PhaseTimer> timer_;
  Phase phase_;
};

class TimedRuntime final : public strategies::ForwardingRuntime {
 public:
  TimedRuntime(std::shared_ptr<strategies::StrategyRuntime> runtime,
               std::shared_ptr<PhaseTimer> timer, Phase at_ends)
      : ForwardingRuntime(std::move(runtime)), timer_(std::move(timer)), at_ends_(at_ends) {}

  void stop_worker() override {
    const ScopedPhase scoped(*timer_, Phase::kBarrier);
    inner().stop_worker();
  }
  void leave_thread(fluid::Scope& scope, fluid::Scope& parent) override {
    {
      const ScopedPhase scoped(*timer_, Phase::kBarrier);
      inner().leave_thread(scope, parent);
    }
    timer_->thread_ends();
  }
  void barrier_worker() override {
    const ScopedPhase scoped(*timer_, Phase::kBarrier);
    inner().barrier_worker();
  }
  std::vector<double> all_reduce_worker(std::span<const double> values) override {
    const ScopedPhase scoped(*timer_, Phase::kBarrier);
    return inner().all_reduce_worker(values);
  }
  std::vector<double> all_reduce_training(std::span<const double> values) override {
    const ScopedPhase scoped(*timer_, Phase::kBarrier);
    return inner().all_reduce_training(values);
  }

  void begin_step(const fluid::Program& program, uint64_t step) override {
    timer_->step_begins(step);
    const ScopedPhase scoped(*timer_, at_ends_);
    inner().begin_step(program, step);
  }
  void end_step(const fluid::Program& program, uint64_t step) override {
    {
      const ScopedPhase scoped(*timer_, at_ends_);
      inner().end_step(program, step);
    }
    timer_->step_ends();
  }
  void fed(int64_t rows) override {
    timer_->fed(rows);
    inner().fed(rows);
  }
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override {
    const Phase phase = phase_of(fluid::schema_of(call.program, call.op).comm);
    const ScopedPhase scoped(*timer_, phase);
    auto token = inner().run(call);
    if (token == nullptr) return nullptr;
    return std::make_unique<TimedToken>(std::move(token), timer_, phase);
  }
  bool gather_persistables(fluid::Scope& scope) override {
    const ScopedPhase scoped(*timer_, Phase::kBarrier);
    return inner().gather_persistables(scope);
  }
  bool gather(const ModelValues& values, fluid::Scope& trained, fluid::Scope& scope) override {
    const ScopedPhase scoped(*timer_, Phase::kBarrier);
    return inner().gather(values, trained, scope);
  }
  void spread_persistables(fluid::Scope& scope) override {
    const ScopedPhase scoped(*timer_, Phase::kBarrier);
    inner().spread_persistables(scope);
  }
  uint64_t end_pass(const std::string& table, const fluid::tables::PassRule& rule,
                    fluid::Scope& scope) override {
    const ScopedPhase scoped(*timer_, Phase::kBarrier);
    return inner().end_pass(table, rule, scope);
  }
  std::vector<std::filesystem::path> save_table_delta(const std::string& table,
                                                      const std::filesystem::path& file,
                                                      fluid::Scope& scope) override {
    const ScopedPhase scoped(*timer_, Phase::kBarrier);
    return inner().save_table_delta(table, file, scope);
  }
  void begin_saving(fluid::Scope& scope) override {
    const ScopedPhase scoped(*timer_, Phase::kBarrier);
    inner().begin_saving(scope);
  }
  void read_values(std::span<const std::string> names, fluid::Scope& scope) override {
    const ScopedPhase scoped(*timer_, Phase::kBarrier);
    inner().read_values(names, scope);
  }
  void end_saving() override {
    const ScopedPhase scoped(*timer_, Phase::kBarrier);
    inner().end_saving();
  }
  void start_from(fluid::Scope& scope) override {
    const ScopedPhase scoped(*timer_, Phase::kBarrier);
    inner().start_from(scope);
  }

 private:
  const std::shared_ptr<PhaseTimer> timer_;
  const Phase at_ends_;
};

}  // namespace

PhaseTimer::Thread& PhaseTimer::own() {
  return threads_[std::this_thread::get_id()];
}

void PhaseTimer::switch_to(Thread& thread, Phase phase) {
  const int64_t now = now_ns();
  if (thread.begun) spent_ns_[static_cast<size_t>(thread.phase)] += now - thread.since_ns;
  thread.phase = phase;
  thread.since_ns = now;
}

void PhaseTimer::begin_at(uint64_t steps) {
  const std::lock_guard lock(mutex_);
  steps_ = steps;
}

void PhaseTimer::step_begins(uint64_t step) {
  const std::lock_guard lock(mutex_);
  Thread& thread = own();
  thread.step = step;
  if (!thread.fed || thread.begun) return;
  switch_to(thread, Phase::kComputing);
  thread.begun = true;
}

void PhaseTimer::step_ends() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(own().fed, false)) ++steps_;
}

void PhaseTimer::fed(int64_t rows) {
  const std::lock_guard lock(mutex_);
  own().fed = rows > 0;
  samples_ += rows;
}

void PhaseTimer::enter(Phase phase) {
  const std::lock_guard lock(mutex_);
  switch_to(own(), phase);
}

void PhaseTimer::leave() {
  const std::lock_guard lock(mutex_);
  switch_to(own(), Phase::kComputing);
}

void PhaseTimer::thread_ends() {
  const std::lock_guard lock(mutex_);
  switch_to(own(), Phase::kComputing);
  threads_.erase(std::this_thread::get_id());
}

std::string PhaseTimer::progress() const {
  const std::lock_guard lock(mutex_);
  std::string text = str_cat("step=", steps_);
  if (samples_ > 0) text += str_cat(" samples=", samples_);
  Spent spent = spent_ns_;
  const int64_t now = now_ns();
  for (const auto& [id, thread] : threads_) {
    if (thread.begun) spent[static_cast<size_t>(thread.phase)] += now - thread.since_ns;
  }
  for (size_t i = 0; i < kPhases; ++i) {
    if (spent[i] > 0) text += str_cat(" ", kKeys[i], "=", three_digits(seconds(spent[i])));
  }
  return text;
}

std::vector<std::string> PhaseTimer::now() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lines;
  for (const auto& [id, thread] : threads_) {
    const double elapsed = thread.since_ns == 0 ? 0 : seconds(now_ns() - thread.since_ns);
    lines.push_back(str_cat(kWords[static_cast<size_t>(thread.phase)], " at step ", thread.step,
                            " for ", three_digits(elapsed), " s"));
  }
  return lines;
}

std::shared_ptr<strategies::StrategyRuntime> timed(
    std::shared_ptr<strategies::StrategyRuntime> runtime, std::shared_ptr<PhaseTimer> timer,
    bool collective) {
  const Phase at_ends = collective ? Phase::kReducing : Phase::kReceiving;
  return std::make_shared<TimedRuntime>(std::move(runtime), std::move(timer), at_ends);
}

}  // namespace fleet
