// The runtime behind a trainer program: send, send_barrier, recv and fetch_barrier over one
// communicator, one round trip per server and step.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "fluid/kernels/comm_runtime.h"
#include "strategies/parameter_server/config.h"
#include "strategies/parameter_server/process_environment.h"
#include "strategies/parameter_server/remote_lookup.h"
#include "strategies/parameter_server/synchronous/worker_node.h"

namespace fleet::strategies {

// Used by one thread, the one that trains.
class WorkerRuntime final : public fluid::CommRuntime {
 public:
  // `origin` is the program before it was transpiled: its persistable variables make up a
  // checkpoint. `server_names` are the endpoints as programs name them (epmap), by server index;
  // empty: those of `config`.
  WorkerRuntime(ParameterServerConfig config, transport::TransportChoice transport,
                fluid::Program origin, std::vector<std::string> server_names = {},
                Logger logger = {});
  ~WorkerRuntime() override;

  // Begins to connect; the first op does it if nobody did. Servers may come later, until the rpc
  // deadline.
  void init_worker();
  // Contributes no more, tells the servers, and leaves. May be called again.
  void stop_worker();
  // Tells the others that this worker ends the job, in that step of its own.
  void abort(const Status& why, uint64_t step) { node_.abort(why, step); }
  void barrier_worker();
  // Element by element, the sum over all workers; the same bits for each of them.
  std::vector<double> all_reduce_worker(std::span<const double> values);

  // Puts whole variables as the servers have them after the last step into the scope, slices
  // joined. Returns the names that no server keeps.
  std::vector<std::string> pull(const std::vector<std::string>& names, fluid::Scope& scope);
  // Gives a variable (all its slices) its initial value; before any worker's first step. Nothing
  // happens when no server keeps it; returns whether one does.
  bool assign(const std::string& name, const fluid::Tensor& value);
  // Steps that are over.
  uint64_t step() const;

  // fluid::CommRuntime
  fluid::ShardRange shards() const override;
  void begin_step(const fluid::Program& program, uint64_t step) override;
  void end_step(const fluid::Program& program, uint64_t step) override;
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override;
  const fluid::Program* checkpoint_program() const override { return &origin_; }
  bool gather_persistables(fluid::Scope& scope) override;
  bool gather(std::span<const std::string> names, fluid::Scope& scope) override;
  void spread_persistables(fluid::Scope& scope) override;

 private:
  class PushToken;
  class ReceiveToken;
  enum class Kind {
    kSend,
    kSendBarrier,
    kReceive,
    kFetchBarrier,
    kLookup,
    kRows,
    kPrefetch,
    kSaveTable,
    kNothing
  };
  // A part of one of the op's variables, and where it lives.
  struct Part {
    size_t variable = 0;  // position among the op's inputs (send) or outputs (recv)
    RemoteVariable remote;
    uint64_t offset = 0;  // in bytes
    uint64_t bytes = 0;
    // Of a variable that is cut at run time; 0: it is not.
    int64_t row = 0;
    int64_t rows = 0;
  };
  struct BoundOp {
    uint64_t program_id = 0;
    Kind kind = Kind::kNothing;
    std::vector<Part> parts;
    std::vector<fluid::Shape> shapes;  // of recv's outputs
    std::vector<fluid::DType> dtypes;
    std::string whole;  // what a concat makes of recv's outputs
    RemoteTable table;
    RemotePrefetch prefetch;
    std::vector<RemoteSnapshot> snapshots;
    bool needs_token = false;  // recv without a fetch_barrier behind it
  };
  // Rows of a table that are as they are after so many steps; they rise.
  struct FetchedRows {
    uint64_t step = 0;
    std::weak_ptr<const void> memory;  // that they are in
    std::vector<int64_t> rows;
  };
  struct Place {
    RemoteVariable remote;
    const CatalogueEntry* entry;
  };

  const BoundOp& bind(const fluid::CommCall& call);
  void bind_send(const fluid::CommCall& call, BoundOp& bound) const;
  void bind_receive(const fluid::CommCall& call, BoundOp& bound) const;
  void ensure_ready();
  std::unique_ptr<fluid::CommToken> send(const fluid::CommCall& call, const BoundOp& bound);
  void receive(const fluid::CommCall& call, const BoundOp& bound);
  void push_rows(const Part& part, int shard, const fluid::SelectedRows& rows);
  void look_up(const fluid::CommCall& call, const BoundOp& bound);
  void receive_rows(const fluid::CommCall& call, const BoundOp& bound);
  static bool view_whole(const fluid::CommCall& call, const BoundOp& bound);
  void conclude();
  void wait_values();
  std::vector<Place> places_of(const std::string& origin) const;
  std::vector<std::string> checkpoint_names() const;

  ParameterServerConfig config_;
  fluid::Program origin_;
  std::vector<std::string> server_names_;
  fluid::ShardRange shards_;
  ProcessEnvironment environment_;
  WorkerNode node_;
  std::unordered_map<const fluid::Operator*, BoundOp> bound_;
  std::map<const fluid::Value*, FetchedRows> fetched_;  // by the table's value
  bool started_ = false;
  // Of the run under way: what it has to end with.
  bool stepping_ = false;
  bool receiving_ = false;
};

}  // namespace fleet::strategies
