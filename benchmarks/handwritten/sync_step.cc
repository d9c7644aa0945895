#include "benchmarks/handwritten/sync_step.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/handwritten/mlp.h"

namespace fleet::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr float kRate = 0.01f;

[[noreturn]] void fail(const char* call) {
  throw_error(ErrorCode::kInput, {.what = str_cat("the hand-written step failed in ", call),
                                  .got = std::strerror(errno)});
}

void write_all(int fd, const void* data, size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
    if (n <= 0) fail("send");
    at += n;
    bytes -= static_cast<size_t>(n);
  }
}

void read_all(int fd, void* data, size_t bytes) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = recv(fd, at, bytes, 0);
    if (n <= 0) fail("recv");
    at += n;
    bytes -= static_cast<size_t>(n);
  }
}

// The floats of server i.
struct Part {
  int begin;
  int count;
};

Part part_of(int server, const HandwrittenJob& job) {
  const int each = (job.parameters + job.servers - 1) / job.servers;
  const int begin = server * each;
  return {begin, std::min(each, job.parameters - begin)};
}

// One listening socket and how to reach it.
struct Door {
  int fd;
  sockaddr_storage address{};
  socklen_t length = 0;
};

Door open_door(bool unix_sockets) {
  Door door{socket(unix_sockets ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (unix_sockets) {
    // An address of the family alone: the kernel makes up an abstract name.
    sockaddr_un any{};
    any.sun_family = AF_UNIX;
    if (bind(door.fd, reinterpret_cast<sockaddr*>(&any), sizeof any.sun_family) != 0) fail("bind");
  } else {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(door.fd, reinterpret_cast<sockaddr*>(&any), sizeof any) != 0) fail("bind");
  }
  door.length = sizeof door.address;
  getsockname(door.fd, reinterpret_cast<sockaddr*>(&door.address), &door.length);
  if (listen(door.fd, 64) != 0) fail("listen");
  return door;
}

void no_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

struct WorkerState {
  int fd = -1;
  std::vector<float> gradient;
  size_t filled = 0;  // bytes
};

// Reads what has come; true when a whole gradient is there.
bool read_some(WorkerState& worker) {
  const size_t bytes = worker.gradient.size() * sizeof(float);
  auto* at = reinterpret_cast<char*>(worker.gradient.data()) + worker.filled;
  const ssize_t n = recv(worker.fd, at, bytes - worker.filled, 0);
  if (n <= 0) fail("recv");
  worker.filled += static_cast<size_t>(n);
  return worker.filled == bytes;
}

void serve(const HandwrittenJob& job, int server, int door) {
  const Part part = part_of(server, job);
  const auto count = static_cast<size_t>(part.count);
  std::vector<float> values(count);
  if (job.compute == HandwrittenCompute::kNet) {
    const std::vector<float> initial = HandwrittenMlp(1).parameters();
    std::copy_n(initial.begin() + part.begin, part.count, values.begin());
  }
  std::vector<float> sum(count);
  std::vector<WorkerState> workers(static_cast<size_t>(job.workers));
  std::vector<pollfd> polled;
  for (WorkerState& worker : workers) {
    worker.fd = accept(door, nullptr, nullptr);
    if (worker.fd < 0) fail("accept");
    no_delay(worker.fd);
    worker.gradient.resize(count);
    polled.push_back({worker.fd, POLLIN, 0});
  }
  for (int step = 0; step < job.steps; ++step) {
    size_t whole = 0;
    for (WorkerState& worker : workers) worker.filled = 0;
    while (whole < workers.size()) {
      if (poll(polled.data(), polled.size(), -1) < 0) fail("poll");
      for (size_t i = 0; i < workers.size(); ++i) {
        if (polled[i].revents != 0 && read_some(workers[i])) ++whole;
      }
    }
    if (job.compute != HandwrittenCompute::kNothingAtAll) {
      std::copy(workers[0].gradient.begin(), workers[0].gradient.end(), sum.begin());
      for (size_t w = 1; w < workers.size(); ++w) {
        for (size_t i = 0; i < count; ++i) sum[i] += workers[w].gradient[i];
      }
      sgd_step(values.data(), sum.data(), kRate / static_cast<float>(job.workers), part.count);
    }
    for (const WorkerState& worker : workers) {
      write_all(worker.fd, values.data(), count * sizeof(float));
    }
  }
}

double work(const HandwrittenJob& job, const std::vector<Door>& doors) {
  std::vector<int> servers;
  for (const Door& door : doors) {
    const int fd = socket(door.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&door.address), door.length) != 0) {
      fail("connect");
    }
    no_delay(fd);
    servers.push_back(fd);
  }
  std::optional<HandwrittenMlp> net;
  if (job.compute == HandwrittenCompute::kNet) net.emplace(job.rows);
  const std::vector<float> x(static_cast<size_t>(job.rows * HandwrittenMlp::kInputs), 0.5f);
  const std::vector<int64_t> y(static_cast<size_t>(job.rows), 1);
  std::vector<float> own_gradients(net ? 0 : static_cast<size_t>(job.parameters));
  std::vector<float> own_parameters(own_gradients.size());
  const float* gradients = net ? net->gradients().data() : own_gradients.data();
  float* parameters = net ? net->parameters().data() : own_parameters.data();
  const int warmup = std::min(20, job.steps / 2);
  Clock::time_point start;
  for (int step = 0; step < job.steps; ++step) {
    if (step == warmup) start = Clock::now();
    if (job.sleep_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(job.sleep_ms));
    if (net) net->forward_backward(x.data(), y.data());
    for (size_t s = 0; s < servers.size(); ++s) {
      const Part part = part_of(static_cast<int>(s), job);
      write_all(servers[s], gradients + part.begin,
                static_cast<size_t>(part.count) * sizeof(float));
    }
    for (size_t s = 0; s < servers.size(); ++s) {
      const Part part = part_of(static_cast<int>(s), job);
      read_all(servers[s], parameters + part.begin,
               static_cast<size_t>(part.count) * sizeof(float));
    }
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return (job.steps - warmup) / seconds;
}

// Runs `body` in a child and returns its pid; what it returns is written to `out`.
template <class Body>
pid_t in_child(int out, const Body& body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  int code = 1;
  try {
    const double value = body();
    code = write(out, &value, sizeof value) == sizeof value ? 0 : 1;
  } catch (const std::exception&) {
  }
  _exit(code);
}

}  // namespace

double handwritten_sync_steps_per_s(const HandwrittenJob& job) {
  int results[2];
  if (pipe(results) != 0) fail("pipe");
  std::vector<Door> doors;
  for (int s = 0; s < job.servers; ++s) doors.push_back(open_door(job.unix_sockets));
  std::vector<pid_t> children;
  for (int s = 0; s < job.servers; ++s) {
    children.push_back(in_child(results[1], [&] {
      serve(job, s, doors[static_cast<size_t>(s)].fd);
      return 0.0;
    }));
  }
  for (int w = 0; w < job.workers; ++w) {
    children.push_back(in_child(results[1], [&] { return work(job, doors); }));
  }
  for (const Door& door : doors) close(door.fd);
  close(results[1]);
  double slowest = 0;
  double value = 0;
  while (read(results[0], &value, sizeof value) == sizeof value) {
    if (value > 0) slowest = slowest == 0 ? value : std::min(slowest, value);
  }
  close(results[0]);
  bool good = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    good = good && status == 0;
  }
  if (!good)
    throw_error(ErrorCode::kInternal, {.what = "a process of the hand-written job failed"});
  return slowest;
}

}  // namespace fleet::benchmarks
