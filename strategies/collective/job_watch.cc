#include "strategies/collective/job_watch.h"

#include <condition_variable>
#include <mutex>
#include <span>
#include <utility>

#include "base/strings.h"

namespace fleet::strategies {

using transport::MemberId;
using transport::Role;

// Told by the watch's thread, awaited by the training thread.
struct JobWatch::Completion {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;

  void set() {
    const std::lock_guard guard(mutex);
    done = true;
    changed.notify_all();
  }
  bool wait(Duration timeout) {
    std::unique_lock guard(mutex);
    return changed.wait_for(guard, timeout, [this] { return done; });
  }
};

JobWatch::JobWatch(JobWatchOptions options, std::function<void(Status)> on_verdict, Logger logger)
    : options_(std::move(options)),
      on_verdict_(std::move(on_verdict)),
      logger_(std::move(logger)),
      network_(options_.transport),
      all_complete_(std::make_shared<Completion>()),
      thread_(std::make_unique<transport::LoopThread>("fleet-watch")) {
  transport::fill_random(std::as_writable_bytes(std::span(&incarnation_, 1)));
}

JobWatch::~JobWatch() {
  thread_->run_there([this] {
    member_.reset();
    server_.reset();
    coordinator_.reset();
  });
  thread_->stop_and_join();
}

transport::Hello JobWatch::hello() const {
  transport::Hello hello;
  hello.job_id = options_.job_id;
  hello.member = {Role::kWorker, options_.rank};
  hello.worker_num = options_.worker_num;
  hello.incarnation = incarnation_;
  hello.instruction_set = transport::instruction_set();
  hello.require_same_bits = options_.require_same_bits;
  hello.facts = options_.facts;
  return hello;
}

Status JobWatch::start() {
  Status status;
  thread_->run_there([&] {
    if (options_.rank == 0) status = listen();
    if (status.ok()) join();
  });
  return status;
}

Status JobWatch::listen() {
  transport::CoordinatorOptions coordinator;
  coordinator.worker_num = options_.worker_num;
  coordinator.heartbeat_timeout = options_.heartbeat_timeout;
  coordinator.join_deadline = options_.rpc_deadline;
  coordinator.stall_report = options_.stall_report;
  coordinator.stall_deadline = options_.stall_deadline;
  coordinator_ = std::make_unique<transport::Coordinator>(thread_->loop(), coordinator, logger_);
  coordinator_->set_on_all_complete([done = all_complete_] { done->set(); });

  transport::ServerOptions options;
  options.endpoint = options_.coordinator;
  options.hello = hello();
  options.secret = options_.secret;
  const transport::ServerLane lane{&thread_->loop(), coordinator_.get()};
  server_ = std::make_unique<transport::Server>(network_, lane, lane, std::move(options), logger_);
  auto status = server_->listen();
  if (!status.ok()) return status;
  options_.coordinator = server_->bound();
  coordinator_->start();
  return {};
}

void JobWatch::join() {
  transport::CoordinatorClientOptions options;
  options.endpoint = options_.coordinator;
  options.coordinator = {Role::kWorker, 0};
  options.hello = hello();
  options.secret = options_.secret;
  options.heartbeat_interval = options_.heartbeat_interval;
  options.heartbeat_timeout = options_.heartbeat_timeout;
  options.rpc_deadline = options_.rpc_deadline;
  member_ = std::make_unique<transport::CoordinatorClient>(thread_->loop(), network_,
                                                           std::move(options), logger_);
  member_->set_on_verdict([this](const transport::Verdict& verdict) {
    all_complete_->set();
    if (on_verdict_) on_verdict_(verdict.to_status());
  });
  member_->start();
}

Status JobWatch::meet(const std::string& name) {
  return member_->barrier(transport::Group::kWorkers, name, options_.rpc_deadline);
}

void JobWatch::set_phase(transport::Phase phase, uint64_t step) {
  member_->set_phase(phase, step);
  member_->made_progress();
}

void JobWatch::abort(transport::Verdict verdict) {
  if (!member_->verdict()) member_->abort(std::move(verdict));
}

Status JobWatch::complete() {
  auto status = member_->complete();
  if (!status.ok() || options_.rank != 0) return status;
  if (!all_complete_->wait(options_.rpc_deadline)) {
    return Status(ErrorCode::kDeadline,
                  {.what = "not every worker has left the job",
                   .where = "worker 0, finishing",
                   .expected = str_cat("all ", options_.worker_num, " workers"),
                   .got = "no word from at least one of them",
                   .fix = "call stop_worker() in every worker"});
  }
  thread_->run_there([this] { server_->finish(); });
  return verdict();
}

Status JobWatch::verdict() const {
  const auto verdict = member_ ? member_->verdict() : std::nullopt;
  return verdict ? verdict->to_status() : Status();
}

transport::Endpoint JobWatch::bound() const {
  return options_.coordinator;
}

}  // namespace fleet::strategies
