#include "fleet/meter.h"

#include <cstdio>
#include <utility>

#include "base/strings.h"

namespace fleet {
namespace {

using Phase = Meter::Phase;

int64_t now_ns() {
  return steady_clock().now().time_since_epoch().count();
}

double seconds(int64_t ns) {
  return 1e-9 * static_cast<double>(ns);
}

constexpr std::array<std::string_view, Meter::kPhases> kKeys = {"compute_s", "send_s", "receive_s",
                                                                "reduce_s", "barrier_s"};
constexpr std::array<std::string_view, Meter::kPhases> kWords = {
    "computing", "sending", "receiving", "reducing", "in a barrier"};

std::string three_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", value);
  return text;
}

Phase phase_of(std::string_view op) {
  if (op == "send" || op == "send_barrier") return Phase::kSending;
  if (op == "recv" || op == "fetch_barrier") return Phase::kReceiving;
  if (op.starts_with("c_") || op == "gen_nccl_id") return Phase::kReducing;
  return Phase::kReceiving;
}

class Stay {
 public:
  Stay(Meter& meter, Phase phase) : meter_(meter) { meter_.enter(phase); }
  ~Stay() { meter_.leave(); }
  Stay(const Stay&) = delete;
  Stay& operator=(const Stay&) = delete;

 private:
  Meter& meter_;
};

class MeteredToken final : public fluid::CommToken {
 public:
  MeteredToken(std::unique_ptr<fluid::CommToken> token, std::shared_ptr<Meter> meter, Phase phase)
      : token_(std::move(token)), meter_(std::move(meter)), phase_(phase) {}
  bool done() const override { return token_->done(); }
  void wait() override {
    if (token_->done()) return token_->wait();
    const Stay stay(*meter_, phase_);
    token_->wait();
  }

 private:
  std::unique_ptr<fluid::CommToken> token_;
  std::shared_ptr<Meter> meter_;
  Phase phase_;
};

class MeteredRuntime final : public strategies::StrategyRuntime {
 public:
  MeteredRuntime(std::shared_ptr<strategies::StrategyRuntime> runtime, std::shared_ptr<Meter> meter,
                 Phase at_ends)
      : runtime_(std::move(runtime)), meter_(std::move(meter)), at_ends_(at_ends) {}

  void init_worker() override { runtime_->init_worker(); }
  void stop_worker() override {
    const Stay stay(*meter_, Phase::kBarrier);
    runtime_->stop_worker();
  }
  void barrier_worker() override {
    const Stay stay(*meter_, Phase::kBarrier);
    runtime_->barrier_worker();
  }
  std::vector<double> all_reduce_worker(std::span<const double> values) override {
    const Stay stay(*meter_, Phase::kBarrier);
    return runtime_->all_reduce_worker(values);
  }

  const char* refusal() const override { return runtime_->refusal(); }
  fluid::ShardRange shards() const override { return runtime_->shards(); }
  void begin_step(const fluid::Program& program, uint64_t step) override {
    meter_->step_begins(step);
    const Stay stay(*meter_, at_ends_);
    runtime_->begin_step(program, step);
  }
  void end_step(const fluid::Program& program, uint64_t step) override {
    {
      const Stay stay(*meter_, at_ends_);
      runtime_->end_step(program, step);
    }
    meter_->step_ends();
  }
  void fed(int64_t rows) override {
    meter_->fed(rows);
    runtime_->fed(rows);
  }
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override {
    const Phase phase = phase_of(call.op.type);
    const Stay stay(*meter_, phase);
    auto token = runtime_->run(call);
    if (token == nullptr) return nullptr;
    return std::make_unique<MeteredToken>(std::move(token), meter_, phase);
  }
  const fluid::Program* checkpoint_program() const override {
    return runtime_->checkpoint_program();
  }
  bool gather_persistables(fluid::Scope& scope) override {
    const Stay stay(*meter_, Phase::kBarrier);
    return runtime_->gather_persistables(scope);
  }
  void spread_persistables(fluid::Scope& scope) override {
    const Stay stay(*meter_, Phase::kBarrier);
    runtime_->spread_persistables(scope);
  }

 private:
  std::shared_ptr<strategies::StrategyRuntime> runtime_;
  std::shared_ptr<Meter> meter_;
  Phase at_ends_;
};

}  // namespace

void Meter::step_begins(uint64_t step) {
  step_.store(step, std::memory_order_relaxed);
  if (fed_ && begun_ns_.load(std::memory_order_relaxed) == 0) {
    begun_ns_.store(now_ns(), std::memory_order_relaxed);
  }
}

void Meter::step_ends() {
  if (fed_) steps_.fetch_add(1, std::memory_order_relaxed);
  fed_ = false;
}

void Meter::fed(int64_t rows) {
  fed_ = true;
  samples_.fetch_add(rows, std::memory_order_relaxed);
}

void Meter::enter(Phase phase) {
  since_ns_.store(now_ns(), std::memory_order_relaxed);
  phase_.store(phase, std::memory_order_relaxed);
}

void Meter::leave() {
  const int64_t now = now_ns();
  const auto phase = static_cast<size_t>(phase_.load(std::memory_order_relaxed));
  const int64_t since = since_ns_.load(std::memory_order_relaxed);
  // What comes before the first step is the start of the job.
  if (begun_ns_.load(std::memory_order_relaxed) != 0) {
    spent_ns_[phase].fetch_add(now - since, std::memory_order_relaxed);
  }
  since_ns_.store(now, std::memory_order_relaxed);
  phase_.store(Phase::kComputing, std::memory_order_relaxed);
}

std::string Meter::progress() const {
  std::string text = str_cat("step=", steps_.load(std::memory_order_relaxed));
  const int64_t samples = samples_.load(std::memory_order_relaxed);
  if (samples > 0) text += str_cat(" samples=", samples);
  const int64_t begun = begun_ns_.load(std::memory_order_relaxed);
  if (begun == 0) return text;
  const int64_t now = now_ns();
  std::array<int64_t, kPhases> spent{};
  int64_t waited = 0;
  for (size_t i = 1; i < kPhases; ++i) {
    spent[i] = spent_ns_[i].load(std::memory_order_relaxed);
    if (static_cast<size_t>(phase_.load(std::memory_order_relaxed)) == i) {
      spent[i] += std::max<int64_t>(0, now - since_ns_.load(std::memory_order_relaxed));
    }
    waited += spent[i];
  }
  spent[0] = std::max<int64_t>(0, now - begun - waited);
  for (size_t i = 0; i < kPhases; ++i) {
    if (spent[i] > 0) text += str_cat(" ", kKeys[i], "=", three_digits(seconds(spent[i])));
  }
  return text;
}

std::string Meter::now() const {
  const auto phase = static_cast<size_t>(phase_.load(std::memory_order_relaxed));
  const int64_t since = since_ns_.load(std::memory_order_relaxed);
  const double elapsed = since == 0 ? 0 : seconds(now_ns() - since);
  return str_cat(kWords[phase], " at step ", step_.load(std::memory_order_relaxed), " for ",
                 three_digits(elapsed), " s");
}

std::shared_ptr<strategies::StrategyRuntime> metered(
    std::shared_ptr<strategies::StrategyRuntime> runtime, std::shared_ptr<Meter> meter,
    bool collective) {
  return std::make_shared<MeteredRuntime>(std::move(runtime), std::move(meter),
                                          collective ? Phase::kReducing : Phase::kReceiving);
}

}  // namespace fleet
