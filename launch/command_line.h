// The command lines of launch and launch_ps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/environment.h"
#include "launch/supervisor.h"

namespace fleet::launch {

enum class Launcher { kParameterServer, kCollective };

struct CommandLine {
  Launcher launcher = Launcher::kParameterServer;
  int workers = 2;                  // --worker_num, --nproc_per_node
  int servers = 2;                  // --server_num
  std::optional<int> start_port;    // --start_port
  std::vector<Endpoint> endpoints;  // --endpoints
  // launch_ps over several hosts, one launcher on each: all of them, and which one this is.
  std::vector<std::string> nodes = {"127.0.0.1"};  // --cluster_node_ips
  std::string node_ip = "127.0.0.1";               // --node_ip
  std::vector<std::string> gpus;                   // --selected_gpus
  // launch: "mpi", under mpirun, or "sockets", which needs none.
  std::string collectives = "mpi";  // --collectives
  std::string log_dir = "logs";
  bool print_config = false;
  bool insecure = false;
  std::string on_nonfinite;                // --on_nonfinite; empty: what the environment says
  std::optional<Duration> stall_deadline;  // --stall_deadline
  SupervisorOptions supervision;
  std::vector<std::string> command;  // the program and what follows it, verbatim

  bool help = false;  // print help_text and leave; nothing else is filled in
  bool version = false;
  std::string help_text;
};

// The launcher's own options end at the first argument that is not one of them, or after "--".
// Throws UsageError; an unknown option names the nearest.
CommandLine parse_command_line(Launcher launcher, const std::vector<std::string>& arguments,
                               const Environment& environment);

// A whole launcher: parses, starts, supervises, and returns the exit code.
int run_launcher(Launcher launcher, int argc, const char* const* argv);

}  // namespace fleet::launch
