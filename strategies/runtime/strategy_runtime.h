// What a strategy's programs talk to while they run: the communication ops, and the calls of the
// facade.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fluid/kernels/comm_runtime.h"

namespace fleet::strategies {

// How coordinators, other ranks and messages name a sum of all_reduce_worker.
inline constexpr const char* kAllReduceWorker = "all_reduce_worker";

// The runtime of one process. Members are called by the thread that trains or serves, in the order
// that their names tell; errors are thrown as fleet::Error.
class StrategyRuntime : public fluid::CommRuntime {
 public:
  // Workers: connect to the job. Before the startup program runs.
  virtual void init_worker() = 0;
  // Workers: flush what is queued, tell the others, disconnect. May be called again.
  virtual void stop_worker() = 0;
  // Workers: tells the others that this one ends the job, and why, in that step of its program.
  virtual void abort_worker(const Status& /*why*/, uint64_t /*step*/) {}

  // All workers meet.
  virtual void barrier_worker() = 0;
  // Element by element, the sum over all workers; the same bits for each of them.
  virtual std::vector<double> all_reduce_worker(std::span<const double> values) = 0;
  // The same over the workers that have not stopped, each of which calls it.
  virtual std::vector<double> all_reduce_training(std::span<const double> values) {
    return all_reduce_worker(values);
  }
  // Before this worker stops: what it gives to sums of as many numbers over those that still train.
  // Nothing where all are in step.
  virtual void leave_behind(std::span<const double> /*values*/) {}

  // Whether all workers have taken as many steps whenever they are between two. Where they have
  // not, one asks all to save: each sees soon that the count has grown.
  virtual bool in_step() const { return true; }
  // By sums of all_reduce_training().
  bool steps_together() const override { return in_step(); }
  int common_steps(int mine, int most) override;
  virtual void ask_to_save() {}
  virtual uint64_t saves_asked() const { return 0; }
  // What a worker does that is asked to while it waits for the others, in a call of its program's;
  // null: nothing. Of all requests, this one has seen to `saves`.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): who has it keeps it
  virtual void set_on_save(std::function<void()> /*on_save*/) {}
  virtual void saved(uint64_t /*saves*/) {}
  // Before all workers save because their programs say so, at this place: they meet, but for those
  // that have stopped.
  virtual void meet_to_save() {}

  // Variables that servers keep, and can write without a worker: of the checkpoint program, and
  // what updates there need beside them.
  virtual std::vector<std::string> server_variables() { return {}; }
  // Behind begin_saving(), by one worker: the servers set apart what they keep, and write it as
  // parts of the checkpoint that was begun in the folder: `first` and the ones behind it. Why one
  // of them does not; empty: all do.
  virtual std::string write_server_parts(const std::string& /*folder*/, int /*first*/,
                                         int /*parts*/) {
    return "there are no servers";
  }
  // Before start_from(), by one worker: whether all servers find what they keep, undamaged, in the
  // checkpoint in the folder, whose manifest has that checksum. Why one of them does not; empty:
  // all do. Then read_server_parts() has them read it.
  virtual std::string check_server_parts(const std::string& /*folder*/, uint32_t /*checksum*/) {
    return "there are no servers";
  }
  virtual void read_server_parts(const std::string& /*folder*/, uint32_t /*checksum*/) {}
  // What this worker has of its own in a checkpoint, behind begin_saving(): variables of the
  // checkpoint program whose values here are not those of all, and what the mode counts beside
  // variables.
  virtual std::vector<std::string> own_variables() { return {}; }
  virtual std::vector<double> own_counts() { return {}; }
  // Behind start_from(). Counts of another mode are left alone.
  virtual void set_own_counts(std::span<const double> /*counts*/) {}
  // Before start_from(), at any of the workers: so many steps of the job are over.
  virtual void set_steps_before(uint64_t /*steps*/) {}

  // Who looks at the steps of this process; set before the first.
  void set_finite_watch(std::shared_ptr<fluid::FiniteWatch> watch) { watch_ = std::move(watch); }
  fluid::FiniteWatch* finite_watch() override { return watch_.get(); }

 private:
  std::shared_ptr<fluid::FiniteWatch> watch_;
};

}  // namespace fleet::strategies
