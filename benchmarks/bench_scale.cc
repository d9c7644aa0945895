// Whether a server's work for one gradient, and a node's for one peer and step, stay the same when
// there are many of them.
#include <atomic>
#include <chrono>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/socket_job.h"
#include "strategies/parameter_server/protocol/async_server.h"
#include "strategies/parameter_server/protocol/sync_server.h"
#include "tests/testing/sim_cluster.h"

namespace fleet::benchmarks {
namespace {

using strategies::PieceKey;
using strategies::Sender;

// At most 1.3 times what it costs with few.
constexpr double kTarget = 1 / 1.3;

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// 16 slices of 4 KiB, whose sums lie in the second-level cache.
constexpr uint32_t kSlices = 16;
constexpr size_t kElements = 1024;
constexpr uint32_t kLaneWorkers = 64;

class Sink final : public strategies::SyncServerSink {
 public:
  strategies::SyncServerOptions options(uint32_t workers) {
    strategies::SyncServerOptions options;
    options.workers = options.shards = workers;
    options.slices.assign(kSlices, {kElements * sizeof(float), fluid::DType::kFloat32});
    for (fluid::Value& gradient : gradients_) options.gradients.push_back(&gradient);
    return options;
  }

  void begin_step(uint64_t) override {}
  bool update(uint32_t, const strategies::StepUpdate&) override { return true; }
  void answer(const strategies::ServerAnswer&) override {}
  void step_closed(uint64_t) override {}
  void all_complete() override {}

 private:
  std::vector<fluid::Value> gradients_ = [] {
    std::vector<fluid::Value> gradients;
    for (uint32_t i = 0; i < kSlices; ++i) {
      gradients.emplace_back(fluid::Tensor::zeros(fluid::DType::kFloat32, {kElements}));
    }
    return gradients;
  }();
};

// The gradient as a connection brings it, in the server's memory.
template <class Server>
transport::MutableBytes bring_in(Server& server, const Sender& sender, const PieceKey& key,
                                 const std::vector<float>& gradient) {
  const auto target = server.prepare_push(sender, key, kElements * sizeof(float));
  target.refusal.throw_if_error();
  std::memcpy(target.memory.data(), gradient.data(), target.memory.size());
  return target.memory;
}

// `measure`: nanoseconds of a gradient with so many workers.
Row with_200_workers(const Rounds& rounds, int count, std::string note,
                     double (*measure)(uint32_t workers)) {
  Row row = {.unit = "ns/gradient",
             .peer = "the same with 10 workers",
             .better = Better::kLower,
             .kind = BenchPeer::kReference,
             .target = kTarget,
             .note = std::move(note)};
  row.take(rounds.pairs(
      count, [&] { return measure(200); }, [&] { return measure(10); }));
  return row;
}

void run_step(strategies::SyncServer& server, uint32_t workers, uint64_t step,
              const std::vector<float>& gradient) {
  for (uint32_t worker = 0; worker < workers; ++worker) {
    const Sender sender{worker, worker + 1};
    for (uint32_t slice = 0; slice < kSlices; ++slice) {
      const PieceKey key{step, slice, 0, worker, worker + 1};
      server.push(sender, key, bring_in(server, sender, key, gradient)).throw_if_error();
    }
    server.barrier(worker, step, kSlices).throw_if_error();
    strategies::GetCall get{.session = sender.session, .request = step, .step = step, .all = true};
    server.get(std::move(get)).throw_if_error();
  }
}

double ns_per_gradient(uint32_t workers) {
  constexpr uint64_t kGradients = 600'000;
  Sink sink;
  strategies::SyncServer server(sink.options(workers), sink);
  const std::vector<float> gradient(kElements, 1.0F);
  run_step(server, workers, 1, gradient);
  const uint64_t steps = kGradients / (uint64_t{workers} * kSlices);
  const double begin = processor_seconds();
  for (uint64_t step = 2; step < 2 + steps; ++step) run_step(server, workers, step, gradient);
  const double seconds = processor_seconds() - begin;
  return 1e9 * seconds / static_cast<double>(steps * workers * kSlices);
}

Row sync_server_200_workers(const Rounds& rounds) {
  return with_200_workers(rounds, 7, "16 slices of 4 KiB: received, summed, answered",
                          ns_per_gradient);
}

// What a lane's thread does for its slices in a step: every worker's gradients come in and are
// added up, and the server is told.
void run_lane(strategies::SyncServer& server, std::mutex& mutex, uint32_t lane, uint32_t lanes,
              uint64_t step, const std::vector<float>& gradient) {
  for (uint32_t worker = 0; worker < kLaneWorkers; ++worker) {
    const Sender sender{worker, uint64_t{worker} * lanes + lane + 1};
    for (uint32_t slice = lane; slice < kSlices; slice += lanes) {
      const PieceKey key{step, slice, 0, worker, worker + 1};
      const auto progress = server.sum(sender, key, bring_in(server, sender, key, gradient));
      progress.status().throw_if_error();
      if (!server.matters(progress.value())) continue;
      const std::lock_guard lock(mutex);
      server.count(sender, key, progress.value());
    }
  }
}

// Where all lanes wait for each other, without sleep: to wake a thread takes as long as it adds up
// hundreds of gradients, and lanes of a server wait for sockets, not for each other.
class SpinBarrier {
 public:
  explicit SpinBarrier(uint32_t threads) : threads_(threads) {}
  void wait() {
    const uint64_t round = arrived_.fetch_add(1) / threads_;
    while (arrived_.load() < (round + 1) * threads_) std::this_thread::yield();
  }

