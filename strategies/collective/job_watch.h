// A worker's place in the watch over a collective job: heartbeats, stall reports, and the verdict
// that ends the job. Rank 0 also keeps the coordinator (transport/coordinator.h), at the job's
// coordinator endpoint. Everything runs on one thread of its own, so that it answers while the
// training thread computes or waits inside MPI.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/status.h"
#include "transport/asio_loop.h"
#include "transport/asio_network.h"
#include "transport/coordinator.h"
#include "transport/coordinator_client.h"

namespace fleet::strategies {

struct JobWatchOptions {
  uint32_t rank = 0;
  uint32_t worker_num = 1;
  transport::Endpoint coordinator;  // where rank 0 listens
  std::string job_id;
  transport::Secret secret;
  // What every worker must agree on, by name; a difference is refused with both values.
  std::map<std::string, std::string> facts;
  bool require_same_bits = false;
  transport::TransportChoice transport = transport::TransportChoice::kAuto;

  Duration rpc_deadline = std::chrono::seconds(180);
  Duration heartbeat_interval = std::chrono::seconds(1);
  Duration heartbeat_timeout = std::chrono::seconds(10);
  Duration stall_report = std::chrono::seconds(30);
  Duration stall_deadline = std::chrono::minutes(30);
};

// Made, used and destroyed by one thread. A watch that is destroyed without complete() counts as
// a lost worker.
class JobWatch {
 public:
  // `on_verdict` runs once, on the watch's own thread, when the job must end; its status names the
  // culprit, its phase and step.
  JobWatch(JobWatchOptions options, std::function<void(Status)> on_verdict, Logger logger = {});
  ~JobWatch();
  JobWatch(const JobWatch&) = delete;
  JobWatch& operator=(const JobWatch&) = delete;

  // Rank 0 takes the port (kAddressInUse), the others begin to look for it. Does not wait.
  Status start();

  // Waits for all workers; rpc_deadline bounds it.
  Status meet(const std::string& name);

  // What the training thread does; cheap.
  void set_phase(transport::Phase phase, uint64_t step);

  // The job must end because of this worker, or of one that it names.
  void abort(transport::Verdict verdict);

  // Leaves in good order. Rank 0 stays until every worker has left, or until rpc_deadline.
  Status complete();

  // Why the job ended; ok while it has not.
  Status verdict() const;
  // With the real port, at rank 0.
  transport::Endpoint bound() const;

 private:
  transport::Hello hello() const;
  Status listen();
  void join();

  JobWatchOptions options_;
  std::function<void(Status)> on_verdict_;
  Logger logger_;
  uint64_t incarnation_ = 0;
  transport::AsioNetwork network_;
  struct Completion;
  std::shared_ptr<Completion> all_complete_;
  std::unique_ptr<transport::Coordinator> coordinator_;
  std::unique_ptr<transport::Server> server_;
  std::unique_ptr<transport::CoordinatorClient> member_;
  std::unique_ptr<transport::LoopThread> thread_;
};

}  // namespace fleet::strategies
