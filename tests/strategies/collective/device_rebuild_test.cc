// Ranks on devices that lose some of theirs: the verdict ends what is under way, and those that are
// left sum by a communicator of their own. Above a double of NCCL, in threads.
#include <algorithm>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <thread>
#include <vector>

#include "base/caught.h"
#include "base/strings.h"
#include "strategies/collective/device_ranks.h"
#include "tests/transport/collective/reference.h"
#include "tests/transport/nccl/fake_nccl.h"
#include "transport/collective/in_process_communicator.h"

namespace fleet::strategies {
namespace {

using ::testing::HasSubstr;
using namespace transport::testing_reference;  // NOLINT
using transport::CollectiveCommunicator;
using transport::testing::FakeNccl;
using transport::testing::FakeQueue;
using transport::testing::FakeWorld;

constexpr size_t kCount = 1000;
constexpr Duration kPatience = std::chrono::seconds(20);

TimePoint soon() {
  return steady_clock().now() + kPatience;
}

// What happens to a job of ranks, one generation after the other.
class LosingRanks : public ::testing::Test {
 protected:
  using Communicator = std::unique_ptr<CollectiveCommunicator>;

  explicit LosingRanks(int ranks = 4)
      : world_(std::make_shared<FakeWorld>(ranks)), all_(static_cast<size_t>(ranks)) {
    std::iota(all_.begin(), all_.end(), 0);
    options_.nccl.keeps_ranks = true;
    options_.nccl.end_limit = std::chrono::milliseconds(300);
    options_.timeout = kPatience;
  }

  // Of the ranks of the job `ranks`, in threads: their place among them, and their communicator of
  // host memory.
  void at_each(const std::vector<int>& ranks,
               const std::function<void(int rank, CollectiveCommunicator& host)>& body) {
    transport::InProcessGroup group(static_cast<int>(ranks.size()));
    std::vector<std::jthread> threads;
    threads.reserve(ranks.size());
    for (size_t place = 0; place < ranks.size(); ++place) {
      threads.emplace_back([&, place] {
        const auto host = group.member(static_cast<int>(place));
        try {
          body(ranks[place], *host);
        } catch (...) {
          ADD_FAILURE() << "rank " << ranks[place] << ": " << caught_status("rank").to_string();
        }
        (void)host->barrier({}).wait(soon());
      });
    }
  }

  DeviceRanksOptions options_of(int rank) {
    DeviceRanksOptions options = options_;
    options.open = [world = world_, rank](const fluid::Place&) -> Result<DeviceLibrary> {
      return DeviceLibrary{std::make_shared<FakeNccl>(world, rank),
                           [] { return std::make_unique<FakeQueue>(); }};
    };
    return options;
  }

  void connect() {
    made_.resize(all_.size());
    at_each(all_, [this](int rank, CollectiveCommunicator& host) {
      at(rank) = connect_devices(host, kPlace, options_of(rank), logger());
      check_sum(*at(rank));
    });
  }

  // The ranks of the job that are left wait for the lost ones until the verdict comes.
  void lose(const std::vector<int>& left) {
    at_each(left, [this](int rank, CollectiveCommunicator&) {
      CollectiveCommunicator& communicator = *at(rank);
      const transport::ShardLayout layout(communicator.size(), communicator.size());
      auto parts = contributions<float>(layout, communicator.rank(), kCount);
      std::vector<float> out(kCount);
      auto token = communicator.all_reduce(layout, kType<float>, pointers(parts), out.data(),
                                           kCount, {.phase = "lost"});
      const std::jthread control([&] {
        while (communicator.awaited().empty()) std::this_thread::yield();
        communicator.abort(Status(ErrorCode::kJobAborted, {.what = "worker 2 was lost"}));
      });
      EXPECT_EQ(token.wait(soon()).text().what, "worker 2 was lost");
    });
  }

  // `old_ranks` are those of the communicators that failed, by place in `left`.
  void rebuild(const std::vector<int>& left, const std::vector<int>& old_ranks) {
    at_each(left, [&](int rank, CollectiveCommunicator& host) {
      auto again = rebuild_devices(host, kPlace, {.failed = at(rank).get(), .old_ranks = old_ranks},
                                   options_of(rank), logger());
      at(rank) = std::move(again);
      EXPECT_EQ(at(rank)->size(), static_cast<int>(left.size()));
      EXPECT_EQ(at(rank)->rank(), host.rank());
      check_sum(*at(rank));
    });
  }

  static void check_sum(CollectiveCommunicator& communicator) {
    const transport::ShardLayout layout(communicator.size(), communicator.size() + 1);
    auto parts = contributions<float>(layout, communicator.rank(), kCount);
    for (int round = 0; round < 3; ++round) {
      std::vector<float> out(kCount);
      const Status status = communicator
                                .all_reduce(layout, kType<float>, pointers(parts), out.data(),
                                            kCount, {.phase = "sum"})
                                .wait(soon());
      EXPECT_EQ(status.to_string(), Status().to_string());
      EXPECT_TRUE(same_bits(out, sum_of_contributions<float>(layout, kCount)));
    }
  }

