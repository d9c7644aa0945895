#include "tests/tools/explain/browser.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

#include "base/strings.h"
#include "tests/testing/command.h"

namespace fleet::testing {
namespace {

constexpr int kPatienceMs = 60'000;
constexpr int kNarrow = 600;

// Clear of the descriptors 3 and 4, where the browser looks for its ends.
int moved_up(int fd) {
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, 10);
  close(fd);
  return moved;
}

struct Pipe {
  int read = -1;
  int write = -1;

  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    read = moved_up(ends[0]);
    write = moved_up(ends[1]);
  }
};

}  // namespace

std::string Browser::installed() {
  const std::string found = run_command("command -v chromium || command -v google-chrome").output;
  return found.substr(0, found.find('\n'));
}

Browser::Browser(const std::filesystem::path& profile) {
  spawn(profile);
  const Json target = call("Target.createTarget", {{"url", "about:blank"}});
  session_ = call("Target.attachToTarget", {{"targetId", target.at("targetId")}, {"flatten", true}})
                 .at("sessionId");
  for (const char* domain : {"Page", "Runtime", "Log", "Network"}) {
    call(str_cat(domain, ".enable"), Json::object());
  }
}

void Browser::spawn(const std::filesystem::path& profile) {
  const Pipe in;
  const Pipe out;
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in.read, 3);
  posix_spawn_file_actions_adddup2(&files, out.write, 4);
  posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> words = {installed(),         "--headless=new",
                                    "--no-sandbox",      "--disable-gpu",
                                    "--no-first-run",    "--remote-debugging-pipe",
                                    "--hide-scrollbars", "--user-data-dir=" + profile.string(),
                                    "about:blank"};
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int error = posix_spawn(&pid_, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  close(in.read);
  close(out.write);
  to_ = in.write;
  from_ = out.read;
  if (error != 0) throw std::runtime_error("cannot start " + words[0]);
}

Browser::~Browser() {
  close(to_);
  close(from_);
  if (pid_ < 0) return;
  kill(-pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Browser::write(const std::string& message) const {
  const std::string framed = message + '\0';
  for (size_t sent = 0; sent < framed.size();) {
    const ssize_t n = ::write(to_, framed.data() + sent, framed.size() - sent);
    if (n <= 0) throw std::runtime_error("the browser has gone");
    sent += static_cast<size_t>(n);
  }
}

Browser::Json Browser::read() {
  for (;;) {
    const size_t end = received_.find('\0');
    if (end != std::string::npos) {
      Json message = Json::parse(received_.substr(0, end));
      received_.erase(0, end + 1);
      return message;
    }
    pollfd readable{.fd = from_, .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, kPatienceMs) <= 0) throw std::runtime_error("the browser is silent");
    std::array<char, 65536> block;
    const ssize_t n = ::read(from_, block.data(), block.size());
    if (n <= 0) throw std::runtime_error("the browser has gone");
    received_.append(block.data(), static_cast<size_t>(n));
  }
}

Browser::Json Browser::call(const std::string& method, const Json& params) {
  const int id = ++last_id_;
  Json request = {{"id", id}, {"method", method}, {"params", params}};
  if (!session_.empty()) request["sessionId"] = session_;
  write(request.dump());
  for (;;) {
    Json message = read();
    if (!message.contains("id")) {
      events_.push_back(std::move(message));
    } else if (message["id"] == id) {
      if (message.contains("error")) throw std::runtime_error(method + ": " + message.dump());
      return message["result"];
    }
  }
}

void Browser::wait_for(const std::string& event) {
  const auto is_it = [&](const Json& each) { return each.at("method") == event; };
  while (std::none_of(events_.begin(), events_.end(), is_it)) events_.push_back(read());
}

void Browser::hear(const Json& event, const std::string& url, Shown& shown) const {
  const std::string method = event.at("method");
  const Json& params = event.at("params");
  if (method == "Runtime.consoleAPICalled" || method == "Runtime.exceptionThrown") {
    shown.console.push_back(params.dump());
  } else if (method == "Log.entryAdded") {
    shown.console.push_back(params.at("entry").dump());
  } else if (method == "Network.requestWillBeSent") {
    const std::string asked = params.at("request").at("url");
    if (asked != url && !asked.starts_with("data:")) shown.requests.push_back(asked);
  }
}

Browser::Shown Browser::open(const std::string& url, int width, int height,
                             const std::string& script) {
  call("Emulation.setDeviceMetricsOverride", {{"width", width},
                                              {"height", height},
                                              {"deviceScaleFactor", 1},
                                              {"mobile", width < kNarrow}});
  events_.clear();
  call("Page.navigate", {{"url", url}});
  wait_for("Page.loadEventFired");
  const Json result =
      call("Runtime.evaluate",
           {{"expression", script}, {"awaitPromise", true}, {"returnByValue", true}});
  if (result.contains("exceptionDetails")) {
    throw std::runtime_error("the script failed: " + result["exceptionDetails"].dump());
  }
  Shown shown{.value = result.at("result").value("value", Json())};
  for (const Json& event : events_) hear(event, url, shown);
  return shown;
}

}  // namespace fleet::testing
