// A rank of a collective job under virtual time, as a strategy's runtime has it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fluid/program/program.h"
#include "role_maker/cluster_spec.h"
#include "strategies/collective/collective_runtime.h"
#include "strategies/runtime/strategy_runtime.h"
#include "tests/testing/virtual_time/sim_process.h"
#include "transport/socket_collective/socket_peers.h"

namespace fleet::testing {

// The ranks exchange messages as over sockets, and nothing watches them beside.
class SimRank final : public strategies::StrategyRuntime {
 public:
  // Used by a fiber of the process. `origin` is what is saved, `main` the program of a step.
  SimRank(SimProcess& process, const role_maker::ClusterSpec& cluster, uint64_t incarnation,
          strategies::CollectiveRuntimeOptions options, const fluid::Program& origin,
          const fluid::Program& main);

  void init_worker() override { ops_.connect(); }
  void stop_worker() override;
  void barrier_worker() override { ops_.barrier_worker(); }
  std::vector<double> all_reduce_worker(std::span<const double> values) override {
    return ops_.all_reduce_worker(values);
  }

  fluid::StepShards shards() const override { return ops_.shards(); }
  void begin_step(const fluid::Program& program, uint64_t step) override {
    ops_.begin_step(program, step);
  }
  void end_step(const fluid::Program& program, uint64_t step) override {
    ops_.end_step(program, step);
  }
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override {
    return ops_.run(call);
  }
  const fluid::Program* checkpoint_program() const override { return &origin_; }
  void begin_saving(fluid::Scope& scope) override;
  void start_from(fluid::Scope&) override { barrier_worker(); }
  std::vector<double> own_counts() override {
    return ops_.local_sgd() == nullptr ? std::vector<double>() : ops_.local_sgd()->counts();
  }
  void set_own_counts(std::span<const double> counts) override {
    if (ops_.local_sgd() != nullptr) ops_.local_sgd()->set_counts(counts);
  }

 private:
  std::unique_ptr<transport::CollectiveCommunicator> connect();

  SimProcess& process_;
  const role_maker::ClusterSpec cluster_;
  const uint64_t incarnation_;
  const fluid::Program origin_;
  transport::SocketPeers* peers_ = nullptr;  // the communicator's
  strategies::CollectiveRuntime ops_;
};

}  // namespace fleet::testing
