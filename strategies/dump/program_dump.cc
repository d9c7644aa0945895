#include "strategies/dump/program_dump.h"

#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/io/atomic_file.h"

namespace fleet::strategies {
namespace {

using Json = nlohmann::json;
using transpiler::DistributeTranspilerConfig;

constexpr size_t kMostBytes = size_t{1} << 24;

void write(const std::filesystem::path& path, const std::string& text) {
  try {
    fluid::write_file_atomically(path, std::as_bytes(std::span(text)));
  } catch (const Error& error) {
    ErrorText problem = error.text();
    problem.fix = "correct or unset FLEET_DUMP_PROGRAM";
    throw_error(error.code(), std::move(problem));
  }
}

Json json_of(const fluid::Attribute& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* integer = std::get_if<int64_t>(&value)) return *integer;
  if (const auto* number = std::get_if<double>(&value)) return *number;
  return std::get<std::string>(value);
}

fluid::Attribute attribute_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  return value.get<std::string>();
}

Json json_of(const JobDescription& job) {
  Json config;
  if (job.config) {
    for (const auto& [name, value] : fluid::to_attributes(*job.config)) {
      config[name] = json_of(value);
    }
  }
  return {{"mode", job.mode},
          {"trainers", job.trainers},
          {"servers", job.servers},
          {"shards", job.shards},
          {"server_endpoints", job.server_endpoints},
          {"worker_endpoints", job.worker_endpoints},
          {"strategy", job.strategy},
          {"transpiler", std::move(config)}};
}

JobDescription job_of(const Json& json) {
  JobDescription job{.mode = json.at("mode"),
                     .trainers = json.at("trainers"),
                     .servers = json.at("servers"),
                     .shards = json.at("shards"),
                     .server_endpoints = json.at("server_endpoints"),
                     .worker_endpoints = json.at("worker_endpoints"),
                     .strategy = json.at("strategy"),
                     .config = std::nullopt};
  const Json& config = json.at("transpiler");
  if (config.is_null()) return job;
  fluid::AttributeMap fields;
  for (const auto& [name, value] : config.items()) fields[name] = attribute_of(value);
  job.config = fluid::parse_attributes<DistributeTranspilerConfig>("transpiler", fields);
  return job;
}

}  // namespace

JobDescription describe_job(const role_maker::ClusterSpec& cluster, int shards,
                            std::string strategy, const DistributeTranspilerConfig* config) {
  JobDescription job{.mode = std::string(role_maker::to_string(cluster.mode)),
                     .trainers = cluster.worker_num,
                     .servers = cluster.server_num,
                     .shards = shards,
                     .server_endpoints = cluster.server_endpoints,
                     .worker_endpoints = cluster.worker_endpoints,
                     .strategy = std::move(strategy),
                     .config = std::nullopt};
  if (config != nullptr) job.config = *config;
  return job;
}

std::string dump_name(const role_maker::ClusterSpec& cluster) {
  return str_cat(role_maker::to_string(cluster.role), "_", cluster.index);
}

void dump_program(const std::filesystem::path& folder, const std::string& name,
                  const fluid::Program& program) {
  write(folder / (name + ".txt"), program.to_string());
  write(folder / (name + ".json"), program.to_json());
}

void dump_job(const std::filesystem::path& folder, const std::string& name,
              const JobDescription& job) {
  write(folder / (name + ".cluster.json"), json_of(job).dump(1) + "\n");
}

JobDescription read_job(const std::filesystem::path& file) {
  const auto bytes = fluid::read_whole_file(file, kMostBytes);
  std::string problem;
  try {
    return job_of(Json::parse(reinterpret_cast<const char*>(bytes.data()),
                              reinterpret_cast<const char*>(bytes.data()) + bytes.size()));
  } catch (const Json::exception& error) {
    problem = error.what();
  } catch (const Error& error) {
    problem = error.text().what;
  }
  throw_error(ErrorCode::kCorruptFile, {.what = "the description of a job is damaged",
                                        .where = "file " + file.string(),
                                        .expected = "what FLEET_DUMP_PROGRAM wrote",
                                        .got = std::move(problem),
                                        .fix = "run the job again with FLEET_DUMP_PROGRAM"});
}

}  // namespace fleet::strategies
