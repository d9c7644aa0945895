// fleet-comm-bench: how fast the ranks of a job exchange tensors, on the user's own machines.
#include <atomic>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/strings.h"
#include "fleet/status_reporter.h"
#include "role_maker/role_maker.h"
#include "strategies/jobs/collective_group.h"
#include "strategies/jobs/job_identity.h"
#include "tools/comm_bench/comm_bench.h"
#include "tools/command_line.h"
#include "tools/text_table.h"

namespace {

namespace po = boost::program_options;
using namespace fleet;

tools::ToolInfo tool_info() {
  tools::ToolInfo info;
  info.name = "fleet-comm-bench";
  info.sentence =
      "measures how long collective operations between the ranks of a job take, by size.";
  info.usage = "[options]      in every rank, started by launch, mpirun or torchrun";
  info.example = "launch --nproc_per_node 2 fleet-comm-bench --max 1048576";
  const tools::CommBenchOptions standard;
  info.options.add_options()(
      "operations", po::value<std::string>()->default_value(join(tools::comm_operations(), ",")),
      "what to measure, comma separated")(
      "min", po::value<size_t>()->default_value(standard.least_bytes), "bytes of the first size")(
      "max", po::value<size_t>()->default_value(standard.most_bytes), "bytes of the last size")(
      "factor", po::value<int>()->default_value(standard.factor), "from one size to the next")(
      "seconds", po::value<double>()->default_value(0.2), "for which each size is repeated")(
      "json", po::value<std::string>(), "rank 0 writes its rows to this file");
  return info;
}

tools::CommBenchOptions options_of(const po::variables_map& given,
                                   const strategies::RuntimeConfig& config) {
  tools::CommBenchOptions options;
  options.operations = split(given["operations"].as<std::string>(), ',');
  options.least_bytes = given["min"].as<size_t>();
  options.most_bytes = given["max"].as<size_t>();
  options.factor = given["factor"].as<int>();
  options.budget = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(given["seconds"].as<double>()));
  options.timeout = strategies::longest_wait(config);
  return options;
}

std::string two_digits(double value) {
  std::ostringstream text;
  text.setf(std::ios::fixed);
  text.precision(2);
  text << value;
  return std::move(text).str();
}

void print(const std::vector<tools::CommRow>& rows) {
  tools::TextTable table(
      {"operation", "bytes", "median us", "least", "most", "GB/s", "link GB/s", "repeats"});
  for (const tools::CommRow& row : rows) {
    table.add_row({row.operation, str_cat(row.bytes), two_digits(row.median_us),
                   two_digits(row.least_us), two_digits(row.most_us), two_digits(row.bandwidth),
                   two_digits(row.link_bandwidth), str_cat(row.repeats)});
  }
  table.print(std::cout);
}

void write_json(const std::string& file, const std::vector<tools::CommRow>& rows) {
  auto all = nlohmann::json::array();
  for (const tools::CommRow& row : rows) {
    all.push_back({{"operation", row.operation},
                   {"bytes", row.bytes},
                   {"median_us", row.median_us},
                   {"least_us", row.least_us},
                   {"most_us", row.most_us},
                   {"bandwidth_gb_s", row.bandwidth},
                   {"link_bandwidth_gb_s", row.link_bandwidth},
                   {"repeats", row.repeats}});
  }
  if (std::ofstream(file) << all.dump(1) << "\n" << std::flush) return;
  throw_error(ErrorCode::kInput, {.what = "a file cannot be written",
                                  .where = file,
                                  .expected = "a path that this user may write",
                                  .got = "",
                                  .fix = "give another path"});
}

// What all ranks must have in common.
std::map<std::string, std::string> facts_of(const po::variables_map& given) {
  auto facts = strategies::bits_facts();
  facts["program"] = "fleet-comm-bench";
  facts["options"] = str_cat(given["operations"].as<std::string>(), " ", given["min"].as<size_t>(),
                             " ", given["max"].as<size_t>(), " ", given["factor"].as<int>());
  return facts;
}

int run(const po::variables_map& given) {
  const Environment environment = Environment::of_process();
  role_maker::PaddleCloudRoleMaker maker({.is_collective = true});
  maker.generate_role();
  const role_maker::ClusterSpec& cluster = maker.cluster_spec();
  const auto config = strategies::RuntimeConfig::from_environment(environment);
  Logger logger;
  logger.set_level(cluster.index == 0 ? LogLevel::kInfo : LogLevel::kWarning);
  logger.set_identity(cluster.process_name());
  const auto observer = std::make_shared<strategies::JobObserver>();
  std::atomic<bool> over = false;
  const auto progress = environment.get("FLEET_PROGRESS_FD");
  std::optional<StatusReporter> reporter;
  reporter.emplace(StatusReporterOptions{
      .progress_fd = progress ? static_cast<int>(parse_int(*progress).value_or(-1)) : -1,
      .progress = [&over] { return str_cat("step=0 completed=", over ? 1 : 0); },
      .stall =
          [observer] {
            const auto stall = observer->stall();
            return stall ? stall->to_line() : std::string();
          },
      .waits = [observer] { return observer->waits.ask(std::chrono::milliseconds(500)); },
      .logger = logger});

  strategies::CollectiveGroup group({.cluster = cluster,
                                     .config = config,
                                     .facts = facts_of(given),
                                     .observer = observer,
                                     .logger = logger});
  const auto options = options_of(given, config);
  std::vector<tools::CommRow> rows;
  {
    const auto communicator = group.connect();
    run_comm_bench(*communicator, options, [&](const tools::CommRow& row) {
      rows.push_back(row);
      group.enter(transport::Phase::kReducing, rows.size());
    });
    group.leave();
  }
  over = true;
  reporter.reset();
  if (cluster.index != 0) return 0;
  std::cout << cluster.worker_num << " ranks\n";
  print(rows);
  if (given.count("json") > 0) write_json(given["json"].as<std::string>(), rows);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tools::run_tool(tool_info(), argc, argv, run);
}
