#include "role_maker/contracts.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "role_maker/variable_reader.h"

namespace fleet::role_maker {
namespace {

bool paddle_triggered(const Environment& env) {
  return env.has("TRAINING_ROLE") || env.has("PADDLE_TRAINING_ROLE") ||
         env.has("PADDLE_TRAINER_ENDPOINTS") || env.first_with_prefix("PADDLE_PSERVERS");
}

bool torchrun_triggered(const Environment& env) {
  return env.has("RANK") && env.has("WORLD_SIZE");
}

bool slurm_triggered(const Environment& env) {
  return env.has("SLURM_PROCID") && env.has("SLURM_STEP_ID");
}

// TRAINING_ROLE, or its later name PADDLE_TRAINING_ROLE; both must say the same.
std::optional<Role> read_role(VariableReader& read) {
  const auto old_name = read.optional("TRAINING_ROLE", "role");
  const auto new_name = read.optional("PADDLE_TRAINING_ROLE", "role");
  if (old_name && new_name && *old_name != *new_name) {
    fail_environment({.what = "two variables name different roles",
                      .where = "TRAINING_ROLE, PADDLE_TRAINING_ROLE",
                      .expected = "the same role in both",
                      .got = str_cat(*old_name, " and ", *new_name),
                      .fix = "unset one of them"});
  }
  const auto& value = old_name ? old_name : new_name;
  if (!value) return std::nullopt;
  if (*value == "TRAINER") return Role::kWorker;
  if (*value == "PSERVER") return Role::kServer;
  fail_environment({.what = "a role is not known",
                    .where = old_name ? "TRAINING_ROLE" : "PADDLE_TRAINING_ROLE",
                    .expected = "TRAINER or PSERVER",
                    .got = str_cat('\'', *value, '\''),
                    .fix = "set it to TRAINER for a worker, to PSERVER for a server"});
}

// As an entry of a list has it; an address of IPv6 may stand with brackets or without.
std::string joined_endpoint(std::string_view host, std::string_view port) {
  const std::string bare = bare_host(host);
  return bare.find(':') == std::string::npos ? str_cat(bare, ':', port)
                                             : str_cat('[', bare, "]:", port);
}

std::vector<std::string> bare_hosts(const std::vector<std::string>& addresses) {
  std::vector<std::string> hosts;
  hosts.reserve(addresses.size());
  for (const auto& address : addresses) hosts.push_back(bare_host(address));
  return hosts;
}

// The servers' endpoints: PADDLE_PSERVERS_IP_PORT_LIST, or the older PADDLE_PSERVERS, a list of
// addresses that share PADDLE_PORT.
std::vector<std::string> read_servers(VariableReader& read) {
  const auto endpoints = read.optional("PADDLE_PSERVERS_IP_PORT_LIST", "server_endpoints");
  const auto addresses = read.optional("PADDLE_PSERVERS", "server_endpoints");
  if (!endpoints && !addresses) {
    read.missing("PADDLE_PSERVERS_IP_PORT_LIST", "the servers' host:port, separated by commas");
    return {};
  }
  if (!endpoints) {
    const std::string port = read.optional("PADDLE_PORT", "server_endpoints").value_or("6174");
    std::vector<std::string> joined;
    for (const auto& address : read_list(*addresses)) {
      const std::string endpoint = joined_endpoint(address, port);
      joined.push_back(parse_endpoint(endpoint, "PADDLE_PSERVERS, PADDLE_PORT").to_string());
    }
    return joined;
  }
  auto list = read_list(*endpoints);
  std::vector<std::string> hosts;
  hosts.reserve(list.size());
  for (const auto& endpoint : list) {
    hosts.push_back(parse_endpoint(endpoint, "PADDLE_PSERVERS_IP_PORT_LIST").host);
  }
  if (addresses && bare_hosts(read_list(*addresses)) != hosts) {
    fail_environment({.what = "two variables list different servers",
                      .where = "PADDLE_PSERVERS_IP_PORT_LIST, PADDLE_PSERVERS",
                      .expected = "the same addresses in the same order",
                      .got = str_cat(*endpoints, " and ", *addresses),
                      .fix = "unset PADDLE_PSERVERS, the older name"});
  }
  return list;
}

// A server's place: where its own POD_IP:PADDLE_PORT stands in the list; PADDLE_PSERVER_ID, where
// it is set, must say the same or stand alone.
void read_server_index(VariableReader& read, ClusterSpec& spec) {
  const bool old_names = !read.environment().has("PADDLE_PSERVERS_IP_PORT_LIST");
  const auto id = read.number("PADDLE_PSERVER_ID", "index");
  const auto host = read.optional("POD_IP", "index");
  auto port = read.optional("PADDLE_PORT", "index");
  if (!port && old_names) port = "6174";
  if (id && !host) {
    spec.index = *id;
    return;
  }
  if (!host) read.missing("POD_IP", "this server's address as the list of servers has it");
  if (!port) read.missing("PADDLE_PORT", "this server's port as the list of servers has it");
  if (!host || !port) return;
  const std::string own = joined_endpoint(*host, *port);
  const auto& list = spec.server_endpoints;
  const auto found = std::find(list.begin(), list.end(), own);
  if (found == list.end()) {
    fail_environment({.what = "this server is not in the list of servers",
                      .where = "POD_IP, PADDLE_PORT",
                      .expected = str_cat("one of ", join(list, ",")),
                      .got = own,
                      .fix = "correct POD_IP and PADDLE_PORT, or the list"});
  }
  spec.index = static_cast<int>(found - list.begin());
  if (id && *id != spec.index) {
    fail_environment({.what = "two variables give this server different places",
                      .where = "PADDLE_PSERVER_ID, POD_IP with PADDLE_PORT",
                      .expected = "the same place in the list of servers",
                      .got = str_cat(*id, " and ", own, ", which is server ", spec.index),
                      .fix = "unset PADDLE_PSERVER_ID"});
  }
}

void check_trainer_count(const ClusterSpec& spec, std::optional<int> count) {
  const auto listed = spec.worker_endpoints.size();
  if (!count || spec.worker_endpoints.empty() || static_cast<size_t>(*count) == listed) return;
  fail_environment({.what = "two variables give different numbers of workers",
                    .where = "PADDLE_TRAINERS_NUM, PADDLE_TRAINER_ENDPOINTS",
                    .expected = "as many endpoints as workers",
                    .got = str_cat(*count, " and ", listed, " endpoints (",
                                   join(spec.worker_endpoints, ","), ")"),
                    .fix = "correct PADDLE_TRAINERS_NUM or the list"});
}

// `count` is unset when what says it is missing, which is reported with the rest.
void read_trainer_index(VariableReader& read, std::optional<int> count, ClusterSpec& spec) {
  if (count == 0) {
    fail_environment({.what = "a job needs at least one worker",
                      .where = "PADDLE_TRAINERS_NUM",
                      .expected = "1 or more",
                      .got = "0",
                      .fix = "set it to the number of workers"});
  }
  spec.worker_num = count.value_or(1);
  const auto id = read.number("PADDLE_TRAINER_ID", "index");
  if (!id && count != 1) read.missing("PADDLE_TRAINER_ID", "this worker's number, from 0");
  spec.index = id.value_or(0);
  if (count && spec.index >= *count) {
    fail_environment({.what = "this worker's id is out of range",
                      .where = "PADDLE_TRAINER_ID",
                      .expected = str_cat("0 to ", *count - 1, ", for ", *count, " workers"),
                      .got = str_cat(spec.index),
                      .fix = "number the workers from 0 and give all of them the same count"});
  }
}

ClusterSpec paddle_servers(const Environment& env) {
  VariableReader read(env, Contract::kPaddle);
  ClusterSpec spec;
  spec.mode = Mode::kParameterServer;
  const auto role = read_role(read);
  if (!role) read.missing("TRAINING_ROLE", "TRAINER or PSERVER");
  spec.role = role.value_or(Role::kWorker);
  spec.server_endpoints = read_servers(read);
  spec.server_num = static_cast<int>(spec.server_endpoints.size());
  if (const auto workers = read.optional("PADDLE_TRAINER_ENDPOINTS", "worker_endpoints")) {
    spec.worker_endpoints = read_list(*workers);
  }
  const auto count = read.number("PADDLE_TRAINERS_NUM", "worker_num");
  const bool old_names = env.has("PADDLE_PSERVERS") && !env.has("PADDLE_PSERVERS_IP_PORT_LIST");
  if (!count && !old_names) read.missing("PADDLE_TRAINERS_NUM", "the number of workers");
  check_trainer_count(spec, count);
  if (spec.is_server()) {
    spec.worker_num = count.value_or(1);
    read_server_index(read, spec);
  } else {
    read_trainer_index(read, old_names ? count.value_or(1) : count, spec);
  }
  read.finish(spec);
  return spec;
}

ClusterSpec paddle_collective(const Environment& env) {
  VariableReader read(env, Contract::kPaddle);
  ClusterSpec spec;
  spec.mode = Mode::kCollective;
  if (read_role(read) == Role::kServer) {
    fail_environment({.what = "a collective job has no servers",
                      .where = "TRAINING_ROLE",
                      .expected = "TRAINER",
                      .got = "PSERVER",
                      .fix = "list the servers in PADDLE_PSERVERS_IP_PORT_LIST and do not ask the "
                             "role maker for a collective job"});
  }
  const auto list = read.required("PADDLE_TRAINER_ENDPOINTS", "worker_endpoints",
                                  "the workers' host:port, separated by commas");
  const auto own =
      read.required("PADDLE_CURRENT_ENDPOINT", "index", "this worker's entry of the list");
  spec.worker_endpoints = read_list(list.value_or(""));
  check_trainer_count(spec, read.number("PADDLE_TRAINERS_NUM", "worker_num"));
  const auto count = static_cast<int>(spec.worker_endpoints.size());
  read_trainer_index(read, list ? std::optional(count) : std::nullopt, spec);
  read.finish(spec);
  if (own && spec.current_endpoint() != *own) {
    fail_environment({.what = "two variables give this worker different places",
                      .where = "PADDLE_CURRENT_ENDPOINT, PADDLE_TRAINER_ID",
                      .expected = str_cat(spec.current_endpoint(), ", entry ", spec.index, " of ",
                                          join(spec.worker_endpoints, ",")),
                      .got = *own,
                      .fix = "correct PADDLE_CURRENT_ENDPOINT or PADDLE_TRAINER_ID"});
  }
  return spec;
}

ClusterSpec paddle_contract(const Environment& env, std::optional<bool> is_collective) {
  const bool lists_servers = env.first_with_prefix("PADDLE_PSERVERS").has_value();
  const bool lists_workers = env.has("PADDLE_TRAINER_ENDPOINTS");
  const bool is_server =
      env.get("TRAINING_ROLE") == "PSERVER" || env.get("PADDLE_TRAINING_ROLE") == "PSERVER";
  const bool collective = is_collective.value_or(lists_workers && !lists_servers && !is_server);
  return collective ? paddle_collective(env) : paddle_servers(env);
}

// Where rank 0 waits under torchrun, whose agent holds the port itself.
std::string beside(const std::string& master) {
  Endpoint endpoint = parse_endpoint(master, "MASTER_ADDR, MASTER_PORT");
  endpoint.port = static_cast<uint16_t>(endpoint.port == 65535 ? 65534 : endpoint.port + 1);
  return endpoint.to_string();
}

// The first host of Slurm's list: "node03" of "node[03-05,9],other".
std::string first_host(std::string_view list) {
  std::string host;
  bool skips = false;  // the rest of a bracket
  bool inside = false;
  for (const char c : list) {
    if (c == ',' && !inside) break;
    if (c == '[') {
      inside = true;
    } else if (c == ']') {
      inside = skips = false;
    } else if (inside && (c == '-' || c == ',')) {
      skips = true;
    } else if (!skips) {
      host += c;
    }
  }
  return host;
}

constexpr int kSlurmPorts = 20000;  // ranks of a job meet at one of the 10 000 from here on

// Without PMI (srun --mpi=none, or Slurm's default) the ranks meet on the first node, at a port
// that follows from the job's number.
void meet_without_mpi(VariableReader& read, ClusterSpec& spec) {
  const Environment& env = read.environment();
  if (env.has("PMIX_RANK") || env.has("PMI_SIZE") || env.has("PMI_RANK")) return;
  const auto nodes = env.has("SLURM_STEP_NODELIST")
                         ? read.optional("SLURM_STEP_NODELIST", "rendezvous")
                         : read.optional("SLURM_JOB_NODELIST", "rendezvous");
  if (!nodes || first_host(*nodes).empty()) return;
  const auto job = read.number("SLURM_JOB_ID", "rendezvous");
  const auto step = read.number("SLURM_STEP_ID", "rendezvous");
  const auto port = read.number("MASTER_PORT", "rendezvous");
  const int64_t numbered = int64_t{job.value_or(0)} * 16 + step.value_or(0);
  spec.rendezvous =
      joined_endpoint(first_host(*nodes), str_cat(port ? *port : kSlurmPorts + numbered % 10000));
  const bool one_node = read.number("SLURM_STEP_NUM_NODES", "local_worker_num") == 1;
  spec.local_worker_num = one_node ? spec.worker_num : 0;
}

ClusterSpec ranks_contract(const Environment& env, Contract contract, const char* rank_name,
                           const char* size_name, std::string_view launcher) {
  VariableReader read(env, contract);
  ClusterSpec spec;
  spec.mode = Mode::kCollective;
  const auto rank = read.required_number(rank_name, "index", "this process's rank");
  const auto size = read.required_number(size_name, "worker_num", "the number of processes");
  if (contract == Contract::kTorchrun) {
    const auto host = read.required("MASTER_ADDR", "rendezvous", "rank 0's address");
    const auto port = read.required("MASTER_PORT", "rendezvous", "rank 0's port");
    if (host && port) spec.rendezvous = beside(joined_endpoint(*host, *port));
    spec.local_worker_num = read.number("LOCAL_WORLD_SIZE", "local_worker_num").value_or(0);
  }
  spec.index = rank.value_or(0);
  spec.worker_num = size.value_or(1);
  if (contract == Contract::kSlurm) meet_without_mpi(read, spec);
  read.finish(spec);
  if (*rank >= *size) {
    fail_environment({.what = "a rank is out of range",
                      .where = str_cat(rank_name, ", ", size_name),
                      .expected = str_cat(rank_name, " below ", size_name),
                      .got = str_cat(*rank, " and ", *size),
                      .fix = str_cat("start the processes with ", launcher)});
  }
  return spec;
}

ClusterSpec torchrun_contract(const Environment& env) {
  return ranks_contract(env, Contract::kTorchrun, "RANK", "WORLD_SIZE", "torchrun");
}

ClusterSpec slurm_contract(const Environment& env) {
  const char* size = env.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  return ranks_contract(env, Contract::kSlurm, "SLURM_PROCID", size, "srun");
}

void refuse_servers(const ClusterSpec& spec, std::optional<bool> is_collective,
                    const char* variable) {
  if (is_collective.value_or(true)) return;
  fail_environment({.what = "this launcher starts collective jobs, and a parameter-server job was "
                            "asked for",
                    .where = variable,
                    .expected = "TRAINING_ROLE, PADDLE_PSERVERS_IP_PORT_LIST and their companions",
                    .got = str_cat(variable, '=', spec.index, ", none of those"),
                    .fix = "use launch_ps, or the MPISymetric role maker under mpirun"});
}

void check_paddle_with_torchrun(const ClusterSpec& paddle, const Environment& env) {
  const ClusterSpec other = torchrun_contract(env);
  if (paddle.is_worker() && paddle.index == other.index && paddle.worker_num == other.worker_num) {
    return;
  }
  fail_environment(
      {.what = "the variables of two launchers contradict each other",
       .where = "TRAINING_ROLE, PADDLE_* and RANK, WORLD_SIZE",
       .expected = "one launcher, or two that agree",
       .got = str_cat("Paddle's: ", paddle.process_name(), " of ", paddle.worker_num,
                      " workers; torchrun's: ", other.process_name(), " of ", other.worker_num),
       .fix = "unset RANK and WORLD_SIZE, or the PADDLE_ variables and TRAINING_ROLE"});
}

void fill_job_id(const Environment& env, ClusterSpec& spec) {
  if (!spec.is_distributed()) return;
  if (const auto id = env.get("FLEET_JOB_ID")) {
    spec.job_id = *id;
    spec.origins["job_id"] = "FLEET_JOB_ID";
  } else if (spec.contract == Contract::kPaddle || spec.contract == Contract::kTorchrun) {
    spec.job_id = derived_job_id(spec);
    spec.origins["job_id"] = "hash of the endpoints";
    const auto run = env.get("TORCHELASTIC_RUN_ID");
    if (run && spec.contract == Contract::kTorchrun) spec.job_id += "-" + *run;
  } else if (const auto job = env.get("SLURM_JOB_ID"); job && spec.contract == Contract::kSlurm) {
    spec.job_id = str_cat("slurm-", *job, '.', env.get("SLURM_STEP_ID").value_or("0"));
    spec.origins["job_id"] = "SLURM_JOB_ID, SLURM_STEP_ID";
  }
}

ClusterSpec read_contract(const Environment& env, std::optional<bool> is_collective) {
  const bool torchrun = torchrun_triggered(env);
  if (paddle_triggered(env)) {
    ClusterSpec spec = paddle_contract(env, is_collective);
    if (torchrun) check_paddle_with_torchrun(spec, env);
    return spec;
  }
  if (torchrun) {
    ClusterSpec spec = torchrun_contract(env);
    refuse_servers(spec, is_collective, "RANK");
    return spec;
  }
  if (env.has("OMPI_COMM_WORLD_RANK")) {
    ClusterSpec spec = ranks_contract(env, Contract::kOpenMpi, "OMPI_COMM_WORLD_RANK",
                                      "OMPI_COMM_WORLD_SIZE", "mpirun");
    refuse_servers(spec, is_collective, "OMPI_COMM_WORLD_RANK");
    return spec;
  }
  if (slurm_triggered(env)) {
    ClusterSpec spec = slurm_contract(env);
    refuse_servers(spec, is_collective, "SLURM_PROCID");
    return spec;
  }
  return {};
}

}  // namespace

ClusterSpec read_environment(const Environment& environment, std::optional<bool> is_collective) {
  ClusterSpec spec = read_contract(environment, is_collective);
  fill_job_id(environment, spec);
  const bool agreed_later =
      spec.contract == Contract::kOpenMpi || spec.contract == Contract::kSlurm;
  if (!agreed_later || !spec.job_id.empty()) spec.validate();
  return spec;
}

}  // namespace fleet::role_maker
