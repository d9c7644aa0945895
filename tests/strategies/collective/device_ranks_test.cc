#include "strategies/collective/device_ranks.h"

#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "tests/transport/nccl/fake_nccl.h"
#include "transport/collective/in_process_communicator.h"

namespace fleet::strategies {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using transport::testing::FakeNccl;
using transport::testing::FakeQueue;
using transport::testing::FakeWorld;

constexpr int kRanks = 3;

// A rank's library with an own version, or without an id to give.
class OtherNccl : public FakeNccl {
 public:
  OtherNccl(std::shared_ptr<FakeWorld> world, int rank, int version, bool gives_id)
      : FakeNccl(std::move(world), rank), version_(version), gives_id_(gives_id) {}
  int version() const override { return version_; }
  transport::NcclResult unique_id(transport::NcclId& id) override {
    return gives_id_ ? FakeNccl::unique_id(id) : transport::NcclResult::kSystemError;
  }

 private:
  int version_;
  bool gives_id_;
};

class DeviceRanks : public ::testing::Test {
 protected:
  struct Outcome {
    bool connected = false;
    float sum = 0;
    std::string error;
    std::string log;
  };

  // Every rank opens by `open`, connects, and sums its number plus one.
  std::vector<Outcome> connect(
      const std::function<Result<DeviceLibrary>(int rank)>& open,
      const std::function<void(int rank, DeviceRanksOptions&)>& change =
          [](int, DeviceRanksOptions&) {}) {
    transport::InProcessGroup group(world_->size());
    std::vector<Outcome> outcomes(static_cast<size_t>(world_->size()));
    std::vector<std::jthread> threads;
    threads.reserve(outcomes.size());
    for (int rank = 0; rank < world_->size(); ++rank) {
      threads.emplace_back([&, rank] {
        Outcome& outcome = outcomes[static_cast<size_t>(rank)];
        const auto host = group.member(rank);
        DeviceRanksOptions options{.open = [&](const fluid::Place&) { return open(rank); },
                                   .timeout = kPatience};
        change(rank, options);
        try {
          connect_and_sum(*host, options, outcome);
        } catch (const Error& error) {
          outcome.error = error.what();
        }
        const auto ends_together = host->barrier({}).wait(steady_clock().now() + kPatience);
      });
    }
    threads.clear();
    return outcomes;
  }

  Result<DeviceLibrary> library(int rank, int version = 22809, bool gives_id = true) {
    return DeviceLibrary{std::make_shared<OtherNccl>(world_, rank, version, gives_id),
                         [] { return std::make_unique<FakeQueue>(); }};
  }

  std::shared_ptr<FakeWorld> world_ = std::make_shared<FakeWorld>(kRanks);

 private:
  static constexpr Duration kPatience = std::chrono::seconds(20);

  static void connect_and_sum(transport::CollectiveCommunicator& host,
                              const DeviceRanksOptions& options, Outcome& outcome) {
    const Logger logger(LogLevel::kInfo,
                        [&outcome](LogLevel, std::string_view line) { outcome.log += line; });
    const auto communicator = connect_devices(host, fluid::CUDAPlace(0), options, logger);
    outcome.connected = communicator != nullptr;
    if (communicator == nullptr) return;
    const transport::ShardLayout layout(host.size(), host.size());
    const float mine = static_cast<float>(host.rank()) + 1;
    const void* part = &mine;
    auto token = communicator->all_reduce(layout, transport::ElementType::kFloat32, {&part, 1},
                                          &outcome.sum, 1, {});
    token.wait(steady_clock().now() + kPatience).throw_if_error();
  }
};

TEST_F(DeviceRanks, ThatAllHaveTheLibraryGetACommunicator) {
  for (const Outcome& outcome : connect([this](int rank) { return library(rank); })) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_TRUE(outcome.connected);
    EXPECT_EQ(outcome.sum, 6);
    EXPECT_THAT(outcome.log, AllOf(HasSubstr("22809"), HasSubstr("a double"), HasSubstr("ordered"),
                                   HasSubstr("neither authenticated nor encrypted"),
                                   HasSubstr("nor covered by the checksums")));
  }
}

// With a key for what NCCL sends.
class EncryptedDeviceRanks : public DeviceRanks {
 protected:
  std::vector<Outcome> connect_encrypted() {
    return connect(
        [this](int rank) { return library(rank); },
        [](int, DeviceRanksOptions& options) { options.encryption_key = std::string(64, 'k'); });
  }
};

TEST_F(EncryptedDeviceRanks, GiveNcclTheirKey) {
  for (const Outcome& outcome : connect_encrypted()) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.sum, 6);
    EXPECT_THAT(outcome.log, HasSubstr("TCP sockets are encrypted by TLS"));
  }
  EXPECT_THAT(world_->keys(), ::testing::ElementsAre(std::string(64, 'k')));
}

TEST_F(EncryptedDeviceRanks, OfWhichOneTakesNoKeySumOverHostMemory) {
  world_->refuse_encryption(1);
  for (const Outcome& outcome : connect_encrypted()) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_FALSE(outcome.connected);
    EXPECT_THAT(outcome.log, HasSubstr("rank 1: NCCL does not encrypt (a double without it)"));
  }
}

TEST_F(DeviceRanks, HaveAsManyCommunicatorsAsAskedFor) {
  const auto outcomes =
      connect([this](int rank) { return library(rank); },
              [](int, DeviceRanksOptions& options) { options.communicators = 3; });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.sum, 6);
    EXPECT_THAT(outcome.log, HasSubstr("communicators=3"));
  }
  EXPECT_EQ(world_->made(), 3 * kRanks);
  EXPECT_EQ(world_->destroyed(), 3 * kRanks);
}

