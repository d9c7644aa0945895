// What the communication ops of a collective job talk to on CPU: gradients are summed over all
// logical shards of the step by a GradientReducer, parameters are broadcast, and stream ops do
// nothing. All rings are one communicator.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "fluid/kernels/comm_runtime.h"
#include "role_maker/cluster_spec.h"
#include "strategies/collective/gradient_reducer.h"
#include "transport/collective/collective.h"

namespace fleet::strategies {

struct CollectiveRuntimeOptions {
  int logical_shards = 0;  // of a step; 0: one for each worker
  GradientReducerOptions reducer = {};
};

// Used by one thread.
class CollectiveRuntime final : public fluid::CommRuntime {
 public:
  using Connect = std::function<std::unique_ptr<transport::CollectiveCommunicator>()>;

  // `connect` makes the communicator of the job, once. Throws UsageError when there are fewer
  // shards than workers.
  CollectiveRuntime(role_maker::ClusterSpec cluster, Connect connect,
                    CollectiveRuntimeOptions options = {});
  ~CollectiveRuntime() override;

  // Connects to the other workers. The first op does it if nobody did.
  void connect();
  bool connected() const { return communicator_ != nullptr; }
  transport::CollectiveCommunicator& communicator();
  // Drops the communicator; the workers have met before. May be called again.
  void disconnect();

  void barrier_worker();
  // Element by element, the sum over all workers; the same bits at each of them.
  std::vector<double> all_reduce_worker(std::span<const double> values);

  // fluid::CommRuntime
  fluid::ShardRange shards() const override;
  void begin_step(const fluid::Program& program, uint64_t step) override;
  void end_step(const fluid::Program& program, uint64_t step) override;
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override;

 private:
  class Token;

  std::unique_ptr<fluid::CommToken> all_reduce(const fluid::CommCall& call);
  void broadcast(const fluid::CommCall& call);
  void init_communicator(const fluid::CommCall& call);
  void wait(transport::CollectiveToken token);

  role_maker::ClusterSpec cluster_;
  Connect connect_;
  CollectiveRuntimeOptions options_;
  transport::ShardLayout layout_;
  transport::ShardLayout one_each_;
  std::unique_ptr<transport::CollectiveCommunicator> communicator_;
  std::unique_ptr<GradientReducer> reducer_;
};

// The communicator of the MPI world, which must have the size and order of the cluster's workers;
// a communicator of one when the cluster has one worker. The ranks compare `identity`, which each
// computes of program, configuration and cluster. Throws PeerError or UsageError.
std::unique_ptr<transport::CollectiveCommunicator> connect_over_mpi(
    const role_maker::ClusterSpec& cluster, const std::string& identity, Duration timeout);

}  // namespace fleet::strategies
