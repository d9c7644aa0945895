#include "benchmarks/socket_job.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/process/descriptors.h"
#include "base/process/file_descriptor.h"
#include "base/strings.h"
#include "benchmarks/handwritten/sums_by_arrival.h"
#include "strategies/parameter_server/client/blocking_worker_node.h"
#include "strategies/parameter_server/process_environment.h"
#include "strategies/parameter_server/server/server_node.h"
#include "strategies/parameter_server/server/sync_parameter_server.h"

namespace fleet::benchmarks {
namespace {

using strategies::ParameterServerConfig;
using strategies::ProcessEnvironment;
using transport::PeerRole;

constexpr uint64_t kWarmUp = 5;
constexpr float kRate = 1e-3F;

std::string slice_name(uint32_t slice) {
  return str_cat("w", slice);
}

ParameterServerConfig config_of(const SocketJob& job, uint32_t index, uint16_t port) {
  ParameterServerConfig config;
  config.index = index;
  config.worker_num = job.workers;
  config.servers = {{"127.0.0.1", port}};
  config.job_id = "socket job";
  config.secret = transport::Secret::of_text("a secret for measurements", "benchmark");
  return config;
}

int64_t process_ns() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
}

void write_all(int fd, const void* data, size_t bytes) {
  if (write(fd, data, bytes) == static_cast<ssize_t>(bytes)) return;
  throw_error(ErrorCode::kInput, {.what = "a pipe between processes of a benchmark is closed"});
}

// The slices of the server, with SGD.
class SlicesOfServer {
 public:
  explicit SlicesOfServer(const SocketJob& job) : job_(job) {}

  strategies::ServerModel make_model(std::function<void(uint64_t step)> on_step) {
    strategies::ServerModel model;
    for (uint32_t slice = 0; slice < job_.slices; ++slice) add(slice_name(slice), model);
    model.learning_rate = std::move(on_step);
    return model;
  }

 private:
  void add(const std::string& name, strategies::ServerModel& model) {
    strategies::ParameterEntry entry;
    entry.name = entry.origin = name;
    entry.gradient = name + "@GRAD";
    entry.shape = entry.origin_shape = {static_cast<int64_t>(job_.elements)};
    const fluid::Value zeros =
        fluid::Tensor::from(std::vector<float>(job_.elements), fluid::Shape(entry.shape));
    fluid::Value& value = scope_.var(entry.name) = zeros;
    fluid::Value& gradient = scope_.var(entry.gradient) =
        fluid::Tensor(fluid::DType::kFloat32, fluid::Shape(entry.shape));
    const auto rule = [&value, &gradient](const strategies::StepUpdate& update) {
      const auto of = std::get<fluid::Tensor>(gradient).values<float>();
      float* const w = std::get<fluid::Tensor>(value).data<float>();
      const float rate = kRate / static_cast<float>(update.shards);
      for (size_t i = 0; i < of.size(); ++i) w[i] -= rate * of[i];
    };
    model.shards.push_back(std::make_unique<strategies::StateShard>(
        strategies::StateShardSpec{entry.name, entry.gradient, {}}, scope_, rule));
    model.tensors.push_back(std::get_if<fluid::Tensor>(&value));
    model.parameter_index.entries.push_back(std::move(entry));
    ++model.parameter_index.trained;
  }

  const SocketJob& job_;
  fluid::Scope scope_;
};

struct Measured {
  int64_t processor_ns = 0;
  int64_t wall_ns = 0;

  static Measured now() {
    return {process_ns(),
            std::chrono::nanoseconds(steady_clock().now().time_since_epoch()).count()};
  }
};

// Tells its port, and in the end what the measured steps took.
void serve(const SocketJob& job, int report) {
  const ParameterServerConfig config = config_of(job, 0, 0);
  provide_descriptors(strategies::descriptors_of(config, PeerRole::kServer), "the server")
      .throw_if_error();
  Measured begin;
  Measured end;
  SlicesOfServer slices(job);
  const auto on_step = [&](uint64_t step) {
    if (step == kWarmUp) begin = Measured::now();
    if (step == kWarmUp + job.steps) end = Measured::now();
  };
  ProcessEnvironment environment(job.transport);
  strategies::ServerNode node(environment.node(), config, [&](strategies::ServingEvents events) {
    return std::make_unique<strategies::SyncParameterServer>(
        config, slices.make_model(on_step), std::move(events), Logger(),
        job.sums_by_arrival ? std::make_shared<const SumsByArrival>() : nullptr);
  });
  node.start().throw_if_error();
  const uint16_t port = node.bound().port;
  write_all(report, &port, sizeof port);
  node.serve();
  const Measured spent{end.processor_ns - begin.processor_ns, end.wall_ns - begin.wall_ns};
  write_all(report, &spent, sizeof spent);
}

// A worker that never blocks: a step begins where the last one ends.
class Worker {
 public:
  Worker(const SocketJob& job, uint32_t index, uint16_t port, ProcessEnvironment& environment,
         const std::vector<float>& gradient)
      : job_(job),
        gradient_(std::as_bytes(std::span(gradient))),
        index_(static_cast<int>(index)),
        values_(job.slices, std::vector<float>(job.elements)),
        node_(environment.node(), config_of(job, index, port)) {}

