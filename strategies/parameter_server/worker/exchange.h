// How a worker trades gradients for values: in step (in_step_exchange.h), in the background
// (background_exchange.h), or by differences of what it trained alone (difference_exchange.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fluid/kernels/comm_runtime.h"
#include "strategies/parameter_server/async_options.h"
#include "strategies/parameter_server/config.h"
#include "strategies/parameter_server/worker/trainer_ops.h"
#include "strategies/parameter_server/worker/worker_loops.h"

namespace fleet::strategies {

// What WorkerRuntime (worker_runtime.h) leaves to the mode. Used by the thread that trains; modes
// with trainer threads by any of them, but for start and stop. Blocking calls throw PeerError with
// peer, rank, phase, step and elapsed time when the job failed.
class Exchange {
 public:
  virtual ~Exchange() = default;

  // All workers have taken as many steps, between two steps.
  virtual bool in_step() const { return false; }
  // As StrategyRuntime's.
  virtual void ask_to_save() {}
  virtual uint64_t saves_asked() const { return 0; }
  // NOLINTNEXTLINE(performance-unnecessary-value-param): who has it keeps it
  virtual void set_on_save(std::function<void()>) {}
  virtual void saved(uint64_t) {}
  virtual void meet_to_save() {}
  // NOLINTNEXTLINE(performance-unnecessary-value-param): who sends it keeps it
  virtual void leave_behind(const std::string& /*name*/, std::vector<double> /*values*/) {}

  // Begins to connect; once.
  virtual void start() = 0;
  // Waits until every server has told what it keeps.
  virtual const ServerClient& ready() = 0;
  // Contributes no more, tells the servers, and leaves. May be called again.
  virtual void stop() = 0;
  virtual bool stopped() const = 0;
  virtual void abort(const Status& why, uint64_t step) = 0;
  virtual void barrier(transport::Group group, const std::string& name) = 0;
  // The sums of the values over the workers of the group.
  virtual std::vector<double> all_reduce(transport::Group group, const std::string& name,
                                         std::vector<double> values) = 0;
  // Steps that are over, of all threads.
  virtual uint64_t steps() const = 0;

  virtual fluid::StepShards shards() const { return {}; }
  // As CommRuntime's; only where there are trainer threads.
  virtual bool has_trainer_threads() const { return false; }
  virtual void enter_thread(uint32_t, fluid::Scope&, const fluid::Scope&) {}
  virtual void leave_thread(fluid::Scope& /*scope*/, fluid::Scope& /*parent*/) {}

  // Whether a send op carries gradients.
  virtual bool sends_gradients() const { return true; }
  // Before a block's ops are run for the first time.
  virtual void prepare(const fluid::Block& block, BoundBlock& bound) = 0;
  virtual void begin_step() = 0;
  virtual void end_step() = 0;
  using Token = std::unique_ptr<fluid::CommToken>;  // null: finished on return
  virtual Token send(const fluid::CommCall& call, const BoundOp& bound) = 0;
  virtual void send_barrier() {}
  virtual Token receive(const fluid::CommCall& call, const BoundOp& bound) = 0;
  virtual void fetch_barrier() {}

  // Sends requests and waits for their answers; `ask` hands the handler on.
  using Ask = std::function<void(ServerClient&, transport::DoneHandler)>;
  virtual void request(transport::Phase phase, std::string_view what, const Ask& ask) = 0;
  // By table of a lookup, rows of growing tables that are here; empty where none are.
  virtual std::vector<std::shared_ptr<KeptRows>> kept_rows(fluid::Scope& /*scope*/,
                                                           const RemoteGrowingTables& /*tables*/) {
    return {};
  }
  // Rows of tables went on servers: none is used again.
  virtual void forget_kept_rows() {}
  // Whether a step can ask for what holds after it: begin_request() sends, and finish_request()
  // waits for the answers.
  virtual bool asks_ahead() const { return false; }
  using Request = std::shared_ptr<const std::optional<Status>>;
  virtual Request begin_request(const Ask&) { return nullptr; }
  virtual void finish_request(transport::Phase, std::string_view /*what*/, const Request&) {}
  // Values as the servers have them now. What was sent before has arrived then.
  virtual void fetch(transport::Phase phase, std::span<const RemoteMemory> values) = 0;
  // Initial values, before any worker's first step.
  virtual void assign(std::span<const RemoteMemory> values) = 0;
  // What was sent has arrived.
  virtual void drain() {}
  // As long as this number stays, so do the rows of tables; none: they may change at any time.
  virtual std::optional<uint64_t> version_of_rows() const { return std::nullopt; }
  // The scope's parameters are the servers' now.
  virtual void restarted(fluid::Scope&) {}
  // As StrategyRuntime's.
  virtual std::vector<double> own_counts() { return {}; }
  virtual void set_own_counts(std::span<const double>) {}
  // Whether parameters here stay apart from the servers', between begin_saving() and end_saving().
  virtual bool parameters_differ() const { return false; }
  // Between two steps: what all workers have sent is in the servers' values from here to
  // end_saving(). Every worker calls both, but where steps have the same versions everywhere.
  virtual void begin_saving(fluid::Scope&) {}
  virtual void end_saving() {}
};

// Of the mode that the options tell. Throws UsageError when they are not valid.
std::unique_ptr<Exchange> make_exchange(const ParameterServerConfig& config,
                                        const AsyncOptions& options, WorkerLoops loops,
                                        Logger logger);

// Throws UsageError when a gradient is not what its slices on the servers are made for.
void check_gradient(const fluid::Operator& op, const RemoteTensor& expected,
                    const fluid::Value& gradient);

}  // namespace fleet::strategies
