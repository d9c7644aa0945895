// Connections that have not yet proved who they are, so many at most, and how often strangers are
// worth a line in the log.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"
#include "transport/session/session.h"

namespace fleet::transport {

// Where a connection comes from, without what differs between connections: "tcp 10.0.0.2".
std::string source_of(const std::string& peer_name);

// Belongs to one loop.
class PendingSessions {
 public:
  explicit PendingSessions(size_t most) : most_(most) {}

  // When it is full one connection has to go, which is returned: of sources from which nobody has
  // proved himself yet before all others, of the source with the most connections, the oldest.
  // So a flood of strangers takes each other's places, not those of members that come back.
  std::shared_ptr<Session> add(std::shared_ptr<Session> session, std::string source);
  // Null when it is not there.
  std::shared_ptr<Session> remove(uint64_t id);
  // The source of a connection that is there is a member's from now on.
  void prove(uint64_t id);
  // Empties it.
  std::map<uint64_t, std::shared_ptr<Session>> take_all();
  size_t size() const { return sessions_.size(); }

 private:
  uint64_t choose_victim() const;

  size_t most_;
  std::map<uint64_t, std::pair<std::shared_ptr<Session>, std::string>> sessions_;  // oldest first
  std::map<std::string, std::set<uint64_t>> sources_;
  std::set<std::string> proven_;
};

// At most `burst` at once, and one for each `interval` after that.
class RateLimit {
 public:
  RateLimit(uint64_t burst, Duration interval) : burst_(burst), interval_(interval) {}

  // How many were left out before this one; nothing when this one is, too.
  std::optional<uint64_t> take(TimePoint now);

 private:
  uint64_t burst_;
  Duration interval_;
  uint64_t used_ = 0;
  uint64_t skipped_ = 0;
  TimePoint since_{};
};

}  // namespace fleet::transport