// Ranks of machines a, a, b, b and so on.
class RanksInGroups : public DeviceRanks {
 protected:
  RanksInGroups() { world_ = std::make_shared<FakeWorld>(4); }

  std::vector<Outcome> connect_on(const std::string& machines, int group_ranks = 0,
                                  bool ordered = true) {
    return connect([this](int rank) { return library(rank); },
                   [=](int rank, DeviceRanksOptions& options) {
                     options.hierarchical = true;
                     options.group_ranks = group_ranks;
                     options.nccl.ordered = ordered;
                     options.machine = machines.substr(static_cast<size_t>(rank), 1);
                   });
  }
  void expect_groups(const std::vector<Outcome>& outcomes, const std::string& groups,
                     const std::string& why = "") {
    for (const Outcome& outcome : outcomes) {
      EXPECT_EQ(outcome.error, "");
      EXPECT_EQ(outcome.sum, 10);
      EXPECT_THAT(outcome.log, HasSubstr("ranks_of_groups=" + groups));
      EXPECT_THAT(outcome.log, HasSubstr(why));
    }
    const bool grouped = groups != "none";
    EXPECT_EQ(world_->bytes_sent(0, 4) == 0, grouped);
  }
};

TEST_F(RanksInGroups, OfAMachineSumFirst) {
  expect_groups(connect_on("aabb"), "2,2");
  EXPECT_EQ(world_->made(), 4 + 4 + 2);
}

TEST_F(RanksInGroups, OfANumberSumFirst) {
  expect_groups(connect_on("aaaa", 2), "2,2");
}

TEST_F(RanksInGroups, WithSeveralCommunicatorsSumFirst) {
  const auto outcomes = connect([this](int rank) { return library(rank); },
                                [](int, DeviceRanksOptions& options) {
                                  options.hierarchical = true;
                                  options.group_ranks = 2;
                                  options.communicators = 2;
                                });
  expect_groups(outcomes, "2,2");
  EXPECT_EQ(world_->made(), 2 * (4 + 4 + 2));
}

TEST_F(RanksInGroups, AreNoneOnOneMachineOrWithOneRankEach) {
  expect_groups(connect_on("aaaa"), "none");
  world_ = std::make_shared<FakeWorld>(4);
  expect_groups(connect_on("abcd"), "none");
}

TEST_F(RanksInGroups, ThatDoNotFollowOneAnotherSumAtOnce) {
  expect_groups(connect_on("abab"), "none", "rank 2 does not follow those of its machine");
}

TEST_F(RanksInGroups, ThatAreNoNodesSumAtOnceInOrderButNotFast) {
  expect_groups(connect_on("abbb"), "none", "the shard tree has other branches");
  world_ = std::make_shared<FakeWorld>(4);
  expect_groups(connect_on("abbb", 0, false), "1,3");
}

TEST_F(RanksInGroups, ThatDoNotDivideSumAtOnce) {
  expect_groups(connect_on("aaaa", 3), "none", "4 ranks do not divide into groups of 3");
}

TEST_F(DeviceRanks, OfWhichOneHasNoneSumOverHostMemory) {
  const auto outcomes = connect([this](int rank) -> Result<DeviceLibrary> {
    if (rank != 1) return library(rank);
    return Status(ErrorCode::kNotSupported, {.what = "NCCL cannot be loaded", .got = "no file"});
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_FALSE(outcome.connected);
    EXPECT_THAT(outcome.log, HasSubstr("rank 1: NCCL cannot be loaded (no file)"));
  }
}

TEST_F(DeviceRanks, OfWhichOneThrowsSumOverHostMemory) {
  const auto outcomes = connect([this](int rank) -> Result<DeviceLibrary> {
    if (rank != 2) return library(rank);
    throw_error(ErrorCode::kNotSupported, {.what = "this build has no CUDA streams", .got = "one"});
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_FALSE(outcome.connected);
    EXPECT_THAT(outcome.log, HasSubstr("rank 2: this build has no CUDA streams"));
  }
}

TEST_F(DeviceRanks, WithDifferentVersionsSumOverHostMemory) {
  const auto outcomes =
      connect([this](int rank) { return library(rank, rank == 2 ? 21805 : 22809); });
  for (const Outcome& outcome : outcomes) {
    EXPECT_FALSE(outcome.connected);
    EXPECT_THAT(outcome.log, HasSubstr("rank 2: NCCL 21805"));
  }
}

TEST_F(DeviceRanks, LearnThatTheFirstCannotMakeAnId) {
  const auto outcomes = connect([this](int rank) { return library(rank, 22809, false); });
  for (const Outcome& outcome : outcomes) {
    EXPECT_FALSE(outcome.connected);
    EXPECT_THAT(outcome.error, HasSubstr("rank 0 could not make an id"));
  }
}

TEST(OpenDeviceLibrary, SaysWhatIsMissing) {
  try {
    const auto library = open_device_library(fluid::CUDAPlace(4095));
    if (library.ok()) (void)library.value().make_queue();
    ASSERT_FALSE(library.ok());
    EXPECT_EQ(library.status().code(), ErrorCode::kNotSupported);
    EXPECT_FALSE(library.status().text().fix.empty());
  } catch (const Error& error) {
    EXPECT_FALSE(error.text().fix.empty());
  }
}

}  // namespace
}  // namespace fleet::strategies
