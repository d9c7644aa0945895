#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/strings.h"
#include "fluid/executor/places.h"
#include "fluid/io/atomic_file.h"
#include "tools/command_line.h"
#include "tools/explain/explain.h"
#include "tools/explain/read_input.h"
#include "tools/explain/render.h"
#include "tools/terminal.h"

namespace {

namespace po = boost::program_options;
using namespace fleet;
using transpiler::DistributeTranspilerConfig;
using Names = std::vector<std::string>;

constexpr int kDefaultColumns = 110;
constexpr int kMostColumns = 180;

tools::ToolInfo tool_info() {
  tools::ToolInfo info;
  info.name = "fleet-explain";
  info.sentence =
      "shows what the transpiler makes of a program and why, where parameters live, and what "
      "travels in a step. It needs no cluster.";
  info.usage = "[options] PROGRAM_OR_FOLDER";
  info.example = "fleet-explain --trainers 4 --servers 2 --html --output job.html programs";
  const auto text = [] { return po::value<std::string>(); };
  const auto number = [] { return po::value<int>(); };
  info.options.add_options()("mode", text(),
                             ("one of " + join(explain::mode_names(), ", ") +
                              "; default: the "
                              "job's own, else sync")
                                 .c_str())("trainers", number(),
                                           "how many; default: the job's own, else 2")(
      "servers", number(), "how many; default: the job's own, else 2")(
      "shards", number(), "logical shards of a step; default: the job's own, else the trainers")(
      "trainer", po::value<int>()->default_value(0), "which trainer is shown")(
      "min_block_size", number(), "elements; parameters are not cut into smaller slices")(
      "set", po::value<Names>()->composing(),
      "another field of DistributeTranspilerConfig, as name=value; may be given again")(
      "batch", po::value<int>()->default_value(1),
      "rows that a trainer feeds in a step, for estimates of sparse gradients")(
      "average_every", po::value<int>()->default_value(1),
      "steps between two averages of local_sgd")("startup", text(), "file of the startup program")(
      "place", text(),
      "where executors of trainers are: gpu or gpu:N shows which ops run on the device, and what "
      "is "
      "copied; needs none")("host_sums", po::bool_switch(),
                            "with --place: gradients are summed over host memory (device_sums = "
                            "\"host\")")("all", po::bool_switch(), "leave no row or server out")(
      "json", po::bool_switch(), "write JSON")("dot", po::bool_switch(), "write Graphviz")(
      "html", po::bool_switch(), "write one HTML page that stands alone")(
      "output", text(), "write to this file instead of standard output");
  info.hidden.add_options()("input", text()->required(), "a program's file, or a folder");
  info.positional.add("input", 1);
  return info;
}

// The value of a field from text; the default tells its kind.
fluid::Attribute parse_field(const std::string& name, const fluid::Attribute& now,
                             const std::string& value) {
  if (std::holds_alternative<bool>(now)) {
    if (const auto flag = parse_flag(value)) return *flag;
  } else if (std::holds_alternative<int64_t>(now)) {
    if (const auto number = parse_int(value)) return int64_t{*number};
  } else if (std::holds_alternative<double>(now)) {
    if (const auto number = parse_double(value)) return *number;
  } else {
    return value;
  }
  throw_error(ErrorCode::kInvalidArgument,
              {.what = str_cat("the value of ", name, " does not fit"),
               .where = "--set",
               .expected = std::string(fluid::kind_name(now)),
               .got = "'" + value + "'",
               .fix = "give name=value, with true or false for switches"});
}

void set_field(DistributeTranspilerConfig& config, const std::string& assignment) {
  auto fields = fluid::to_attributes(config);
  const size_t sign = assignment.find('=');
  const std::string name = assignment.substr(0, sign);
  if (sign == std::string::npos || !fields.contains(name)) {
    Names known;
    for (const auto& [key, value] : fields) known.push_back(key);
    throw_error(ErrorCode::kUnknownName, {.what = "no such field" + did_you_mean(name, known),
                                          .where = "--set",
                                          .expected = "name=value with one of " + join(known, ", "),
                                          .got = "'" + assignment + "'",
                                          .fix = "see transpiler/config.h"});
  }
  fields[name] = parse_field(name, fields.at(name), assignment.substr(sign + 1));
  config = fluid::parse_attributes<DistributeTranspilerConfig>("--set", fields);
}

// The job's own where the command line says nothing.
explain::ExplainOptions options_for(const explain::Input& input, const po::variables_map& given) {
  explain::ExplainOptions options;
  options.title = input.title;
  if (const auto& job = input.job; job && job->mode != "local") {
    options.trainers = job->trainers;
    options.servers = std::max(job->servers, 1);
    options.shards = job->shards == job->trainers ? 0 : job->shards;
    if (job->config) options.config = *job->config;
    options.endpoints = job->servers > 0 ? job->server_endpoints : job->worker_endpoints;
  }
  if (given.count("mode") > 0) {
    options.config = explain::config_of_mode(given["mode"].as<std::string>());
    options.endpoints.clear();
  }
  const auto take = [&given](const char* name, int& value) {
    if (given.count(name) > 0) value = given[name].as<int>();
  };
  const int trainers = options.trainers;
  const int servers = options.servers;
  take("trainers", options.trainers);
  take("servers", options.servers);
  if (trainers != options.trainers) options.shards = 0;
  if (trainers != options.trainers || servers != options.servers) options.endpoints.clear();
  take("shards", options.shards);
  take("min_block_size", options.config.min_block_size);
  if (given.count("set") > 0) {
    for (const std::string& field : given["set"].as<Names>()) set_field(options.config, field);
  }
  options.trainer = given["trainer"].as<int>();
  options.batch = given["batch"].as<int>();
  options.average_every = std::max(1, given["average_every"].as<int>());
  if (given.count("place") > 0) {
    options.place = fluid::place_named(given["place"].as<std::string>());
  }
  options.device_sums = !given["host_sums"].as<bool>();
  if (given["all"].as<bool>()) options.most_servers = static_cast<size_t>(-1);
  return options;
}

std::string draw(const explain::Explanation& explanation, const po::variables_map& given) {
  const bool all = given["all"].as<bool>();
  if (given["json"].as<bool>()) return explain::to_json(explanation);
  if (given["dot"].as<bool>()) return explain::draw_graph(explanation);
  if (given["html"].as<bool>()) {
    explain::PageOptions page;
    if (all) page.most_rows = page.most_text = static_cast<size_t>(-1);
    return explain::draw_page(explanation, page);
  }
  const tools::Terminal terminal = tools::standard_output(Environment::of_process());
  const bool to_file = given.count("output") > 0;
  explain::TextOptions text{.columns = kDefaultColumns,
                            .unicode = to_file || terminal.unicode,
                            .colour = !to_file && terminal.colour};
  if (!to_file && terminal.columns > 0) text.columns = std::min(terminal.columns, kMostColumns);
  if (all) text.most_rows = static_cast<size_t>(-1);
  return explain::draw_text(explanation, text);
}

void check_format(const po::variables_map& given) {
  int formats = 0;
  for (const char* name : {"json", "dot", "html"}) formats += given[name].as<bool>() ? 1 : 0;
  if (formats <= 1) return;
  throw_error(ErrorCode::kInvalidArgument, {.what = "several forms of output were asked for",
                                            .where = "--json, --dot, --html",
                                            .expected = "at most one of them",
                                            .got = str_cat(formats),
                                            .fix = "run the program once for each"});
}

// Nothing was asked for that the job did not have.
bool is_the_jobs_own(const po::variables_map& given) {
  constexpr std::array kOthers = {"mode", "trainers", "servers", "shards", "min_block_size", "set"};
  return std::none_of(kOthers.begin(), kOthers.end(),
                      [&given](const char* name) { return given.count(name) > 0; });
}

int run(const po::variables_map& given) {
  check_format(given);
  const std::string startup =
      given.count("startup") > 0 ? given["startup"].as<std::string>() : std::string();
  const auto input = explain::read_input(given["input"].as<std::string>(), startup);
  auto explanation = explain::explain(input.main, input.startup, options_for(input, given));
  if (is_the_jobs_own(given)) explain::compare(explanation, input.ran);
  const std::string drawing = draw(explanation, given);
  if (given.count("output") == 0) {
    std::cout << drawing << std::flush;
    return 0;
  }
  fluid::write_file_atomically(given["output"].as<std::string>(),
                               std::as_bytes(std::span(drawing)));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return tools::run_tool(tool_info(), argc, argv, run);
}
