// What the coordinator remembers of members and meetings. Private to the coordinator's sources.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/coordinator/coordinator.h"

namespace fleet::transport {

Status meeting_status(ErrorCode code, const ReduceCall& call, std::string what,
                      std::string expected, std::string got);

struct Coordinator::Member {
  MemberStatus status;
  std::weak_ptr<Session> session;
  uint64_t session_key = 0;
  bool same_machine = false;
  uint64_t progress = 0;
  Duration silent{0};
  Duration next_report{0};
  std::optional<Loop::TimerId> grace_timer;
};

struct Coordinator::Meeting {
  struct Arrived {
    std::weak_ptr<Session> session;
    FrameHeader header;
    ReduceCall call;
  };
  std::map<MemberId, Arrived> arrived;
  std::optional<Loop::TimerId> timer;
  const ReduceCall& call() const { return arrived.begin()->second.call; }
};

// How the last meeting of a name ended, for members whose answer was lost.
struct Coordinator::Finished {
  uint64_t sequence = 0;
  uint64_t order = 0;
  Status failure;
  SharedBytes values;

  void answer(Session& session, const FrameHeader& request) const {
    if (!failure.ok()) return session.send(make_error_reply(request, failure));
    for (Message& frame : message_frames(make_reply(request).header, values)) {
      session.send(std::move(frame), false);
    }
    session.flush();
  }
};

}  // namespace fleet::transport
