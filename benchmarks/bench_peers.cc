// Whole jobs against PyTorch's DistributedDataParallel, and the bytes of a step of each mode
// against those of jobs written by hand, or of that one.

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/handwritten/mpi_job.h"
#include "benchmarks/handwritten/server_step.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/job.h"
#include "benchmarks/peers/python.h"
#include "benchmarks/private_network.h"

namespace fleet::benchmarks {
namespace {

// x[inputs] -> hidden tanh -> hidden tanh -> 2, or lenet with `inputs` 0, two processes of as many
// rows each.
struct DdpNet {
  int rows = 32;
  int inputs = 32;
  int hidden = 128;
  int our_steps = 6000;
  int their_steps = 1000;
  std::optional<double> target = std::nullopt;
  std::string same_as;  // another row that measures this job of ours
};

// How DistributedDataParallel is set up.
struct DdpSetup {
  int bucket_mb = 25;  // the default
  bool compiled = false;

  std::string text() const {
    return str_cat("buckets of ", bucket_mb, " MB", compiled ? ", torch.compile" : "");
  }
};

double ddp_steps_per_s(const DdpNet& net, const DdpSetup& setup, int steps) {
  std::vector<std::string> arguments = {std::to_string(net.inputs), std::to_string(net.hidden),
                                        std::to_string(net.rows), std::to_string(steps),
                                        std::to_string(setup.bucket_mb)};
  if (setup.compiled) arguments.emplace_back("compiled");
  return run_python("torch_ddp.py", arguments).at(0);
}

DdpSetup fastest(const DdpNet& net) {
  DdpSetup best;
  double most = 0;
  for (const DdpSetup& setup : {DdpSetup{}, DdpSetup{.bucket_mb = 1}, DdpSetup{.compiled = true}}) {
    const double rate = ddp_steps_per_s(net, setup, net.their_steps / 2);
    if (rate > most) best = setup;
    most = std::max(most, rate);
  }
  return best;
}

JobShape ranks(const DdpNet& net) {
  JobShape shape = JobShape::ranks(2, net.our_steps);
  shape.rows = net.rows;
  if (net.inputs == 0) shape.net = "lenet";
  shape.inputs = net.inputs;
  shape.hidden = net.hidden;
  return shape;
}

Row ddp(const Rounds& rounds, const DdpNet& net) {
  constexpr int kRounds = 3;
  Row row = {.unit = "steps/s", .peer = "PyTorch DDP over Gloo", .target = net.target};
  if (rounds.ours_only() && !net.same_as.empty()) {
    row.skipped = str_cat("ours is that of ", net.same_as);
    return row;
  }
  const std::string lacks = rounds.ours_only() ? "" : missing(pytorch());
  if (rounds.ours_only() || !lacks.empty()) {
    row.value = run_job(ranks(net)).steps_per_s;
    row.skipped = lacks;
    return row;
  }
  const DdpSetup setup = fastest(net);
  row.note = "the fastest of 3 ways: " + setup.text();
  row.take(rounds.pairs(
      kRounds, [&] { return run_job(ranks(net)).steps_per_s; },
      [&] { return ddp_steps_per_s(net, setup, net.their_steps); }));
  return row;
}

// A job from its start to its end, which is its first step.
Row start_collective_2(const Rounds& rounds) {
  Row row = {
      .unit = "ms", .peer = "torchrun with DDP over Gloo", .better = Better::kLower, .target = 60};
  JobShape shape = JobShape::ranks(2, 1);
  shape.launcher_args.insert(shape.launcher_args.end(), {"--collectives", "sockets"});
  const auto ours = [&] { return 1e3 * run_job(shape).seconds; };
  const std::string lacks = rounds.ours_only() ? "" : missing(pytorch());
  if (rounds.ours_only() || !lacks.empty()) {
    row.value = ours();
    row.skipped = lacks;
    return row;
  }
  row.take(rounds.pairs(5, ours, [] {
    return 1e3 * run_to_success({python(), "-m", "torch.distributed.run", "--standalone",
                                 "--nproc-per-node", "2", peer_file("torch_first_step.py")},
                                {"OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo"})
                     .seconds;
  }));
  return row;
}

// Everything over TCP on the loopback, where the kernel counts it.
const std::vector<std::string> kAllOverTcp = {"FLEET_TRANSPORT=tcp",
                                              "OMPI_MCA_pml=ob1",
                                              "OMPI_MCA_btl=tcp,self",
                                              "OMPI_MCA_btl_tcp_if_include=lo",
                                              "OMPI_MCA_oob_tcp_if_include=lo",
                                              "GLOO_SOCKET_IFNAME=lo"};

using JobOfSteps = std::function<void(int steps)>;

// From the bytes of a long job and a short one, so that start and end do not count.
double kilobytes_a_step(const JobOfSteps& job, int steps) {
  const double shorter = bytes_sent_by([&] { job(steps); });
  const double longer = bytes_sent_by([&] { job(3 * steps); });
  return 1e-3 * (longer - shorter) / (2 * steps);
}

// 784-2048-2048-10.
constexpr double kMlp2048Kilobytes = 4e-3 * (784 * 2048 + 2048 * 2048 + 2048 * 10 + 2 * 2048 + 10);

struct Side {
  JobOfSteps job;
  int steps = 400;
  double kilobytes = 4e-3 * HandwrittenMlp::kParameters;
};

Side ours(const JobShape& shape, int steps, double kilobytes = Side().kilobytes) {
  return {.job =
              [shape](int of_steps) {
                JobShape job = shape;
                job.steps = of_steps;
                job.environment = kAllOverTcp;
                run_job(job);
              },
          .steps = steps,
          .kilobytes = kilobytes};
}

Side by_hand(HandwrittenMode mode, int threads = 1) {
  return {.job = [mode, threads](int steps) {
    handwritten_steps_per_s(
        {.mode = mode, .threads = threads, .steps = steps, .unix_sockets = false});
  }};
}

Side ranks_by_hand() {
  return {.job = [](int steps) {
    handwritten_ranks_steps_per_s({.sum = "allreduce", .steps = steps, .environment = kAllOverTcp});
  }};
}

Side ddp_side() {
  return {.job = [](int steps) { ddp_steps_per_s({}, {}, steps); }, .steps = 200};
}

Row bytes(const Rounds& rounds, const Side& ours, const std::string& who, const Side& theirs,
          const std::string& lacks = "") {
  constexpr int kRounds = 3;
  Row row = {.unit = "kB", .peer = who, .better = Better::kLower};
  row.skipped = can_count_bytes() ? lacks : "no network of their own for the jobs (run as root)";
  if (!row.skipped.empty()) return row;
  row.take(rounds.pairs(
      kRounds, [&] { return kilobytes_a_step(ours.job, ours.steps); },
      [&] { return kilobytes_a_step(theirs.job, theirs.steps); }));
  row.note = str_cat("of a step of all workers, over TCP, headers included; gradients and ",
                     "parameters: ", tools::significant(ours.kilobytes), " kB each");
  return row;
}

// What compressing gradients saves, once all of the ramp is over.
Benchmark dgc_bytes(int ranks, double target) {
  return {str_cat("dgc_bytes_", ranks), [=](const Rounds& rounds) {
            JobShape shape = JobShape::ranks(ranks, 0);
            shape.launcher_args.insert(shape.launcher_args.end(), {"--collectives", "sockets"});
            shape.net = "mlp_2048";
            shape.rows = 4;
            constexpr int kSteps = 4;
            JobShape compressed = shape;
            compressed.optimizer = "dgc";
            shape.optimizer = "momentum";
            Row row = bytes(rounds, ours(compressed, kSteps, kMlp2048Kilobytes),
                            "the same job, whole gradients", ours(shape, kSteps));
            row.kind = BenchPeer::kReference;
            row.target = target;
            return row;
          }};
}

Benchmark bytes_row(const std::string& name, const Side& ours, const std::string& who,
                    const Side& theirs) {
  return {name, [=](const Rounds& rounds) {
            Row row = bytes(rounds, ours, who, theirs);
            row.kind = BenchPeer::kReference;
            return row;
          }};
}

std::vector<Benchmark> all() {
  constexpr int kSteps = 400;
  constexpr int kSeldom = 2000;
  const JobShape servers = JobShape::parameter_servers(2, 2, 0);
  const JobShape collective = JobShape::ranks(2, 0);
  const Side in_step = by_hand(HandwrittenMode::kSync);
  return {
      {"ddp_2_mlp",
       [](const Rounds& rounds) {
         return ddp(rounds, {.target = 8, .same_as = "collective_2_mlp_b32"});
       }},
      {"ddp_2_lenet",
       [](const Rounds& rounds) {
         return ddp(rounds,
                    {.rows = 64, .inputs = 0, .our_steps = 100, .their_steps = 60, .target = 2});
       }},
      {"start_collective_2", start_collective_2},
      {"ddp_2_8mb",
       [](const Rounds& rounds) {
         return ddp(rounds, {.inputs = 1024, .hidden = 1024, .our_steps = 100, .their_steps = 60});
       }},
      bytes_row("bytes_sync_2x2", ours(servers, kSteps), "hand-written sockets", in_step),
      bytes_row("bytes_async_2x2", ours(servers.with("async"), kSteps), "hand-written sockets",
                by_hand(HandwrittenMode::kAsync)),
      bytes_row("bytes_half_async_2x2", ours(servers.with("half_async", 2), kSteps),
                "hand-written sockets", by_hand(HandwrittenMode::kHalfAsync, 2)),
      bytes_row("bytes_geo100_2x2", ours(servers.with("geo100"), kSeldom),
                "hand-written sockets, synchronous", in_step),
      bytes_row("bytes_collective_2", ours(collective, kSteps), "hand-written MPI_Allreduce",
                ranks_by_hand()),
      bytes_row("bytes_localsgd8_2", ours(collective.with("localsgd8"), kSeldom),
                "hand-written MPI_Allreduce", ranks_by_hand()),
      dgc_bytes(2, 300),
      dgc_bytes(8, 100),
      {"bytes_collective_2_ddp", [=](const Rounds& rounds) {
         const std::string lacks =
             rounds.ours_only() ? "ours is that of bytes_collective_2" : missing(pytorch());
         return bytes(rounds, ours(collective, kSteps), "PyTorch DDP over Gloo", ddp_side(), lacks);
       }}};
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  return fleet::benchmarks::bench_main(argc, argv, "Jobs against PyTorch's, and bytes of a step.",
                                       fleet::benchmarks::all());
}
