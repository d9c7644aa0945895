#include "fleet/status_reporter.h"

#include <atomic>
#include <csignal>
#include <poll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/strings.h"

namespace fleet {
namespace {

constexpr int kProgressIntervalMs = 1000;

// A signal handler can reach nothing else: where SIGUSR1 is told. -1: to nobody.
std::atomic<int> told_fd{-1};  // NOLINT: see above

void on_signal(int) {
  const int saved = errno;
  const int fd = told_fd.load(std::memory_order_relaxed);
  const uint64_t one = 1;
  if (fd >= 0 && write(fd, &one, sizeof one) < 0) {
    // The counter is full: somebody is told already.
  }
  errno = saved;
}

// A handler of the user's own is left alone.
void install_handler() {
  struct sigaction present {};
  if (sigaction(SIGUSR1, nullptr, &present) != 0 || present.sa_handler != SIG_DFL) return;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGUSR1, &action, nullptr);
}

}  // namespace

struct StatusReporter::State {
  explicit State(StatusReporterOptions options_) : options(std::move(options_)) {}

  StatusReporterOptions options;
  int fd = -1;
  std::atomic<bool> stop{false};
  std::thread thread;

  void run();
  void write_progress() const;
  void dump() const;
};

void StatusReporter::State::write_progress() const {
  if (options.progress_fd < 0) return;
  std::string line = "progress " + options.progress() + "\n";
  if (const std::string stall = options.stall(); !stall.empty()) line += stall + "\n";
  // A line that finds no room is dropped.
  if (write(options.progress_fd, line.data(), line.size()) < 0) return;
}

void StatusReporter::State::dump() const {
  const std::vector<std::string> lines = options.waits();
  options.logger.warning("waits", "asked by SIGUSR1", {{"lines", lines.size()}});
  for (const std::string& line : lines) options.logger.warning("waits", line);
}

void StatusReporter::State::run() {
  pollfd readable{fd, POLLIN, 0};
  while (!stop) {
    const int ready = poll(&readable, 1, options.progress_fd >= 0 ? kProgressIntervalMs : -1);
    if (ready == 0) write_progress();
    if (ready <= 0) continue;
    uint64_t count = 0;
    if (read(fd, &count, sizeof count) < 0 || stop) continue;
    dump();
  }
  write_progress();
}

StatusReporter::StatusReporter(StatusReporterOptions options)
    : state_(std::make_unique<State>(std::move(options))) {
  state_->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (state_->fd < 0) return;  // no descriptors left: the job matters more
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  state_->thread = std::thread([state = state_.get()] { state->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  told_fd = state_->fd;
  install_handler();
}

void StatusReporter::write_progress() const {
  state_->write_progress();
}

StatusReporter::~StatusReporter() {
  if (state_->fd < 0) return;
  int own = state_->fd;
  told_fd.compare_exchange_strong(own, -1);
  state_->stop = true;
  const uint64_t one = 1;
  if (write(state_->fd, &one, sizeof one) < 0) {
    // The counter is full, so the thread wakes all the same.
  }
  state_->thread.join();
  close(state_->fd);
}

}  // namespace fleet
