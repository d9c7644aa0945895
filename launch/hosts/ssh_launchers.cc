#include "launch/hosts/ssh_launchers.h"

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
#include "launch/hosts/director.h"
#include "launch/job.h"
#include "launch/process/child.h"
#include "launch/process/event_loop.h"
#include "launch/process/line_reader.h"

namespace fleet::launch {
namespace {

constexpr size_t kLongestLine = 1 << 20;
constexpr Duration kReachAgain = std::chrono::seconds(1);
// For the launchers to leave when the job is over.
constexpr Duration kLeaveGrace = std::chrono::seconds(5);
constexpr int kSshFailed = 255;

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

// Empty where there is none.
std::string callers_secret(const Environment& environment) {
  const auto path = environment.get("FLEET_JOB_SECRET_FILE");
  if (!path) return environment.get("FLEET_JOB_SECRET").value_or("");
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

class SshLaunchers : private HostLines {
 public:
  SshLaunchers(const CommandLine& line, const Environment& environment, Console& console)
      : line_(line),
        environment_(environment),
        console_(console),
        secret_(callers_secret(environment)),
        launcher_(find_companion(launcher_name(line.launcher))),
        ssh_(split_words(line.ssh)),
        ssh_program_(find_program(ssh_.front(), environment)),
        hosts_(line.hosts.size()),
        director_(director_options(), *this, loop_, console) {}
  ~SshLaunchers() override { console_.use(nullptr); }
  SshLaunchers(const SshLaunchers&) = delete;
  SshLaunchers& operator=(const SshLaunchers&) = delete;

  int run() {
    console_.use(&loop_);
    loop_.handle_launcher_signals([this](int signal) { on_signal(signal); });
    for (size_t i = 0; i < hosts_.size(); ++i) start(i);
    std::unique_ptr<LineReader> input;
    if (line_.supervision.ends_with_stdin) {
      input =
          std::make_unique<LineReader>(loop_, duplicate_of_stdin(), "", [](std::string_view) {});
      input->when_ended([this] { director_.on_signal(SIGTERM); });
    }
    loop_.run();
    return code_;
  }

 private:
  struct Host {
    pid_t pid = 0;
    FileDescriptor orders;  // closed: its launcher ends
    std::unique_ptr<LineReader> output;
    std::unique_ptr<LineReader> errors;
  };

  static std::vector<std::string> split_words(const std::string& text) {
    std::vector<std::string> words;
    for (const std::string& word : split(text, ' ')) {
      if (!word.empty()) words.push_back(word);
    }
    return words;
  }

  DirectorOptions director_options() {
    std::vector<std::string> titles;
    for (const std::string& node : line_.nodes) titles.push_back("host " + node);
    return {.hosts = std::move(titles),
            .servers = line_.servers,
            .restarts = line_.restarts,
            .supervision = line_.supervision,
            .starts_launchers = true,
            .host_wait = line_.host_wait,
            .id_of = [this](int restarts) {
              AttemptId id = new_attempt(launcher_name(line_.launcher), environment_, restarts);
              if (!line_.insecure) id.secret = secret_.empty() ? make_job_secret() : secret_;
              return id;
            }};
  }

  // What a host's shell runs.
  std::string script(size_t at) const {
    std::string text =
        str_cat("cd ", for_shell(std::filesystem::current_path().string()), " || exit 1; exec env");
    const Environment passed = without_role_variables(environment_);
    for (const auto& [variable, value] : passed.all()) {
      if (is_passed_on(variable)) text += str_cat(" ", variable, "=", for_shell(value));
    }
    text += str_cat(" ", for_shell(launcher_),
                    " --orders_from_stdin --cluster_node_ips=", for_shell(join(line_.nodes, ",")),
                    " --node_ip=", for_shell(line_.nodes[at]));
    for (const std::string& option : line_.options_of_hosts) text += " " + for_shell(option);
    text += " --";
    for (const std::string& argument : line_.command) text += " " + for_shell(argument);
    return text;
  }

  void start(size_t at) {
    Host& host = hosts_[at];
    Pipe orders = make_pipe();
    Pipe output = make_pipe();
    Pipe errors = make_pipe();
    std::vector<std::string> argv = ssh_;
    argv.push_back(line_.hosts[at]);
    argv.push_back(str_cat("exec sh -c ", for_shell(script(at))));
    host.pid = spawn_child({.program = ssh_program_,
                            .argv = std::move(argv),
                            .environment = environment_,
                            .input_fd = orders.read.get(),
                            .output_fd = output.write.get(),
                            .error_fd = errors.write.get()});
    host.orders = std::move(orders.write);
    ::fcntl(host.orders.get(), F_SETFL, O_NONBLOCK);
    host.output = std::make_unique<LineReader>(
        loop_, std::move(output.read), "",
        [this, at](std::string_view text) { on_output(at, text); }, kLongestLine);
    host.errors = std::make_unique<LineReader>(
        loop_, std::move(errors.read), "",
        [this, at](std::string_view text) { console_.tee(line_.nodes[at], text); }, kLongestLine);
  }

  void on_output(size_t at, std::string_view text) {
    const std::string_view mark = kReportMark;
    const auto report =
        text.starts_with(mark) ? parse_report(text.substr(mark.size())) : std::nullopt;
    if (report) {
      director_.on_report(at, *report);
    } else {
      console_.tee(line_.nodes[at], text);
    }
  }

  // A pipe has room for what a launcher that reads has not yet read.
  void send(size_t at, const Order& order) override {
    const std::string text = to_line(order) + "\n";
    const FileDescriptor& orders = hosts_[at].orders;
    if (orders &&
        ::write(orders.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      drop(at);
    }
  }

  void drop(size_t at) override {
    hosts_[at].orders.reset();
    if (hosts_[at].pid > 0) ::kill(-hosts_[at].pid, SIGKILL);
  }

  void on_over(int code) override {
    code_ = code;
    over_ = true;
    for (Host& host : hosts_) host.orders.reset();
    loop_.call_after(kLeaveGrace, [this] {
      for (size_t i = 0; i < hosts_.size(); ++i) drop(i);
    });
    leave_when_alone();
  }

  void on_signal(int signal) {
    if (signal == SIGCHLD) return reap();
    director_.on_signal(signal);
  }

  void reap() {
    for (size_t at = 0; at < hosts_.size(); ++at) {
      Host& host = hosts_[at];
      siginfo_t info{};
      if (host.pid == 0 ||
          ::waitid(P_PID, static_cast<id_t>(host.pid), &info, WEXITED | WNOHANG) != 0 ||
          info.si_pid == 0) {
        continue;
      }
      host.pid = 0;
      host.orders.reset();
      for (auto* reader : {host.output.get(), host.errors.get()}) {
        reader->finish();
        if (!reader->unfinished().empty()) console_.tee(line_.nodes[at], reader->unfinished());
      }
      on_ended(at, exit_status_of(info));
    }
    leave_when_alone();
  }

  void on_ended(size_t at, const ExitStatus& status) {
    const std::string who = status.code == kSshFailed || status.signal != 0
                                ? "ssh to host "
                                : launcher_name(line_.launcher) + " on host ";
    director_.on_lost(at, str_cat(who, line_.nodes[at], " ", status.to_string()),
                      status.code == kExitUsage ? misuse_text() : "");
    if (!director_.waits_for(at)) return;
    loop_.call_after(kReachAgain, [this, at] {
      if (hosts_[at].pid == 0 && director_.waits_for(at)) start(at);
    });
  }

  void leave_when_alone() {
    const bool alone =
        std::all_of(hosts_.begin(), hosts_.end(), [](const Host& host) { return host.pid == 0; });
    if (over_ && alone) loop_.stop();
  }

  const CommandLine& line_;
  const Environment& environment_;
  Console& console_;
  const std::string secret_;  // the caller's
  const std::string launcher_;
  const std::vector<std::string> ssh_;
  const std::string ssh_program_;
  EventLoop loop_;
  std::vector<Host> hosts_;
  Director director_;
  bool over_ = false;
  int code_ = kExitFailed;
};

}  // namespace

int run_on_hosts(const CommandLine& line, const Environment& environment, Console& console) {
  return SshLaunchers(line, environment, console).run();
}

}  // namespace fleet::launch
