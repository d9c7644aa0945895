// What a launcher starts, as plain values: the members of a job and the environment of each.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/net/endpoint.h"
#include "role_maker/cluster_spec.h"

namespace fleet::launch {

using role_maker::Role;

// One rank of the job.
struct Member {
  Role role = Role::kWorker;
  int index = 0;
  std::string log_file;
  Environment variables;       // its contract, on top of the job's common environment
  std::optional<size_t> port;  // the reserved port that it takes over when it starts

  std::string title() const;  // "worker 1"
};

struct Job {
  std::string launcher;    // "launch_ps", for messages
  std::string job_id;      // FLEET_JOB_ID; empty: the one that follows from the endpoints
  std::string launch_id;   // unique to this run; marks every process of it
  std::string run_folder;  // private to the job, removed at its end
  std::string log_folder;
  // The line behind which each log goes on; empty: the logs are emptied at the start.
  std::string log_heading;
  std::string program;               // the file that runs
  std::vector<std::string> command;  // what the user wrote: the program and its arguments, verbatim
  Environment common;                // the environment of every member
  std::vector<Member> members;       // in the order in which they start
};

// Every process of a run has this variable; its value is Job::launch_id.
constexpr const char* kLaunchIdVariable = "FLEET_LAUNCH_ID";
std::string launch_mark(const std::string& launch_id);  // "FLEET_LAUNCH_ID=…"

// The environment without any variable that says what a process is: Paddle's, torchrun's, Open
// MPI's and PMIx's, PMI's and Slurm's. Open MPI's tuning parameters (OMPI_MCA_btl…) stay.
Environment without_role_variables(const Environment& environment);
Environment merged(const Environment& base, const Environment& on_top);

// Where the processes of a job over several hosts are: servers by the host of their endpoint,
// workers in order, as many on each node as on the others, or one more on the first.
struct Nodes {
  std::vector<std::string> all;
  std::string here;

  bool alone() const { return all.size() <= 1; }
  // The workers of this node, [first, second) of `workers`.
  std::pair<int, int> workers_here(int workers) const;
  // Endpoints for so many processes assigned to the nodes in the same way: ports from `start_port`
  // on each.
  std::vector<Endpoint> deal_endpoints(int processes, int start_port) const;
};

// Nodes as torchrun has them: each knows its number and where rank 0 is, and no other.
struct NumberedNodes {
  int count = 1;    // --nnodes
  int rank = 0;     // --node_rank
  Endpoint master;  // --master_addr, --master_port
};

// The parameter-server contract of the processes that belong on this node. Servers come first,
// because they start first. `servers` are all of the job; ports are reserved for those here only,
// in their order.
std::vector<Member> parameter_server_members(int workers, const std::vector<Endpoint>& servers,
                                             const std::string& log_folder,
                                             const Nodes& nodes = {});
// Those endpoints that are on this node.
std::vector<Endpoint> endpoints_here(const std::vector<Endpoint>& endpoints, const Nodes& nodes);
// Paddle's collective contract: a worker for each endpoint on this node; ports are reserved as for
// servers. `gpus` is empty, or has one for each of them (launch/process/gpus.h).
std::vector<Member> collective_members(const std::vector<Endpoint>& endpoints,
                                       const std::vector<std::string>& gpus,
                                       const std::string& log_folder, const Nodes& nodes = {});
// torchrun's contract: `ranks` on this node, as on every other.
std::vector<Member> numbered_members(const NumberedNodes& nodes, int ranks,
                                     const std::vector<std::string>& gpus,
                                     const std::string& log_folder);

// A table of processes with their variables, one line each; for --print_config. No secrets.
std::string describe(const Job& job);

}  // namespace fleet::launch
