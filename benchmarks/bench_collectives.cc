// Collective operations among ranks of one machine, through shared memory and over TCP, against
// those of MPI and Gloo.

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/collectives/mpi_rounds.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/harness/temporary_folder.h"
#include "benchmarks/peers/python.h"

namespace fleet::benchmarks {
namespace {

struct AllReduce {
  const char* name;
  size_t bytes;
  int ranks;
  int calls;  // of a round
  double target;
};

Row measure(const AllReduce& job) {
  constexpr int kRounds = 9;
  Row row = {.unit = "us",
             .peer = "MPI_Allreduce of Open MPI",
             .better = Better::kLower,
             .target = job.target};
  take_mpi_rounds(row, job.ranks, "shared_all_reduce",
                  {std::to_string(job.bytes), std::to_string(kRounds), std::to_string(job.calls)},
                  kRounds);
  return row;
}

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

// Two ranks without MPI, over TCP or through memory that they share, as fleet-comm-bench times
// them.
double our_us(size_t bytes, const std::vector<std::string>& environment) {
  const TemporaryFolder folder;
  const std::string size = std::to_string(bytes);
  run_to_success({program_folder() + "/launch", "--collectives", "sockets", "--nproc_per_node", "2",
                  "--log_dir", folder.file("logs"), program_folder() + "/fleet-comm-bench",
                  "--operations", "all_reduce", "--min", size, "--max", size, "--seconds", "0.5",
                  "--json", folder.file("rows")},
                 environment);
  std::ifstream file(folder.file("rows"));
  return nlohmann::json::parse(file).at(0).at("median_us").get<double>();
}

double mpi_over_tcp_us(size_t bytes, int calls) {
  const auto result = run_to_success(
      {"mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none",
       program_folder() + "/shared_all_reduce", std::to_string(bytes), "5", std::to_string(calls),
       "mpi"},
      {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "OMPI_MCA_pml=ob1",
       "OMPI_MCA_btl=tcp,self", "OMPI_MCA_btl_tcp_if_include=lo"});
  std::vector<double> rounds;
  for (const std::string& line : split(trim(result.output), '\n')) {
    if (const auto us = parse_double(line)) rounds.push_back(*us);
  }
  return median(rounds);
}

Row over_tcp(const Rounds& rounds, size_t bytes, bool integrity, std::optional<double> target) {
  const std::vector<std::string> environment = {
      "FLEET_TRANSPORT=tcp", str_cat("FLEET_FRAME_INTEGRITY=", integrity ? "on" : "off")};
  const int calls = bytes > kMiB * 8 ? 3 : 40;
  Row row = {.unit = "us",
             .peer = "MPI_Allreduce of Open MPI over TCP",
             .better = Better::kLower,
             .target = target};
  row.take(rounds.pairs(
      7, [&] { return our_us(bytes, environment); },
      [&] { return mpi_over_tcp_us(bytes, calls); }));
  row.note = integrity ? "frames carry tags" : "frames without tags, as Open MPI's";
  return row;
}

Row against_gloo(const Rounds& rounds, size_t bytes, const std::vector<std::string>& environment,
                 double target) {
  Row row = {
      .unit = "us", .peer = "Gloo over TCP (PyTorch)", .better = Better::kLower, .target = target};
  const std::string lacks = rounds.ours_only() ? "" : missing(pytorch());
  if (rounds.ours_only() || !lacks.empty()) {
    row.value = our_us(bytes, environment);
    row.skipped = lacks;
    return row;
  }
  const std::string calls = bytes > kMiB ? "3" : "1000";
  row.take(rounds.pairs(
      5, [&] { return our_us(bytes, environment); },
      [&] {
        return run_python("torch_all_reduce.py", {std::to_string(bytes), calls, "5"}).at(0);
      }));
  return row;
}

std::vector<Benchmark> all() {
  static constexpr AllReduce kJobs[] = {
      {"allreduce_4k_2r", 4 * kKiB, 2, 4000, 1.5}, {"allreduce_256k_2r", 256 * kKiB, 2, 400, 4},
      {"allreduce_4m_2r", 4 * kMiB, 2, 40, 3},     {"allreduce_64m_2r", 64 * kMiB, 2, 3, 3.5},
      {"allreduce_4k_4r", 4 * kKiB, 4, 1000, 2},   {"allreduce_64m_4r", 64 * kMiB, 4, 2, 3}};
  std::vector<Benchmark> rows;
  for (const AllReduce& job : kJobs) {
    rows.push_back({job.name, [&job](const Rounds&) { return measure(job); }});
  }
  struct OverTcp {
    const char* name;
    size_t bytes;
    bool integrity;
    std::optional<double> target;
  };
  static constexpr OverTcp kOverTcp[] = {
      {"allreduce_4m_2r_tcp", 4 * kMiB, false, 1.0},
      {"allreduce_64m_2r_tcp", 64 * kMiB, false, 1.8},
      {"allreduce_4m_2r_tcp_integrity", 4 * kMiB, true, std::nullopt},
      {"allreduce_64m_2r_tcp_integrity", 64 * kMiB, true, std::nullopt}};
  for (const OverTcp& job : kOverTcp) {
    rows.push_back({job.name, [&job](const Rounds& rounds) {
                      return over_tcp(rounds, job.bytes, job.integrity, job.target);
                    }});
  }
  rows.push_back({"allreduce_64m_gloo_tcp", [](const Rounds& rounds) {
                    return against_gloo(rounds, 64 * kMiB,
                                        {"FLEET_TRANSPORT=tcp", "FLEET_FRAME_INTEGRITY=off"}, 1.3);
                  }});
  rows.push_back({"allreduce_4k_gloo",
                  [](const Rounds& rounds) { return against_gloo(rounds, 4 * kKiB, {}, 100); }});
  return rows;
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  return fleet::benchmarks::bench_main(argc, argv, "Collective operations of one machine.",
                                       fleet::benchmarks::all());
}
