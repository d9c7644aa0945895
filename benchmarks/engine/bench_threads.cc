// Steps of one process whose ops have many threads, against as many times what one thread does.

#include <string>
#include <vector>

#include "base/process/usable_cores.h"
#include "base/strings.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/nets.h"

namespace fleet::benchmarks {
namespace {

constexpr int kThreads = 16;
constexpr int kRounds = 5;
constexpr double kSeconds = 0.5;

// One replica, whatever the number of threads.
class Steps {
 public:
  Steps(const std::string& net, int64_t rows, int threads)
      : net_(make_net(net, rows)),
        executor_(fluid::CPUPlace(), {.threads = 1, .op_threads = threads}) {
    executor_.run(net_.startup);
  }
  double rate() {
    return rate_of(kSeconds, [&] { net_.train(executor_); }).wall;
  }

 private:
  Net net_;
  fluid::Executor executor_;
};

// With numbers of threads in between, each measured once.
std::string others_note(const std::string& net, int64_t rows, double alone) {
  std::vector<std::string> texts;
  for (const int threads : {2, 4, 8}) {
    const double rate = Steps(net, rows, threads).rate();
    texts.push_back(str_cat(threads, ": ", tools::significant(rate / (threads * alone))));
  }
  return str_cat("shares of ideal with other numbers of threads: ", join(texts, ", "));
}

Row scaling(const Rounds& rounds, const std::string& net, int64_t rows) {
  Row row = {.unit = "steps/s", .peer = "16 times one thread", .kind = BenchPeer::kLimit};
  if (const int cores = usable_cores(); cores < kThreads) {
    row.skipped = str_cat("this machine has ", cores, cores == 1 ? " core" : " cores");
    return row;
  }
  Steps many(net, rows, kThreads);
  if (rounds.ours_only()) {
    row.value = many.rate();
    return row;
  }
  Steps one(net, rows, 1);
  row.target = 0.7;
  row.take(rounds.pairs(
      kRounds, [&] { return many.rate(); }, [&] { return kThreads * one.rate(); }));
  row.note = str_cat(instruction_set(), "; ", others_note(net, rows, row.peer_value / kThreads));
  return row;
}

// The quick start's: so short that tiles are hardly worth handing over.
Row small_steps(const Rounds& rounds) {
  constexpr int kSmallRounds = 20;
  const std::string net = "quick_start";
  Row row = {.unit = "steps/s", .peer = "one thread", .kind = BenchPeer::kReference};
  if (usable_cores() < 2) {
    row.skipped = "this machine has 1 core";
    return row;
  }
  Steps two(net, 32, 2);
  Steps one(net, 32, 1);
  row.target = 0.97;
  row.take(rounds.pairs(
      kSmallRounds, [&] { return two.rate(); }, [&] { return one.rate(); }));
  return row;
}

Benchmark scaling_row(const std::string& name, const std::string& net, int64_t rows) {
  return {name, [=](const Rounds& rounds) { return scaling(rounds, net, rows); }};
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  return bench_main(argc, argv, "What many threads of one process's ops are worth.",
                    {{"small_steps_2t", small_steps},
                     scaling_row("scaling_resnet20", "resnet20", 64),
                     scaling_row("scaling_transformer", "transformer", 16),
                     scaling_row("scaling_ctr_dense", "ctr_dense", 1000)});
}
