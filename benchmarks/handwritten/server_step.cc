#include "benchmarks/handwritten/server_step.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/handwritten/arithmetic.h"
#include "benchmarks/handwritten/mlp.h"
#include "benchmarks/handwritten/raw_stream.h"

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

// Offers the core to others so many times before it sleeps.
ssize_t read_patiently(int fd, void* data, size_t bytes, int yields) {
  for (int i = 0; i < yields; ++i) {
    const ssize_t n = recv(fd, data, bytes, MSG_DONTWAIT);
    if (n >= 0 || errno != EAGAIN) return n;
    sched_yield();
  }
  return recv(fd, data, bytes, 0);
}

void read_all(int fd, void* data, size_t bytes, int yields) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = read_patiently(fd, at, bytes, yields);
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

void prepare(const HandwrittenJob& job, int fd) {
  const int on = 1;
  if (!job.unix_sockets) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (job.send_buffer > 0) {
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &job.send_buffer, sizeof job.send_buffer);
  }
}

// What a reader that does not keep its data reads at once, so that it stays in cache.
constexpr size_t kChunkFloats = size_t{64} << 10;

struct WorkerState {
  int fd = -1;
  size_t expected = 0;          // bytes of a gradient
  std::vector<float> gradient;  // a whole one, or a chunk of one that nobody keeps
  size_t filled = 0;            // bytes
  int steps = 0;                // that it was answered
};

// Reads what has come; true when a whole gradient is there.
bool read_some(WorkerState& worker) {
  const size_t room = worker.gradient.size() * sizeof(float);
  const size_t left = worker.expected - worker.filled;
  const bool keeps = room == worker.expected;
  auto* at = reinterpret_cast<char*>(worker.gradient.data()) + (keeps ? worker.filled : 0);
  const ssize_t n = recv(worker.fd, at, std::min(left, room), 0);
  if (n <= 0) fail("recv");
  worker.filled += static_cast<size_t>(n);
  return worker.filled == worker.expected;
}

// What a server keeps, and whom it serves.
struct ServerState {
  std::vector<float> values;
  std::vector<WorkerState> workers;
  std::vector<pollfd> polled;

  void answer(const WorkerState& worker) const {
    write_all(worker.fd, values.data(), values.size() * sizeof(float));
  }
};

ServerState meet_workers(const HandwrittenJob& job, int server, int door) {
  const Part part = part_of(server, job);
  const auto count = static_cast<size_t>(part.count);
  ServerState state;
  state.values.resize(count);
  if (job.compute == HandwrittenCompute::kNet) {
    const std::vector<float> initial = HandwrittenMlp::initial_parameters();
    std::copy_n(initial.begin() + part.begin, part.count, state.values.begin());
  }
  state.workers.resize(static_cast<size_t>(job.workers));
  state.polled.reserve(state.workers.size());
  for (WorkerState& worker : state.workers) {
    worker.fd = accept(door, nullptr, nullptr);
    if (worker.fd < 0) fail("accept");
    prepare(job, worker.fd);
    worker.expected = count * sizeof(float);
    const bool keeps = job.compute != HandwrittenCompute::kNothingAtAll;
    worker.gradient.resize(keeps ? count : std::min(count, kChunkFloats));
    state.polled.push_back({worker.fd, POLLIN, 0});
  }
  return state;
}

// Sums in worker order and updates, in one walk over all of it.
void apply_all(const HandwrittenJob& job, ServerState& state) {
  constexpr size_t kBlock = 1024;
  const float rate = kRate / static_cast<float>(job.workers);
  float sum[kBlock];
  for (size_t at = 0; at < state.values.size(); at += kBlock) {
    const size_t count = std::min(kBlock, state.values.size() - at);
    std::copy_n(state.workers[0].gradient.data() + at, count, sum);
    for (size_t w = 1; w < state.workers.size(); ++w) {
      add(sum, sum, state.workers[w].gradient.data() + at, static_cast<int>(count));
    }
    sgd_step(state.values.data() + at, sum, rate, static_cast<int>(count));
  }
}

