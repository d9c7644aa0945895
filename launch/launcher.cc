#include <csignal>
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "base/net/port_reservation.h"
#include "base/process/descriptors.h"
#include "base/process/random_hex.h"
#include "base/strings.h"
#include "launch/command_line.h"
#include "launch/console.h"
#include "launch/hosts/by_hand.h"
#include "launch/hosts/host_runs.h"
#include "launch/hosts/ssh_launchers.h"
#include "launch/process/child.h"
#include "launch/process/event_loop.h"
#include "launch/restarts/attempts.h"

namespace fleet::launch {
namespace {

constexpr uint64_t kOwnDescriptors = 24;
constexpr uint64_t kDescriptorsOfProcess = 6;  // its log, pipes and process
constexpr size_t kLongestOrder = 1 << 20;
// Of a launcher that has nothing to run: the one that started it cannot be reached any more.
constexpr Duration kLongestSilence = std::chrono::seconds(60);
constexpr Duration kLook = std::chrono::seconds(5);

bool is_under_mpirun(const CommandLine& line) {
  return line.launcher == Launcher::kCollective && line.collectives == "mpi";
}

Nodes nodes_of(const CommandLine& line) {
  return {.all = line.nodes, .here = line.node_ip};
}

// All servers, or all ranks, of the job; empty where the kernel chooses their ports, or where a
// node does not know the others.
std::vector<Endpoint> chosen_endpoints(const CommandLine& line) {
  const Nodes nodes = nodes_of(line);
  if (line.launcher == Launcher::kCollective) {
    if (!line.start_port) return {};
    return nodes.deal_endpoints(line.workers * static_cast<int>(nodes.all.size()),
                                *line.start_port);
  }
  if (!line.endpoints.empty()) return line.endpoints;
  if (!line.start_port && nodes.alone()) return {};
  return nodes.deal_endpoints(line.servers, line.start_port.value_or(kStartPort));
}

// The ports of the processes that start here.
PortReservation reserve_ports(const CommandLine& line, const std::vector<Endpoint>& chosen) {
  const bool collective = line.launcher == Launcher::kCollective;
  if (line.numbered) return {};
  if (chosen.empty()) {
    return PortReservation::any(line.node_ip, collective ? line.workers : line.servers);
  }
  return PortReservation::of(endpoints_here(chosen, nodes_of(line)),
                             collective ? "--started_port" : "--endpoints");
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

// Where nobody hands one out, the nodes know a secret already.
void check_secret(const CommandLine& line, const Environment& environment) {
  const bool given =
      environment.has("FLEET_JOB_SECRET_FILE") || environment.has("FLEET_JOB_SECRET");
  if (given || line.insecure || line.orders_from_stdin || !line.several_nodes()) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "the nodes of a job need a secret that all of them know",
               .where = "FLEET_JOB_SECRET_FILE",
               .expected = "a file with the same secret on every node",
               .got = "nothing",
               .fix = "make one with: (umask 077; openssl rand -hex 32 > job.secret), copy it to "
                      "every node, and set FLEET_JOB_SECRET_FILE"});
}

// The job's secret goes to its processes as the path of a file that only this user can read. A
// secret of the caller's own is passed on as it is.
void add_secret(const CommandLine& line, const RunFolder& folder, const std::string& given,
                Environment& common) {
  if (line.insecure) {
    common.set("FLEET_INSECURE", "1");
    return;
  }
  if (!given.empty()) {
    common.set("FLEET_JOB_SECRET_FILE", folder.write_private("secret", given + "\n"));
    return;
  }
  if (common.has("FLEET_JOB_SECRET_FILE") || common.has("FLEET_JOB_SECRET")) return;
  common.set("FLEET_JOB_SECRET_FILE", folder.write_private("secret", make_job_secret() + "\n"));
}

// A later attempt goes on from the newest checkpoint, whatever the first one began with.
void add_restart(const CommandLine& line, int restarts, Environment& common) {
  common.set("FLEET_RESTARTS", str_cat(restarts));
  const std::string resume = restarts == 0 ? line.resume : "latest";
  if (!resume.empty()) common.set("FLEET_RESUME", resume);
}

Job make_job(const CommandLine& line, const Environment& environment,
             const std::vector<Endpoint>& endpoints, const RunFolder& folder, const AttemptId& id) {
  Job job;
  job.launcher = launcher_name(line.launcher);
  job.launch_id = random_hex(8);
  job.job_id = id.job_id;
  job.run_folder = folder.path();
  job.log_folder = line.log_dir;
  job.log_heading = id.log_heading;
  job.command = line.command;
  job.common = without_role_variables(environment);
  if (!id.job_id.empty()) job.common.set("FLEET_JOB_ID", id.job_id);
  job.common.set(kLaunchIdVariable, job.launch_id);
  add_restart(line, id.restarts, job.common);
  if (!line.on_nonfinite.empty()) job.common.set("FLEET_ON_NONFINITE", line.on_nonfinite);
  if (line.stall_deadline) {
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(*line.stall_deadline).count();
    job.common.set("FLEET_STALL_DEADLINE_MS", str_cat(ms));
  }
  if (line.launcher == Launcher::kCollective) {
    job.common.set("FLEET_COLLECTIVES", line.collectives);
  }
  add_secret(line, folder, id.secret, job.common);
  if (line.launcher == Launcher::kParameterServer) {
    job.members = parameter_server_members(line.workers, endpoints, job.log_folder, nodes_of(line));
  } else if (line.numbered) {
    job.members = numbered_members(*line.numbered, line.workers, line.gpus, job.log_folder);
  } else {
    job.members = collective_members(endpoints, line.gpus, job.log_folder, nodes_of(line));
  }
  return job;
}

// What one attempt of the job runs with.
std::unique_ptr<AttemptParts> make_attempt(const CommandLine& line, const Environment& environment,
                                           const std::string& program, EventLoop& loop,
                                           const AttemptId& id) {
  auto parts = std::make_unique<AttemptParts>();
  const std::vector<Endpoint> chosen = chosen_endpoints(line);
  parts->ports = reserve_ports(line, chosen);
  Job& job = parts->job;
  job = make_job(line, environment, chosen.empty() ? parts->ports.endpoints() : chosen,
                 parts->folder, id);
  job.program = program;
  provide_descriptors(kOwnDescriptors + kDescriptorsOfProcess * job.members.size(),
                      launcher_name(line.launcher))
      .throw_if_error();
  if (line.print_config) std::cout << describe(job) << std::flush;
  const HostOptions options{.progress = line.supervision.progress || line.supervision.json ||
                                        line.restarts.most > 0 || line.orders_from_stdin,
                            .heartbeat_timeout = line.supervision.heartbeat_timeout};
  parts->host = is_under_mpirun(line) ? make_mpi_host(job, loop, parts->ports, options)
                                      : make_direct_host(job, loop, parts->ports, options);
  if (job.members.empty()) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "no process of the job belongs on this node",
                 .where = "--node_ip " + line.node_ip,
                 .expected = "at least one worker or server on each node",
                 .got = str_cat(line.workers, " workers and ", line.servers, " servers on ",
                                line.nodes.size(), " nodes"),
                 .fix = "start more workers, or name fewer nodes"});
  }
  if (line.nodes.size() > 1 && line.launcher == Launcher::kParameterServer) {
    parts->notice = std::make_unique<DeathNotice>(job, line.workers, chosen);
  }
  return parts;
}

