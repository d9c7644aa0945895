#include "benchmarks/job.h"

#include <algorithm>
#include <fstream>
#include <future>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/harness/measure.h"
#include "benchmarks/harness/process.h"

namespace fleet::benchmarks {
namespace {

nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw_error(ErrorCode::kInput, {.what = "a process left no report", .where = path});
  return nlohmann::json::parse(file);
}

// Of the launcher's last progress line.
double table_mb(const std::string& output) {
  if (output.empty()) return 0;
  const size_t before = output.find_last_of('\n', output.size() - 2);
  const size_t line = before == std::string::npos ? 0 : before + 1;
  const auto json = nlohmann::json::parse(output.substr(line), nullptr, /*allow_exceptions=*/false);
  double bytes = 0;
  if (json.is_object() && json.contains("servers")) {
    for (const auto& server : json.at("servers")) bytes += server.value("table_bytes", 0.0);
  }
  return bytes / 1e6;
}

}  // namespace

JobShape JobShape::parameter_servers(int workers, int servers, int steps) {
  JobShape shape;
  shape.launcher_args = {"--worker_num", std::to_string(workers), "--server_num",
                         std::to_string(servers)};
  shape.workers = workers;
  shape.servers = servers;
  shape.steps = steps;
  return shape;
}

JobShape JobShape::ranks(int ranks, int steps) {
  JobShape shape;
  shape.launcher = "launch";
  shape.launcher_args = {"--nproc_per_node", std::to_string(ranks)};
  shape.workers = ranks;
  shape.steps = steps;
  return shape;
}

JobShape JobShape::alone(int steps) {
  JobShape shape;
  shape.launcher = {};
  shape.workers = 1;
  shape.steps = steps;
  return shape;
}

JobShape JobShape::with(std::string of_strategy, int of_threads) const {
  JobShape shape = *this;
  shape.strategy = std::move(of_strategy);
  shape.threads = of_threads;
  return shape;
}

std::vector<std::string> worker_command(const JobShape& shape, const std::string& report) {
  std::vector<std::string> argv = {program_folder() + "/measured_worker"};
  const auto add = [&argv](const char* flag, int value) {
    argv.emplace_back(flag);
    argv.push_back(std::to_string(value));
  };
  add("--steps", shape.steps);
  add("--rows", shape.rows);
  add("--inputs", shape.inputs);
  add("--hidden", shape.hidden);
  add("--sleep_ms", shape.sleep_ms);
  add("--threads", shape.threads);
  add("--warm_up", shape.warm_up);
  add("--checkpoint_every", shape.checkpoint_every);
  add("--saves", shape.saves);
  argv.insert(argv.end(), {"--optimizer", shape.optimizer});
  if (!shape.net.empty()) argv.insert(argv.end(), {"--net", shape.net});
  if (!shape.strategy.empty()) argv.insert(argv.end(), {"--strategy", shape.strategy});
  if (shape.step_times) argv.emplace_back("--spans");
  if (!shape.checkpoints.empty()) argv.insert(argv.end(), {"--checkpoints", shape.checkpoints});
  argv.emplace_back("--report");
  argv.push_back(report);
  return argv;
}

JobResult read_reports(const JobShape& shape, const std::string& report) {
  JobResult found;
  for (int w = 0; w < shape.workers; ++w) {
    const auto json = read_json(str_cat(report, ".worker", w));
    const double rate = json.at("steps_per_s").get<double>();
    found.steps_per_s = w == 0 ? rate : std::min(found.steps_per_s, rate);
    const auto slowest = [&json](const char* times, double other) {
      return std::max(other, median(json.at(times).get<std::vector<double>>()));
    };
    found.save_s = slowest("save_s", found.save_s);
    found.load_s = slowest("load_s", found.load_s);
    if (w == 0) found.step_times = json.at("spans").get<std::vector<double>>();
    found.worker_cpu_us += json.at("cpu_us_per_step").get<double>() / shape.workers;
  }
  for (int s = 0; s < shape.servers; ++s) {
    const auto json = read_json(str_cat(report, ".server", s));
    found.server_peak_mb = std::max(found.server_peak_mb, json.at("peak_mb").get<double>());
    found.servers_peak_mb += json.at("peak_mb").get<double>();
    found.server_cpu_us += json.at("cpu_us").get<double>() / (shape.steps * shape.workers);
  }
  return found;
}

std::vector<std::string> job_command(const JobShape& shape, const TemporaryFolder& folder) {
  std::vector<std::string> argv;
  if (!shape.launcher.empty()) {
    argv.push_back(program_folder() + "/" + shape.launcher);
    argv.insert(argv.end(), shape.launcher_args.begin(), shape.launcher_args.end());
    argv.insert(argv.end(), {"--log_dir", folder.file("logs")});
  }
  const auto command = worker_command(shape, folder.file("report"));
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

JobResult run_job(const JobShape& shape) {
  const TemporaryFolder folder;
  const std::vector<std::string> argv = job_command(shape, folder);
  std::vector<std::string> environment = shape.environment;
  environment.push_back(str_cat("CPU_NUM=", shape.threads));
  const auto result = run_to_success(argv, environment);
  JobResult found = read_reports(shape, folder.file("report"));
  found.servers_table_mb = table_mb(result.output);
  found.seconds = result.seconds;
  return found;
}

double steps_per_s_side_by_side(const JobShape& shape, int count) {
  std::vector<std::future<JobResult>> runs;
  runs.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    runs.push_back(std::async(std::launch::async, [&shape] { return run_job(shape); }));
  }
  double slowest = std::numeric_limits<double>::infinity();
  for (auto& run : runs) slowest = std::min(slowest, run.get().steps_per_s);
  return slowest;
}

}  // namespace fleet::benchmarks