void serve_together(const HandwrittenJob& job, ServerState& state) {
  for (int step = 0; step < job.steps; ++step) {
    size_t whole = 0;
    for (WorkerState& worker : state.workers) worker.filled = 0;
    while (whole < state.workers.size()) {
      if (poll(state.polled.data(), state.polled.size(), -1) < 0) fail("poll");
      for (size_t i = 0; i < state.workers.size(); ++i) {
        if (state.polled[i].revents != 0 && read_some(state.workers[i])) ++whole;
      }
    }
    if (job.compute != HandwrittenCompute::kNothingAtAll) apply_all(job, state);
    for (const WorkerState& worker : state.workers) state.answer(worker);
  }
}

void serve_each(const HandwrittenJob& job, ServerState& state) {
  for (int left = job.steps * job.workers; left > 0;) {
    if (poll(state.polled.data(), state.polled.size(), -1) < 0) fail("poll");
    for (size_t i = 0; i < state.workers.size(); ++i) {
      WorkerState& worker = state.workers[i];
      if (state.polled[i].revents == 0 || !read_some(worker)) continue;
      worker.filled = 0;
      sgd_step(state.values.data(), worker.gradient.data(), kRate,
               static_cast<int>(state.values.size()));
      state.answer(worker);
      // One that is done hangs up.
      if (++worker.steps == job.steps) state.polled[i].fd = -1;
      --left;
    }
  }
}

void serve(const HandwrittenJob& job, int server, int door) {
  ServerState state = meet_workers(job, server, door);
  if (job.mode == HandwrittenMode::kSync) {
    serve_together(job, state);
  } else {
    serve_each(job, state);
  }
}