int workers_here(const CommandLine& line) {
  if (line.launcher == Launcher::kCollective) return line.workers;
  const auto [first, last] = nodes_of(line).workers_here(line.workers);
  return last - first;
}

// What --hosts has started: reports go to stdout among the lines of --tee.
int run_ordered(const CommandLine& line, const HostRuns::Factory& make,
                const SupervisorOptions& supervision, EventLoop& loop, Console& console) {
  const auto tell = [&console](const Report& report) {
    console.print(kReportMark + to_line(report) + "\n");
  };
  HostRuns runs(make, workers_here(line), supervision, tell, loop, console);
  LineReader orders(
      loop, duplicate_of_stdin(), "",
      [&runs](std::string_view text) {
        if (const auto order = parse_order(text)) runs.obey(*order);
      },
      kLongestOrder);
  const std::string gone = "the launcher that started this one has gone";
  orders.when_ended([&] { runs.on_disconnected(gone, false); });
  std::function<void()> look = [&] {
    if (runs.idle() && runs.silence() > kLongestSilence) runs.on_disconnected(gone, false);
    loop.call_after(kLook, look);
  };
  runs.on_connected();
  look();
  return runs.run();
}

// Where nobody hands one out.
AttemptId attempt_id(const CommandLine& line, const Environment& environment, int restarts) {
  AttemptId id = new_attempt(launcher_name(line.launcher), environment, restarts);
  // The nodes agree on what follows from the endpoints, or on what the caller says.
  if (line.several_nodes() && !environment.has("FLEET_JOB_ID")) id.job_id.clear();
  return id;
}

int run_job(const CommandLine& line, const Environment& environment, Console& console) {
  raise_descriptor_limit();
  const std::string program = find_program(line.command.front(), environment);
  make_log_folder(line.log_dir);
  if (line.insecure) {
    console.complain(
        "--insecure: the processes of this job prove nothing to each other, and "
        "anybody who reaches their ports can take part");
  }
  check_secret(line, environment);
  EventLoop loop;
  const auto detach = [&console](EventLoop*) { console.use(nullptr); };
  console.use(&loop);
  const std::unique_ptr<EventLoop, decltype(detach)> in_use(&loop, detach);
  SupervisorOptions supervision = line.supervision;
  // mpirun finds such ranks itself, and other workers those of servers.
  supervision.workers_take_leave = line.launcher == Launcher::kCollective && !is_under_mpirun(line);
  supervision.servers_end_themselves =
      line.nodes.size() > 1 && line.launcher == Launcher::kParameterServer;
  const auto make = [&](const AttemptId& id) {
    return make_attempt(line, environment, program, loop, id);
  };
  if (line.orders_from_stdin) return run_ordered(line, make, supervision, loop, console);
  if (line.several_nodes() && line.restarts.most > 0) {
    return run_by_hand(line, environment, {make, workers_here(line), supervision}, loop, console);
  }
  const auto make_here = [&](int restarts, const std::string& log_heading) {
    AttemptId id = attempt_id(line, environment, restarts);
    id.log_heading = log_heading;
    return make(id);
  };
  return Attempts(make_here, line.restarts, supervision, loop, console).run();
}

// What nobody has read yet is written when nothing is left of the job, so that Ctrl-C ends that.
int launch(const CommandLine& line, const Environment& environment) {
  Console console(launcher_name(line.launcher));
  const int code = line.hosts.empty() ? run_job(line, environment, console)
                                      : run_on_hosts(line, environment, console);
  console.finish();
  return code;
}

}  // namespace

int run_launcher(Launcher launcher, int argc, const char* const* argv) {
  const std::string name = launcher_name(launcher);
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
