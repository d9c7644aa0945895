// An update in a server's pool of threads that gets no memory: the job ends, and says so.
#include <atomic>
#include <cstdlib>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <string_view>

#include "base/strings.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/testing/thread_cluster.h"

namespace {

constexpr size_t kLargeBytes = size_t{1} << 20;
std::atomic<bool> scarce{false};
std::atomic<int> refused{0};

bool in_update_thread() {
  char name[16] = {};
  return pthread_getname_np(pthread_self(), name, sizeof name) == 0 &&
         std::string_view(name) == "update";
}

}  // namespace

// What tensors are made with, in place of the C library's.
extern "C" void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  if (scarce && bytes >= kLargeBytes && in_update_thread()) {
    ++refused;
    return nullptr;
  }
  void* memory = nullptr;
  return ::posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

namespace fleet::testing {
namespace {

namespace layers = fluid::layers;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(UpdateMemory, ThatIsNotThereEndsTheJobAndIsNamed) {
  constexpr int kFeatures = 512;
  constexpr int kWidth = 1024;
  fluid::Program main;
  fluid::Program startup;
  std::string loss_name;
  {
    const fluid::ProgramGuard programs(main, startup);
    const fluid::unique_name::Guard names;
    const auto x = layers::data("x", {kFeatures});
    const auto loss = layers::mean(layers::fc(x, kWidth));
    loss_name = loss.name();
    // On the server: temporaries of the parameter's size.
    fluid::optimizer::SGD sgd(
        {.learning_rate = 0.1, .regularization = fluid::regularizer::L2Decay(0.01)});
    sgd.minimize(loss);
  }
  TrainingTask task{.main = &main, .startup = &startup, .loss = loss_name, .feed = {}, .steps = 4};
  task.feed = [](int step, int begin, int end, int) {
    if (step == 0) scarce = true;
    const auto rows = static_cast<size_t>(end - begin);
    return fluid::Feed{{"x", fluid::Tensor::from(std::vector<float>(rows * kFeatures, 0.5F),
                                                 {static_cast<int64_t>(rows), kFeatures})}};
  };
  const ThreadOutcome outcome = train_in_threads(task, {.workers = 2, .servers = 1});
  scarce = false;
  EXPECT_GT(refused, 0);
  EXPECT_EQ(outcome.errors.size(), 3U) << join(outcome.errors, "\n");
  for (const std::string& error : outcome.errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("server 0 ended the job in phase updating at step 1"),
                             HasSubstr("no memory left")));
  }
}

}  // namespace
}  // namespace fleet::testing