// A worker's connections to all servers. Each worker begins with a server of its own, so that not
// all of them wait for the same one.
class Servers {
 public:
  Servers(const HandwrittenJob& job, const std::vector<Door>& doors, int worker) : job_(job) {
    for (int i = 0; i < job.servers; ++i) {
      const int server = (worker + i) % job.servers;
      const Door& door = doors[static_cast<size_t>(server)];
      const int fd = socket(door.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (connect(fd, reinterpret_cast<const sockaddr*>(&door.address), door.length) != 0) {
        fail("connect");
      }
      prepare(job, fd);
      connections_.push_back({fd, part_of(server, job)});
    }
  }

  void push(const float* gradients) const {
    for (const auto& [fd, part] : connections_) {
      write_all(fd, gradients + part.begin, static_cast<size_t>(part.count) * sizeof(float));
    }
  }
  void pull(float* parameters) const {
    for (const auto& [fd, part] : connections_) {
      read_all(fd, parameters + part.begin, static_cast<size_t>(part.count) * sizeof(float),
               job_.yields);
    }
  }

 private:
  struct Connection {
    int fd;
    Part part;
  };
  const HandwrittenJob& job_;
  std::vector<Connection> connections_;
};

// Steps, the first of them unmeasured.
template <class Step>
double steps_per_s(const HandwrittenJob& job, const Step& step) {
  const int warmup = std::min(20, job.steps / 2);
  Clock::time_point start;
  for (int i = 0; i < job.steps; ++i) {
    if (i == warmup) start = Clock::now();
    if (job.sleep_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(job.sleep_ms));
    step(i);
  }
  return (job.steps - warmup) / std::chrono::duration<double>(Clock::now() - start).count();
}

struct Rows {
  std::vector<float> x;
  std::vector<int64_t> y;
};

Rows rows_of(const HandwrittenJob& job) {
  return {std::vector<float>(static_cast<size_t>(job.rows * HandwrittenMlp::kInputs), 0.5f),
          std::vector<int64_t>(static_cast<size_t>(job.rows), 1)};
}

double work(const HandwrittenJob& job, const Servers& servers) {
  std::optional<HandwrittenMlp> net;
  if (job.compute == HandwrittenCompute::kNet) net.emplace(job.rows);
  const Rows rows = rows_of(job);
  const std::vector<float> made_up(net ? 0 : static_cast<size_t>(job.parameters));
  const float* gradients = net ? net->gradients().data() : made_up.data();
  std::vector<float> parameters = net ? HandwrittenMlp::initial_parameters() : made_up;
  const bool late = job.mode == HandwrittenMode::kAsync;
  const double rate = steps_per_s(job, [&](int step) {
    if (net) net->forward_backward(parameters.data(), rows.x.data(), rows.y.data());
    servers.push(gradients);
    if (!late || step > 0) servers.pull(parameters.data());
  });
  if (late) servers.pull(parameters.data());
  return rate;
}

// All threads read the same parameters, into which the answers are read while they wait.
double work_in_threads(const HandwrittenJob& job, const Servers& servers) {
  const Rows rows = rows_of(job);
  std::vector<HandwrittenMlp> nets;
  nets.reserve(static_cast<size_t>(job.threads));
  for (int t = 0; t < job.threads; ++t) nets.emplace_back(job.rows);
  std::vector<float> sum(HandwrittenMlp::kParameters);
  std::vector<float> parameters = HandwrittenMlp::initial_parameters();
  std::barrier meeting(job.threads, [&]() noexcept {
    const float* first = nets[0].gradients().data();
    for (size_t t = 1; t < nets.size(); ++t) {
      add(sum.data(), t == 1 ? first : sum.data(), nets[t].gradients().data(),
          HandwrittenMlp::kParameters);
    }
    servers.push(nets.size() == 1 ? first : sum.data());
    servers.pull(parameters.data());
  });
  const auto train = [&](size_t thread) {
    return steps_per_s(job, [&](int) {
      nets[thread].forward_backward(parameters.data(), rows.x.data(), rows.y.data());
      meeting.arrive_and_wait();
    });
  };
  std::vector<std::thread> others;
  for (size_t t = 1; t < nets.size(); ++t) others.emplace_back([&, t] { train(t); });
  const double rate = train(0);
  for (std::thread& other : others) other.join();
  return rate;
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

double handwritten_step_us(int rows) {
  constexpr int kSteps = 4000;
  HandwrittenMlp net(rows);
  std::vector<float> parameters = HandwrittenMlp::initial_parameters();
  const Rows input = rows_of({.rows = rows});
  const auto train = [&](int steps) {
    for (int i = 0; i < steps; ++i) {
      net.forward_backward(parameters.data(), input.x.data(), input.y.data());
      sgd_step(parameters.data(), net.gradients().data(), kRate, HandwrittenMlp::kParameters);
    }
  };
  train(kSteps / 8);
  const double start = cpu_us_of(getpid());
  train(kSteps);
  return (cpu_us_of(getpid()) - start) / kSteps;
}

double fastest_handwritten_steps_per_s(HandwrittenJob job) {
  double best = 0;
  for (const int yields : {0, 30}) {
    job.yields = yields;
    best = std::max(best, handwritten_steps_per_s(job));
  }
  return best;
}

double handwritten_steps_per_s(const HandwrittenJob& job) {
  int results[2];
  if (pipe(results) != 0) fail("pipe");
  std::vector<Door> doors;
  doors.reserve(static_cast<size_t>(job.servers));
  for (int s = 0; s < job.servers; ++s) doors.push_back(open_door(job.unix_sockets));
  std::vector<pid_t> children;
  children.reserve(static_cast<size_t>(job.servers) + static_cast<size_t>(job.workers));
  for (int s = 0; s < job.servers; ++s) {
    children.push_back(in_child(results[1], [&] {
      serve(job, s, doors[static_cast<size_t>(s)].fd);
      return 0.0;
    }));
  }
  for (int w = 0; w < job.workers; ++w) {
    children.push_back(in_child(results[1], [&] {
      const Servers servers(job, doors, w);
      return job.mode == HandwrittenMode::kHalfAsync ? work_in_threads(job, servers)
                                                     : work(job, servers);
    }));
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
