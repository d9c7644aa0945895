// A stream of a real device; skipped where there is none.
#include "transport/nccl/cuda_queue.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <thread>

#include "tests/transport/collective/reference.h"

namespace fleet::transport {
namespace {

using namespace testing_reference;  // NOLINT: the helpers of that folder

template <class T>
class CudaQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    const cudaError_t result = cudaGetDeviceCount(&count);
    if (result != cudaSuccess || count == 0) {
      GTEST_SKIP() << "no CUDA device: " << cudaGetErrorString(result);
    }
    queue_ = make_cuda_queue(0);
  }

  std::unique_ptr<DeviceQueue> queue_;
};
using Types = ::testing::Types<float, double, int64_t, Float16, BFloat16>;
TYPED_TEST_SUITE(CudaQueueTest, Types);

TYPED_TEST(CudaQueueTest, SumsHaveTheBitsOfTheCpu) {
  for (const int shards : {1, 2, 3, 5, 8, 13}) {
    const ShardLayout layout(1, shards);
    std::vector<ShardRange> leaves;
    std::vector<std::vector<TypeParam>> arrays;
    constexpr size_t kCount = 10'007;
    for (int i = 0; i < shards; ++i) {
      leaves.push_back({i, i + 1});
      arrays.push_back(shard_values<TypeParam>(i, kCount));
    }
    std::vector<Buffer> memory;
    std::vector<const void*> parts;
    for (const auto& array : arrays) {
      memory.push_back(this->queue_->allocate(kCount * sizeof(TypeParam)));
      this->queue_->finish();
      ASSERT_EQ(cudaMemcpy(memory.back().data(), array.data(), kCount * sizeof(TypeParam),
                           cudaMemcpyHostToDevice),
                cudaSuccess);
      parts.push_back(memory.back().data());
    }
    this->queue_->follow_compute();
    this->queue_->sum(leaves, kType<TypeParam>, parts, memory.front().data(), kCount);
    const auto event = this->queue_->mark();
    while (!event->done()) std::this_thread::yield();
    std::vector<TypeParam> out(kCount);
    ASSERT_EQ(cudaMemcpy(out.data(), memory.front().data(), kCount * sizeof(TypeParam),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    EXPECT_TRUE(same_bits(out, sum_of_arrays(TreeSum(shards), arrays, kCount))) << shards;
  }
}

}  // namespace
}  // namespace fleet::transport
