// A worker's place with the coordinator, for workers of every mode.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "base/process/at_exit.h"
#include "strategies/parameter_server/config.h"
#include "transport/coordinator/coordinator_client.h"

namespace fleet::strategies {

// Belongs to the thread that drives the data loop, or to whoever has it while nobody does.
class WorkerMember {
 public:
  // Each runs once, on the data loop.
  struct Events {
    std::function<void()> on_verdict;  // the coordinator has ended the job; status() says it
    std::function<void()> on_joined;   // the coordinator knows this worker; may be empty
  };
  // Environment and configuration must outlive this.
  WorkerMember(const NodeEnvironment& environment, const ParameterServerConfig& config,
               const Logger& logger, Events events);
  // Ends the job, with this worker to blame, unless it has not started or was stopped. So does the
  // exit of the process, which ends the environment's threads too.
  ~WorkerMember();
  WorkerMember(const WorkerMember&) = delete;
  WorkerMember& operator=(const WorkerMember&) = delete;

  void start();
  bool started() const { return started_; }
  // The coordinator knows this worker, and so would name it when it is lost. A worker does not take
  // part before.
  bool joined() const { return joined_; }
  // From here on the worker may leave.
  void stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }
  // The coordinator's verdict; ok while there is none.
  const Status& status() const { return verdict_; }

  // Any thread.
  void set_phase(transport::Phase phase, uint64_t step) { client_->set_phase(phase, step); }
  // Any thread but the control loop's; blocks. Tells the others that this worker ends the job,
  // unless somebody has.
  void abort(const Status& why, transport::Phase phase, uint64_t step);
  // Tells the coordinator that this worker has completed; `done` runs on the data loop, if this is
  // still there.
  void complete_async(std::function<void(const Status&)> done);
  transport::CoordinatorClient& client() { return *client_; }

 private:
  transport::MemberId id() const { return {transport::PeerRole::kWorker, config_.index}; }
  void leave_early();
  void on_verdict(const transport::Verdict& verdict);
  void on_joined();

  const NodeEnvironment& environment_;
  const ParameterServerConfig& config_;
  Events events_;
  std::unique_ptr<transport::CoordinatorClient> client_;
  // Read on both loops.
  std::shared_ptr<std::atomic<bool>> alive_ = std::make_shared<std::atomic<bool>>(true);
  Status verdict_;
  bool started_ = false;
  bool joined_ = false;
  bool stopped_ = false;
  std::optional<AtExit> at_exit_;
};

}  // namespace fleet::strategies
