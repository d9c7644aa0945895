// A job that saves while it trains and is started again after each crash, in one thread under
// virtual time: processes, network, disk and launcher are simulated, and what makes, finds, loads
// and takes away checkpoints is what real jobs have. One seed decides everything that happens.
//
// What is held against the seed's crashes, at each start and at the end:
// - What the disk lists as checkpoints is whole; one that was said to be saved is there, or a newer
//   one, and what the job goes on from is not older.
// - In step (one process, synchronous servers, ranks), values are those of an undisturbed run after
//   as many steps, bit by bit. Else they count each worker's steps as the checkpoint names them: no
//   gradient is lost and none is applied twice.
// - A damaged checkpoint is said, and the one before it taken. A disk that is full is said, and
//   training goes on. The newest checkpoint whose values are finite stays, and is taken.
// - Nothing waits forever.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tests/testing/virtual_time/checkpoint_programs.h"

namespace fleet::testing {

// A process is killed at that point of its life (SimProcess) in that attempt of the job.
struct SimCrash {
  int attempt = 0;
  std::string process;  // "worker 0", "server 1"
  uint64_t point = 0;
  bool power = false;  // the machine that all are on loses its power

  std::string to_string() const;
};

struct CheckpointSim {
  uint64_t seed = 0;
  int64_t steps = 6;
  int64_t longer = 0;  // asynchronous modes: steps that the last worker takes beside
  int64_t every_steps = 2;
  Duration every{0};  // of the first worker's time; 0: none because of time
  int keep = 2;
  std::vector<SimCrash> crashes = {};
  Duration disk_slowness{0};   // of each change or look, at most
  uint64_t room = UINT64_MAX;  // on the disk, in bytes, until the first attempt ends
  // One process: values are not finite from this step on; 0: they always are.
  int64_t nan_from = 0;
  // After an attempt a bit of the newest checkpoint changes, where there is another one.
  bool flips = false;

  std::string to_string() const;
};

struct CheckpointSimOutcome {
  std::string failure;  // what was wrong first; empty: nothing
  uint64_t trace_hash = 0;
  // Of each attempt: points that its processes came to, by name.
  std::vector<std::map<std::string, uint64_t>> points;
  int flips = 0;
  int flips_said = 0;
  int saves = 0;
  int failed_saves = 0;
  int resumes = 0;        // attempts that went on from a checkpoint
  int early_crashes = 0;  // before all workers had loaded

  bool ok() const { return failure.empty(); }
};

CheckpointSimOutcome run_checkpoint_sim(const CheckpointPrograms& programs,
                                        const CheckpointSim& sim);

}  // namespace fleet::testing
