#include "benchmarks/handwritten/raw_stream.h"

#include <algorithm>
#include <ctime>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "base/error.h"

namespace fleet::benchmarks {
namespace {

// What one read of a reader that keeps its data in cache takes.
constexpr size_t kChunk = 256 * 1024;

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

bool move_all(int fd, std::byte* memory, size_t bytes, bool writing) {
  for (size_t done = 0; done < bytes;) {
    const size_t chunk = std::min(kChunk, bytes - done);
    // A reader uses the same memory again, so that it stays in cache.
    const ssize_t n =
        writing ? send(fd, memory + done, bytes - done, MSG_NOSIGNAL) : recv(fd, memory, chunk, 0);
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

// Reads a message and adds it to `sum`, a whole chunk at a time.
bool read_and_sum(int fd, std::vector<float>& chunk, std::vector<float>& sum) {
  for (size_t at = 0; at < sum.size();) {
    const size_t count = std::min(chunk.size(), sum.size() - at);
    auto* memory = reinterpret_cast<std::byte*>(chunk.data());
    for (size_t have = 0; have < count * sizeof(float);) {
      const ssize_t n = recv(fd, memory + have, count * sizeof(float) - have, 0);
      if (n <= 0) return false;
      have += static_cast<size_t>(n);
    }
    for (size_t i = 0; i < count; ++i) sum[at + i] += chunk[i];
    at += count;
  }
  return true;
}

}  // namespace

struct RawStream::State {
  int fd = -1;
  pid_t child = 0;
  std::vector<std::byte> message;
  std::vector<std::byte> answer;
};

RawStream::RawStream(bool unix_socket, size_t message_bytes, size_t answer_bytes, int core,
                     bool sums)
    : state_(std::make_unique<State>()) {
  const Ends ends = unix_socket ? connect_unix() : connect_tcp();
  state_->fd = ends.ours;
  state_->message.resize(message_bytes);
  state_->answer.resize(std::max(answer_bytes, kChunk));
  state_->child = fork();
  if (state_->child == 0) {
    close(ends.ours);
    pin_to_core(core);
    std::vector<std::byte> buffer(kChunk);
    std::vector<float> chunk(kChunk / sizeof(float));
    std::vector<float> sum(sums ? message_bytes / sizeof(float) : 0);
    const auto take = [&] {
      return sums ? read_and_sum(ends.theirs, chunk, sum)
                  : move_all(ends.theirs, buffer.data(), message_bytes, false);
    };
    while (take() && move_all(ends.theirs, buffer.data(), answer_bytes, true)) {
    }
    _exit(0);
  }
  close(ends.theirs);
  state_->answer.resize(answer_bytes);
}

RawStream::~RawStream() {
  close(state_->fd);
  waitpid(state_->child, nullptr, 0);
}

void RawStream::exchange() {
  if (!move_all(state_->fd, state_->message.data(), state_->message.size(), true) ||
      !move_all(state_->fd, state_->answer.data(), state_->answer.size(), false)) {
    throw_error(ErrorCode::kInternal, {.what = "the raw stream broke"});
  }
}

double RawStream::reader_cpu_us() const {
  return cpu_us_of(state_->child);
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
