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

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/environment.h"
#include "fleet/checkpoints/policy.h"
#include "fluid/executor/executor.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/tables/growing_table.h"
#include "role_maker/role_maker.h"
#include "strategies/parameter_server/observer.h"
#include "strategies/strategies.h"

namespace fleet {

// Options that every strategy understands, for distributed_optimizer(optimizer, {…}).
struct CommonOptions {
  // Equal parts that a step's rows are cut into; 0: one for each worker.
  int logical_shards = 0;
};

// What this process does, whatever the environment says.
struct InitOptions {
  // When a loss or a parameter is no longer finite: end the job, or say it once and go on.
  std::optional<strategies::OnNonfinite> on_nonfinite = std::nullopt;
};

class CheckpointJob;
class PaddleCheckPoints;
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

  // minimize in two parts, so that gradients can be looked at or changed in between: backward
  // appends the ops that make them, apply_gradients the updates, and then rewrites as minimize
  // does. Throws UsageError without pairs.
  std::vector<fluid::ParamGrad> backward(const fluid::Variable& loss,
                                         const fluid::optimizer::MinimizeOptions& options = {});
  void apply_gradients(std::vector<fluid::ParamGrad> params_grads,
                       fluid::Program* startup_program = nullptr);

 private:
  void require_first(const char* caller) const;
  fluid::optimizer::Optimizer& optimizer();
  // With the strategy's own checkpoints.
  fluid::optimizer::MinimizeOptions completed(fluid::optimizer::MinimizeOptions options) const;
  void rewrite(fluid::Program& main, fluid::Program* startup);

  Fleet& fleet_;
  fluid::optimizer::Optimizer& optimizer_;
  strategies::DistributedStrategy strategy_;
  // What the strategy makes of optimizer_, if anything.
  std::shared_ptr<fluid::optimizer::Optimizer> decorated_;
};

// One process's place in a job. Used by one thread.
class Fleet {
 public:
  explicit Fleet(Environment environment = Environment::of_process());
  ~Fleet();
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  void init(role_maker::RoleMakerBase& maker, const InitOptions& options = {});

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

  // What the user wrote, as minimize completed it.
  const fluid::Program& origin_program() const;
  const fluid::Program& origin_startup_program() const;
  // What this process runs; minimize made them the thread's default programs.
  const fluid::Program& main_program() const;
  const fluid::Program& startup_program() const;

  // Gathers every persistable variable of the origin program; the first worker writes them. Each
  // worker calls it between two steps. With growing tables on servers, workers wait for each other,
  // and what is saved is of one moment.
  void save_persistables(fluid::Executor& exe, const std::string& dirname);
  // The opposite. Each worker calls it, after the startup program.
  void load_persistables(fluid::Executor& exe, const std::string& dirname);
  // Writes what io::load_inference_model reads: what `targets` need of the origin program (or
  // `main_program`, one that has not been rewritten either), with the job's values of its
  // parameters. Each worker calls it between two steps; the first worker writes.
  void save_inference_model(fluid::Executor& exe, const std::string& dirname,
                            const std::vector<std::string>& feeds,
                            const std::vector<fluid::Variable>& targets,
                            const fluid::Program* main_program = nullptr);

  // The end of a pass, such as an epoch or a day, of a growing table, wherever its rows are: its
  // clock goes on, scores decay, rows go as the rule says (fluid/tables/growing_table.h). Every
  // worker calls it between two steps; returns how many rows went. Throws UsageError, or
  // ProgramError in one process, for a table that is not there, and UsageError for a rule that its
  // rows lack the fields for.
  uint64_t end_pass(fluid::Executor& exe, const std::string& table,
                    const fluid::tables::PassRule& rule);

  // What changed in a growing table since its last delta (sparse_embedding's `deltas`), as `file`,
  // or as one file for each server, "7.0-of-2.delta" of "7.delta"; returns their paths.
  // fluid::io::read_table_delta reads them. Every worker calls it between two steps.
  std::vector<std::filesystem::path> save_table_delta(fluid::Executor& exe,
                                                      const std::string& table,
                                                      const std::filesystem::path& file);
  // What a growing table holds and did, wherever its rows are; of servers, of all together. Any
  // worker calls it.
  fluid::tables::TableStatistics table_statistics(fluid::Executor& exe, const std::string& table);

  // In the beginning of the training loop, behind the startup program; every worker calls it. Loads
  // the newest checkpoint of the policy's folder, if there is one, and has the executor make more
  // while it runs the main program. What is loaded can be the work of a job of any other number of
  // workers and servers, of another mode, or of one process. FLEET_RESUME says otherwise: "none",
  // or the folder of a checkpoint. The executor must live until stop_worker().
  TrainStatus resume(fluid::Executor& exe, const CheckpointPolicy& policy);
  // Every worker calls it between two steps; it returns when the checkpoint is there, in a folder
  // of its own in `path`. Throws ResourceError when it cannot be written.
  void save_checkpoint(fluid::Executor& exe, const std::string& path, const TrainStatus& status);
  // The newest checkpoint in `path`, or the one that `path` is; before the first step. None where
  // there is no checkpoint. Every worker calls it.
  std::optional<TrainStatus> load_checkpoint(fluid::Executor& exe, const std::string& path);

