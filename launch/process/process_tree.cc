#include "launch/process/process_tree.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <dirent.h>
#include <fcntl.h>
#include <functional>
#include <map>
#include <poll.h>
#include <set>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process/file_descriptor.h"
#include "base/strings.h"

namespace fleet::launch {
namespace {

struct Entry {
  pid_t parent = 0;
  char state = 0;
  uint64_t start = 0;
};
using Table = std::map<pid_t, Entry>;

constexpr int kFieldsBetweenParentAndStart = 17;

// What can be read: a process may end while its file is open, and a stream's iterators throw then.
std::string read_all(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t n = 0; file && (n = ::read(file.get(), part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<size_t>(n));
  }
  return text;
}

// Fields after the command name, which is in parentheses and may hold any character.
Entry read_stat(pid_t pid) {
  const std::string text = read_all(str_cat("/proc/", pid, "/stat"));
  const size_t end = text.rfind(')');
  Entry entry;
  if (end == std::string::npos) return entry;
  std::istringstream rest(text.substr(end + 1));
  rest >> entry.state >> entry.parent;
  std::string skipped;
  for (int i = 0; i < kFieldsBetweenParentAndStart; ++i) rest >> skipped;
  rest >> entry.start;
  return entry;
}

bool is_gone(char state) {
  return state == 0 || state == 'Z' || state == 'X';
}

Table process_table() {
  Table table;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) return table;
  while (const dirent* item = ::readdir(folder)) {
    const auto pid = parse_int(item->d_name);
    if (!pid) continue;
    const Entry entry = read_stat(static_cast<pid_t>(*pid));
    if (entry.state != 0) table.emplace(static_cast<pid_t>(*pid), entry);
  }
  ::closedir(folder);
  return table;
}

// The living descendants of `roots`, which may be dead themselves.
std::vector<pid_t> closure(const Table& table, const std::set<pid_t>& roots) {
  std::multimap<pid_t, pid_t> children;
  for (const auto& [pid, entry] : table) children.emplace(entry.parent, pid);
  std::set<pid_t> found;
  std::vector<pid_t> open(roots.begin(), roots.end());
  while (!open.empty()) {
    const pid_t parent = open.back();
    open.pop_back();
    const auto [first, last] = children.equal_range(parent);
    for (auto at = first; at != last; ++at) {
      if (found.insert(at->second).second) open.push_back(at->second);
    }
  }
  std::vector<pid_t> living;
  std::copy_if(found.begin(), found.end(), std::back_inserter(living),
               [&](pid_t pid) { return !is_gone(table.at(pid).state); });
  return living;
}

// Waits until one of the processes has ended, or the limit is over.
void await_one(const std::vector<pid_t>& pids, Duration limit) {
  std::vector<FileDescriptor> handles;
  std::vector<pollfd> polled;
  for (const pid_t pid : pids) {
    handles.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!handles.back()) return;  // it has ended already
    polled.push_back({handles.back().get(), POLLIN, 0});
  }
  const auto wait_ms = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
  ::poll(polled.data(), polled.size(), static_cast<int>(wait_ms));
}

std::vector<pid_t> kill_until_none(const std::function<std::vector<pid_t>(const Table&)>& find,
                                   Duration limit) {
  const TimePoint end = steady_clock().now() + limit;
  while (true) {
    const Table table = process_table();
    std::vector<pid_t> left = find(table);
    const TimePoint now = steady_clock().now();
    if (left.empty() || now >= end) return left;
    for (const pid_t pid : left) kill_process({.pid = pid, .start = table.at(pid).start});
    await_one(left, end - now);
  }
}

// "NAME=value" between zeros, as when the process started.
std::string environment_of(pid_t pid) {
  return '\0' + read_all(str_cat("/proc/", pid, "/environ")) + '\0';
}

}  // namespace

std::vector<pid_t> descendants_of(pid_t root) {
  return closure(process_table(), {root});
}

namespace {

std::vector<pid_t> marked_in(const Table& table, std::string_view assignment) {
  const std::string wanted = '\0' + std::string(assignment) + '\0';
  std::set<pid_t> marked;
  for (const auto& [pid, entry] : table) {
    if (is_gone(entry.state) || pid == ::getpid()) continue;
    const std::string text = environment_of(pid);
    if (text.find(wanted) != std::string::npos) marked.insert(pid);
  }
  std::vector<pid_t> all = closure(table, marked);
  all.insert(all.end(), marked.begin(), marked.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

}  // namespace

std::vector<pid_t> marked_processes(std::string_view assignment) {
  return marked_in(process_table(), assignment);
}

ProcessId identify(pid_t pid) {
  return {.pid = pid, .start = read_stat(pid).start};
}

// The handle holds on to one process: if the pid is still the right one then, so is the handle.
void kill_process(const ProcessId& process) {
  const FileDescriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  if (!handle || process.start == 0 || identify(process.pid).start != process.start) return;
  ::syscall(SYS_pidfd_send_signal, handle.get(), SIGKILL, nullptr, 0);
}

std::string variable_of(pid_t pid, std::string_view name) {
  const std::string text = environment_of(pid);
  const std::string wanted = '\0' + std::string(name) + '=';
  const size_t found = text.find(wanted);
  if (found == std::string::npos) return {};
  const size_t begin = found + wanted.size();
  return text.substr(begin, text.find('\0', begin) - begin);
}

char process_state(pid_t pid) {
  return read_stat(pid).state;
}

std::vector<pid_t> kill_descendants(Duration limit, pid_t spared) {
  const pid_t self = ::getpid();
  std::vector<pid_t> left = kill_until_none(
      [&](const Table& table) {
        std::vector<pid_t> found = closure(table, {self});
        std::erase(found, spared);
        return found;
      },
      limit);
  while (true) {  // zombies of adopted orphans
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) break;
    if (info.si_pid == spared) break;
    ::waitpid(info.si_pid, nullptr, 0);
  }
  return left;
}

std::vector<pid_t> kill_marked(std::string_view assignment, Duration limit) {
  return kill_until_none([&](const Table& table) { return marked_in(table, assignment); }, limit);
}

}  // namespace fleet::launch
