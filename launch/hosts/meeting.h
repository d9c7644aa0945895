// Launchers that are started by hand, one on each host, meet at the first one's: it decides for all
// of them, and the others take its orders over a connection that proves the job's secret.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/net/endpoint.h"
#include "launch/hosts/messages.h"
#include "launch/process/event_loop.h"
#include "transport/session/secret.h"

namespace fleet::launch {

struct MeetingOptions {
  Endpoint endpoint;   // of the first launcher
  std::string job_id;  // of the launchers, which all must have; the job's processes have others
  size_t host = 0;     // this one's position
  transport::Secret secret;
};

// The first launcher's side. Members are called on the loop's thread, and what it is given to call
// is called there.
class MeetingPoint {
 public:
  struct Events {
    std::function<void(size_t host, const Report& report)> on_report;
    std::function<void(size_t host, const std::string& why)> on_lost;
  };
  // Throws ResourceError when it cannot listen.
  MeetingPoint(const MeetingOptions& options, Events events, EventLoop& loop);
  ~MeetingPoint();
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;

  void send(size_t host, const Order& order);
  // Ends the connection; on_lost follows.
  void drop(size_t host);
  bool alone() const { return there_.empty(); }

 private:
  class Side;
  Events events_;
  std::set<size_t> there_;
  std::unique_ptr<Side> side_;
};

// Another launcher's side; the same holds.
class MeetingLine {
 public:
  struct Events {
    std::function<void()> on_connected;
    std::function<void(const Order& order)> on_order;
    std::function<void(const std::string& why)> on_lost;    // will connect again
    std::function<void(const std::string& why)> on_failed;  // an attempt to connect
    // By the first launcher. If not for good, a new line may be taken later: it has not yet seen
    // that the one before has gone.
    std::function<void(const std::string& why, bool for_good)> on_refused;
  };
  MeetingLine(const MeetingOptions& options, Events events, EventLoop& loop);
  ~MeetingLine();
  MeetingLine(const MeetingLine&) = delete;
  MeetingLine& operator=(const MeetingLine&) = delete;

  // Dropped while there is no connection.
  void tell(const Report& report);

 private:
  class Side;
  std::unique_ptr<Side> side_;
};

}  // namespace fleet::launch
