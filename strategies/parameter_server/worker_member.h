// A worker's place with the coordinator, for workers of every mode.
#pragma once

#include <functional>
#include <memory>

#include "strategies/parameter_server/config.h"
#include "transport/coordinator/coordinator_client.h"

namespace fleet::strategies {

// Belongs to the thread that drives the data loop, or to whoever has it while nobody does.
class WorkerMember {
 public:
  // `on_verdict` runs once, on the data loop, when the coordinator has ended the job; status()
  // says it then. Environment and configuration must outlive this.
  WorkerMember(const NodeEnvironment& environment, const ParameterServerConfig& config,
               const Logger& logger, std::function<void()> on_verdict);
  // Ends the job, with this worker to blame, unless it has not started or was stopped.
  ~WorkerMember();
  WorkerMember(const WorkerMember&) = delete;
  WorkerMember& operator=(const WorkerMember&) = delete;

  void start();
  bool started() const { return started_; }
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
  transport::Verdict blame(transport::Phase phase, uint64_t step) const;
  void on_verdict(const transport::Verdict& verdict);

  const NodeEnvironment& environment_;
  const ParameterServerConfig& config_;
  std::function<void()> on_verdict_;
  std::unique_ptr<transport::CoordinatorClient> client_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  Status verdict_;
  bool started_ = false;
  bool stopped_ = false;
};

}  // namespace fleet::strategies
