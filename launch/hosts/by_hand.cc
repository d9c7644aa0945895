#include "launch/hosts/by_hand.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "launch/hosts/director.h"
#include "launch/hosts/job_secret.h"
#include "launch/hosts/meeting.h"

namespace fleet::launch {
namespace {

constexpr Duration kLook = std::chrono::seconds(1);
// For the other launchers to leave when the job is over.
constexpr Duration kOthersLeave = std::chrono::seconds(5);

MeetingOptions meeting_options(const CommandLine& line, const Environment& environment) {
  const auto port = static_cast<uint16_t>(line.launcher_port);
  MeetingOptions options;
  options.endpoint = {line.numbered ? line.numbered->master.host : line.nodes.front(), port};
  const size_t hosts =
      line.numbered ? static_cast<size_t>(line.numbered->count) : line.nodes.size();
  options.job_id = str_cat("launchers of ", environment.get("FLEET_JOB_ID").value_or("a job"),
                           " on ", hosts, " hosts");
  const auto here = std::find(line.nodes.begin(), line.nodes.end(), line.node_ip);
  options.host =
      static_cast<size_t>(line.numbered ? line.numbered->rank : here - line.nodes.begin());
  options.secret = line.insecure ? transport::Secret::insecure() : job_secret(environment).value();
  return options;
}

std::vector<std::string> titles_of(const CommandLine& line) {
  std::vector<std::string> titles;
  if (line.numbered) {
    for (int i = 0; i < line.numbered->count; ++i) titles.push_back(str_cat("node ", i));
  } else {
    for (const std::string& node : line.nodes) titles.push_back("host " + node);
  }
  return titles;
}

// The display is the director's.
SupervisorOptions quiet(SupervisorOptions supervision) {
  supervision.progress = false;
  supervision.json = false;
  return supervision;
}

class FirstLauncher : private HostLines {
 public:
  FirstLauncher(const MeetingOptions& options, const CommandLine& line,
                const Environment& environment, const HostPart& part, EventLoop& loop,
                Console& console)
      : loop_(loop),
        runs_(
            part.make, part.workers, quiet(part.supervision),
            [this](const Report& report) { director_.on_report(0, report); }, loop, console),
        director_({.hosts = titles_of(line),
                   .servers = line.servers,
                   .restarts = line.restarts,
                   .supervision = part.supervision,
                   .host_wait = line.host_wait,
                   .id_of =
                       [&line, &environment](int restarts) {
                         return new_attempt(launcher_name(line.launcher), environment, restarts);
                       }},
                  *this, loop, console),
        meeting_(options,
                 {.on_report = [this](size_t host,
                                      const Report& report) { director_.on_report(host, report); },
                  .on_lost = [this](size_t host,
                                    const std::string& why) { director_.on_lost(host, why); }},
                 loop) {
    console.say(str_cat("the launchers of all nodes meet at ", options.endpoint.to_string()));
  }

  int run() {
    runs_.on_connected();
    const int code = runs_.run();
    const TimePoint limit = loop_.now() + kOthersLeave;
    while (!meeting_.alone() && loop_.now() < limit) loop_.run_once(limit - loop_.now());
    return code;
  }

 private:
  void send(size_t host, const Order& order) override {
    if (host != 0) return meeting_.send(host, order);
    loop_.call_after(Duration(0), [this, order] { runs_.obey(order); });
  }
  void drop(size_t host) override {
    if (host != 0) meeting_.drop(host);
  }
  void on_over(int) override {}

  EventLoop& loop_;
  HostRuns runs_;
  Director director_;
  MeetingPoint meeting_;
};

class OtherLauncher {
 public:
  OtherLauncher(MeetingOptions options, const CommandLine& line, const HostPart& part,
                EventLoop& loop, Console& console)
      : options_(std::move(options)),
        heartbeat_timeout_(line.supervision.heartbeat_timeout),
        wait_(DirectorOptions().first_wait),
        wait_again_(line.host_wait),
        loop_(loop),
        console_(console),
        runs_(
            part.make, part.workers, quiet(part.supervision),
            [this](const Report& report) { line_->tell(report); }, loop, console) {}
  ~OtherLauncher() { loop_.cancel(look_timer_); }
  OtherLauncher(const OtherLauncher&) = delete;
  OtherLauncher& operator=(const OtherLauncher&) = delete;

  int run() {
    alone_since_ = loop_.now();
    connect();
    look();
    return runs_.run();
  }

 private:
  void connect() {
    refused_ = false;
    line_ = std::make_unique<MeetingLine>(
        options_,
        MeetingLine::Events{.on_connected = [this] { runs_.on_connected(); },
                            .on_order = [this](const Order& order) { runs_.obey(order); },
                            .on_lost = [this](const std::string& why) { on_lost(why); },
                            .on_failed = [this](const std::string& why) { last_failure_ = why; },
                            .on_refused = [this](const std::string& why,
                                                 bool for_good) { on_refused(why, for_good); }},
        loop_);
  }

  void on_lost(const std::string& why) {
    if (!runs_.connected()) return;
    alone_since_ = loop_.now();
    wait_ = wait_again_;
    last_failure_ = why;
    const std::string text = str_cat("the launcher of the first node was lost: ", why);
    console_.complain(str_cat(text, "; waits for it, for ", seconds_text(wait_), " at most"));
    runs_.on_disconnected(text, true);
  }

  void on_refused(const std::string& why, bool for_good) {
    last_failure_ = why;
    refused_ = true;
    if (!for_good) return;
    console_.complain("the launcher of the first node refuses this one: " + why);
    runs_.on_disconnected(why, false);
  }

  // A connection may break without a word, and the first node not come back.
  void look() {
    if (runs_.connected() && runs_.silence() >= heartbeat_timeout_ + kLook) {
      on_lost("it does not answer");
      connect();
    } else if (refused_) {
      connect();
    }
    if (!runs_.connected() && loop_.now() - alone_since_ >= wait_) {
      const std::string why = str_cat(
          "the launcher of the first node cannot be reached at ", options_.endpoint.to_string(),
          " within ", seconds_text(wait_), last_failure_.empty() ? "" : ": " + last_failure_);
      console_.complain(why);
      return runs_.on_disconnected(why, false);
    }
    look_timer_ = loop_.call_after(kLook, [this] { look(); });
  }

  const MeetingOptions options_;
  const Duration heartbeat_timeout_;
  Duration wait_;  // for the first launcher
  const Duration wait_again_;
  EventLoop& loop_;
  Console& console_;
  HostRuns runs_;
  std::unique_ptr<MeetingLine> line_;
  TimePoint alone_since_{};
  std::string last_failure_;
  bool refused_ = false;
  EventLoop::Timer look_timer_;
};

}  // namespace

int run_by_hand(const CommandLine& line, const Environment& environment, const HostPart& part,
                EventLoop& loop, Console& console) {
  const MeetingOptions options = meeting_options(line, environment);
  loop.handle_launcher_signals([](int) {});  // before there is another thread
  if (options.host != 0) return OtherLauncher(options, line, part, loop, console).run();
  return FirstLauncher(options, line, environment, part, loop, console).run();
}

}  // namespace fleet::launch