 private:
  const uint32_t threads_;
  std::atomic<uint64_t> arrived_ = 0;
};

// Of the clock on the wall, with a thread for each lane.
double ns_per_gradient_of_lanes(uint32_t lanes) {
  constexpr uint64_t kSteps = 400;
  Sink sink;
  strategies::SyncServerOptions options = sink.options(kLaneWorkers);
  options.lanes = lanes;
  strategies::SyncServer server(options, sink);
  std::mutex mutex;
  SpinBarrier all_lanes(lanes);
  const std::vector<float> gradient(kElements, 1.0F);
  const auto serve = [&](uint32_t lane) {
    for (uint64_t step = 1; step <= kSteps; ++step) {
      run_lane(server, mutex, lane, lanes, step, gradient);
      all_lanes.wait();
      for (uint32_t worker = 0; lane == 0 && worker < kLaneWorkers; ++worker) {
        server.barrier(worker, step, kSlices).throw_if_error();
      }
      all_lanes.wait();
    }
  };
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> others;
  for (uint32_t lane = 1; lane < lanes; ++lane) others.emplace_back(serve, lane);
  serve(0);
  for (std::thread& other : others) other.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return 1e9 * seconds.count() / static_cast<double>(kSteps * kLaneWorkers * kSlices);
}

Row sync_server_2_lanes(const Rounds& rounds) {
  constexpr int kRounds = 7;
  constexpr double kFaster = 1.5;
  Row row = {.unit = "ns/gradient",
             .peer = "one lane, one thread",
             .better = Better::kLower,
             .kind = BenchPeer::kReference,
             .target = kFaster,
             .note = "64 workers, 16 slices of 4 KiB: copied in and summed by two threads"};
  row.take(rounds.pairs(
      kRounds, [] { return ns_per_gradient_of_lanes(2); },
      [] { return ns_per_gradient_of_lanes(1); }));
  return row;
}

// Applies nothing: what is measured is the protocol.
class AsyncSink final : public strategies::AsyncServerSink {
 public:
  void begin_clock(uint64_t) override {}
  void update(const strategies::AsyncUpdate&, const Buffer&) override {}
  void answer(const strategies::ServerAnswer& answer) override { answers_ += answer.last ? 1 : 0; }
  void all_complete() override {}

  uint64_t answers() const { return answers_; }

