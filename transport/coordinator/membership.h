// What members and coordinator say to each other on control lanes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "transport/session/handshake.h"

namespace fleet::transport {

// What the training (or serving) thread of a member is doing.
enum class Phase : uint8_t {
  kStarting = 0,
  kConnecting = 1,
  kInitialising = 2,
  kComputing = 3,
  kSending = 4,
  kReceiving = 5,  // waits for servers
  kBarrier = 6,    // waits for other members
  kReducing = 7,   // waits for other members
  kUpdating = 8,
  kServing = 9,  // a server between requests
  kSaving = 10,
  kLoading = 11,
  kFinishing = 12,
};
constexpr uint8_t kPhaseCount = 13;
std::string_view phase_name(Phase phase);
// Phases in which a member waits for others, and so is not to blame for standing still.
bool phase_waits(Phase phase);

// Why the job ends, and because of whom.
struct Verdict {
  MemberId culprit;
  Phase phase = Phase::kStarting;
  uint64_t step = 0;
  ErrorCode code = ErrorCode::kJobAborted;
  std::string reason;  // one sentence: "its connection closed"

  // Text such as "server 1 was lost in phase serving at step 12: its connection closed"; "fell
  // silent", "stood still" or "ended the job" by the code.
  Status to_status() const;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(culprit, phase, step, code, reason);
  }
};

// Control part of kHeartbeat; answered with an empty kReply.
struct HeartbeatNote {
  Phase phase = Phase::kStarting;
  uint64_t step = 0;
  uint64_t progress = 0;  // changes whenever the member's thread does anything
  template <class Archive>
  void serialize(Archive& archive) {
    archive(phase, step, progress);
  }
};

enum class Group : uint8_t { kWorkers = 1, kServers = 2, kAll = 3 };
enum class ReduceOp : uint8_t { kSum = 1, kMin = 2, kMax = 3, kGather = 4 };
std::string_view group_name(Group group);

// A Status in one line, for reasons and logs.
std::string one_line(const Status& status);

// Whole numbers, floating point numbers, or opaque texts (kGather only: the result has every
// member's, by rank). A barrier reduces an empty vector.
using ReduceValues =
    std::variant<std::vector<int64_t>, std::vector<double>, std::vector<std::string>>;

// Control part of kReduce, answered by a kReply with ReduceValues once every member of the group
// has called the same (name, sequence).
struct ReduceCall {
  Group group = Group::kWorkers;
  std::string name;
  uint64_t sequence = 0;  // counts the member's calls of this name
  ReduceOp op = ReduceOp::kSum;
  ReduceValues values;
  uint64_t deadline_ms = 0;  // from the first arrival; 0: only heartbeats and stalls end it

  template <class Archive>
  void serialize(Archive& archive) {
    archive(group, name, sequence, op, values, deadline_ms);
  }
};

}  // namespace fleet::transport
