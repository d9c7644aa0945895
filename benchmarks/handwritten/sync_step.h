// A synchronous parameter-server step written by hand over blocking sockets: what a framework's
// step is measured against. Each worker computes the net's gradients, writes its half of them to
// every server and reads the new values back; a server sums in worker order, applies SGD, answers.
#pragma once

#include <string>

#include "benchmarks/handwritten/mlp.h"

namespace fleet::benchmarks {

enum class HandwrittenCompute {
  kNet,           // HandwrittenMlp, summed and updated by the servers
  kNothing,       // workers compute nothing; servers sum and update
  kNothingAtAll,  // bytes only: what the sockets give
};

struct HandwrittenJob {
  int workers = 2;
  int servers = 2;
  int rows = 32;  // of each worker
  int steps = 4000;
  bool unix_sockets = true;  // or TCP on loopback
  HandwrittenCompute compute = HandwrittenCompute::kNet;
  int parameters = HandwrittenMlp::kParameters;  // that of the net with kNet
  int sleep_ms = 0;                              // of a worker, before each step
};

// Starts the processes, runs the job and returns the steps per second of the slowest worker.
double handwritten_sync_steps_per_s(const HandwrittenJob& job);

}  // namespace fleet::benchmarks
