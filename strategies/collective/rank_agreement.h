// How the ranks of a job agree on what comes next when not all of them do the same number of
// steps. Before every exchange each rank says what it means to do: take a step's part, meet the
// others (a barrier, a reduction), or leave. As long as one rank takes steps, the others give
// nothing to them and ask again; when nobody does, those who meet do so; when all leave, the job is
// over. So a rank that has run out of data completes, and nobody waits for it. Ranks that train may
// meet between two steps, to save: to others this is like a step.
//
// The semantics are those of PyTorch's Join (torch.distributed.algorithms).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "strategies/collective/gradient_reducer.h"
#include "transport/collective/collective.h"

namespace fleet::strategies {

// What ranks meet for. All that meet must agree.
enum class Meeting : uint8_t {
  kBarrier = 0,
  kReduce = 1,   // `size` numbers are added up
  kNewest = 2,   // `size` bytes of the rank that has taken the most steps go to all
  kAverage = 3,  // parameters are averaged
};
std::string_view meeting_name(Meeting meeting);

// What a rank means to do next.
struct Intent {
  enum class Kind { kStep, kMeetBetweenSteps, kMeet, kLeave };
  Kind kind = Kind::kStep;
  int64_t shards = 0;   // kStep: contributions to the step
  int64_t counter = 0;  // kStep: what the program numbers the step with, if it does
  Meeting meeting = Meeting::kBarrier;
  uint64_t size = 0;
};

// Ranks that meet for the same.
struct RanksThatMeet {
  int64_t ranks = 0;
  Meeting kind = Meeting::kBarrier;
  uint64_t size = 0;
};

// What the ranks mean to do, together.
struct Agreed {
  int64_t stepping = 0;  // ranks
  int64_t shards = 0;    // contributions to the step
  int64_t leaving = 0;   // ranks
  int64_t counter = 0;   // of those that step
  RanksThatMeet between_steps;
  RanksThatMeet meeting;
};

// Used by one thread.
class RankAgreement {
 public:
  // The communicator must outlive it.
  RankAgreement(transport::CollectiveCommunicator& communicator, GradientReducerOptions options);

  // Says it, and does not wait.
  void begin(const Intent& intent, uint64_t step);
  // What all ranks said; waits for the last of them. Throws PeerError when a rank does not come,
  // UsageError when the ranks meet for different things, or number a step differently.
  const Agreed& finish();

 private:
  transport::CollectiveCommunicator& communicator_;
  GradientReducerOptions options_;
  transport::ShardLayout layout_;
  // Sums over ranks.
  enum Field : size_t {
    kStepping,
    kShards,
    kCounters,
    kLeaving,
    kBetweenSteps,
    kMeeting = kBetweenSteps + 5,
    kFields = kMeeting + 5,
    // Behind kBetweenSteps and kMeeting, of those that meet.
    kRanks = 0,
    kKeys,
    kSquaredKeys,
    kKinds,
    kSizes,
  };
  using Fields = std::array<int64_t, kFields>;

  RanksThatMeet read_meeting(size_t fields) const;
  [[noreturn]] void throw_different_calls() const;

  Fields said_{};
  Fields sum_{};
  std::string_view caller_;
  transport::CollectiveToken token_;
  bool under_way_ = false;
  Agreed agreed_;
};

// Gives zeros to the reductions of a step that other ranks take, in their order.
class EmptyContribution {
 public:
  // Communicator and layout must outlive it.
  EmptyContribution(transport::CollectiveCommunicator& communicator,
                    const transport::ShardLayout& layout, GradientReducerOptions options)
      : communicator_(communicator), layout_(layout), options_(std::move(options)) {}

  void give(std::span<const ReductionShape> parts, uint64_t step);

 private:
  transport::CollectiveCommunicator& communicator_;
  const transport::ShardLayout& layout_;
  GradientReducerOptions options_;
  Buffer zeros_;
  std::vector<Buffer> results_;
};

}  // namespace fleet::strategies
