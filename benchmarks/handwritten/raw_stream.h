// What the sockets of this machine give without any protocol: two processes, blocking calls.
#pragma once

#include <cstddef>
#include <memory>

namespace fleet::benchmarks {

struct RawStreamOptions {
  bool unix_socket = true;  // or TCP on loopback
  size_t message_bytes = 0;
  size_t answer_bytes = 0;
  int core = -1;      // >= 0: the child is pinned there
  bool sums = false;  // the child adds what it reads to as many float32, a chunk at a time: what a
                      // server cannot do without
  size_t chunk = size_t{256} << 10;  // of one read, bytes; writes take all that is left
  bool whole_chunks = false;         // a read sleeps until all of a chunk is there
  int send_buffer = 0;               // bytes; 0: the system's
};

// A connection between this process and a child that reads what comes and answers every message.
class RawStream {
 public:
  explicit RawStream(const RawStreamOptions& options);
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

// The chunk, the way to wait for it and the send buffer with which this machine moves such messages
// fastest, tried one after the other: what is hand-written is a limit only with the best of them.
RawStreamOptions fastest(RawStreamOptions options);

// Processor time that another process has used so far.
double cpu_us_of(int process);

// Pins the calling thread to a core; less than 0: to all of them.
void pin_to_core(int core);

}  // namespace fleet::benchmarks
