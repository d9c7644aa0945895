// Makes, from a single-machine training program, the programs of every process of a distributed
// job. Nothing here opens a socket or reads a clock.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/log.h"
#include "fluid/program/program.h"
#include "role_maker/cluster_spec.h"
#include "transpiler/collective/collective_program.h"
#include "transpiler/config.h"
#include "transpiler/parameter_server/server_plan.h"
#include "transpiler/parameter_server/trainer_program.h"

namespace fleet::transpiler {

struct TranspileOptions {
  // The first logical shard of this trainer; with one shard per trainer, its index.
  int trainer_id = 0;
  // Null: the thread's default programs. They are copied, and left as they are.
  const fluid::Program* program = nullptr;
  std::string pservers = "127.0.0.1:6174";  // joined by commas
  // How many logical shards contribute to a step; or, for modes nccl2 and collective, the ranks'
  // endpoints joined by commas.
  std::variant<int, std::string> trainers = 1;
  // When given, wins over the configuration's.
  std::optional<bool> sync_mode = std::nullopt;
  const fluid::Program* startup_program = nullptr;
  std::string current_endpoint = "127.0.0.1:6174";
  // Collective: contributors of a step when they are more than the ranks; 0: one per rank.
  int logical_shards = 0;
  // Parameter servers: the order in which parameters are dispatched to servers and sent, as
  // positions in their own order, which is that of their update ops. Empty: their own order. For
  // programs that must equal those of a system with another order.
  std::vector<size_t> dispatch_order = {};
  // Every op against its schema after every pass, not only after the last (transpiler/pass.h).
  bool verify_each_pass = false;
  // Passes to leave out, of pass_names(): for looking at what a pass does.
  std::set<std::string, std::less<>> skip_passes = {};
  // Hears of every pass, also those of programs that getters make.
  std::function<void(const PassEvent&)> pass_observer = {};
  // Where the lines of DistributeTranspilerConfig::print_log go.
  Logger logger = Logger(LogLevel::kInfo);
};

// After transpile, the getters may be called in any order and any number of times; equal calls
// give equal programs. Not for several threads at once.
class DistributeTranspiler {
 public:
  // Throws as validate_but_sync_mode(config) does: transpile may be told another sync_mode.
  explicit DistributeTranspiler(DistributeTranspilerConfig config = {});
  ~DistributeTranspiler();
  DistributeTranspiler(DistributeTranspiler&&) noexcept;
  DistributeTranspiler& operator=(DistributeTranspiler&&) noexcept;

  // Throws UsageError for arguments that do not fit each other or the configuration, and for a
  // configuration that contradicts itself (validate, with this sync_mode), ProgramError
  // for a program that cannot be distributed. A second call starts anew.
  void transpile(const TranspileOptions& options = {});

  // The program that this trainer runs each step; rank's main program in the other modes.
  // `wait_port` is recorded in it: the runtime waits for the servers.
  fluid::Program get_trainer_program(bool wait_port = true) const;
  // The trainer's startup program: initialisers, then what the servers have.
  fluid::Program get_trainer_startup_program() const;
  // Throws UsageError (kUnknownName) for an endpoint that is not among the servers.
  fluid::Program get_pserver_program(const std::string& endpoint) const;
  // Main and startup of one server.
  ProgramPair get_pserver_programs(const std::string& endpoint) const;
  // Initialises what the given server program holds; null: that of get_pserver_program(endpoint).
  fluid::Program get_startup_program(const std::string& endpoint,
                                     const fluid::Program* pserver_program = nullptr) const;

  // As the constructor was given it.
  const DistributeTranspilerConfig& config() const { return config_; }
  // Where every slice is. Throws UsageError in modes without servers.
  const ServerPlan& plan() const;

 private:
  struct State;
  const State& state() const;  // throws before transpile

  DistributeTranspilerConfig config_;
  std::unique_ptr<State> state_;
};

// The pair of programs that one process of a job runs, as values: what Fleet's strategies use.
// `shards` >= workers are the contributors of a step (0: one per worker); a worker's trainer_id is
// the first that it owns. A local job, and a collective one of one worker with one shard, gets its
// programs unchanged. `logger`: where lines of print_log go. Throws as DistributeTranspiler does.
ProgramPair transpile_for(const fluid::Program& main, const fluid::Program& startup,
                          const role_maker::ClusterSpec& cluster,
                          const DistributeTranspilerConfig& config, int shards = 0,
                          const Logger& logger = Logger(LogLevel::kInfo));

}  // namespace fleet::transpiler

// The names that Paddle Fluid's documents use.
namespace fleet::fluid {
using transpiler::DistributeTranspiler;
using transpiler::DistributeTranspilerConfig;
}  // namespace fleet::fluid
