// Programs on a device, of which some ops have kernels there and others do not: copies come in
// between, and alone, over ranks and with servers every bit is that of the CPU. The device is
// emulated, and its memory can be touched by nobody else.

#include <cmath>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "base/hash.h"
#include "base/strings.h"
#include "tests/fleet/rank_threads.h"
#include "tests/testing/device/emulated_device.h"
#include "tests/testing/sample_task.h"
#include "tests/transpiler/sample_nets.h"
#include "tests/transport/nccl/fake_nccl.h"

namespace fleet::testing {
namespace {

using transport::testing::FakeNccl;
using transport::testing::FakeQueue;
using transport::testing::FakeWorld;

// Kernels on the device for every op, for none, and for a part of them that the seed draws.
bool has_device_kernel(uint64_t seed, const std::string& op) {
  if (seed % 5 == 0) return true;
  return fnv1a(str_cat(op, seed)) % 4 != 0;
}

// With FLEET_TEST_ON_DEVICE, the trainers of all jobs of this program: on a device with kernels for
// most ops.
class AllOnADevice : public ::testing::Environment {
 public:
  void SetUp() override {
    if (std::getenv("FLEET_TEST_ON_DEVICE") == nullptr) return;
    emulate_two_devices();
    trainer_place() = {fluid::CUDAPlace(0), &kernels_};
  }

 private:
  fluid::KernelTable kernels_ =
      kernels_with_device_ops([](const std::string& op) { return fnv1a(op) % 8 != 0; });
};

::testing::Environment* const kAllOnADevice = ::testing::AddGlobalTestEnvironment(new AllOnADevice);

class OnADevice : public ::testing::TestWithParam<uint64_t> {
 protected:
  OnADevice()
      : net_(transpiler::random_net(GetParam())),
        host_(sample_task(net_)),
        kernels_(kernels_with_device_ops(
            [](const std::string& op) { return has_device_kernel(GetParam(), op); })),
        device_(host_) {
    emulate_two_devices();
    device_.place = fluid::CUDAPlace(static_cast<int>(GetParam() % 2));
    device_.kernels = &kernels_;
  }

  transpiler::SampleNet net_;
  TrainingTask host_;
  fluid::KernelTable kernels_;
  TrainingTask device_;
};

TEST_P(OnADevice, AMachineAloneTrainsToTheBitsOfTheCpu) {
  const uint64_t before = device_kernels_run();
  for (const int shards : {1, 4}) {
    SCOPED_TRACE(str_cat(shards, " shards"));
    const LocalOutcome cpu = train_locally(host_, shards, true);
    const LocalOutcome device = train_locally(device_, shards, true);
    EXPECT_EQ(device.losses, cpu.losses);
    EXPECT_THAT(differing_steps(device.kept_steps, cpu.kept_steps), ::testing::IsEmpty());
  }
  EXPECT_GT(device_kernels_run(), before);
}

TEST_P(OnADevice, RanksTrainToTheBitsOfTheCpu) {
  RankJob job{.ranks = 2, .shards = 4};
  const RankOutcome cpu = train_in_ranks(host_, job);
  const uint64_t before = late_copies();
  const RankOutcome device = train_in_ranks(device_, job);
  EXPECT_EQ(device.losses, cpu.losses);
  EXPECT_EQ(device.persistables, cpu.persistables);
  if (GetParam() % 5 == 0) {
    EXPECT_GT(late_copies(), before) << "the device went on meanwhile";
  }
}

TEST_P(OnADevice, WorkersOfServersTrainToTheBitsOfTheCpu) {
  ThreadJob job{.workers = 2,
                .servers = 2,
                .shards = 4,
                .transport = transport::TransportChoice::kUnix,
                .keep_steps = true};
  const ThreadOutcome cpu = train_in_threads(host_, job);
  const uint64_t before = late_copies();
  const ThreadOutcome device = train_in_threads(device_, job);
  if (GetParam() % 5 == 0) {
    EXPECT_GT(late_copies(), before) << "the device went on meanwhile";
  }
  EXPECT_THAT(cpu.errors, ::testing::IsEmpty());
  EXPECT_THAT(device.errors, ::testing::IsEmpty());
  EXPECT_EQ(device.losses, cpu.losses);
  EXPECT_THAT(differing_steps(device.kept_steps, cpu.kept_steps), ::testing::IsEmpty());
}

// Each rank with a double of NCCL, whose streams touch the emulated device's memory.
class Nccls {
 public:
  explicit Nccls(int ranks) : world_(std::make_shared<FakeWorld>(ranks)) {}

