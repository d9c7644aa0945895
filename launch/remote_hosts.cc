#include "launch/remote_hosts.h"

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/process/file_descriptor.h"
#include "base/process/random_hex.h"
#include "base/strings.h"
#include "launch/host.h"
#include "launch/job.h"
#include "launch/process/child.h"
#include "launch/process/event_loop.h"
#include "launch/supervisor.h"

namespace fleet::launch {
namespace {

constexpr size_t kReadBytes = 64 * 1024;
// Between the end of a launcher's stdin and SIGKILL for its ssh: what the launcher itself takes.
constexpr Duration kEndGrace = std::chrono::seconds(10);

// For any shell.
std::string for_shell(std::string_view text) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      result += c;
    }
  }
  return result + "'";
}

bool is_passed_on(std::string_view name) {
  if (name.starts_with("FLEET_JOB_SECRET")) return false;
  return name.starts_with("FLEET_") || name.starts_with("FLAGS_") || name == "CPU_NUM" ||
         name == "OMP_NUM_THREADS" || name == "LD_LIBRARY_PATH";
}

std::string job_secret(const CommandLine& line, const Environment& environment) {
  if (line.insecure) return {};
  const auto path = environment.get("FLEET_JOB_SECRET_FILE");
  if (!path) return environment.get("FLEET_JOB_SECRET").value_or(make_job_secret());
  std::string secret;
  std::ifstream file(*path);
  if (std::getline(file, secret) && !trim(secret).empty()) return std::string(trim(secret));
  throw_error(ErrorCode::kInvalidArgument, {.what = "cannot read the job's secret",
                                            .where = "FLEET_JOB_SECRET_FILE",
                                            .expected = "a file with the secret in one line",
                                            .got = *path,
                                            .fix = "name another file, or unset the variable"});
}

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};
Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) == 0) return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  throw_error(ErrorCode::kInput, {.what = "cannot make a pipe to a host",
                                  .where = "--hosts",
                                  .expected = "free file descriptors",
                                  .got = str_cat("errno ", errno),
                                  .fix = "raise the limit (ulimit -n)"});
}

class RemoteHosts {
 public:
  RemoteHosts(const CommandLine& line, const Environment& environment, Console& console)
      : line_(line),
        environment_(environment),
        console_(console),
        secret_(job_secret(line, environment)),
        job_id_(environment.get("FLEET_JOB_ID").value_or(str_cat("hosts-", random_hex(6)))),
        launcher_(find_companion(name())),
        ssh_(split_words(line.ssh)) {
    ssh_program_ = find_program(ssh_.front(), environment);
  }
  ~RemoteHosts() { console_.use(nullptr); }
  RemoteHosts(const RemoteHosts&) = delete;
  RemoteHosts& operator=(const RemoteHosts&) = delete;

  int run() {
    console_.use(&loop_);
    loop_.handle_signals({SIGCHLD, SIGINT, SIGTERM, SIGHUP}, [this](int s) { on_signal(s); });
    hosts_.resize(line_.hosts.size());
    for (size_t i = 0; i < hosts_.size(); ++i) start(i);
    loop_.run();
    for (Host& host : hosts_) read_output(host, true);
    if (failed_) return kExitFailed;
    return interrupted_by_ != 0 ? 128 + interrupted_by_ : kExitOk;
  }

 private:
  struct Host {
    std::string name;
    pid_t pid = 0;
    FileDescriptor input;  // closed: its launcher ends
    FileDescriptor output;
    std::string partial;
  };

  std::string name() const {
    return line_.launcher == Launcher::kCollective ? "launch" : "launch_ps";
  }
  static std::vector<std::string> split_words(const std::string& text) {
    std::vector<std::string> words;
    for (const std::string& word : split(text, ' ')) {
      if (!word.empty()) words.push_back(word);
    }
    return words;
  }

  // What a host's shell runs.
  std::string script(size_t at) const {
    std::string text =
        str_cat("cd ", for_shell(std::filesystem::current_path().string()), " || exit 1; ");
    if (!line_.insecure) text += "IFS= read -r FLEET_JOB_SECRET; export FLEET_JOB_SECRET; ";
    text += str_cat("exec env FLEET_JOB_ID=", for_shell(job_id_));
    const Environment passed = without_role_variables(environment_);
    for (const auto& [variable, value] : passed.all()) {
      if (is_passed_on(variable) && variable != "FLEET_JOB_ID") {
        text += str_cat(" ", variable, "=", for_shell(value));
      }
    }
    text += str_cat(" ", for_shell(launcher_),
                    " --end_with_stdin --cluster_node_ips=", for_shell(join(line_.nodes, ",")),
                    " --node_ip=", for_shell(line_.nodes[at]));
    for (const std::string& option : line_.options_of_hosts) {
      // One of them tells the whole job's progress.
      if (at > 0 && (option == "--progress" || option == "--json")) continue;
      text += " " + for_shell(option);
    }
    text += " --";
    for (const std::string& argument : line_.command) text += " " + for_shell(argument);
    return text;
  }

