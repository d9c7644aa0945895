// The exchange of synchronous workers: one round trip per server and step, on the thread that
// trains.
#pragma once

#include <string>

#include "strategies/parameter_server/client/blocking_worker_node.h"
#include "strategies/parameter_server/worker/exchange.h"
#include "strategies/parameter_server/worker/worker_loops.h"

namespace fleet::strategies {

class InStepExchange final : public Exchange {
 public:
  InStepExchange(const ParameterServerConfig& config, WorkerLoops loops, const Logger& logger);

  void start() override;
  const ServerClient& ready() override;
  void stop() override;
  bool stopped() const override { return node_.stopped(); }
  void abort(const Status& why, uint64_t step) override {
    node_.abort(why, transport::Phase::kComputing, step);
  }
  void barrier(transport::Group group, const std::string& name) override;
  std::vector<double> all_reduce(transport::Group group, const std::string& name,
                                 std::vector<double> values) override;
  uint64_t steps() const override { return node_.client().step(); }
  bool in_step() const override { return true; }

  fluid::StepShards shards() const override { return shards_; }
  void prepare(const fluid::Block& block, BoundBlock& bound) override;
  void begin_step() override;
  void end_step() override;
  Token send(const fluid::CommCall& call, const BoundOp& bound) override;
  void send_barrier() override { stepping_ = true; }
  Token receive(const fluid::CommCall& call, const BoundOp& bound) override;
  void fetch_barrier() override { wait_values(); }

  void request(transport::Phase phase, std::string_view what, const Ask& ask) override;
  // Each shard of a step looks up ids of its own.
  bool asks_ahead() const override { return shards_.count() == 1; }
  Request begin_request(const Ask& ask) override;
  void finish_request(transport::Phase phase, std::string_view what,
                      const Request& request) override;
  void fetch(transport::Phase phase, std::span<const RemoteMemory> values) override;
  void assign(std::span<const RemoteMemory> values) override;
  std::optional<uint64_t> version_of_rows() const override { return steps(); }

 private:
  class PushToken;
  class ReceiveToken;
  struct ReceiveNotes;

  static bool view_whole(const fluid::CommCall& call, const BoundOp& bound,
                         const std::string& whole);
  void push(const RemoteTensor& place, int shard, const fluid::Value& gradient);
  void conclude();
  void wait_values();

  const fluid::StepShards shards_;
  const WorkerLoops loops_;
  BlockingWorkerNode node_;
  bool started_ = false;
  // Of the run under way: what it has to end with.
  bool stepping_ = false;
  bool receiving_ = false;
};

}  // namespace fleet::strategies
