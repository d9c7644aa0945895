#include "tests/faults/job_under_test.h"

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <signal.h>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/strings.h"
#include "tests/testing/paths.h"

namespace fleet::testing {
namespace {

using Clock = std::chrono::steady_clock;

// What can be read: a process may end while its file is open.
std::string read_file(const std::string& path) {
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Fields of /proc/<pid>/stat after the name: state first.
std::vector<std::string> stat_of(pid_t pid) {
  const std::string text = read_file(str_cat("/proc/", pid, "/stat"));
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return {};
  return split(std::string_view(text).substr(end + 2), ' ');
}

constexpr size_t kState = 0;
constexpr size_t kStartTime = 19;

// Empty when the process has ended.
std::string start_time(pid_t pid) {
  const auto stat = stat_of(pid);
  return stat.size() <= kStartTime || stat[kState] == "Z" ? std::string() : stat[kStartTime];
}

std::string variable(const std::string& environment, const std::string& name) {
  for (const std::string& entry : split(environment, '\0')) {
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  }
  return {};
}

// What a process is called in the job, or nothing.
std::string member_name(pid_t pid) {
  const std::string comm(trim(read_file(str_cat("/proc/", pid, "/comm"))));
  const std::string environment = read_file(str_cat("/proc/", pid, "/environ"));
  if (comm == "fleet_agent") return "agent " + variable(environment, "OMPI_COMM_WORLD_RANK");
  if (comm != "distributed_tra") return {};  // the kernel keeps 15 characters
  if (variable(environment, "TRAINING_ROLE") != "PSERVER") {
    return "worker " + variable(environment, "PADDLE_TRAINER_ID");
  }
  const auto endpoints = split(variable(environment, "PADDLE_PSERVERS_IP_PORT_LIST"), ',');
  const std::string port = ":" + variable(environment, "PADDLE_PORT");
  for (size_t i = 0; i < endpoints.size(); ++i) {
    if (endpoints[i].ends_with(port)) return "server " + std::to_string(i);
  }
  return {};
}

template <class Done>
bool wait_until(const Done& done, Seconds limit) {
  const auto end = Clock::now() + limit;
  while (!done()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace

JobUnderTest::JobUnderTest(const Plan& plan, std::string folder) : folder_(std::move(folder)) {
  std::filesystem::remove_all(folder_ + "/logs");  // of the job before
  const std::string bin = fleet::testing::binary_path("bin/");
  std::vector<std::string> argv;
  if (plan.servers) {
    argv = {bin + "launch_ps", "--worker_num", "2", "--server_num", "2"};
  } else {
    argv = {bin + "launch", "--nproc_per_node", "2", "--collectives",
            plan.over_mpi ? "mpi" : "sockets"};
  }
  for (const std::string& arg :
       {std::string("--log_dir"), folder_ + "/logs", bin + "distributed_train",
        std::string("--steps"), std::to_string(plan.steps)}) {
    argv.push_back(arg);
  }
  std::vector<char*> args;
  args.reserve(argv.size() + 1);
  for (std::string& arg : argv) args.push_back(arg.data());
  args.push_back(nullptr);
  launcher_ = fork();
  if (launcher_ != 0) return;
  setenv("FLEET_HEARTBEAT_TIMEOUT_MS", std::to_string(plan.heartbeat_timeout_ms).c_str(), 1);
  setenv("FLEET_HEARTBEAT_INTERVAL_MS", "200", 1);
  if (plan.over_tcp) setenv("FLEET_TRANSPORT", "tcp", 1);
  const int out = open((folder_ + "/output").c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0600);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  execv(args[0], args.data());
  _exit(127);
}

JobUnderTest::~JobUnderTest() {
  remember_processes();
  for (const auto& [pid, start] : remembered_) {
    if (start_time(pid) == start) kill(pid, SIGKILL);
  }
  if (!reaped_) waitpid(launcher_, &status_, 0);
}

std::vector<pid_t> JobUnderTest::descendants() const {
  std::map<pid_t, pid_t> parents;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto pid = parse_int(entry.path().filename().string());
    if (!pid) continue;
    const auto stat = stat_of(static_cast<pid_t>(*pid));
    if (stat.size() < 2) continue;
    parents[static_cast<pid_t>(*pid)] = static_cast<pid_t>(parse_int(stat[1]).value_or(0));
  }
  std::vector<pid_t> found;
  for (const auto& [pid, parent] : parents) {
    for (pid_t at = parent; at > 1; at = parents.contains(at) ? parents[at] : 0) {
      if (at != launcher_) continue;
      found.push_back(pid);
      break;
    }
  }
  return found;
}

std::map<std::string, pid_t> JobUnderTest::members() {
  std::map<std::string, pid_t> found;
  for (const pid_t pid : descendants()) {
    const std::string name = member_name(pid);
    if (!name.empty()) found[name] = pid;
  }
  return found;
}

pid_t JobUnderTest::wait_for_member(const std::string& name, Seconds limit) {
  pid_t pid = 0;
  wait_until(
      [&] {
        const auto all = members();
        const auto found = all.find(name);
        if (found != all.end()) pid = found->second;
        return pid != 0 || exit_code() != -1;
      },
      limit);
  return pid;
}

bool JobUnderTest::wait_until_training(Seconds limit) {
  return wait_until(
      [&] {
        return read_file(folder_ + "/logs/workerlog.0").find("starting") != std::string::npos ||
               exit_code() != -1;
      },
      limit);
}

void JobUnderTest::remember_processes() {
  remembered_[launcher_] = start_time(launcher_);
  for (const pid_t pid : descendants()) remembered_[pid] = start_time(pid);
}

bool JobUnderTest::all_gone(Seconds limit) {
  return wait_until(
      [&] {
        exit_code();
        return std::none_of(remembered_.begin(), remembered_.end(), [](const auto& process) {
          const std::string now = start_time(process.first);
          return !now.empty() && now == process.second;
        });
      },
      limit);
}

int JobUnderTest::exit_code() {
  if (!reaped_) reaped_ = waitpid(launcher_, &status_, WNOHANG) == launcher_;
  if (!reaped_) return -1;
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

std::string JobUnderTest::output() const {
  return read_file(folder_ + "/output");
}

std::string JobUnderTest::logs() const {
  std::string all;
  if (!std::filesystem::exists(folder_ + "/logs")) return all;
  for (const auto& file : std::filesystem::directory_iterator(folder_ + "/logs")) {
    all += file.path().filename().string() + ":\n" + read_file(file.path().string());
  }
  return all;
}

}  // namespace fleet::testing
