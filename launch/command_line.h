// The command lines of launch and launch_ps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "launch/restarts/restart_policy.h"
#include "launch/supervisor.h"

namespace fleet::launch {

enum class Launcher { kParameterServer, kCollective };
std::string launcher_name(Launcher launcher);  // "launch_ps", "launch"

// The first port where it cannot be left to the kernel, as Paddle's.
constexpr int kStartPort = 6170;

struct CommandLine {
  Launcher launcher = Launcher::kParameterServer;
  int workers = 2;                  // --worker_num; of launch, on this node: --nproc_per_node
  int servers = 2;                  // --server_num
  std::optional<int> start_port;    // --start_port, --started_port
  std::vector<Endpoint> endpoints;  // --endpoints
  // Several hosts, one launcher on each: all of them, and which one this is.
  std::vector<std::string> nodes = {"127.0.0.1"};  // --cluster_node_ips
  std::string node_ip = "127.0.0.1";               // --node_ip
  std::optional<NumberedNodes> numbered;           // launch: several, in place of `nodes`
  // Where launchers that are started by hand meet, for restarts: on the first node.
  int launcher_port = kStartPort - 1;  // --launcher_port
  // --hosts: where a launcher is started for each of `nodes`, as ssh has it; empty: this is one.
  std::vector<std::string> hosts;
  std::string ssh = "ssh -o BatchMode=yes -o ConnectTimeout=10";  // --ssh: command and its options
  std::vector<std::string> options_of_hosts;      // what those launchers get of this one's options
  bool orders_from_stdin = false;                 // --orders_from_stdin: this is one of them
  Duration host_wait = std::chrono::seconds(60);  // --host_wait
  std::vector<std::string> gpus;                  // of the ranks of this node: --gpus
  // launch: "mpi", under mpirun, or "sockets", which needs none.
  std::string collectives = "mpi";  // --collectives
  std::string log_dir = "logs";
  bool print_config = false;
  bool insecure = false;
  std::string on_nonfinite;                // --on_nonfinite; empty: what the environment says
  std::optional<Duration> stall_deadline;  // --stall_deadline
  std::string resume;      // --resume: "latest", "none" or a folder; empty: the environment's
  RestartLimits restarts;  // --max_restarts, --restart_window
  SupervisorOptions supervision;
  std::vector<std::string> command;  // the program and what follows it, verbatim

  bool help = false;  // print help_text and leave; nothing else is filled in
  bool version = false;
  std::string help_text;

  bool several_nodes() const { return nodes.size() > 1 || numbered; }
};

// The launcher's own options end at the first argument that is not one of them, or after "--";
// words in their names are joined by "_" or "-". What they leave open of several hosts comes from
// PET_* (Kubeflow, torchrun) or SKYPILOT_* variables. Throws UsageError; an unknown option names
// the nearest.
CommandLine parse_command_line(Launcher launcher, const std::vector<std::string>& arguments,
                               const Environment& environment);

// A whole launcher: parses, starts, supervises, and returns the exit code.
int run_launcher(Launcher launcher, int argc, const char* const* argv);

}  // namespace fleet::launch
