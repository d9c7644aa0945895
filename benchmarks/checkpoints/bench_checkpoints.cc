// What checkpoints cost while a job trains, how fast they are written and read, and how long a job
// stands still when one of its workers is killed.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/strings.h"
#include "benchmarks/checkpoints/restarted_job.h"
#include "benchmarks/handwritten/plain_files.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/harness/temporary_folder.h"
#include "benchmarks/job.h"
#include "benchmarks/peers/python.h"

namespace fleet::benchmarks {
namespace {

// Trained with momentum: x[inputs] -> hidden -> hidden -> 2, weights, biases and velocities.
struct Size {
  int inputs;
  int hidden;

  double parameters() const {
    const double wide = hidden;
    return sizeof(float) * (inputs * wide + wide * wide + 2 * wide + 2 * wide + 2);
  }
  double bytes() const { return 2 * parameters(); }
};
constexpr Size k100Mb = {.inputs = 1024, .hidden = 3072};
constexpr Size k1Gb = {.inputs = 4352, .hidden = 9216};

JobShape sized(JobShape shape, const Size& size, int rows) {
  shape.inputs = size.inputs;
  shape.hidden = size.hidden;
  shape.rows = rows;
  shape.optimizer = "momentum";
  return shape;
}

// ---- while the job trains

constexpr size_t kStretch = 100;  // steps
constexpr size_t kStretches = 6;  // of a job, each with a checkpoint, and one without behind it

// Steps per second of each stretch; a checkpoint is made at the end of its first step.
void add_stretches(const std::vector<double>& times, Pairs& pairs) {
  const auto rate = [&times](size_t stretch) {
    // Step 2 * kStretch is the first one that saves.
    const size_t first = (stretch + 2) * kStretch - 1;
    return kStretch / (times.at(2 * (first + kStretch)) - times.at(2 * first));
  };
  for (size_t i = 0; i < kStretches; ++i) {
    pairs.ours.push_back(rate(2 * i));
    pairs.peer.push_back(rate(2 * i + 1));
  }
}

// Two processes differ by more than a checkpoint costs: both sides are of one.
Row checkpoint_cost(const Rounds& rounds) {
  const TemporaryFolder folder;
  JobShape shape = sized(JobShape::alone(2 * (kStretches + 1) * kStretch + 1), k100Mb, 4);
  shape.checkpoint_every = 2 * kStretch;
  shape.step_times = true;
  Pairs pairs;
  const int jobs = rounds.ours_only() ? 1 : 3;
  for (int job = 0; job < jobs; ++job) {
    shape.checkpoints = folder.file(str_cat(job));
    add_stretches(run_job(shape).step_times, pairs);
  }
  Row row = {.unit = "steps/s",
             .peer = "the same process without",
             .kind = BenchPeer::kLimit,
             .target = 0.98};
  row.take(pairs);
  const double more_ms = 1e3 * kStretch * (1 / row.value - 1 / row.peer_value);
  row.note = str_cat("checkpoints of ", tools::significant(k100Mb.bytes() * 1e-6), " MB, one in ",
                     kStretch, " steps against none in as many; a step takes ",
                     tools::significant(1e3 / row.peer_value), " ms, a checkpoint ",
                     tools::significant(more_ms), " ms more");
  return row;
}

// ---- files

constexpr int kParts = 2;
constexpr int kWorkers = 2;
constexpr int kTimes = 3;  // of a round, which is their median

// Of whole checkpoints that a job of two workers and two servers saves, one after the other.
JobResult saved_and_loaded(const std::string& folder) {
  JobShape shape = sized(JobShape::parameter_servers(kWorkers, kParts, 2), k100Mb, 1);
  shape.checkpoints = folder;
  shape.saves = kTimes;
  return run_job(shape);
}

// `bytes` is what all processes write, or read.
Row checkpoint_files(const Rounds& rounds, double bytes, double JobResult::*seconds,
                     double (*by_hand)(const std::string&, int, size_t), std::string note) {
  constexpr int kRounds = 5;
  const double gigabytes = bytes * 1e-9;
  const auto part = static_cast<size_t>(bytes / kParts);
  const TemporaryFolder plain;
  if (!rounds.ours_only()) write_plain_files_s(plain.file("."), kParts, part);
  Row row = {.unit = "GB/s",
             .peer = "plain files of as many bytes",
             .kind = BenchPeer::kLimit,
             .target = 0.7,
             .note = std::move(note)};
  row.take(rounds.pairs(
      kRounds,
      [&] {
        const TemporaryFolder folder;
        return gigabytes / (saved_and_loaded(folder.file("checkpoints")).*seconds);
      },
      [&] {
        std::vector<double> times(kTimes);
        for (double& time : times) time = by_hand(plain.file("."), kParts, part);
        return gigabytes / median(std::move(times));
      }));
  return row;
}

Row checkpoint_write(const Rounds& rounds) {
  return checkpoint_files(rounds, k100Mb.bytes(), &JobResult::save_s, write_plain_files_s,
                          "100 MB of two servers, from the call until the checkpoint is there; by "
                          "hand two threads, with as many syncs");
}

Row checkpoint_read(const Rounds& rounds) {
  const double bytes = k100Mb.bytes() + kWorkers * k100Mb.parameters();
  return checkpoint_files(rounds, bytes, &JobResult::load_s, read_plain_files_s,
                          "200 MB from the page cache, checked before anything is changed: 100 MB "
                          "to two servers, 50 MB of parameters to each of two workers; by hand two "
                          "threads read into memory that is there");
}

// ---- restarts

// What the restarts of a row took.
class Restarts {
 public:
  double add(const RestartTimes& times) {
    all_.push_back(times);
    return times.total();
  }
  std::string note() const {
    return str_cat(at_once(), " of ", all_.size(), " restarts succeeded at the first try; start ",
                   of(&RestartTimes::start), " s, load ", of(&RestartTimes::load),
                   " s, first step ", of(&RestartTimes::first), " s, ", of(&RestartTimes::repeated),
                   " steps again ", of(&RestartTimes::repeat), " s");
  }
  // A job that comes back at the second try only has no time to be compared.
  void require_all(Row& row) const {
    if (at_once() == all_.size()) return;
    row.invalid.push_back(
        str_cat(all_.size() - at_once(), " of ", all_.size(), " restarts took further tries"));
  }

