#include "base/process/signal_count.h"

#include <array>
#include <atomic>
#include <csignal>
#include <mutex>

namespace fleet {
namespace {

constexpr size_t kSignals = 65;

// A signal handler can reach nothing else.
std::array<std::atomic<uint64_t>, kSignals> counts;

struct Installed {
  int users = 0;
  bool ours = false;
  struct sigaction before {};
};
std::mutex mutex;  // guards what follows
std::array<Installed, kSignals> installed;

void on_signal(int signal) {
  counts[static_cast<size_t>(signal)].fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

SignalCount::SignalCount(int signal)
    : signal_(signal), before_(counts[static_cast<size_t>(signal)].load()) {
  const std::lock_guard lock(mutex);
  Installed& own = installed[static_cast<size_t>(signal)];
  if (own.users++ > 0) return;
  sigaction(signal, nullptr, &own.before);
  own.ours = own.before.sa_handler == SIG_DFL;
  if (!own.ours) return;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

SignalCount::~SignalCount() {
  const std::lock_guard lock(mutex);
  Installed& own = installed[static_cast<size_t>(signal_)];
  if (--own.users == 0 && own.ours) sigaction(signal_, &own.before, nullptr);
}

uint64_t SignalCount::count() const {
  return counts[static_cast<size_t>(signal_)].load(std::memory_order_relaxed) - before_;
}

}  // namespace fleet
