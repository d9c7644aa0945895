// What a process is in its job, as plain values. A role maker fills it from the environment, from
// arguments or over MPI; everybody else only reads it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/endpoint.h"

namespace fleet::role_maker {

enum class Role { kWorker, kServer };
enum class Mode { kLocal, kParameterServer, kCollective };
// Who told this process its place.
enum class Contract { kNone, kArguments, kPaddle, kTorchrun, kOpenMpi, kSlurm, kMpiSymetric };

std::string_view to_string(Role role);          // "worker", "server"
std::string_view to_string(Mode mode);          // "local", "parameter_server", "collective"
std::string_view to_string(Contract contract);  // "none", "arguments", "paddle", …

// A copyable value; a default-made one is a valid local job.
struct ClusterSpec {
  Mode mode = Mode::kLocal;
  Role role = Role::kWorker;
  int index = 0;       // among the processes of the same role
  int worker_num = 1;  // processes that train
  int server_num = 0;

  // "host:port" by index. A parameter-server job has one for each server; those of workers may be
  // empty. Those of a collective job are where its ranks meet; over MPI it needs none.
  std::vector<std::string> worker_endpoints;
  std::vector<std::string> server_endpoints;

  // A collective job without worker_endpoints: "host:port" where rank 0 waits for the others;
  // empty where only MPI can bring them together.
  std::string rendezvous;
  int local_worker_num = 0;  // workers on this machine; 0: not known

  // Names the job in every handshake. Empty in a local job only.
  std::string job_id;
  // Set only when the role maker agreed on one over MPI; never printed. Other sources of the
  // secret are the transport's.
  std::string job_secret;

  Contract contract = Contract::kNone;
  // Where each value came from, by field name: "PADDLE_TRAINER_ID", "default", "argument", …
  std::map<std::string, std::string> origins;

  bool is_worker() const { return role == Role::kWorker; }
  bool is_server() const { return role == Role::kServer; }
  bool is_first_worker() const { return is_worker() && index == 0; }
  bool is_distributed() const { return mode != Mode::kLocal; }
  // This process's own endpoint, or an empty text.
  std::string current_endpoint() const;
  // "worker/1", for logs and errors.
  std::string process_name() const;

  // Throws UsageError (kEnvironment) with the field, its value, what is expected and the fix.
  void validate() const;
  // A line for each field: name, value and origin. The secret is hidden.
  std::string to_string() const;
};

// A job id for a job that was not given one: a hash of its mode, counts and endpoints, equal in
// all its processes.
std::string derived_job_id(const ClusterSpec& spec);

// Endpoint::parse, but throws: UsageError (kEnvironment) that names `where`.
Endpoint parse_endpoint(std::string_view text, std::string_view where);

}  // namespace fleet::role_maker
