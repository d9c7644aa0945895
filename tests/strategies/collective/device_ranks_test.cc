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
  std::vector<Outcome> connect(const std::function<Result<DeviceLibrary>(int rank)>& open) {
    transport::InProcessGroup group(kRanks);
    std::vector<Outcome> outcomes(kRanks);
    std::vector<std::jthread> threads;
    threads.reserve(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        Outcome& outcome = outcomes[static_cast<size_t>(rank)];
        const auto host = group.member(rank);
        try {
          connect_and_sum(
              *host, [&](const fluid::Place&) { return open(rank); }, outcome);
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
                         std::make_unique<FakeQueue>()};
  }

 private:
  static constexpr Duration kPatience = std::chrono::seconds(20);

  static void connect_and_sum(transport::CollectiveCommunicator& host,
                              const std::function<Result<DeviceLibrary>(const fluid::Place&)>& open,
                              Outcome& outcome) {
    const Logger logger(LogLevel::kInfo,
                        [&outcome](LogLevel, std::string_view line) { outcome.log += line; });
    const auto communicator =
        connect_devices(host, fluid::CUDAPlace(0), {.open = open, .timeout = kPatience}, logger);
    outcome.connected = communicator != nullptr;
    if (communicator == nullptr) return;
    const transport::ShardLayout layout(kRanks, kRanks);
    const float mine = static_cast<float>(host.rank()) + 1;
    const void* part = &mine;
    auto token = communicator->all_reduce(layout, transport::ElementType::kFloat32, {&part, 1},
                                          &outcome.sum, 1, {});
    token.wait(steady_clock().now() + kPatience).throw_if_error();
  }

  std::shared_ptr<FakeWorld> world_ = std::make_shared<FakeWorld>(kRanks);
};

TEST_F(DeviceRanks, ThatAllHaveTheLibraryGetACommunicator) {
  for (const Outcome& outcome : connect([this](int rank) { return library(rank); })) {
    EXPECT_EQ(outcome.error, "");
    EXPECT_TRUE(outcome.connected);
    EXPECT_EQ(outcome.sum, 6);
    EXPECT_THAT(outcome.log, AllOf(HasSubstr("22809"), HasSubstr("a double"), HasSubstr("ordered"),
                                   HasSubstr("neither authenticated nor encrypted")));
  }
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
    EXPECT_THAT(outcome.error, HasSubstr("ncclGetUniqueId"));
  }
}

TEST(OpenDeviceLibrary, SaysWhatIsMissing) {
  try {
    const auto library = open_device_library(fluid::CUDAPlace(4095));
    ASSERT_FALSE(library.ok());
    EXPECT_EQ(library.status().code(), ErrorCode::kNotSupported);
    EXPECT_FALSE(library.status().text().fix.empty());
  } catch (const Error& error) {
    EXPECT_FALSE(error.text().fix.empty());
  }
}

}  // namespace
}  // namespace fleet::strategies