  Communicator& at(int rank) { return made_[static_cast<size_t>(rank)]; }
  std::string log() {
    const std::lock_guard guard(mutex_);
    return log_;
  }
  Logger logger() {
    return Logger(LogLevel::kInfo, [this](LogLevel, std::string_view line) {
      const std::lock_guard guard(mutex_);
      log_ += line;
    });
  }

  static inline const fluid::Place kPlace = fluid::CUDAPlace(0);
  std::shared_ptr<FakeWorld> world_;
  std::vector<int> all_;
  DeviceRanksOptions options_;
  std::vector<Communicator> made_;  // by rank of the job

 private:
  std::mutex mutex_;
  std::string log_;
};

TEST_F(LosingRanks, GoOnByShrinkingWhatTheyHad) {
  connect();
  lose({0, 1, 3});
  EXPECT_EQ(world_->aborts(), 0);
  rebuild({0, 1, 3}, {0, 1, 3});
  EXPECT_EQ(world_->shrunk(), 3);
  EXPECT_EQ(world_->made(), 4);
  EXPECT_EQ(world_->aborts(), 3);  // what they had
  EXPECT_THAT(log(), HasSubstr("from one that lost ranks"));
}

TEST_F(LosingRanks, GoOnAnewWhereTheLibraryCannotShrink) {
  world_->be_old();
  connect();
  lose({0, 1, 3});
  EXPECT_EQ(world_->aborts(), 3);
  rebuild({0, 1, 3}, {0, 1, 3});
  EXPECT_EQ(world_->shrunk(), 0);
  EXPECT_EQ(world_->made(), 4 + 3);
  EXPECT_THAT(log(), HasSubstr("anew after a loss"));
}

TEST_F(LosingRanks, GoOnAnewWhereTheyKeepNothing) {
  options_.nccl.keeps_ranks = false;
  connect();
  lose({0, 1, 3});
  EXPECT_EQ(world_->aborts(), 3);
  rebuild({0, 1, 3}, {0, 1, 3});
  EXPECT_EQ(world_->made(), 4 + 3);
}

TEST_F(LosingRanks, GoOnAnewWhereOneIsNotQuietAgain) {
  connect();
  world_->revoke_in_vain(1);
  lose({0, 1, 3});
  EXPECT_EQ(world_->aborts(), 1);
  rebuild({0, 1, 3}, {0, 1, 3});
  EXPECT_EQ(world_->shrunk(), 0);
  EXPECT_EQ(world_->made(), 4 + 3);
}

TEST_F(LosingRanks, GoOnAnewWhereOneFailsToShrink) {
  options_.timeout = std::chrono::seconds(2);
  connect();
  lose({0, 1, 3});
  world_->refuse_shrink(3);
  rebuild({0, 1, 3}, {0, 1, 3});
  EXPECT_EQ(world_->made(), 4 + 3);
  EXPECT_THAT(log(), HasSubstr("NCCL cannot shrink its communicator"));
}

TEST_F(LosingRanks, LoseMoreOneAfterTheOther) {
  connect();
  lose({0, 1, 3});
  rebuild({0, 1, 3}, {0, 1, 3});
  lose({1, 3});
  rebuild({1, 3}, {1, 2});
  EXPECT_EQ(world_->shrunk(), 3 + 2);
}

TEST_F(LosingRanks, AreRebuiltThoughNobodyHasAbortedWhatTheyHad) {
  connect();
  rebuild({0, 1, 3}, {0, 1, 3});
  EXPECT_EQ(world_->shrunk(), 3);
}

TEST_F(LosingRanks, WithSeveralCommunicatorsInGroupsGoOn) {
  options_.communicators = 2;
  options_.hierarchical = true;
  options_.group_ranks = 2;
  connect();
  lose({0, 1});
  rebuild({0, 1}, {0, 1});
  EXPECT_EQ(world_->shrunk(), 4);
}

TEST_F(LosingRanks, MustFitTheirCommunicator) {
  connect();
  const auto host = transport::single_communicator();
  const std::vector<std::vector<int>> wrong = {{}, {1}, {0, 1}, {4}};
  for (const auto& old_ranks : wrong) {
    try {
      (void)rebuild_devices(*host, kPlace, {.failed = at(0).get(), .old_ranks = old_ranks},
                            options_of(0), logger());
      ADD_FAILURE() << join(old_ranks, ",");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.text().where, HasSubstr("old_ranks"));
    }
  }
}

}  // namespace
}  // namespace fleet::strategies
