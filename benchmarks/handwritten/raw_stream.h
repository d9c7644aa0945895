// What the sockets of this machine give without any protocol: two processes, blocking calls.
#pragma once

#include <cstddef>
#include <memory>

namespace fleet::benchmarks {

// A connection between this process and a child that reads what comes and answers every
// `message_bytes` with `answer_bytes`.
class RawStream {
 public:
  // `core` >= 0 pins the child there. With `sums` it adds what it reads to as many float32, a
  // chunk at a time: what a server cannot do without.
  RawStream(bool unix_socket, size_t message_bytes, size_t answer_bytes, int core = -1,
            bool sums = false);
  ~RawStream();
  RawStream(const RawStream&) = delete;
  RawStream& operator=(const RawStream&) = delete;

  // Sends one message and waits for its answer.
  void exchange();
  double reader_cpu_us() const;  // processor time of the child so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Processor time that another process has used so far.
double cpu_us_of(int process);

// Pins the calling thread to a core; less than 0: to all of them.
void pin_to_core(int core);

}  // namespace fleet::benchmarks
