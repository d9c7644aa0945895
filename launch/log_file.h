// Reading the members' log files while they are written.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "base/process/file_descriptor.h"
#include "launch/job.h"
#include "launch/process/event_loop.h"

namespace fleet::launch {

// Opens a log for appending; `truncate` empties it first. Throws ResourceError with the path.
FileDescriptor open_log(const std::string& path, bool truncate);

// Adds a line of its own at the end of a log that is there, and returns how long the log is then.
// Throws ResourceError with the path.
off_t append_line(const std::string& path, const std::string& line);

// The last `count` lines behind the byte `begin`, without what a terminal would obey, each cut to
// 400 bytes.
std::vector<std::string> last_lines(const std::string& path, size_t count, off_t begin = 0);

// Who a process of Fleet blames for its own end.
struct Blame {
  Role role = Role::kWorker;
  int index = 0;
  std::string line;
};
// The first line among the last ones of a log behind the byte `begin` that names a culprit:
// "worker 1 … in phase sending at step 12 …" or "culprit=worker/1". rank and trainer mean worker,
// pserver means server.
std::optional<Blame> find_blame(const std::string& path, off_t begin = 0);
std::optional<Blame> parse_blame(std::string_view line);

// Hands over each complete line as the files grow (inotify).
class LogFollower {
 public:
  using LineHandler = std::function<void(const Member& member, std::string_view line)>;
  // The loop must outlive this; the files exist already and are read from the bytes `begins`, one
  // for each member.
  // While `waits` says so, nothing is handed over; what the files get meanwhile comes later.
  LogFollower(EventLoop& loop, const std::vector<Member>& members, const std::vector<off_t>& begins,
              LineHandler handler, std::function<bool()> waits);
  ~LogFollower();
  LogFollower(const LogFollower&) = delete;
  LogFollower& operator=(const LogFollower&) = delete;
  // Reads what is there now, and hands over unfinished last lines too.
  void finish();

 private:
  struct Source {
    const Member* member = nullptr;
    FileDescriptor file;
    std::string partial;
  };
  void read_all();
  void read_new(Source& source, bool all);

  EventLoop& loop_;
  LineHandler handler_;
  std::function<bool()> waits_;
  std::optional<EventLoop::Timer> retry_;
  FileDescriptor inotify_;
  std::vector<Source> sources_;
};

}  // namespace fleet::launch
