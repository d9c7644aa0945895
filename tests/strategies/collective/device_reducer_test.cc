// Sums of gradients that a device waits for, and not the host: what the calling thread computes is
// put on a stream of its own.
#include <cstring>
#include <future>
#include <gmock/gmock.h>
#include <thread>

#include "base/caught.h"
#include "base/error.h"
#include "base/strings.h"
#include "strategies/collective/gradient_reducer.h"
#include "tests/transport/nccl/nccl_jobs.h"

namespace fleet::strategies {
namespace {

using ::testing::HasSubstr;
using transport::CollectiveCommunicator;
using transport::ElementType;
using transport::ShardLayout;
using transport::testing::FakeQueue;
using transport::testing::FakeStream;
using transport::testing::FakeWorld;

// One rank: its device computes what is put on `compute`.
struct Rank {
  explicit Rank(const std::shared_ptr<FakeWorld>& world, int rank) {
    std::vector<transport::NcclRing> rings;
    rings.push_back(
        {.queue = std::make_unique<FakeQueue>(compute), .id = transport::testing::id_of("ring")});
    communicator = transport::make_nccl_communicator(
                       std::make_shared<transport::testing::FakeNccl>(world, rank),
                       std::make_unique<FakeQueue>(compute), std::move(rings),
                       {.rank = rank, .size = world->size()}, transport::testing::soon())
                       .value();
  }

  std::shared_ptr<FakeStream> compute =
      std::make_shared<FakeStream>(transport::testing::TakeMemory());
  std::unique_ptr<CollectiveCommunicator> communicator;
};

template <class Body>
void run_ranks(int ranks, const Body& body) {
  const auto world = std::make_shared<FakeWorld>(ranks);
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Rank self(world, rank);
        body(self);
      } catch (...) {
        ADD_FAILURE() << caught_status("rank").to_string();
      }
    });
  }
}

using Gradients = std::vector<std::vector<float>>;

float value(uint64_t step, int shard, size_t gradient, size_t i) {
  return static_cast<float>(step * 1000 + static_cast<uint64_t>(shard) * 100 + gradient * 10 + i);
}

// The device makes the gradients of each shard, in the same memory.
void add_gradients(Rank& self, GradientReducer& reducer, const ShardRange& own, uint64_t step,
                   Gradients& gradients) {
  for (int shard = own.begin; shard < own.end; ++shard) {
    for (size_t g = 0; g < gradients.size(); ++g) {
      std::vector<float>& made = gradients[g];
      self.compute->put([&made, step, shard, g] {
        for (size_t i = 0; i < made.size(); ++i) made[i] = value(step, shard, g, i);
      });
      reducer.add(shard - own.begin, ElementType::kFloat32, made.data(), made.data(), made.size());
    }
  }
}

TEST(DeviceReducer, HandsOnSumsInTheOrderOfTheDevice) {
  for (const size_t bucket : {1, 40, 1 << 20}) {
    for (const int shards : {2, 4}) {
      SCOPED_TRACE(str_cat("buckets of ", bucket, ", ", shards, " shards"));
      const ShardLayout layout(2, shards);
      run_ranks(2, [&](Rank& self) {
        GradientReducer reducer(*self.communicator, layout,
                                {.bucket_bytes = bucket, .factor = [] { return 0.5; }});
        Gradients gradients = {std::vector<float>(7), std::vector<float>(3), std::vector<float>(5)};
        Gradients updated = gradients;
        for (uint64_t step = 0; step < 5; ++step) {
          reducer.begin_step(step);
          add_gradients(self, reducer, layout.range(self.communicator->rank()), step, gradients);
          for (size_t g = gradients.size(); g-- > 0;) {
            reducer.lead(g);
            self.compute->put([&updated, &gradients, g] { updated[g] = gradients[g]; });
          }
          reducer.finish();
          self.compute->wait(self.compute->put([] {}));
          for (size_t g = 0; g < gradients.size(); ++g) {
            for (size_t i = 0; i < gradients[g].size(); ++i) {
              float sum = 0;
              for (int shard = 0; shard < shards; ++shard) sum += value(step, shard, g, i);
              ASSERT_EQ(updated[g][i], sum / 2) << "gradient " << g << ", step " << step;
            }
          }
        }
      });
    }
  }
}

TEST(DeviceReducer, DoesNotWaitForOtherRanksBeforeItsEnd) {
  const ShardLayout layout(2, 2);
  std::promise<void> led;
  run_ranks(2, [&](Rank& self) {
    const int rank = self.communicator->rank();
    self.communicator->barrier({}).wait(transport::testing::soon()).throw_if_error();
    GradientReducer reducer(*self.communicator, layout);
    Gradients gradients = {std::vector<float>(4)};
    reducer.begin_step(0);
    if (rank == 1) led.get_future().wait();
    add_gradients(self, reducer, layout.range(rank), 0, gradients);
    reducer.lead_all();
    if (rank == 0) {
      EXPECT_FALSE(reducer.test(0)) << "the other one has not begun";
      led.set_value();
    }
    reducer.wait_for_leads();
    EXPECT_TRUE(reducer.test(0));
    self.compute->wait(self.compute->put([] {}));
    EXPECT_EQ(gradients[0][3], value(0, 0, 0, 3) + value(0, 1, 0, 3));
  });
}

TEST(DeviceReducer, NamesARankThatDoesNotComeWhenItWaits) {
  const ShardLayout layout(2, 2);
  std::promise<void> failed;
  run_ranks(2, [&](Rank& self) {
    self.communicator->barrier({}).wait(transport::testing::soon()).throw_if_error();
    if (self.communicator->rank() == 1) return failed.get_future().wait();
    GradientReducer reducer(*self.communicator, layout, {.timeout = std::chrono::milliseconds(50)});
    Gradients gradients = {std::vector<float>(4)};
    reducer.begin_step(3);
    add_gradients(self, reducer, layout.range(0), 3, gradients);
    reducer.lead(0);
    try {
      reducer.wait_for_leads();
      ADD_FAILURE() << "no error";
    } catch (const PeerError& error) {
      EXPECT_THAT(error.what(), HasSubstr("backward, step 3"));
    }
    // Nothing holds the device any more.
    self.compute->wait(self.compute->put([] {}));
    failed.set_value();
  });
}

}  // namespace
}  // namespace fleet::strategies
