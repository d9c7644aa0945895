// What processes write under FLEET_DUMP_PROGRAM, for people and tools to read: programs, and the
// job that they belong to. Each file is there wholly or not at all.
//
// In the folder, for each process "worker_<index>" or "server_<index>":
//   <process>.origin_main.{txt,json}     the user's program, as minimize completed it
//   <process>.origin_startup.{txt,json}
//   <process>.main.{txt,json}            what this process runs every step
//   <process>.startup.{txt,json}         what it runs once
//   <process>.cluster.json               the job, and how it was transpiled
// The origin's are the same in every process. Whoever attaches a runtime to programs of his own
// (strategies/jobs/attach.h) gets no startup, and as origin the thread's default programs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "fluid/program/program.h"
#include "role_maker/cluster_spec.h"
#include "transpiler/config.h"

namespace fleet::strategies {

// A job as its processes describe it.
struct JobDescription {
  std::string mode;  // role_maker::to_string(Mode)
  int trainers = 1;
  int servers = 0;
  int shards = 1;
  std::vector<std::string> server_endpoints;
  std::vector<std::string> worker_endpoints;
  std::string strategy;
  // How its programs were transpiled; none in a local job, and with strategies that do not say.
  std::optional<transpiler::DistributeTranspilerConfig> config;

  bool operator==(const JobDescription&) const = default;
};

JobDescription describe_job(const role_maker::ClusterSpec& cluster, int shards,
                            std::string strategy,
                            const transpiler::DistributeTranspilerConfig* config);

// "worker_0".
std::string dump_name(const role_maker::ClusterSpec& cluster);

// These make the folder. They throw ResourceError for one that cannot be written to.
void dump_program(const std::filesystem::path& folder, const std::string& name,
                  const fluid::Program& program);
void dump_job(const std::filesystem::path& folder, const std::string& name,
              const JobDescription& job);

// What dump_job wrote. Throws ResourceError for a file that is missing or damaged.
JobDescription read_job(const std::filesystem::path& file);

}  // namespace fleet::strategies