  void start(size_t at) {
    Host& host = hosts_[at];
    host.name = line_.nodes[at];
    Pipe input = make_pipe();
    Pipe output = make_pipe();
    std::vector<std::string> argv = ssh_;
    argv.push_back(line_.hosts[at]);
    argv.push_back(str_cat("exec sh -c ", for_shell(script(at))));
    host.pid = spawn_child({.program = ssh_program_,
                            .argv = std::move(argv),
                            .environment = environment_,
                            .input_fd = input.read.get(),
                            .output_fd = output.write.get()});
    host.input = std::move(input.write);
    host.output = std::move(output.read);
    ::fcntl(host.output.get(), F_SETFL, O_NONBLOCK);
    if (!line_.insecure) {
      const std::string secret = secret_ + "\n";
      // A pipe has room for it.
      [[maybe_unused]] const auto sent = ::write(host.input.get(), secret.data(), secret.size());
    }
    loop_.watch(host.output.get(), [this, &host] { read_output(host, false); });
  }

  void read_output(Host& host, bool last) {
    char bytes[kReadBytes];
    while (host.output) {
      const ssize_t count = ::read(host.output.get(), bytes, sizeof bytes);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) break;
      if (count == 0) {
        loop_.unwatch(host.output.get());
        host.output.reset();
        break;
      }
      host.partial.append(bytes, static_cast<size_t>(count));
    }
    size_t begin = 0;
    for (size_t end = 0; (end = host.partial.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      show(host, std::string_view(host.partial).substr(begin, end - begin));
    }
    host.partial.erase(0, begin);
    if (last && !host.partial.empty()) show(host, host.partial);
  }

  // Lines of JSON are the job's, and stay what they are.
  void show(const Host& host, std::string_view line) {
    if (line_.supervision.json && line.starts_with('{')) {
      console_.print(str_cat(line, "\n"));
    } else {
      console_.tee(host.name, line);
    }
  }

  void on_signal(int signal) {
    if (signal == SIGCHLD) return reap();
    if (interrupted_by_ != 0) return kill_all();
    interrupted_by_ = signal;
    console_.say(str_cat(signal_name(signal), ": ending the job on ",
                         counted(static_cast<int>(hosts_.size()), "host"),
                         " (again to kill at once)"));
    end_all();
  }

  void reap() {
    for (Host& host : hosts_) {
      siginfo_t info{};
      if (host.pid == 0 ||
          ::waitid(P_PID, static_cast<id_t>(host.pid), &info, WEXITED | WNOHANG) != 0 ||
          info.si_pid == 0) {
        continue;
      }
      host.pid = 0;
      host.input.reset();
      on_ended(host, exit_status_of(info));
    }
    const bool all =
        std::all_of(hosts_.begin(), hosts_.end(), [](const Host& host) { return host.pid == 0; });
    if (all) loop_.stop();
  }

  void on_ended(Host& host, const ExitStatus& status) {
    read_output(host, true);
    if (status.ok() || ending_) return;
    if (failed_) return;
    failed_ = true;
    constexpr int kSshFailed = 255;
    console_.complain(str_cat(status.code == kSshFailed ? "ssh to host " : name() + " on host ",
                              host.name, " ", status.to_string(), "; the other hosts end in ",
                              seconds_text(line_.supervision.heartbeat_timeout), " at the latest"));
    loop_.call_after(line_.supervision.heartbeat_timeout, [this] { end_all(); });
  }

  void end_all() {
    ending_ = true;
    for (Host& host : hosts_) host.input.reset();
    loop_.call_after(kEndGrace, [this] { kill_all(); });
  }
  void kill_all() {
    for (Host& host : hosts_) {
      host.input.reset();
      if (host.pid > 0) ::kill(-host.pid, SIGKILL);
    }
  }

  const CommandLine& line_;
  const Environment& environment_;
  Console& console_;
  const std::string secret_;
  const std::string job_id_;
  const std::string launcher_;
  const std::vector<std::string> ssh_;
  std::string ssh_program_;
  EventLoop loop_;
  std::vector<Host> hosts_;
  bool failed_ = false;
  bool ending_ = false;
  int interrupted_by_ = 0;
};

}  // namespace

int run_on_hosts(const CommandLine& line, const Environment& environment, Console& console) {
  return RemoteHosts(line, environment, console).run();
}

}  // namespace fleet::launch
