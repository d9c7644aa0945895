// What the communication ops of a collective job talk to: gradients are summed over all
// logical shards of the step by a GradientReducer, parameters are broadcast or, in a LocalSGD job,
// averaged now and then, and stream ops do nothing. All rings are one communicator. Ops that need
// their result at once (rank_ops.h, c_allreduce_sum with use_calc_stream) need one shard a worker,
// and workers that take the same steps.
//
// Tensors on a device are summed and broadcast there when all ranks can (device_ranks.h); what
// ranks agree on, sparse gradients and everything else goes over the communicator of host memory.
//
// Workers may do different numbers of steps (rank_agreement.h): one that calls leave() goes on
// giving nothing to the others' steps until all have left. A sum over fewer shards than the step
// has is scaled up, so that it stays the mean over those who contributed.
//
// Before the first sum of the job's first step the ranks compare their parameters
// (same_parameters.h), if the program sums gradients; that of LocalSGD sums what it has updated.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "fluid/kernels/comm_runtime.h"
#include "role_maker/cluster_spec.h"
#include "strategies/collective/gradient_reducer.h"
#include "strategies/collective/local_average.h"
#include "strategies/collective/rank_agreement.h"
#include "strategies/collective/row_reducer.h"
#include "strategies/collective/step_sums.h"
#include "transport/collective/collective.h"

namespace fleet::strategies {

// How gradients on devices are summed: by NCCL in the order of the shard tree, with the same bits
// at any number of ranks; by NCCL in an order of its own; or over host memory, with the bits of the
// tree. Where NCCL is not at every rank, over host memory.
enum class DeviceSums : uint8_t { kOrdered, kFast, kHost };

struct CollectiveRuntimeOptions {
  int logical_shards = 0;  // of a step; 0: one for each worker
  GradientReducerOptions reducer = {};
  // LocalSGD: ops c_local_sgd average by this schedule, and a worker computes one shard.
  std::optional<LocalSgdOptions> local_sgd = std::nullopt;
  DeviceSums device_sums = DeviceSums::kOrdered;
  // Of NCCL, as DeviceRanksOptions has them (device_ranks.h).
  int device_communicators = 1;
  bool hierarchical = false;
  int group_ranks = 0;
  // Makes the communicator of tensors on a device, once all ranks have one over host memory; null
  // where sums go over that one. Empty: they do.
  std::function<std::unique_ptr<transport::CollectiveCommunicator>(
      transport::CollectiveCommunicator& host, const fluid::Place& place)>
      connect_devices = nullptr;
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

  // What a step of the job reduces, for a worker that has not taken one when others do. Without it
  // the ranks do not compare their parameters.
  void expect(const fluid::Program& program);
  // Takes no more steps; waits, giving nothing to those of others, until all workers have left.
  void leave();

  // The next three wait for workers that still take steps.
  void barrier_worker();
  // Element by element, the sum over all workers; the same bits at each of them.
  std::vector<double> all_reduce_worker(std::span<const double> values);
  // After it these variables are the same at every worker that calls it: the average in a LocalSGD
  // job (of `parameters`), else those of a worker that has taken the most steps.
  void align(const std::vector<std::string>& persistables,
             const std::vector<std::string>& parameters, fluid::Scope& scope) {
    align(Intent::Kind::kMeet, persistables, parameters, scope);
  }
  // The same of those that train, between two steps; others wait, as during a step.
  std::vector<double> all_reduce_between_steps(std::span<const double> values);
  void align_between_steps(const std::vector<std::string>& persistables,
                           const std::vector<std::string>& parameters, fluid::Scope& scope) {
    align(Intent::Kind::kMeetBetweenSteps, persistables, parameters, scope);
  }

  // Null outside of LocalSGD.
  LocalSgdSchedule* local_sgd() { return average_ ? &average_->schedule() : nullptr; }
  // Averages of parameters so far, and steps between two of them now; 0 outside of LocalSGD.
  int64_t averages() const { return average_ ? average_->schedule().averages() : 0; }
  int interval() const { return average_ ? average_->schedule().interval() : 0; }

  // fluid::CommRuntime
  fluid::StepShards shards() const override;
  bool sums_on(const fluid::Place& place) override;
  void wait_for_leads() override;
  void begin_step(const fluid::Program& program, uint64_t step) override;
  void end_step(const fluid::Program& program, uint64_t step) override;
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override;
  void sum_shards(const fluid::CommCall& call, std::span<const double* const> parts, double* out,
                  size_t count) override;

 private:
  class Token;
  class RowToken;

  bool trains(const fluid::Program& program);
  void say_step(const fluid::CommCall* call);
  void give_empty_step(int64_t counter);
  int64_t meet(Intent::Kind when, Meeting kind, uint64_t size);
  void shadow(const RanksThatMeet& meeting);
  std::vector<double> all_reduce(Intent::Kind when, std::span<const double> values);
  void align(Intent::Kind when, const std::vector<std::string>& persistables,
             const std::vector<std::string>& parameters, fluid::Scope& scope);
  double contribution_factor();
  void finish_sums();
  void require_communicator(const fluid::Tensor& tensor, const fluid::CommCall& call) const;
  GradientReducer& reducer_of(const fluid::Tensor& tensor);
  void compare_parameters(const fluid::CommCall* call);
  void share_newest(std::span<fluid::Tensor* const> values, uint64_t bytes);
  void require_one_shard(const fluid::CommCall& call) const;
  std::unique_ptr<fluid::CommToken> all_reduce(const fluid::CommCall& call);
  std::unique_ptr<fluid::CommToken> all_reduce_rows(const fluid::CommCall& call,
                                                    const fluid::SelectedRows& rows);
  void local_sgd(const fluid::CommCall& call);
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
  // Of tensors on devices; null where they are summed over host memory.
  std::unique_ptr<transport::CollectiveCommunicator> device_communicator_;
  std::unique_ptr<GradientReducer> device_reducer_;
  std::unique_ptr<EmptyContribution> device_empty_;
  std::optional<fluid::Place> device_;  // that the ranks have met about
  std::unique_ptr<RowReducer> rows_;
  std::unique_ptr<RankAgreement> agreement_;
  std::unique_ptr<EmptyContribution> empty_;
  std::optional<LocalAverage> average_;
  std::unordered_map<uint64_t, bool> trains_;  // by program id
  StepSums sums_;                              // by its program
  size_t row_gradients_ = 0;                   // sparse gradients of a step
  std::vector<ReductionShape> averaged_;       // by its program, in a LocalSGD job
  uint64_t steps_ = 0;                         // taken by this worker
  bool stepping_ = false;
  bool said_ = false;      // that it does, to the others
  bool compares_ = false;  // what the ranks begin with, at the next sum
};

// The communicator of the MPI world, which must have the size and order of the cluster's workers;
// a communicator of one when the cluster has one worker. The ranks compare `identity`, which each
// computes of program, configuration and cluster. Throws PeerError or UsageError.
std::unique_ptr<transport::CollectiveCommunicator> connect_over_mpi(
    const role_maker::ClusterSpec& cluster, const std::string& identity, Duration timeout);

}  // namespace fleet::strategies
