#include <csignal>
#include <filesystem>
#include <iostream>

#include "base/error.h"
#include "base/strings.h"
#include "launch/command_line.h"
#include "launch/console.h"
#include "launch/host.h"
#include "launch/job.h"
#include "launch/process/event_loop.h"
#include "launch/process/ports.h"
#include "launch/process/run_folder.h"
#include "launch/supervisor.h"

namespace fleet::launch {
namespace {

constexpr size_t kSecretBytes = 32;
constexpr const char* kHost = "127.0.0.1";

std::string name_of(Launcher launcher) {
  return launcher == Launcher::kCollective ? "launch" : "launch_ps";
}

PortReservation reserve_ports(const CommandLine& line) {
  if (line.launcher == Launcher::kCollective) return PortReservation::any(kHost, line.workers);
  if (!line.endpoints.empty()) return PortReservation::of(line.endpoints);
  if (!line.start_port) return PortReservation::any(kHost, line.servers);
  std::vector<std::string> endpoints;
  for (int i = 0; i < line.servers; ++i) {
    endpoints.push_back(str_cat(kHost, ":", *line.start_port + i));
  }
  return PortReservation::of(endpoints);
}

void make_log_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!folder.empty() && std::filesystem::is_directory(folder, error)) return;
  throw_error(ErrorCode::kInvalidArgument, {.what = "cannot make the folder for the logs",
                                            .where = "--log_dir",
                                            .expected = "a folder, or a path where one can be made",
                                            .got = "'" + folder + "'",
                                            .fix = "choose another --log_dir"});
}

// The job's secret goes to its processes as the path of a file that only this user can read. A
// secret of the caller's own is passed on as it is.
void add_secret(const CommandLine& line, const RunFolder& folder, Environment& common) {
  if (line.insecure) {
    common.set("FLEET_INSECURE", "1");
    return;
  }
  if (common.has("FLEET_JOB_SECRET_FILE") || common.has("FLEET_JOB_SECRET")) return;
  common.set("FLEET_JOB_SECRET_FILE",
             folder.write_private("secret", random_hex(kSecretBytes) + "\n"));
}

Job make_job(const CommandLine& line, const Environment& environment,
             const std::vector<std::string>& endpoints, const RunFolder& folder) {
  Job job;
  job.launcher = name_of(line.launcher);
  job.launch_id = random_hex(8);
  job.job_id = environment.get("FLEET_JOB_ID").value_or(job.launcher + "-" + random_hex(6));
  job.run_folder = folder.path();
  job.log_folder = line.log_dir;
  job.command = line.command;
  job.common = without_role_variables(environment);
  job.common.set("FLEET_JOB_ID", job.job_id);
  job.common.set(kLaunchIdVariable, job.launch_id);
  add_secret(line, folder, job.common);
  job.members = line.launcher == Launcher::kCollective
                    ? collective_members(endpoints, line.gpus, job.log_folder)
                    : parameter_server_members(line.workers, endpoints, job.log_folder);
  return job;
}

int launch(const CommandLine& line, const Environment& environment) {
  const std::string program = find_program(line.command.front(), environment);
  make_log_folder(line.log_dir);
  PortReservation ports = reserve_ports(line);
  const RunFolder folder;
  Job job = make_job(line, environment, ports.endpoints(), folder);
  job.program = program;
  Console console(job.launcher);
  if (line.insecure) {
    console.complain(
        "--insecure: the processes of this job prove nothing to each other, and "
        "anybody who reaches their ports can take part");
  }
  if (line.print_config) std::cout << describe(job) << std::flush;

  EventLoop loop;
  const HostOptions options{.progress = line.supervision.progress,
                            .heartbeat_timeout = line.supervision.heartbeat_timeout};
  const auto host = line.launcher == Launcher::kCollective
                        ? make_mpi_host(job, loop, ports, options)
                        : make_direct_host(job, loop, ports, options);
  Supervisor supervisor(job, line.supervision, loop, console);
  return supervisor.run(*host);
}

}  // namespace

int run_launcher(Launcher launcher, int argc, const char* const* argv) {
  const std::string name = name_of(launcher);
  ::signal(SIGPIPE, SIG_IGN);  // whoever reads our output may leave; the logs are in files
  try {
    const Environment environment = Environment::of_process();
    const CommandLine line =
        parse_command_line(launcher, {argv + std::min(argc, 1), argv + argc}, environment);
    if (line.help) {
      std::cout << line.help_text;
      return kExitOk;
    }
    if (line.version) {
      std::cout << name << " " << FLEET_VERSION << "\n";
      return kExitOk;
    }
    return launch(line, environment);
  } catch (const UsageError& error) {
    std::cerr << name << ": " << error.what() << "\n";
    return kExitUsage;
  } catch (const std::exception& error) {
    std::cerr << name << ": " << error.what() << "\n";
    return kExitFailed;
  }
}

}  // namespace fleet::launch
