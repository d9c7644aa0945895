// What a job saves while it trains, and goes on from when it is started again: docs/checkpoints.md.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace fleet::fluid::data {
class DataLoader;
}

namespace fleet {

// How far training is, beside the values of its variables.
struct TrainStatus {
  // Steps of the job that are over: the number of the next one. For save_checkpoint, 0: as many as
  // the executor has run of the main program.
  int64_t step = 0;
  int64_t epoch_no = -1;                           // Paddle's: the last epoch that is over
  std::map<std::string, std::string> values = {};  // the user's own

  int64_t next() const { return epoch_no + 1; }
  bool operator==(const TrainStatus&) const = default;
};

// When checkpoints are made, and which of them stay. The same in all workers.
struct CheckpointPolicy {
  // Where they are, on a file system that all workers share. Empty: there are none.
  std::string folder;
  // Steps between two, and seconds; 0: none because of them. Workers that are not in step
  // (asynchronous modes) save when the first of them has taken so many steps.
  int64_t every_steps = 0;
  double every_seconds = 0;
  // SIGUSR2 at any worker has all save. So does SIGTERM, which schedulers send before they end a
  // job; the step then throws Error (kCancelled), when the checkpoint is there and this worker has
  // left the job: exit_code() says what to end with. Handlers of the program's own stay.
  bool on_signals = true;
  // How many of the newest stay; 0: all. The newest whose values are finite always does, and so do
  // those whose step is a multiple of keep_every_steps, where that is not 0.
  int keep = 3;
  int64_t keep_every_steps = 0;
  // Loaders whose positions are saved, and sought when a job goes on; they must outlive the job.
  std::map<std::string, fluid::data::DataLoader*> readers = {};
  // Asked at each checkpoint, for TrainStatus::values: the texts of the first worker that still
  // trains are saved. May be empty.
  std::function<std::map<std::string, std::string>()> values = nullptr;
};

}  // namespace fleet
