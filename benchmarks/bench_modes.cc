// Jobs of every mode against hand-written ones or training alone; larger and wider jobs against
// what their bytes, their compute or their sleep alone would take.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/handwritten/server_step.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/job.h"
#include "benchmarks/shaped_network.h"
#include "benchmarks/step_costs.h"
#include "benchmarks/timeline.h"
#include "tests/testing/sim_cluster.h"

namespace fleet::benchmarks {
namespace {

// x[1024] -> 1024 tanh -> 1024 tanh -> 2.
constexpr int kWide = 1024;
constexpr int kWideParameters = 2 * (kWide * kWide + kWide) + kWide * 2 + 2;
// Of the quick start's net.
constexpr int kSmallSteps = 6000;
constexpr int kLocalSteps = 20000;
constexpr int kLinkMegabits = 1000;
constexpr double kWideMegabytes = kWideParameters * 4e-6;

JobShape wide(JobShape shape) {
  shape.inputs = kWide;
  shape.hidden = kWide;
  return shape;
}

// Gradients that are applied when they come, by processes and bytes as many as ours.
Row asynchronous(const Rounds& rounds, const std::string& strategy, const HandwrittenJob& by_hand) {
  constexpr int kRounds = 5;
  const JobShape shape =
      JobShape::parameter_servers(by_hand.workers, by_hand.servers, by_hand.steps)
          .with(strategy, by_hand.threads);
  Row row = {.unit = "steps/s",
             .peer = "hand-written sockets",
             .kind = BenchPeer::kLimit,
             .target = 0.85,
             .note = str_cat(instruction_set(), ", ", by_hand.threads, " threads a worker")};
  row.take(rounds.pairs(
      kRounds, [&] { return run_job(shape).steps_per_s; },
      [&] { return fastest_handwritten_steps_per_s(by_hand); }));
  if (!rounds.ours_only()) compare_steps(row, by_hand.rows);
  return row;
}

// Workers that mostly train alone, against as many that do nothing else.
Row beside_alone(const Rounds& rounds, const JobShape& shape, const JobShape& alone,
                 double target) {
  constexpr int kRounds = 5;
  Row row = {.unit = "steps/s",
             .peer = "local runs side by side",
             .kind = BenchPeer::kLimit,
             .target = target,
             .note = instruction_set()};
  row.take(rounds.pairs(
      kRounds, [&] { return run_job(shape).steps_per_s; },
      [&] { return steps_per_s_side_by_side(alone, shape.workers); }));
  return row;
}

Row mostly_alone(const Rounds& rounds, const JobShape& shape) {
  return beside_alone(rounds, shape, JobShape::alone(shape.steps), 0.92);
}

// A net for click rates with its table on the servers.
Row ctr_dnn_2x2(const Rounds& rounds, const std::string& strategy, double target) {
  constexpr int kSteps = 60;
  const auto of_net = [](JobShape shape) {
    shape.net = "ctr_dnn_one_table";
    shape.rows = 1000;
    shape.warm_up = 10;
    return shape;
  };
  return beside_alone(rounds, of_net(JobShape::parameter_servers(2, 2, kSteps).with(strategy)),
                      of_net(JobShape::alone(kSteps)), target);
}

// The faster of two send buffers: what the sockets give.
double raw_steps_per_s(int steps) {
  double best = 0;
  for (const int buffer : {0, 1 << 20}) {
    best = std::max(best, handwritten_steps_per_s({.steps = steps,
                                                   .compute = HandwrittenCompute::kNothingAtAll,
                                                   .parameters = kWideParameters,
                                                   .send_buffer = buffer}));
  }
  return best;
}

// Both workers compute at the same time on cores of their own, then every byte moves: the time of
// a step is the sum of the two when nothing overlaps.
Row sync_2x2_8mb(const Rounds& rounds) {
  constexpr int kRounds = 5;
  constexpr int kSteps = 60;
  std::vector<double> local_ms;
  std::vector<double> bytes_ms;
  Row row = {.unit = "steps/s",
             .peer = "raw bytes + local step",
             .kind = BenchPeer::kReference,
             .target = 0.6};
  row.take(rounds.pairs(
      kRounds, [] { return run_job(wide(JobShape::parameter_servers(2, 2, kSteps))).steps_per_s; },
      [&] {
        const double raw = raw_steps_per_s(kSteps);
        const double local = run_job(wide(JobShape::alone(kSteps))).steps_per_s;
        bytes_ms.push_back(1e3 / raw);
        local_ms.push_back(1e3 / local);
        return 1 / (1 / raw + 1 / local);
      }));
  row.note = str_cat(instruction_set(), ", raw bytes ", tools::significant(median(bytes_ms)),
                     " ms, local step ", tools::significant(median(local_ms)), " ms");
  return row;
}

// The nodes of real processes under virtual time, in which computing costs nothing but the sleep:
// whether any part of the protocol takes turns.
std::string law_in_virtual_time(int sleep_ms) {
  std::string text;
  for (const uint32_t workers : {64U, 512U}) {
    testing::SimJob job;
    job.workers = workers;
    job.servers = 4;
    job.compute = std::chrono::milliseconds(sleep_ms);
    const testing::SimOutcome outcome = testing::run_job(job);
    if (!outcome.ok()) throw_error(ErrorCode::kInternal, {.what = outcome.failure});
    text += str_cat(", ", workers, " workers ",
                    1 / std::chrono::duration<double>(outcome.step_time).count(), " steps/s");
  }
  return "in virtual time, in which processors cost nothing" + text.substr(1);
}

Row sync_16_sleep20(const Rounds& rounds) {
  constexpr int kRounds = 3;
  constexpr int kSleepMs = 20;
  JobShape shape = JobShape::parameter_servers(16, 4, 150);
  shape.sleep_ms = kSleepMs;
  std::vector<JobResult> results;
  Row row = {.unit = "steps/s",
             .peer = "the sleep alone",
             .peer_value = 1e3 / kSleepMs,
             .kind = BenchPeer::kReference,
             .target = 0.9};
  const Pairs pairs = rounds.pairs(
      kRounds,
      [&] {
        results.push_back(run_job(shape));
        return results.back().steps_per_s;
      },
      [&] {
        return handwritten_steps_per_s(
            {.workers = 16, .servers = 4, .steps = 150, .sleep_ms = kSleepMs});
      });
  row.value = pairs.our_median();
  row.rounds = static_cast<int>(pairs.ours.size());
  if (rounds.ours_only()) return row;
  const auto median_of = [&](double JobResult::*field) {
    std::vector<double> values;
    values.reserve(results.size());
    for (const JobResult& result : results) values.push_back(result.*field);
    return tools::significant(median(values));
  };
  row.note = str_cat("a hand-written loop ", tools::significant(pairs.peer_median()),
                     " steps/s; CPU of a worker's step ", median_of(&JobResult::worker_cpu_us),
                     " us (its net alone ",
                     tools::significant(run_job(JobShape::alone(2000)).worker_cpu_us),
                     "), of all servers for it ", median_of(&JobResult::server_cpu_us),
                     " us, start and end included; whole job ", median_of(&JobResult::seconds),
                     " s; ", law_in_virtual_time(kSleepMs));
  return row;
}

// Two workers on one host and two servers on another.
std::string shaped_script(const ShapedNetwork& network, const JobShape& shape,
                          const TemporaryFolder& folder) {
  const std::string servers =
      str_cat(ShapedNetwork::kSecondAddress, ":7101,", ShapedNetwork::kSecondAddress, ":7102");
  const std::string job = str_cat(
      "env FLEET_SEND_BUFFER=131072 FLEET_JOB_ID=shaped FLEET_JOB_SECRET=only-for-this-benchmark "
      "PADDLE_TRAINERS_NUM=2 "
      "PADDLE_PSERVERS_IP_PORT_LIST=",
      servers, " ");
  const std::string command = join(worker_command(shape, folder.file("report")), " ") +
                              " --spans >>" + folder.file("log") + " 2>&1 & ";
  std::string script = "trap 'kill $(jobs -p) 2>/dev/null' EXIT; ";
  for (int s = 0; s < 2; ++s) {
    script += str_cat(network.on_second(), job,
                      "TRAINING_ROLE=PSERVER POD_IP=", ShapedNetwork::kSecondAddress,
                      " PADDLE_PORT=", 7101 + s, " ", command);
  }
  for (int w = 0; w < 2; ++w) {
    script += str_cat(network.on_first(), job, "TRAINING_ROLE=TRAINER PADDLE_TRAINER_ID=", w, " ",
                      command);
    if (w == 0) script += str_cat("echo $! >", folder.file("pid"), "; ");
  }
  return script + "wait";
}

// Runs it and watches worker 0 meanwhile.
JobResult run_shaped(const JobShape& shape, Timeline& timeline) {
  const ShapedNetwork network(kLinkMegabits);
  const TemporaryFolder folder;
  std::atomic<bool> over{false};
  std::thread watcher([&] {
    int worker = 0;
    while (!over) {
      if (worker == 0) std::ifstream(folder.file("pid")) >> worker;
      if (worker != 0) timeline.samples.push_back(sample_traffic(worker));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  const auto result = run_process({"/bin/sh", "-c", shaped_script(network, shape, folder)});
  over = true;
  watcher.join();
  std::ifstream file(folder.file("report") + ".worker0");
  if (result.exit_code != 0 || !file) {
    std::stringstream log;
    log << std::ifstream(folder.file("log")).rdbuf();
    throw_error(ErrorCode::kInternal, {.what = "the shaped job failed", .got = log.str()});
  }
  timeline.steps = nlohmann::json::parse(file).at("spans").get<std::vector<double>>();
  return read_reports(shape, folder.file("report"));
}

// Both workers share the link: a step moves two sets of gradients one way, and two sets of
// parameters the other way.
Row sync_shaped_1g(const Rounds& rounds) {
  constexpr int kRounds = 3;
  JobShape shape = wide(JobShape::parameter_servers(2, 2, 30).with("sync_slices16"));
  const double bytes_s = 2 * kWideMegabytes * 1e6 * 8 / (kLinkMegabits * 1e6);
  const std::string picture = program_folder() + "/../sync_shaped_1g.svg";
  Timeline timeline;
  Row row = {
      .unit = "steps/s",
      .peer = "the larger of link and compute",
      .kind = BenchPeer::kLimit,
      .target = 0.9,
      .note = str_cat("2 workers share the link, 16 slices per server, FLEET_SEND_BUFFER=131072, ",
                      1e3 * bytes_s, " ms a step each way; timeline ", picture)};
  row.take(rounds.pairs(
      kRounds,
      [&] {
        timeline = {.title = "A worker's synchronous steps over 1 Gbit/s, 8.4 MB of parameters",
                    .link_mbit = kLinkMegabits};
        return run_shaped(shape, timeline).steps_per_s;
      },
      [&] {
        const double local_s = 1 / run_job(wide(JobShape::alone(60))).steps_per_s;
        return 1 / std::max(bytes_s, local_s);
      }));
  write_timeline(timeline, 4, picture);
  return row;
}

Row memory_server_8mb(const Rounds&) {
  return {.value = run_job(wide(JobShape::parameter_servers(2, 1, 100))).server_peak_mb,
          .unit = "MB",
          .peer = "30 MB + 3x parameters",
          .peer_value = 30 + 3 * kWideMegabytes,
          .better = Better::kLower,
          .kind = BenchPeer::kFixed,
          .target = 1.0};
}

// Rows of 8 floats on two servers, made, looked up and updated by one worker. What is resident
// there, against what the tables say that they take.
Row tables_of_servers(const Rounds& rounds, const std::string& net, int64_t ids, bool full) {
  constexpr int kIdsAStep = 100'000;
  Row row = {.unit = "MB",
             .peer = "bytes that the tables use",
             .better = Better::kLower,
             .kind = BenchPeer::kFixed,
             .target = 1 / 1.1};
  if (full && !rounds.full_size()) row.skipped = "it takes minutes: give --full";
  if (!row.skipped.empty()) return row;
  const auto batches = static_cast<int>(ids / kIdsAStep);
  JobShape shape = JobShape::parameter_servers(1, 2, 2 * batches);
  shape.launcher_args.emplace_back("--json");
  shape.net = net;
  shape.rows = kIdsAStep;
  shape.warm_up = batches;  // rows are made
  const JobResult job = run_job(shape);
  row.value = job.servers_peak_mb;
  row.peer_value = job.servers_table_mb;
  row.note = str_cat("most of the two servers' processes; million rows a second, looked up and ",
                     "updated: ", tools::significant(job.steps_per_s * kIdsAStep / 1e6));
  return row;
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  return bench_main(
      argc, argv, "Jobs of other modes, and larger and wider ones.",
      {{"async_2x2_mlp_b32",
        [](const Rounds& rounds) {
          return asynchronous(rounds, "async",
                              {.mode = HandwrittenMode::kAsync, .steps = kSmallSteps});
        }},
       {"half_async_2x2_mlp_b32",
        [](const Rounds& rounds) {
          return asynchronous(
              rounds, "half_async",
              {.mode = HandwrittenMode::kHalfAsync, .threads = 2, .steps = kSmallSteps});
        }},
       {"geo100_2x2_mlp_b32",
        [](const Rounds& rounds) {
          return mostly_alone(rounds,
                              JobShape::parameter_servers(2, 2, kLocalSteps).with("geo100"));
        }},
       {"localsgd8_2_mlp_b32",
        [](const Rounds& rounds) {
          return mostly_alone(rounds, JobShape::ranks(2, kLocalSteps).with("localsgd8"));
        }},
       {"ctr_dnn_2x2_async",
        [](const Rounds& rounds) { return ctr_dnn_2x2(rounds, "async", 0.7); }},
       {"ctr_dnn_2x2_sync", [](const Rounds& rounds) { return ctr_dnn_2x2(rounds, "", 0.6); }},
       {"tables_1e7",
        [](const Rounds& rounds) {
          return tables_of_servers(rounds, "ids_1e7", 10'000'000, false);
        }},
       {"tables_1e8",
        [](const Rounds& rounds) {
          return tables_of_servers(rounds, "ids_1e8", 100'000'000, true);
        }},
       {"sync_2x2_8mb", sync_2x2_8mb},
       {"sync_16_sleep20", sync_16_sleep20},
       {"sync_shaped_1g", sync_shaped_1g},
       {"memory_server_8mb", memory_server_8mb}});
}
