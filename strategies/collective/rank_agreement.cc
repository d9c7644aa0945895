#include "strategies/collective/rank_agreement.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"

namespace fleet::strategies {
namespace {

using transport::ElementType;

// Small enough that squares of it, over all ranks, do not overflow.
constexpr uint64_t kKeys = uint64_t{1} << 24;

int64_t key_of(const Intent& intent) {
  return static_cast<int64_t>(fnv1a(str_cat(meeting_name(intent.meeting), " ", intent.size)) %
                              kKeys);
}

}  // namespace

std::string_view meeting_name(Meeting meeting) {
  switch (meeting) {
    case Meeting::kBarrier:
      return "barrier_worker";
    case Meeting::kReduce:
      return "all_reduce_worker";
    case Meeting::kNewest:
    case Meeting::kAverage:
      return "save_persistables";
  }
  return "?";
}

RankAgreement::RankAgreement(transport::CollectiveCommunicator& communicator,
                             GradientReducerOptions options)
    : communicator_(communicator),
      options_(std::move(options)),
      layout_(communicator.size(), communicator.size()) {}

void RankAgreement::begin(const Intent& intent, uint64_t step) {
  if (under_way_) (void)finish();
  said_ = {};
  const bool meets =
      intent.kind == Intent::Kind::kMeet || intent.kind == Intent::Kind::kMeetBetweenSteps;
  caller_ = meets ? meeting_name(intent.meeting) : "stop_worker";
  if (meets) {
    const int64_t key = key_of(intent);
    int64_t* fields =
        said_.data() + (intent.kind == Intent::Kind::kMeet ? kMeeting : kBetweenSteps);
    fields[kRanks] = 1;
    fields[kKeys] = key;
    fields[kSquaredKeys] = key * key;
    fields[kKinds] = static_cast<int64_t>(intent.meeting);
    fields[kSizes] = static_cast<int64_t>(intent.size);
  } else if (intent.kind == Intent::Kind::kStep) {
    said_[kStepping] = 1;
    said_[kShards] = intent.shards;
    said_[kCounters] = intent.counter;
  } else {
    said_[kLeaving] = 1;
  }
  const void* part = said_.data();
  token_ =
      communicator_.all_reduce(layout_, ElementType::kInt64, {&part, 1}, sum_.data(), sum_.size(),
                               {.phase = "agreement", .step = static_cast<int64_t>(step)});
  under_way_ = true;
}

void RankAgreement::throw_different_calls() const {
  throw_error(ErrorCode::kPrecondition,
              {.what = "the workers do not call the same thing",
               .where = std::string(caller_),
               .expected = "the same call, with as many values, in all workers",
               .got = "different ones",
               .fix = "call barrier_worker, all_reduce_worker and save_persistables in the same "
                      "order everywhere"});
}

RanksThatMeet RankAgreement::read_meeting(size_t at) const {
  const int64_t* fields = sum_.data() + at;
  if (fields[kRanks] == 0) return {};
  // By Cauchy and Schwarz: equal only where all keys are.
  if (fields[kRanks] * fields[kSquaredKeys] != fields[kKeys] * fields[kKeys]) {
    throw_different_calls();
  }
  return {.ranks = fields[kRanks],
          .kind = static_cast<Meeting>(fields[kKinds] / fields[kRanks]),
          .size = static_cast<uint64_t>(fields[kSizes] / fields[kRanks])};
}

const Agreed& RankAgreement::finish() {
  if (!under_way_) return agreed_;
  under_way_ = false;
  wait_for(token_, options_);
  const int64_t stepping = sum_[kStepping];
  agreed_ = {.stepping = stepping,
             .shards = sum_[kShards],
             .leaving = sum_[kLeaving],
             .counter = stepping > 0 ? sum_[kCounters] / stepping : 0};
  if (said_[kStepping] > 0 && said_[kCounters] * stepping != sum_[kCounters]) {
    throw_error(
        ErrorCode::kPrecondition,
        {.what = "the workers are not in the same step",
         .where = "the program's count of steps",
         .expected = str_cat(said_[kCounters], ", as here, at all workers"),
         .got = str_cat("a mean of ",
                        static_cast<double>(sum_[kCounters]) / static_cast<double>(stepping)),
         .fix = "load the same checkpoint in all workers, and take steps with all of them"});
  }
  agreed_.between_steps = read_meeting(kBetweenSteps);
  agreed_.meeting = read_meeting(kMeeting);
  if (stepping > 0 && agreed_.between_steps.ranks > 0) throw_different_calls();
  return agreed_;
}

void EmptyContribution::give(std::span<const ReductionShape> parts, uint64_t step) {
  size_t most = 0;
  for (const ReductionShape& part : parts) most = std::max(most, part.count * size_of(part.type));
  if (zeros_.size() < most) {
    zeros_ = communicator_.allocate(most);
    communicator_.clear(zeros_.data(), most);
  }
  results_.resize(std::max(results_.size(), parts.size()));
  const std::vector<const void*> nodes(layout_.nodes(communicator_.rank()).size(), zeros_.data());
  const transport::CollectiveLabel label{.phase = "an empty step",
                                         .step = static_cast<int64_t>(step)};
  std::vector<transport::CollectiveToken> tokens;
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t bytes = parts[i].count * size_of(parts[i].type);
    if (results_[i].size() < bytes) results_[i] = communicator_.allocate(bytes);
    tokens.push_back(communicator_.all_reduce(layout_, parts[i].type, nodes, results_[i].data(),
                                              parts[i].count, label));
  }
  for (auto& token : tokens) wait_for(token, options_);
}

}  // namespace fleet::strategies
