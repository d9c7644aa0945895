// A benchmark program whose rows go wrong in every way.

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <unistd.h>

#include "benchmarks/harness/harness.h"
#include "benchmarks/harness/temporary_folder.h"

namespace fleet::benchmarks {
namespace {

// A child that stands still; its number is added to the file that FAILING_ROWS_PIDS names.
pid_t start_sleeper() {
  const pid_t child = fork();
  if (child != 0) return child;
  if (const char* path = std::getenv("FAILING_ROWS_PIDS")) {
    std::ofstream(path, std::ios::app) << getpid() << "\n";
  }
  for (;;) pause();
}

// Its own child outlives it.
Row crash(const Rounds&) {
  start_sleeper();
  usleep(100'000);
  std::signal(SIGSEGV, SIG_DFL);
  std::raise(SIGSEGV);
  return {};
}

Row hang(const Rounds&) {
  const TemporaryFolder folder;
  start_sleeper();
  if (fork() == 0) {
    start_sleeper();
    _exit(0);
  }
  for (;;) pause();
}

Row of_ratio(double ratio) {
  return {.value = ratio, .unit = "x", .peer = "peer", .peer_value = 1, .target = 1.0};
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  return bench_main(argc, argv, "Rows for a test.",
                    {{"crashes", crash},
                     {"hangs", hang},
                     {"meets", [](const Rounds&) { return of_ratio(2); }},
                     {"throws", [](const Rounds&) -> Row { throw std::runtime_error("it broke"); }},
                     {"misses", [](const Rounds&) { return of_ratio(0.5); }}});
}
