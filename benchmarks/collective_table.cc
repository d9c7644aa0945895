// What collective operations cost by number of ranks: messages, bytes and time of a rank under
// virtual time, or, started by mpirun, the time over MPI. Prints the tables of docs/collectives.md.

#include <algorithm>
#include <boost/program_options.hpp>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/transport/collective/virtual_ranks.h"
#include "transport/mpi/mpi_communicator.h"

namespace {

namespace po = boost::program_options;
using namespace fleet;
using namespace fleet::transport;
using Clock = std::chrono::steady_clock;

constexpr Duration kPatience = std::chrono::minutes(5);

struct Operation {
  const char* name;
  size_t bytes;  // of the array; of all ranks together for an all-gather
};

constexpr size_t kKiB = 1024;
constexpr Operation kOperations[] = {{"all_reduce", 4 * kKiB},
                                     {"all_reduce", 256 * kKiB},
                                     {"all_reduce", 64 * kKiB* kKiB},
                                     {"reduce_scatter", 256 * kKiB},
                                     {"broadcast", 4 * kKiB},
                                     {"broadcast", 64 * kKiB* kKiB},
                                     {"all_gather", 4 * kKiB},
                                     {"all_gather", 64 * kKiB* kKiB},
                                     {"barrier", 0}};

std::string size_text(size_t bytes) {
  if (bytes == 0) return "";
  return bytes < kKiB * kKiB ? std::to_string(bytes / kKiB) + " KiB"
                             : std::to_string(bytes / kKiB / kKiB) + " MiB";
}

// Operations on memory that is there once, whatever they are called with.
class Caller {
 public:
  explicit Caller(int ranks)
      : layout_(ranks, ranks),
        in_(64 * kKiB * kKiB / sizeof(float), 1.0F),
        out_(in_.size()),
        ranks_(static_cast<size_t>(ranks)) {}

  CollectiveToken start(CollectiveCommunicator& comm, const Operation& operation) {
    const size_t count = operation.bytes / sizeof(float);
    const std::string name = operation.name;
    const void* part = in_.data();
    const auto out = std::as_writable_bytes(std::span(out_)).first(operation.bytes);
    if (name == "all_reduce") {
      return comm.all_reduce(layout_, ElementType::kFloat32, {&part, 1}, out_.data(), count, {});
    }
    if (name == "reduce_scatter") {
      counts_.assign(ranks_, count / ranks_);
      return comm.reduce_scatter(layout_, ElementType::kFloat32, {&part, 1}, out_.data(), counts_,
                                 {});
    }
    if (name == "broadcast") return comm.broadcast(out, 0, {});
    if (name == "all_gather") {
      const size_t each = operation.bytes / ranks_;
      return comm.all_gather(std::as_bytes(std::span(in_)).first(each), out.first(each * ranks_),
                             {});
    }
    return comm.barrier({});
  }

 private:
  ShardLayout layout_;
  std::vector<float> in_;
  std::vector<float> out_;
  size_t ranks_;
  std::vector<size_t> counts_;
};

std::string cost_text(int ranks, const Operation& operation,
                      const testing_reference::VirtualNetwork& network) {
  testing_reference::VirtualRanks cluster(ranks, 1, network);
  Caller caller(ranks);
  std::vector<std::vector<CollectiveToken>> tokens(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    tokens[static_cast<size_t>(rank)].push_back(caller.start(cluster.at(rank), operation));
  }
  if (!cluster.run(tokens)) return "not done";
  uint64_t messages = 0;
  uint64_t bytes = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    messages = std::max(messages, cluster.sent(rank).messages);
    bytes = std::max(bytes, cluster.sent(rank).bytes);
  }
  const double ms = std::chrono::duration<double, std::milli>(cluster.now()).count();
  char text[96];
  const double kib = static_cast<double>(bytes) / static_cast<double>(kKiB);
  const bool large = kib >= 10'240;
  std::snprintf(text, sizeof text, "%llu · %.*f %s · %.3g ms",
                static_cast<unsigned long long>(messages), bytes == 0 || large ? 0 : 1,
                large ? kib / static_cast<double>(kKiB) : kib, large ? "MiB" : "KiB", ms);
  return text;
}

void print_virtual() {
  const testing_reference::VirtualNetwork network{.payloads = false};
  std::printf("| | 4 ranks | 16 ranks | 64 ranks | 256 ranks |\n|---|---|---|---|---|\n");
  for (const Operation& operation : kOperations) {
    std::printf("| `%s` %s |", operation.name, size_text(operation.bytes).c_str());
    for (const int ranks : {4, 16, 64, 256}) {
      std::printf(" %s |", cost_text(ranks, operation, network).c_str());
      std::fflush(stdout);
    }
    std::printf("\n");
  }
}

void wait(CollectiveToken token) {
  token.wait(steady_clock().now() + kPatience).throw_if_error();
}

// Microseconds of one call in the best of seven rounds: other processes disturb the rest.
double measure(CollectiveCommunicator& comm, Caller& caller, const Operation& operation) {
  const int repeats = operation.bytes <= 64 * kKiB ? 500 : operation.bytes <= kKiB * kKiB ? 100 : 3;
  std::vector<double> rounds;
  for (int round = 0; round < 7; ++round) {
    wait(comm.barrier({}));
    const auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) wait(caller.start(comm, operation));
    rounds.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() /
                     repeats);
  }
  return *std::min_element(rounds.begin(), rounds.end());
}

void print_measured(MpiSession& session) {
  const auto comm = std::move(make_mpi_communicator(session, kPatience).value());
  Caller caller(comm->size());
  if (comm->rank() == 0) std::printf("| | %d ranks |\n|---|---|\n", comm->size());
  for (const Operation& operation : kOperations) {
    const double us = measure(*comm, caller, operation);
    if (comm->rank() != 0) continue;
    std::printf("| `%s` %s | %.4g us |\n", operation.name, size_text(operation.bytes).c_str(), us);
  }
}

}  // namespace

int main(int argc, char** argv) {
  po::options_description options("collective_table prints what collective operations cost");
  options.add_options()("help", "this text");
  try {
    po::variables_map given;
    po::store(po::parse_command_line(argc, argv, options), given);
    if (given.contains("help")) {
      std::cout << options << "\nexample: mpirun -np 2 build/bench/bin/collective_table\n";
      return 0;
    }
    MpiSession& session = MpiSession::get();
    if (session.size() > 1) {
      print_measured(session);
    } else {
      print_virtual();
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n  fix: see --help\n", error.what());
    return 1;
  }
}
