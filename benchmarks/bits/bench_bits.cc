// What it costs that a step has the same bits in every run: sums in the order of the shards, and
// random numbers by counters, against the same step without.

#include <string>
#include <vector>

#include "base/strings.h"
#include "benchmarks/bits/dropout_steps.h"
#include "benchmarks/collectives/mpi_rounds.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/socket_job.h"

namespace fleet::benchmarks {
namespace {

// At most a tenth more time.
constexpr double kTarget = 1 / 1.1;

Row price(const std::string& peer, const std::string& note) {
  return {.unit = "us",
          .peer = peer,
          .better = Better::kLower,
          .kind = BenchPeer::kReference,
          .target = kTarget,
          .note = note};
}

// With two workers there is nothing to order: a sum of two is the same either way.
Row price_of_bits_sync(const Rounds& rounds) {
  constexpr int kRounds = 15;
  SocketJob ordered = {.workers = 8,
                       .processes = 2,
                       .slices = 16,
                       .elements = 4096,
                       .steps = 400,
                       .transport = transport::TransportChoice::kUnix};
  SocketJob by_arrival = ordered;
  by_arrival.sums_by_arrival = true;
  std::vector<double> ordered_ns;
  std::vector<double> by_arrival_ns;
  const auto step_us = [](const SocketJob& job, std::vector<double>& server_ns) {
    const SocketJobTimes times = run_socket_job(job);
    server_ns.push_back(times.server_ns);
    return times.step_us;
  };
  Row row = price("one sum in order of arrival", "");
  row.take(rounds.pairs(
      kRounds, [&] { return step_us(ordered, ordered_ns); },
      [&] { return step_us(by_arrival, by_arrival_ns); }));
  row.note = str_cat(
      "a step of 8 workers that compute nothing, 16 slices of 16 KiB on one server, Unix sockets; "
      "all but the order of the server's sums is the same; processor time of the server for a "
      "gradient: ",
      tools::significant(median(ordered_ns)), " and ", tools::significant(median(by_arrival_ns)),
      " ns");
  return row;
}

Row price_of_bits_collective(const Rounds&) {
  constexpr int kRounds = 15;
  constexpr int kSteps = 1000;
  Row row = price("pieces added up as they come",
                  "a step of 4 ranks in shared memory, the quick start's net written by hand; "
                  "messages, pieces and copies are the same");
  take_mpi_rounds(row, 4, "ordered_step", {std::to_string(kRounds), std::to_string(kSteps)},
                  kRounds);
  return row;
}

Row price_of_bits_dropout(const Rounds& rounds) {
  constexpr int kRounds = 9;
  constexpr double kSeconds = 0.3;
  DropoutSteps keyed(DropoutNumbers::kKeyed);
  DropoutSteps sequential(DropoutNumbers::kSequential);
  const auto us = [](DropoutSteps& steps) {
    return 1e6 / rate_of(kSeconds, [&] { steps.run(); }).processor;
  };
  Row row = price("numbers of a sequential generator",
                  "a step of the quick start's net, 32 rows, with dropout behind both hidden "
                  "layers, one thread; by hand: 16 xoshiro128++ side by side");
  row.take(rounds.pairs(
      kRounds, [&] { return us(keyed); }, [&] { return us(sequential); }));
  return row;
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  return bench_main(argc, argv, "What the same bits in every run cost.",
                    {{"price_of_bits_sync", price_of_bits_sync},
                     {"price_of_bits_collective", price_of_bits_collective},
                     {"price_of_bits_dropout", price_of_bits_dropout}});
}
