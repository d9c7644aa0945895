// The facade: what turns a single-machine program into a distributed one.
//
//   fleet::init(role_maker::PaddleCloudRoleMaker());
//   auto optimizer = fleet::distributed_optimizer(sgd);
//   optimizer.minimize(cost);
//   if (fleet::is_server()) return fleet::run_server();
//   fleet::init_worker();
//   … the training loop as it was …
//   fleet::stop_worker();
//
// The free functions act on one default Fleet of the process; a Fleet of your own does the same,
// so that several ranks can live in one process. Errors are thrown as fleet::Error.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/environment.h"
#include "fluid/executor/executor.h"
#include "fluid/optimizer/optimizer.h"
#include "role_maker/role_maker.h"
#include "strategies/strategies.h"

namespace fleet {

// Options that every strategy understands, for distributed_optimizer(optimizer, {…}).
struct CommonOptions {
  // Equal parts that a step's rows are cut into; 0: one for each worker.
  int logical_shards = 0;
};

class Fleet;

// Wraps an optimizer; minimize also rewrites the programs for this process.
class DistributedOptimizer {
 public:
  DistributedOptimizer(Fleet& fleet, fluid::optimizer::Optimizer& optimizer,
                       strategies::DistributedStrategy strategy);

  // Appends backward and optimizer ops to the loss's program, then makes the rewritten programs
  // the calling thread's defaults. The untouched ones are Fleet::origin_program() and its startup.
  void minimize(const fluid::Variable& loss);
  void minimize(const fluid::Variable& loss, const fluid::optimizer::MinimizeOptions& options);

 private:
  Fleet& fleet_;
  fluid::optimizer::Optimizer& optimizer_;
  strategies::DistributedStrategy strategy_;
};

// One process's place in a job. Used by one thread.
class Fleet {
 public:
  explicit Fleet(Environment environment = Environment::of_process());
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  void init(role_maker::RoleMakerBase& maker);

  bool is_worker() const;
  bool is_server() const;
  bool is_first_worker() const;
  int worker_index() const;  // 0 in a server
  int worker_num() const;
  int server_index() const;  // 0 in a worker
  int server_num() const;
  std::vector<std::string> worker_endpoints() const;
  std::vector<std::string> server_endpoints() const;
  // "local", "parameter_server" or "collective".
  std::string mode() const;
  // All processes of the job.
  int processes() const;
  // This worker's part of a list: contiguous, the first workers get one more where it does not
  // divide.
  std::vector<std::string> split_files(std::span<const std::string> files) const;

  DistributedOptimizer distributed_optimizer(fluid::optimizer::Optimizer& optimizer,
                                             strategies::DistributedStrategy strategy = {});
  DistributedOptimizer distributed_optimizer(fluid::optimizer::Optimizer& optimizer,
                                             CommonOptions options);

  // Workers: connects to the job. Before the startup program runs.
  void init_worker();
  // Servers: runs the startup program, then loads this server's part of a saved model.
  void init_server(const std::string& model_dir = "");
  // Serves until all workers are done; 0, or an exception. Does init_server() if nobody did.
  int run_server();
  // Workers: flushes, tells the servers, disconnects.
  void stop_worker();

  void barrier_worker();
  // Element by element, the sum over all workers.
  std::vector<double> all_reduce_worker(std::span<const double> values);

  const fluid::Program& origin_program() const;
  const fluid::Program& origin_startup_program() const;
  const fluid::Program& main_program() const;
  const fluid::Program& startup_program() const;

  // Gathers every persistable variable of the origin program; the first worker writes them. Each
  // worker calls it.
  void save_persistables(fluid::Executor& exe, const std::string& dirname);
  // The opposite. Each worker calls it, after the startup program.
  void load_persistables(fluid::Executor& exe, const std::string& dirname);

  // Roles, resolved configuration and strategy, each value with its origin.
  std::string to_string() const;

 private:
  friend class DistributedOptimizer;
  struct State;

  State& initialized(const char* caller) const;
  State& minimized(const char* caller) const;
  void dump_programs(const strategies::Strategy& strategy) const;

  std::unique_ptr<State> state_;
};

// The default Fleet of this process.
Fleet& default_fleet();

template <std::derived_from<role_maker::RoleMakerBase> Maker>
void init(Maker&& maker) {
  default_fleet().init(maker);
}
inline void init(const std::unique_ptr<role_maker::RoleMakerBase>& maker) {
  default_fleet().init(*maker);
}

inline bool is_worker() {
  return default_fleet().is_worker();
}
inline bool is_server() {
  return default_fleet().is_server();
}
inline bool is_first_worker() {
  return default_fleet().is_first_worker();
}
inline int worker_index() {
  return default_fleet().worker_index();
}
inline int worker_num() {
  return default_fleet().worker_num();
}
inline int server_index() {
  return default_fleet().server_index();
}
inline int server_num() {
  return default_fleet().server_num();
}
inline std::vector<std::string> worker_endpoints() {
  return default_fleet().worker_endpoints();
}
inline std::vector<std::string> server_endpoints() {
  return default_fleet().server_endpoints();
}
inline std::string mode() {
  return default_fleet().mode();
}
inline int processes() {
  return default_fleet().processes();
}
inline std::vector<std::string> split_files(std::span<const std::string> files) {
  return default_fleet().split_files(files);
}
inline DistributedOptimizer distributed_optimizer(fluid::optimizer::Optimizer& optimizer,
                                                  strategies::DistributedStrategy strategy = {}) {
  return default_fleet().distributed_optimizer(optimizer, std::move(strategy));
}
inline DistributedOptimizer distributed_optimizer(fluid::optimizer::Optimizer& optimizer,
                                                  CommonOptions options) {
  return default_fleet().distributed_optimizer(optimizer, options);
}
inline void init_worker() {
  default_fleet().init_worker();
}
inline void init_server(const std::string& model_dir = "") {
  default_fleet().init_server(model_dir);
}
inline int run_server() {
  return default_fleet().run_server();
}
inline void stop_worker() {
  default_fleet().stop_worker();
}
inline void barrier_worker() {
  default_fleet().barrier_worker();
}
inline std::vector<double> all_reduce_worker(std::span<const double> values) {
  return default_fleet().all_reduce_worker(values);
}
inline const fluid::Program& origin_program() {
  return default_fleet().origin_program();
}
inline void save_persistables(fluid::Executor& exe, const std::string& dirname) {
  default_fleet().save_persistables(exe, dirname);
}
inline void load_persistables(fluid::Executor& exe, const std::string& dirname) {
  default_fleet().load_persistables(exe, dirname);
}

}  // namespace fleet

namespace fluid = fleet::fluid;
namespace role_maker = fleet::role_maker;
namespace strategies = fleet::strategies;
