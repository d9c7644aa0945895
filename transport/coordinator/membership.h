// What members and coordinator know of each other, and say to each other on control lanes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/clock.h"
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

// How long a process whose connection broke may take to come back before it counts as lost.
struct ReconnectGrace {
  // On one machine, where a process that lives is back within milliseconds, and wherever its
  // listener refuses connections: that proves its death.
  Duration proven = std::chrono::milliseconds(250);
  // Between machines: a connection request that was lost is sent again after 1 s.
  Duration remote = std::chrono::seconds(3);

  Duration after_loss(bool same_machine) const {
    return same_machine ? std::min(proven, remote) : remote;
  }
};

enum class MemberState : uint8_t { kAbsent, kPresent, kDisconnected, kComplete };

struct MemberStatus {
  MemberId id;
  MemberState state = MemberState::kAbsent;
  Phase phase = Phase::kStarting;
  uint64_t step = 0;
  Duration unchanged{0};  // how long phase, step and progress have been what they are
  std::string awaits;     // what it waits for together with others; empty: nothing, or not said
};

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

// On a member that leaves before it has completed: its process ends, or nobody needs it any more.
Verdict left_early(MemberId member, Phase phase, uint64_t step);

// A member that lives and has not advanced for long, and the workers that wait meanwhile.
struct Stall {
  MemberId culprit;
  Phase phase = Phase::kStarting;
  uint64_t step = 0;
  Duration unchanged{0};
  std::vector<MemberId> waiting;
  // What those wait in, that it is missing from: "operation 17, all_reduce of 1024 float32"; empty
  // when they have not said.
  std::string missing_from;

  // "stall who=worker/1 phase=computing step=12 for_s=14 waiting=worker/0", for launchers.
  std::string to_line() const;
};
// Told again and again while there is a stall, and nothing when it is over.
using StallHandler = std::function<void(const std::optional<Stall>&)>;

// Control part of kHeartbeat; answered with an empty kReply.
struct HeartbeatNote {
  Phase phase = Phase::kStarting;
  uint64_t step = 0;
  uint64_t progress = 0;  // changes whenever the member's thread does anything
  // What it waits for together with other members: "operation 17, all_reduce of 1024 float32".
  std::string awaits;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(phase, step, progress, awaits);
  }
};

// Control part of kComplete, where it is not empty: what the member leaves behind. Every later sum
// of that name over the group kTraining, of as many numbers, has it too.
struct CompleteNote {
  std::string name;
  std::vector<double> values;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, values);
  }
};

// kTraining: the workers that have not completed; a meeting of theirs does not wait for one that
// completes meanwhile.
enum class Group : uint8_t { kWorkers = 1, kServers = 2, kAll = 3, kTraining = 4 };
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
  // Of a call that gives way to checkpoints: how many requests for one the member has seen to. When
  // there are more, now or while it waits, the answer is save_first().
  std::optional<uint64_t> saves = {};

  template <class Archive>
  void serialize(Archive& archive) {
    archive(group, name, sequence, op, values, deadline_ms, saves);
  }
};

// The member is to save with the others, and to call again.
Status save_first(const std::string& meeting);
bool is_save_first(const Status& status);

}  // namespace fleet::transport
