#include "benchmarks/handwritten/raw_stream.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/error.h"
#include "benchmarks/handwritten/arithmetic.h"

namespace fleet::benchmarks {
namespace {

struct Ends {
  int ours = -1;
  int theirs = -1;
};

Ends connect_tcp() {
  const int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(door, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(door, 1) != 0) {
    throw_error(ErrorCode::kInput, {.what = "no port for the raw stream"});
  }
  getsockname(door, reinterpret_cast<sockaddr*>(&address), &length);
  Ends ends;
  ends.ours = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(ends.ours, reinterpret_cast<sockaddr*>(&address), length) != 0) {
    throw_error(ErrorCode::kInput, {.what = "the raw stream does not connect"});
  }
  ends.theirs = accept(door, nullptr, nullptr);
  close(door);
  const int on = 1;
  for (const int fd : {ends.ours, ends.theirs}) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  return ends;
}

Ends connect_unix() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    throw_error(ErrorCode::kInput, {.what = "no pair of sockets"});
  }
  return {pair[0], pair[1]};
}

bool write_all(int fd, const std::vector<std::byte>& message) {
  for (size_t done = 0; done < message.size();) {
    const ssize_t n = send(fd, message.data() + done, message.size() - done, MSG_NOSIGNAL);
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

// Reads a message into the same chunk again and again, so that it stays in cache.
bool read_all(int fd, std::vector<std::byte>& chunk, size_t bytes, int flags = 0) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = recv(fd, chunk.data(), std::min(chunk.size(), bytes - done), flags);
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

// Reads a message and adds it to `sum`, a whole chunk at a time.
bool read_and_sum(int fd, std::vector<float>& chunk, std::vector<float>& sum, int flags) {
  for (size_t at = 0; at < sum.size();) {
    const size_t count = std::min(chunk.size(), sum.size() - at);
    auto* memory = reinterpret_cast<std::byte*>(chunk.data());
    for (size_t have = 0; have < count * sizeof(float);) {
      const ssize_t n = recv(fd, memory + have, count * sizeof(float) - have, flags);
      if (n <= 0) return false;
      have += static_cast<size_t>(n);
    }
    add(sum.data() + at, sum.data() + at, chunk.data(), static_cast<int>(count));
    at += count;
  }
  return true;
}

}  // namespace

struct RawStream::State {
  int fd = -1;
  pid_t child = 0;
  size_t answer_bytes = 0;
  std::vector<std::byte> message;
  std::vector<std::byte> answer;
};

RawStream::RawStream(const RawStreamOptions& options) : state_(std::make_unique<State>()) {
  const Ends ends = options.unix_socket ? connect_unix() : connect_tcp();
  if (options.send_buffer > 0) {
    for (const int fd : {ends.ours, ends.theirs}) {
      setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &options.send_buffer, sizeof options.send_buffer);
    }
  }
  state_->fd = ends.ours;
  state_->answer_bytes = options.answer_bytes;
  state_->message.resize(options.message_bytes);
  state_->answer.resize(std::min(options.chunk, options.answer_bytes));
  state_->child = fork();
  if (state_->child == 0) {
    close(ends.ours);
    pin_to_core(options.core);
    std::vector<std::byte> buffer(options.chunk);
    std::vector<float> chunk(options.chunk / sizeof(float));
    std::vector<float> sum(options.sums ? options.message_bytes / sizeof(float) : 0);
    const std::vector<std::byte> answer(options.answer_bytes);
    const int flags = options.whole_chunks ? MSG_WAITALL : 0;
    const auto take = [&] {
      return options.sums ? read_and_sum(ends.theirs, chunk, sum, flags)
                          : read_all(ends.theirs, buffer, options.message_bytes, flags);
    };
    while (take() && write_all(ends.theirs, answer)) {
    }
    _exit(0);
  }
  close(ends.theirs);
}

RawStream::~RawStream() {
  close(state_->fd);
  waitpid(state_->child, nullptr, 0);
}

void RawStream::exchange() {
  if (!write_all(state_->fd, state_->message) ||
      !read_all(state_->fd, state_->answer, state_->answer_bytes)) {
    throw_error(ErrorCode::kInternal, {.what = "the raw stream broke"});
  }
}

double RawStream::reader_cpu_us() const {
  return cpu_us_of(state_->child);
}

RawStreamOptions fastest(RawStreamOptions options) {
  constexpr int kTries = 4;
  constexpr std::array<size_t, 3> kChunks = {size_t{64} << 10, size_t{256} << 10, size_t{1} << 20};
  constexpr std::array<int, 3> kBuffers = {0, 1 << 20, 4 << 20};
  using Clock = std::chrono::steady_clock;
  RawStreamOptions best = options;
  auto shortest = Clock::duration::max();
  const auto attempt = [&] {
    RawStream stream(options);
    stream.exchange();
    for (int i = 0; i < kTries; ++i) {
      const auto start = Clock::now();
      stream.exchange();
      const auto took = Clock::now() - start;
      if (took < shortest) best = options;
      shortest = std::min(shortest, took);
    }
  };
  for (const size_t chunk : kChunks) {
    for (const int buffer : kBuffers) {
      for (const bool whole : {false, true}) {
        options.chunk = chunk;
        options.send_buffer = buffer;
        options.whole_chunks = whole;
        attempt();
      }
    }
  }
  return best;
}

double cpu_us_of(int process) {
  clockid_t clock{};
  timespec used{};
  if (clock_getcpuclockid(process, &clock) != 0) return 0;
  clock_gettime(clock, &used);
  return 1e6 * static_cast<double>(used.tv_sec) + 1e-3 * static_cast<double>(used.tv_nsec);
}

void pin_to_core(int core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  for (int i = 0; i < static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); ++i) {
    if (core < 0 || i == core) CPU_SET(i, &cores);
  }
  sched_setaffinity(0, sizeof cores, &cores);
}

}  // namespace fleet::benchmarks
