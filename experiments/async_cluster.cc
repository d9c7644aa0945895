#include "experiments/async_cluster.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <queue>

#include "base/error.h"

#include "experiments/batches.h"
#include "experiments/server_update.h"

namespace fleet::experiments {
namespace {

using strategies::AsyncServer;
using strategies::AsyncServerSink;
using strategies::AsyncUpdate;
using strategies::ServerAnswer;

class AsyncCluster final : private AsyncServerSink {
 public:
  AsyncCluster(Model& model, const ClassificationData& data, const AsyncRun& run)
      : model_(model),
        run_(run),
        batches_(data.train_rows(), run.batch_size, run.seed),
        update_(run.compensation, run.workers, model.initial(run.seed)),
        workers_(run.workers),
        server_({.workers = run.workers, .slices = {{.bytes = model.parameters() * sizeof(float)}}},
                *this) {
    for (uint32_t i = 0; i < run.workers; ++i) ask(i);
  }

  AsyncOutcome finish() {
    while (!events_.empty() && done_ < run_.gradients && events_.top().time <= run_.duration) {
      const Event event = events_.top();
      events_.pop();
      evaluate_until(event.time);
      now_ = event.time;
      if (event.kind == Event::kPush) push(event.worker);
      if (event.kind == Event::kAsk) ask(event.worker);
    }
    outcome_.test_error = model_.test_error(update_.weights());
    outcome_.gradients = done_;
    outcome_.time = now_;
    outcome_.staleness = server_.staleness();
    outcome_.weights.assign(update_.weights().begin(), update_.weights().end());
    return std::move(outcome_);
  }

 private:
  struct Event {
    enum Kind : uint8_t { kPush, kAsk };
    double time = 0;
    uint32_t worker = 0;
    uint64_t order = 0;
    Kind kind = kPush;
    bool operator<(const Event& other) const {
      if (time != other.time) return time > other.time;
      return worker != other.worker ? worker > other.worker : order > other.order;
    }
  };
  struct Worker {
    uint64_t clock = 0;  // gradients made
    Weights weights;     // as received last
  };

  void later(double delay, uint32_t worker, Event::Kind kind) {
    events_.push({.time = now_ + delay, .worker = worker, .order = ++order_, .kind = kind});
  }

  void push(uint32_t index) {
    Worker& worker = workers_[index];
    ++worker.clock;
    gradient_.resize(model_.parameters());
    model_.gradient(worker.weights, batches_.next(), gradient_);
    auto* bytes = reinterpret_cast<std::byte*>(gradient_.data());
    const uint64_t size = gradient_.size() * sizeof(float);
    for (uint32_t piece = 0; piece < strategies::pieces_of(size); ++piece) {
      const strategies::PieceKey key{.step = worker.clock, .piece = piece, .shard_end = 1};
      const uint64_t length = strategies::piece_bytes(size, piece);
      const auto target = server_.prepare_push(sender(index), key, length);
      std::memcpy(target.memory.data(), bytes + strategies::piece_offset(piece), length);
      check(server_.push(sender(index), key, target.memory));
    }
    if (run_.exchange_time > 0) {
      later(run_.exchange_time, index, Event::kAsk);
    } else {
      ask(index);
    }
  }

  void ask(uint32_t index) {
    const uint64_t clock = workers_[index].clock;
    uint64_t wanted = 0;
    if (run_.staleness_bound && clock > *run_.staleness_bound) {
      wanted = clock - *run_.staleness_bound;
    }
    check(server_.get({.session = index + 1,
                       .request = clock + 1,
                       .worker = index,
                       .step = wanted,
                       .all = true}));
  }

  // AsyncServerSink
  void begin_clock(uint64_t gradients) override {
    rate_ = run_.gradients == std::numeric_limits<int64_t>::max()
                ? run_.rate
                : stepped_rate(run_.rate, static_cast<int64_t>(gradients) - 1, run_.gradients);
  }

  void update(const AsyncUpdate& update, const Buffer& gradient) override {
    update_.apply(update.worker, rate_, gradient);
    ++done_;
  }

  void answer(const ServerAnswer& answer) override {
    if (!answer.last) return;
    const uint32_t index = answer.worker;
    Worker& worker = workers_[index];
    worker.weights.assign(update_.weights().begin(), update_.weights().end());
    update_.sent(index);
    note_gap(worker.clock);
    const double time = run_.step_time ? run_.step_time(index, worker.clock + 1) : 1.0;
    later(time, index, Event::kPush);
  }
  void all_complete() override {}

  // A worker goes on at `clock`: how far is it ahead of the slowest?
  void note_gap(uint64_t clock) {
    uint64_t slowest = clock;
    for (const Worker& worker : workers_) slowest = std::min(slowest, worker.clock);
    outcome_.largest_gap = std::max(outcome_.largest_gap, clock - slowest);
  }

  void evaluate_until(double time) {
    if (run_.evaluate_every <= 0) return;
    while (next_evaluation_ <= time) {
      outcome_.errors.emplace_back(next_evaluation_, model_.test_error(update_.weights()));
      next_evaluation_ += run_.evaluate_every;
    }
  }

  static strategies::Sender sender(uint32_t worker) { return {worker, worker + 1}; }
  static void check(const Status& status) { status.throw_if_error(); }

  Model& model_;
  const AsyncRun& run_;
  Batches batches_;
  ServerUpdate update_;
  Weights gradient_;
  std::vector<Worker> workers_;
  std::priority_queue<Event> events_;
  AsyncServer server_;
  AsyncOutcome outcome_;
  double now_ = 0;
  double rate_ = 0;
  double next_evaluation_ = 0;
  int64_t done_ = 0;
  uint64_t order_ = 0;
};

}  // namespace

AsyncOutcome run_async(Model& model, const ClassificationData& data, const AsyncRun& run) {
  return AsyncCluster(model, data, run).finish();
}

}  // namespace fleet::experiments