  // Paddle's calls, with files that Paddle reads, and can have written
  // (fleet/checkpoints/paddle_check_points.h). Every worker calls them between two steps; each
  // check point has the next number. `remain_all_checkpoint`: false: the newest alone stays.
  void save_check_point(fluid::Executor& exe, const std::string& path, const TrainStatus& status,
                        bool remain_all_checkpoint = true);
  // The newest, before the first step. None where there is none: an error unless `ignore_empty`.
  std::optional<TrainStatus> load_check_point(fluid::Executor& exe, const std::string& path,
                                              bool ignore_empty = true);
  // Takes away all but the newest ones. One process calls it.
  static void clean_redundant_check_points(const std::string& root, int checkpoint_num = 1);

  // Roles, resolved configuration and strategy, each value with its origin.
  std::string to_string() const;

 private:
  friend class DistributedOptimizer;
  struct State;

  State& initialized(const char* caller) const;
  State& minimized(const char* caller) const;
  void dump_programs(const strategies::Strategy& strategy) const;
  CheckpointJob& checkpoints(const char* caller);
  PaddleCheckPoints check_points(const char* caller);
  void begin_at(int64_t step);

  std::unique_ptr<State> state_;
};

// The default Fleet of this process.
Fleet& default_fleet();

inline void init(role_maker::RoleMakerBase& maker, const InitOptions& options = {}) {
  default_fleet().init(maker, options);
}
inline void init(role_maker::RoleMakerBase&& maker, const InitOptions& options = {}) {
  default_fleet().init(maker, options);
}
inline void init(const std::unique_ptr<role_maker::RoleMakerBase>& maker,
                 const InitOptions& options = {}) {
  default_fleet().init(*maker, options);
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
inline const fluid::Program& origin_startup_program() {
  return default_fleet().origin_startup_program();
}
inline const fluid::Program& main_program() {
  return default_fleet().main_program();
}
inline const fluid::Program& startup_program() {
  return default_fleet().startup_program();
}
inline void save_persistables(fluid::Executor& exe, const std::string& dirname) {
  default_fleet().save_persistables(exe, dirname);
}
inline void load_persistables(fluid::Executor& exe, const std::string& dirname) {
  default_fleet().load_persistables(exe, dirname);
}
inline uint64_t end_pass(fluid::Executor& exe, const std::string& table,
                         const fluid::tables::PassRule& rule) {
  return default_fleet().end_pass(exe, table, rule);
}
inline std::vector<std::filesystem::path> save_table_delta(fluid::Executor& exe,
                                                           const std::string& table,
                                                           const std::filesystem::path& file) {
  return default_fleet().save_table_delta(exe, table, file);
}
inline fluid::tables::TableStatistics table_statistics(fluid::Executor& exe,
                                                       const std::string& table) {
  return default_fleet().table_statistics(exe, table);
}
inline TrainStatus resume(fluid::Executor& exe, const CheckpointPolicy& policy) {
  return default_fleet().resume(exe, policy);
}
inline void save_checkpoint(fluid::Executor& exe, const std::string& path,
                            const TrainStatus& status) {
  default_fleet().save_checkpoint(exe, path, status);
}
inline std::optional<TrainStatus> load_checkpoint(fluid::Executor& exe, const std::string& path) {
  return default_fleet().load_checkpoint(exe, path);
}
inline void save_check_point(fluid::Executor& exe, const std::string& path,
                             const TrainStatus& status, bool remain_all_checkpoint = true) {
  default_fleet().save_check_point(exe, path, status, remain_all_checkpoint);
}
inline std::optional<TrainStatus> load_check_point(fluid::Executor& exe, const std::string& path,
                                                   bool ignore_empty = true) {
  return default_fleet().load_check_point(exe, path, ignore_empty);
}
inline void clean_redundant_check_points(const std::string& root, int checkpoint_num = 1) {
  Fleet::clean_redundant_check_points(root, checkpoint_num);
}
inline void save_inference_model(fluid::Executor& exe, const std::string& dirname,
                                 const std::vector<std::string>& feeds,
                                 const std::vector<fluid::Variable>& targets,
                                 const fluid::Program* main_program = nullptr) {
  default_fleet().save_inference_model(exe, dirname, feeds, targets, main_program);
}

}  // namespace fleet

namespace fluid = fleet::fluid;
namespace role_maker = fleet::role_maker;
namespace strategies = fleet::strategies;