 private:
  uint64_t answers_ = 0;
};

strategies::AsyncServerOptions async_options_of(uint32_t workers) {
  strategies::AsyncServerOptions options;
  options.workers = workers;
  options.slices.assign(kSlices, {kElements * sizeof(float), fluid::DType::kFloat32});
  options.variables = kSlices;
  return options;
}

// Every worker sends its gradients and asks for values that hold the clock before of all others.
void run_clock(strategies::AsyncServer& server, uint32_t workers, uint64_t clock,
               const std::vector<float>& gradient) {
  for (uint32_t worker = 0; worker < workers; ++worker) {
    const Sender sender{worker, worker + 1};
    for (uint32_t slice = 0; slice < kSlices; ++slice) {
      const PieceKey key{clock, slice, 0, 0, 1};
      server.push(sender, key, bring_in(server, sender, key, gradient)).throw_if_error();
    }
    strategies::GetCall get{.session = sender.session,
                            .request = clock,
                            .worker = worker,
                            .step = clock - 1,
                            .all = true};
    server.get(std::move(get)).throw_if_error();
  }
}

double async_ns_per_gradient(uint32_t workers) {
  constexpr uint64_t kGradients = 600'000;
  AsyncSink sink;
  strategies::AsyncServer server(async_options_of(workers), sink);
  const std::vector<float> gradient(kElements, 1.0F);
  run_clock(server, workers, 1, gradient);
  const uint64_t clocks = kGradients / (uint64_t{workers} * kSlices);
  const double begin = processor_seconds();
  for (uint64_t clock = 2; clock < 2 + clocks; ++clock) {
    run_clock(server, workers, clock, gradient);
  }
  const double seconds = processor_seconds() - begin;
  if (sink.answers() != (clocks + 1) * workers) {
    throw_error(ErrorCode::kInternal, {.what = "a get was not answered"});
  }
  return 1e9 * seconds / static_cast<double>(clocks * workers * kSlices);
}

Row async_server_200_workers(const Rounds& rounds) {
  return with_200_workers(
      rounds, 7, "16 slices of 4 KiB: received, counted, answered with a bound on staleness",
      async_ns_per_gradient);
}

double socket_ns_per_gradient(uint32_t workers) {
  constexpr uint64_t kGradients = 80'000;
  return run_socket_job({.workers = workers,
                         .slices = kSlices,
                         .elements = kElements,
                         .steps = kGradients / (uint64_t{workers} * kSlices)})
      .server_ns;
}

Row sockets_200_workers(const Rounds& rounds) {
  return with_200_workers(
      rounds, 5,
      "processor time of a synchronous server's process, 16 slices of 4 KiB over TCP on loopback, "
      "workers in 4 processes",
      socket_ns_per_gradient);
}

double seconds_of_job(uint32_t workers, uint32_t servers, uint64_t steps) {
  testing::SimJob job;
  job.workers = workers;
  job.servers = servers;
  job.slices.assign(servers, 2);
  job.steps = steps;
  const double begin = processor_seconds();
  const testing::SimOutcome outcome = testing::run_job(job);
  if (!outcome.ok()) throw_error(ErrorCode::kInternal, {.what = outcome.failure});
  return processor_seconds() - begin;
}

// Without what it takes to join and to leave.
double us_per_worker_server_step(uint32_t workers, uint32_t servers, uint64_t steps) {
  const double seconds =
      seconds_of_job(workers, servers, steps + 1) - seconds_of_job(workers, servers, 1);
  return 1e6 * seconds / static_cast<double>(steps * workers * servers);
}

Row sim_500x100(const Rounds& rounds) {
  constexpr int kRounds = 3;
  Row row = {.unit = "us",
             .peer = "50 workers, 10 servers",
             .better = Better::kLower,
             .kind = BenchPeer::kReference,
             .target = kTarget,
             .note = "processor time per worker, server and step, in virtual time"};
  row.take(rounds.pairs(
      kRounds, [] { return us_per_worker_server_step(500, 100, 12); },
      [] { return us_per_worker_server_step(50, 10, 200); }));
  return row;
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  return bench_main(argc, argv, "Many workers and servers.",
                    {{"sync_server_200_workers", sync_server_200_workers},
                     {"sync_server_2_lanes", sync_server_2_lanes},
                     {"async_server_200_workers", async_server_200_workers},
                     {"sockets_200_workers", sockets_200_workers},
                     {"sim_500x100", sim_500x100}});
}