  FakeWorld& world() { return *world_; }

  strategies::DeviceRanksOptions options(int rank, bool ordered = true) const {
    return {.open = [world = world_,
                     rank](const fluid::Place& place) -> Result<strategies::DeviceLibrary> {
              const auto take = [] { return std::make_shared<const DeviceAccess>(); };
              return strategies::DeviceLibrary{
                  std::make_shared<FakeNccl>(world, rank), [place, take] {
                    return std::make_unique<FakeQueue>(fluid::allocator_of(place), take);
                  }};
            },
            .nccl = {.ordered = ordered}};
  }

 private:
  std::shared_ptr<FakeWorld> world_;
};

TEST_P(OnADevice, RanksSumByNcclToTheBitsOfTheCpu) {
  for (const int ranks : {2, 4}) {
    SCOPED_TRACE(str_cat(ranks, " ranks"));
    RankJob job{.ranks = ranks, .shards = 4};
    const RankOutcome cpu = train_in_ranks(host_, job);
    Nccls nccls(ranks);
    job.devices = [&nccls](int rank) { return nccls.options(rank); };
    const RankOutcome device = train_in_ranks(device_, job);
    EXPECT_EQ(device.losses, cpu.losses);
    EXPECT_EQ(device.persistables, cpu.persistables);
    EXPECT_GT(nccls.world().bytes_sent(0), 0U);
    EXPECT_EQ(nccls.world().aborts(), 0);
  }
}

TEST_P(OnADevice, RanksSumInGroupsByTurnsToTheBitsOfTheCpu) {
  RankJob job{.ranks = 4, .shards = 4};
  const RankOutcome cpu = train_in_ranks(host_, job);
  Nccls nccls(4);
  job.devices = [&nccls](int rank) {
    auto options = nccls.options(rank);
    options.communicators = 2;
    options.hierarchical = true;
    options.group_ranks = 2;
    return options;
  };
  const RankOutcome device = train_in_ranks(device_, job);
  EXPECT_EQ(device.losses, cpu.losses);
  EXPECT_EQ(device.persistables, cpu.persistables);
  EXPECT_GT(nccls.world().bytes_sent(0, 2), 0U);
}

TEST_P(OnADevice, RanksThatEndEarlierGiveNothingToTheOthersSums) {
  RankJob job{.ranks = 2, .shards = 2};
  job.uneven_steps = {host_.steps, host_.steps - 3};
  const RankOutcome cpu = train_in_ranks(host_, job);
  Nccls nccls(2);
  job.devices = [&nccls](int rank) { return nccls.options(rank); };
  const RankOutcome device = train_in_ranks(device_, job);
  EXPECT_EQ(device.losses, cpu.losses);
  EXPECT_EQ(device.persistables, cpu.persistables);
}

TEST_P(OnADevice, RanksSumOverHostMemoryWhereOneHasNoNccl) {
  RankJob job{.ranks = 2, .shards = 4};
  const RankOutcome cpu = train_in_ranks(host_, job);
  Nccls nccls(2);
  job.devices = [&nccls](int rank) {
    auto options = nccls.options(rank);
    if (rank == 1) {
      options.open = [](const fluid::Place&) -> Result<strategies::DeviceLibrary> {
        return Status(ErrorCode::kNotSupported, {.what = "no NCCL here", .got = "nothing"});
      };
    }
    return options;
  };
  const RankOutcome device = train_in_ranks(device_, job);
  EXPECT_EQ(device.losses, cpu.losses);
  EXPECT_EQ(device.persistables, cpu.persistables);
  EXPECT_EQ(nccls.world().bytes_sent(0), 0U);
}

TEST_P(OnADevice, RanksSumFastToTheMeanButForRounding) {
  RankJob job{.ranks = 4, .shards = 4};
  const RankOutcome cpu = train_in_ranks(host_, job);
  Nccls nccls(4);
  job.devices = [&nccls](int rank) { return nccls.options(rank, false); };
  const RankOutcome device = train_in_ranks(device_, job);
  for (size_t rank = 0; rank < cpu.losses.size(); ++rank) {
    for (size_t step = 0; step < cpu.losses[rank].size(); ++step) {
      const float expected = cpu.losses[rank][step];
      EXPECT_NEAR(device.losses[rank][step], expected, 1e-3F * (1 + std::abs(expected)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, OnADevice, ::testing::Range<uint64_t>(1, 6));

}  // namespace
}  // namespace fleet::testing