 private:
  size_t at_once() const {
    return static_cast<size_t>(std::count_if(
        all_.begin(), all_.end(), [](const RestartTimes& times) { return times.attempts == 1; }));
  }
  template <class Number>
  std::string of(Number RestartTimes::*field) const {
    std::vector<double> values;
    for (const RestartTimes& times : all_) values.push_back(static_cast<double>(times.*field));
    return tools::significant(median(std::move(values)));
  }

  std::vector<RestartTimes> all_;
};

// The job of that many kills; the folder holds all that it writes.
RestartableJob restartable(JobShape shape, int kills, const TemporaryFolder& folder) {
  shape.steps = 1'000'000'000;
  shape.checkpoints = folder.file("checkpoints");
  shape.launcher_args.insert(shape.launcher_args.end(),
                             {"--max_restarts", std::to_string(kills), "--save_grace", "1"});
  RestartableJob job = {.command = job_command(shape, folder),
                        .environment = {},
                        .traces = {},
                        .latest = folder.file("checkpoints/latest"),
                        .output = folder.file("output")};
  job.command.emplace_back("--trace");
  for (int worker = 0; worker < shape.workers; ++worker) {
    job.traces.push_back(folder.file(str_cat("report.trace", worker)));
  }
  return job;
}

// Median seconds of a job's restarts.
double restart_s(const RestartableJob& job, int kills, Restarts& restarts) {
  RestartedJob running(job);
  std::vector<double> seconds;
  seconds.reserve(static_cast<size_t>(kills));
  for (int i = 0; i < kills; ++i) seconds.push_back(restarts.add(running.kill_one()));
  return median(std::move(seconds));
}

Benchmark restart_2x2(const std::string& name, const JobShape& shape, double limit_s) {
  return {name, [=](const Rounds& rounds) {
            constexpr int kRounds = 3;
            Restarts restarts;
            const auto seconds = rounds.values(kRounds, [&] {
              const TemporaryFolder folder;
              return restart_s(restartable(shape, 1, folder), 1, restarts);
            });
            Row row = {.value = median(seconds),
                       .unit = "s",
                       .peer = str_cat("limit of ", limit_s, " s"),
                       .peer_value = limit_s,
                       .better = Better::kLower,
                       .kind = BenchPeer::kFixed,
                       .target = 1.0,
                       .rounds = static_cast<int>(seconds.size()),
                       .note = restarts.note()};
            restarts.require_all(row);
            return row;
          }};
}

RestartableJob torchrun(int every, const TemporaryFolder& folder) {
  return {.command = {python(), "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                      "2", "--max-restarts", "20", "--monitor-interval", "0.01",
                      peer_file("torch_restart.py"), folder.file(""), std::to_string(every)},
          // With the store of the agent shared, an attempt may find addresses of the one before.
          .environment = {"OMP_NUM_THREADS=1", "GLOO_SOCKET_IFNAME=lo",
                          "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"},
          .traces = {folder.file("trace0"), folder.file("trace1")},
          .latest = folder.file("latest"),
          .output = folder.file("output")};
}

Row restart_2_ranks(const Rounds& rounds) {
  constexpr int kRounds = 2;
  constexpr int kKills = 10;  // of each of our jobs
  JobShape shape = JobShape::ranks(2, 0);
  shape.checkpoint_every = 5000;
  shape.launcher_args.insert(shape.launcher_args.end(), {"--collectives", "sockets"});
  Row row = {
      .unit = "s", .peer = "torchrun with DDP over Gloo", .better = Better::kLower, .target = 10};
  Restarts restarts;
  Restarts theirs;
  const auto ours = [&] {
    const TemporaryFolder folder;
    return restart_s(restartable(shape, kKills, folder), kKills, restarts);
  };
  row.skipped = rounds.ours_only() ? "" : missing(pytorch());
  if (rounds.ours_only() || !row.skipped.empty()) {
    const auto seconds = rounds.values(kRounds, ours);
    row.value = median(seconds);
    row.rounds = static_cast<int>(seconds.size());
    row.note = restarts.note();
    restarts.require_all(row);
    return row;
  }
  row.take(rounds.pairs(kRounds, ours, [&] {
    const TemporaryFolder folder;
    return restart_s(torchrun(/*every=*/100, folder), 1, theirs);
  }));
  row.note = str_cat(restarts.note(), "; torchrun: ", theirs.note());
  restarts.require_all(row);
  return row;
}

std::vector<Benchmark> all() {
  const auto saving = [](JobShape shape, int every) {
    shape.checkpoint_every = every;
    return shape;
  };
  const JobShape servers = JobShape::parameter_servers(2, 2, 0);
  return {{"checkpoint_cost", checkpoint_cost},
          {"checkpoint_write", checkpoint_write},
          {"checkpoint_read", checkpoint_read},
          restart_2x2("restart_2x2", saving(servers, 500), 1),
          restart_2x2("restart_2x2_100mb", saving(sized(servers, k100Mb, 2), 10), 2),
          restart_2x2("restart_2x2_1gb", saving(sized(servers, k1Gb, 1), 4), 10),
          {"restart_2_ranks", restart_2_ranks}};
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  // All folders are temporary ones: servers write and read what they keep.
  setenv("FLEET_SERVER_FOLDERS", std::filesystem::temp_directory_path().c_str(), 1);
  return fleet::benchmarks::bench_main(argc, argv,
                                       "What checkpoints cost, and jobs that go on from them.",
                                       fleet::benchmarks::all());
}
