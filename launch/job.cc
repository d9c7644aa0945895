#include "launch/job.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>
#include <string_view>

#include "base/strings.h"
#include "launch/process/gpus.h"

namespace fleet::launch {
namespace {

constexpr std::array<std::string_view, 10> kRolePrefixes = {
    "PADDLE_",    "OMPI_",      "PMIX_",         "PMI_",          "MPI_LOCAL",
    "SLURM_STEP", "SLURM_TASK", "TORCHELASTIC_", "FLEET_LAUNCH_", "PET_"};
constexpr std::array<std::string_view, 26> kRoleNames = {"TRAINING_ROLE",
                                                         "POD_IP",
                                                         "FLAGS_selected_gpus",
                                                         "TRAINER_PORTS_NUM",
                                                         "RANK",
                                                         "WORLD_SIZE",
                                                         "LOCAL_RANK",
                                                         "LOCAL_WORLD_SIZE",
                                                         "GROUP_RANK",
                                                         "GROUP_WORLD_SIZE",
                                                         "ROLE_RANK",
                                                         "ROLE_NAME",
                                                         "ROLE_WORLD_SIZE",
                                                         "MASTER_ADDR",
                                                         "MASTER_PORT",
                                                         "SLURM_PROCID",
                                                         "SLURM_LOCALID",
                                                         "SLURM_NODEID",
                                                         "SLURM_NTASKS",
                                                         "SLURM_NPROCS",
                                                         "SLURM_GTIDS",
                                                         "SYS_JOB_ID",
                                                         "FLEET_PROGRESS_FD",
                                                         "FLEET_LOCAL_PROCESSES",
                                                         "FLEET_LOCAL_INDEX",
                                                         "DISTRIBUTED_TRAINER_ENDPOINTS"};
constexpr std::array<std::string_view, 8> kTuningPrefixes = {
    "OMPI_MCA_btl", "OMPI_MCA_pml",   "OMPI_MCA_mpi",   "OMPI_MCA_coll",
    "OMPI_MCA_mtl", "OMPI_MCA_hwloc", "OMPI_MCA_rmaps", "PMIX_MCA_"};

bool begins_with_one_of(std::string_view name, const auto& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

bool is_role_variable(std::string_view name) {
  if (begins_with_one_of(name, kTuningPrefixes)) return false;
  return begins_with_one_of(name, kRolePrefixes) ||
         std::find(kRoleNames.begin(), kRoleNames.end(), name) != kRoleNames.end();
}

}  // namespace

std::string Member::title() const {
  return str_cat(role == Role::kWorker ? "worker " : "server ", index);
}

std::string launch_mark(const std::string& launch_id) {
  return str_cat(kLaunchIdVariable, "=", launch_id);
}

Environment without_role_variables(const Environment& environment) {
  auto variables = environment.all();
  std::erase_if(variables, [](const auto& entry) { return is_role_variable(entry.first); });
  return Environment(std::move(variables));
}

Environment merged(const Environment& base, const Environment& on_top) {
  Environment result = base;
  for (const auto& [name, value] : on_top.all()) result.set(name, value);
  return result;
}

std::pair<int, int> Nodes::workers_here(int workers) const {
  if (alone()) return {0, workers};
  const auto count = static_cast<int>(all.size());
  const auto at = static_cast<int>(std::find(all.begin(), all.end(), here) - all.begin());
  const int each = workers / count;
  const int extra = workers % count;
  const int begin = at * each + std::min(at, extra);
  return {begin, begin + each + (at < extra ? 1 : 0)};
}

std::vector<Endpoint> Nodes::deal_endpoints(int processes, int start_port) const {
  std::vector<Endpoint> endpoints;
  for (const std::string& node : all) {
    const auto [begin, end] = Nodes{all, node}.workers_here(processes);
    for (int i = 0; i < end - begin; ++i) {
      endpoints.push_back({.host = node, .port = static_cast<uint16_t>(start_port + i)});
    }
  }
  return endpoints;
}

std::vector<Endpoint> endpoints_here(const std::vector<Endpoint>& endpoints, const Nodes& nodes) {
  if (nodes.alone()) return endpoints;
  std::vector<Endpoint> here;
  std::copy_if(endpoints.begin(), endpoints.end(), std::back_inserter(here),
               [&nodes](const Endpoint& endpoint) { return endpoint.host == nodes.here; });
  return here;
}

std::vector<Member> parameter_server_members(int workers, const std::vector<Endpoint>& servers,
                                             const std::string& log_folder, const Nodes& nodes) {
  std::vector<Member> members;
  const Environment shared({{"PADDLE_PSERVERS_IP_PORT_LIST", join(to_strings(servers), ",")},
                            {"PADDLE_TRAINERS_NUM", str_cat(workers)}});
  size_t reserved = 0;
  for (size_t i = 0; i < servers.size(); ++i) {
    const Endpoint& endpoint = servers[i];
    if (!nodes.alone() && endpoint.host != nodes.here) continue;
    const Environment own({{"TRAINING_ROLE", "PSERVER"},
                           {"POD_IP", endpoint.host},
                           {"PADDLE_PORT", str_cat(endpoint.port)}});
    members.push_back({.role = Role::kServer,
                       .index = static_cast<int>(i),
                       .log_file = str_cat(log_folder, "/serverlog.", i),
                       .variables = merged(shared, own),
                       .port = reserved++});
  }
  const auto [first, last] = nodes.workers_here(workers);
  for (int i = first; i < last; ++i) {
    const Environment own({{"TRAINING_ROLE", "TRAINER"}, {"PADDLE_TRAINER_ID", str_cat(i)}});
    members.push_back({.role = Role::kWorker,
                       .index = i,
                       .log_file = str_cat(log_folder, "/workerlog.", i),
                       .variables = merged(shared, own),
                       .port = std::nullopt});
  }
  return members;
}

namespace {

Member rank_of(int index, size_t local, Environment variables, const std::vector<std::string>& gpus,
               const std::string& log_folder) {
  if (!gpus.empty()) variables = merged(variables, gpu_variables(gpus, local));
  return {.role = Role::kWorker,
          .index = index,
          .log_file = str_cat(log_folder, "/workerlog.", index),
          .variables = std::move(variables),
          .port = std::nullopt};
}

}  // namespace

std::vector<Member> collective_members(const std::vector<Endpoint>& endpoints,
                                       const std::vector<std::string>& gpus,
                                       const std::string& log_folder, const Nodes& nodes) {
  std::vector<Member> members;
  for (size_t i = 0; i < endpoints.size(); ++i) {
    if (!nodes.alone() && endpoints[i].host != nodes.here) continue;
    const Environment variables({{"PADDLE_TRAINER_ID", str_cat(i)},
                                 {"PADDLE_TRAINERS_NUM", str_cat(endpoints.size())},
                                 {"PADDLE_TRAINER_ENDPOINTS", join(to_strings(endpoints), ",")},
                                 {"PADDLE_CURRENT_ENDPOINT", endpoints[i].to_string()}});
    const size_t local = members.size();
    members.push_back(rank_of(static_cast<int>(i), local, variables, gpus, log_folder));
    members.back().port = local;
  }
  return members;
}

std::vector<Member> numbered_members(const NumberedNodes& nodes, int ranks,
                                     const std::vector<std::string>& gpus,
                                     const std::string& log_folder) {
  std::vector<Member> members;
  members.reserve(static_cast<size_t>(ranks));
  for (int local = 0; local < ranks; ++local) {
    const int rank = nodes.rank * ranks + local;
    const Environment variables({{"RANK", str_cat(rank)},
                                 {"WORLD_SIZE", str_cat(nodes.count * ranks)},
                                 {"LOCAL_RANK", str_cat(local)},
                                 {"LOCAL_WORLD_SIZE", str_cat(ranks)},
                                 {"MASTER_ADDR", nodes.master.host},
                                 {"MASTER_PORT", str_cat(nodes.master.port)}});
    members.push_back(rank_of(rank, static_cast<size_t>(local), variables, gpus, log_folder));
  }
  return members;
}

std::string describe(const Job& job) {
  std::ostringstream out;
  out << "job      " << (job.job_id.empty() ? "named by its endpoints" : job.job_id)
      << "\nprogram  " << job.program << "\narguments";
  for (size_t i = 1; i < job.command.size(); ++i) out << " '" << job.command[i] << "'";
  out << "\nlogs     " << job.log_folder << "\n";
  for (const Member& member : job.members) {
    out << member.title() << "  log=" << member.log_file;
    for (const auto& [name, value] : member.variables.all()) out << " " << name << "=" << value;
    out << "\n";
  }
  return std::move(out).str();
}

}  // namespace fleet::launch
