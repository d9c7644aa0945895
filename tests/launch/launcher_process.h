// A launcher as a process of its own, with scripts to run under it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/process/file_descriptor.h"

namespace fleet::launch::testing {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A folder for one test, with a FIFO through which scripts report ($MAILBOX).
class Workplace {
 public:
  Workplace();
  ~Workplace();
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  // An executable /bin/sh script.
  std::string script(const std::string& body) const;
  std::string read(const std::string& name) const;
  // The next line that a script wrote into $MAILBOX; a test failure and "" after `limit`.
  std::string next_message(Duration limit = seconds(20));
  // The next lines, in any order: "name value" each, as a map.
  std::map<std::string, std::string> messages(size_t count);

 private:
  std::string folder_;
  FileDescriptor mailbox_;
  std::string buffer_;
};

// Runs build/bin/<name>; stdout and stderr together go to <workplace>/output (or to a terminal),
// logs to
// <workplace>/logs. Killed with SIGKILL by the destructor when it still runs.
class LauncherProcess {
 public:
  LauncherProcess(const Workplace& workplace, const std::string& name,
                  std::vector<std::string> arguments, const Environment& extra = Environment(),
                  int terminal = -1);
  ~LauncherProcess();
  LauncherProcess(const LauncherProcess&) = delete;
  LauncherProcess& operator=(const LauncherProcess&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int signal) const;
  // The exit code, or minus the signal; -1000 and a test failure when it runs longer.
  int wait(Duration limit = seconds(30));
  // Returns when it has said this. It is a test failure when it has ended or `limit` has passed.
  void until(const std::string& text, Duration limit = seconds(30)) const;
  std::string output() const { return workplace_.read("output"); }

 private:
  const Workplace& workplace_;
  pid_t pid_ = 0;
};

// Whether the process has ended, waiting at most `limit` for it.
bool gone(pid_t pid, Duration limit = seconds(5));
// The children of a process.
std::vector<pid_t> children_of(pid_t pid);
// One variable.
inline Environment variable(const std::string& name, const std::string& value) {
  Environment environment;
  environment.set(name, value);
  return environment;
}
pid_t to_pid(const std::string& text);

}  // namespace fleet::launch::testing
