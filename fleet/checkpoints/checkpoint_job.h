// The checkpoints of one process of a job: which part of each it writes and reads.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/files/file_system.h"
#include "base/log.h"
#include "base/process/background.h"
#include "base/process/signal_count.h"
#include "fleet/checkpoints/own_state.h"
#include "fleet/checkpoints/policy.h"
#include "fleet/checkpoints/save_times.h"
#include "fluid/executor/executor.h"
#include "fluid/io/checkpoint_store.h"
#include "role_maker/cluster_spec.h"
#include "strategies/runtime/strategy_runtime.h"

namespace fleet {

// Every worker of the job has one, and makes the same calls. Its values are those of the runtime's
// checkpoint program. Used by the thread that trains; files are written in the
// background.
class CheckpointJob {
 public:
  // The system's, where nothing else is said.
  struct Surroundings {
    FileSystem* files = &system_files();
    const Clock* clock = &steady_clock();
    std::function<std::unique_ptr<Background>()> make_background = make_background_thread;
    std::function<uint32_t()> random = [] { return std::random_device()(); };
  };
  struct Job {
    const role_maker::ClusterSpec& cluster;
    strategies::StrategyRuntime& runtime;
    const fluid::Program& origin;
    const fluid::Program& main;
    std::string strategy;
    Logger logger;
    std::function<void()> stop_worker;  // leaves the job in good order
    Surroundings surroundings = {};
  };
  explicit CheckpointJob(Job job);
  // Gives up what is being written.
  ~CheckpointJob();

  // Loads the newest checkpoint that is whole, undamaged and finite, if there is one, and makes
  // more from here on; `from`: "latest", "none", or the folder of one, which must be usable.
  TrainStatus resume(fluid::Executor& executor, const CheckpointPolicy& policy,
                     const std::string& from);
  // Returns when it is there.
  void save(fluid::Executor& executor, const std::filesystem::path& folder,
            const TrainStatus& status);
  // The newest of the folder, or the checkpoint that it is itself. None: the folder has none.
  std::optional<TrainStatus> load(fluid::Executor& executor, const std::filesystem::path& folder);
  // Waits until what is being written is there; no more is made while the program runs. The last
  // call before the worker stops: checkpoints of the others know how far it came.
  void stop();

 private:
  class Writer;
  // Of all workers that still train.
  struct Meeting {
    std::string name;  // of no other
    std::vector<int> workers;
    std::vector<int64_t> steps;  // of each worker of the job, of those that have stopped their last
    int64_t step = 0;            // the most of them
    uint64_t saves = 0;          // requests that one has seen
    bool ends = false;           // one was told to end
  };
  using Values = fluid::NamedTensors;
  // A checkpoint that fits, and is not damaged where this worker or servers read it.
  struct Checked {
    std::optional<fluid::io::CheckpointReader> checkpoint;
    std::vector<std::string> wanted;  // by this worker, on its own scope
    std::vector<std::string> given;   // to servers
    bool by_servers = false;          // they read what they keep
    Values own;
    fluid::io::NamedTables tables;  // of this worker's scope, filled
  };

  Meeting save_now(fluid::Executor& executor, const fluid::io::CheckpointStore& store,
                   fluid::io::CheckpointInfo info, const fluid::io::CheckpointRetention& retention);
  void save_for_all(fluid::Executor& executor, const fluid::io::CheckpointStore& store,
                    int64_t step);
  void finish();
  bool told_to_end() const { return to_end_ && to_end_->count() > 0; }
  bool told_to_save();
  fluid::io::CheckpointInfo info_of(const TrainStatus& status) const;
  Meeting meet(int64_t step);
  bool servers_write(const Meeting& meeting, const std::filesystem::path& folder);
  double ask_servers(const std::filesystem::path& folder, int workers);
  void leave_step_behind();
  std::vector<std::string> share(size_t place, size_t writers) const;
  const fluid::VarDesc* desc_of(const std::string& name) const;
  Values read_share(fluid::Scope& scope, const std::vector<std::string>& names);
  Status servers_must(const char* what) const;
  Status why_servers_cannot(const fluid::io::CheckpointReader& checkpoint) const;
  Status begin_tables(const fluid::Scope& scope, const std::filesystem::path& folder, int parts,
                      fluid::io::CheckpointTables& tables) const;

  std::optional<TrainStatus> load_newest(fluid::Executor& executor,
                                         const fluid::io::CheckpointStore& store);
  TrainStatus load_one(fluid::Executor& executor, const std::filesystem::path& folder);
  Status check_one(const std::filesystem::path& folder, const fluid::Scope& scope,
                   Checked& checked);
  Status read_tables(const fluid::io::CheckpointReader& checkpoint, const fluid::Scope& scope,
                     fluid::io::NamedTables& read) const;
  bool servers_read(const Result<fluid::io::CheckpointReader>& checkpoint);
  TrainStatus take(fluid::Executor& executor, const Checked& checked);
  void give(const Checked& checked);
  std::vector<std::string> wanted(const fluid::Scope& scope) const;
  double sum(double value);
  void seek_readers(const fluid::io::CheckpointInfo& info, int64_t step,
                    const std::vector<int64_t>& own);
  uint64_t updates_of(const fluid::io::CheckpointInfo& info) const;
  int64_t own_step(const fluid::io::CheckpointInfo& info) const;
  [[noreturn]] void end(int64_t step);
  const Surroundings& surroundings() const { return job_.surroundings; }
  fluid::io::CheckpointStore store_in(const std::filesystem::path& folder) const {
    return fluid::io::CheckpointStore(folder, *surroundings().files);
  }
  bool first() const { return job_.cluster.index == 0; }

  Job job_;
  OwnState own_;
  CheckpointPolicy policy_;
  std::optional<SaveTimes> times_;
  std::optional<SignalCount> to_save_;
  std::optional<SignalCount> to_end_;
  uint64_t saves_seen_ = 0;     // signals
  std::vector<int64_t> steps_;  // as Meeting has them
  int64_t loaded_ = 0;          // the step of the checkpoint that was taken
  bool servers_write_;          // as far as is known
  int64_t step_ = 0;            // of this worker, that are over
  std::unique_ptr<Writer> writer_;
  std::shared_ptr<bool> saves_;  // an executor saves as long as this is true, and there
};

}  // namespace fleet