  void start() { node_.start(); }
  bool ready() const { return node_.ready() && node_.client().idle(); }
  void train() {
    for (uint32_t slice = 0; slice < job_.slices; ++slice) {
      slices_.push_back(node_.client().find(0, slice_name(slice)));
    }
    node_.client().set_on_idle([this] { go_on(); });
    begin_step();
  }
  bool over() const { return over_; }
  const Status& failure() const { return failure_; }
  Status status() const { return failure_.ok() ? node_.status() : failure_; }

 private:
  void begin_step() {
    strategies::SyncClient& client = node_.client();
    for (uint32_t slice = 0; slice < job_.slices; ++slice) {
      client.push(slices_[slice], index_, gradient_.data(), gradient_.size());
      client.receive(slices_[slice], reinterpret_cast<std::byte*>(values_[slice].data()),
                     gradient_.size());
    }
    client.finish_step();
  }
  void go_on() {
    if (!status().ok()) return;
    if (node_.client().step() < kWarmUp + job_.steps) return begin_step();
    node_.stop_async([this](const Status& status) {
      failure_ = status;
      over_ = true;
    });
  }

  const SocketJob& job_;
  const std::span<const std::byte> gradient_;
  const int index_;
  std::vector<std::vector<float>> values_;
  std::vector<strategies::RemoteVariable> slices_;
  bool over_ = false;
  Status failure_;
  strategies::BlockingWorkerNode node_;
};

void train(const SocketJob& job, uint32_t process, uint16_t port) {
  const std::vector<float> gradient(job.elements, 1.0F);
  ProcessEnvironment environment(job.transport);
  transport::DrivenLoop& loop = *environment.node().data_loop;
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint32_t index = process; index < job.workers; index += job.processes) {
    workers.push_back(std::make_unique<Worker>(job, index, port, environment, gradient));
    workers.back()->start();
  }
  const auto wait_for = [&](bool (Worker::*reached)() const) {
    loop.run_until(
        [&] {
          return std::all_of(workers.begin(), workers.end(), [&](const auto& worker) {
            worker->status().throw_if_error();
            return (*worker.*reached)();
          });
        },
        TimePoint::max());
  };
  wait_for(&Worker::ready);
  for (const auto& worker : workers) worker->train();
  wait_for(&Worker::over);
}

// A child of this process that runs `work`; killed with its owner.
class Child {
 public:
  explicit Child(const std::function<void()>& work) : pid_(fork()) {
    if (pid_ != 0) return;
    int code = 1;
    try {
      work();
      code = 0;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    _exit(code);
  }
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void wait() {
    int status = 0;
    if (pid_ < 0 || waitpid(std::exchange(pid_, -1), &status, 0) < 0 || status != 0) {
      throw_error(ErrorCode::kInternal, {.what = "a process of the job failed"});
    }
  }

 private:
  pid_t pid_;
};

template <class T>
T read_report(int fd) {
  T value{};
  if (read(fd, &value, sizeof value) == sizeof value) return value;
  throw_error(ErrorCode::kInternal, {.what = "the server of the job failed"});
}

}  // namespace

SocketJobTimes run_socket_job(const SocketJob& job) {
  int report[2];
  if (pipe(report) != 0) throw_error(ErrorCode::kInput, {.what = "no pipe"});
  FileDescriptor from(report[0]);
  FileDescriptor to(report[1]);
  Child server([&] { serve(job, to.get()); });
  to.reset();
  const auto port = read_report<uint16_t>(from.get());
  std::vector<std::unique_ptr<Child>> processes;
  for (uint32_t process = 0; process < job.processes; ++process) {
    processes.push_back(std::make_unique<Child>([&, process] { train(job, process, port); }));
  }
  for (const auto& process : processes) process->wait();
  const auto spent = read_report<Measured>(from.get());
  server.wait();
  const auto steps = static_cast<double>(job.steps);
  return {.server_ns = static_cast<double>(spent.processor_ns) / (steps * job.workers * job.slices),
          .step_us = 1e-3 * static_cast<double>(spent.wall_ns) / steps};
}

}  // namespace fleet::benchmarks
