// Steps through parameter servers written by hand over blocking sockets: what a framework's step is
// measured against. Each worker computes the net's gradients, writes its half of them to every
// server and reads the new values back. A server applies SGD and answers: to the sum in worker
// order when all have come, or to every gradient when it comes.
#pragma once

#include <string>

#include "benchmarks/handwritten/mlp.h"

namespace fleet::benchmarks {

enum class HandwrittenCompute {
  kNet,           // HandwrittenMlp, summed and updated by the servers
  kNothing,       // workers compute nothing; servers sum and update
  kNothingAtAll,  // bytes only: what the sockets give
};

enum class HandwrittenMode {
  kSync,       // servers wait for all workers
  kAsync,      // nobody waits: a worker reads the answer to its last but one gradient
  kHalfAsync,  // a worker's threads meet, and one of them exchanges the sum of their gradients
};

struct HandwrittenJob {
  HandwrittenMode mode = HandwrittenMode::kSync;
  int workers = 2;
  int servers = 2;
  int threads = 1;  // of a worker, with kHalfAsync and kNet
  int rows = 32;    // of each worker, or of each of its threads
  int steps = 4000;
  bool unix_sockets = true;  // or TCP on loopback
  HandwrittenCompute compute = HandwrittenCompute::kNet;
  int parameters = HandwrittenMlp::kParameters;  // that of the net with kNet
  int sleep_ms = 0;                              // of a worker, before each step
  int send_buffer = 0;                           // bytes; 0: the system's
  int yields = 0;  // times that a worker offers its core to others before it sleeps in a read
};

// Microseconds of processor time of a step of the net, update included, without any peer.
double handwritten_step_us(int rows);

// Starts the processes, runs the job and returns the steps per second of the slowest worker.
double handwritten_steps_per_s(const HandwrittenJob& job);
// The faster of workers that sleep at once and workers that offer their core first.
double fastest_handwritten_steps_per_s(HandwrittenJob job);

}  // namespace fleet::benchmarks
