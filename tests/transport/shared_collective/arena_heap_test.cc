// Memory of arenas, and reductions that read it where it lies.
#include "transport/shared_collective/arena_heap.h"

#include <cstring>
#include <gmock/gmock.h>

#include "tests/transport/collective/reference.h"
#include "tests/transport/shared_collective/shared_ranks.h"

namespace fleet::transport {
namespace {

using ::testing::HasSubstr;
using namespace testing;            // NOLINT: the helpers of this folder
using namespace testing_reference;  // NOLINT

constexpr uint64_t kHeap = uint64_t{64} << 20;
// Every array is read, in several rounds of small pieces.
constexpr CommunicatorOptions kReading = {.reading_limit_bytes = 0, .reading_piece_bytes = 4096};

TEST(ArenaHeap, GivesMemoryThatOthersReadAndTakesItBack) {
  SharedGroup group(2, 1 << 20);
  ArenaHeap heap(group.own[0], group.mapped[0]);
  const ArenaHeap other(group.own[1], group.mapped[1]);
  {
    const Buffer first = heap.allocate(1000);
    const Buffer second = heap.allocate(900'000);
    EXPECT_FALSE(heap.allocate(200'000));
    EXPECT_FALSE(heap.allocate(size_t{1} << 62));
    std::memcpy(first.data(), "here", 4);
    const auto place = heap.place_of({first.data(), 1000});
    ASSERT_TRUE(place);
    EXPECT_EQ(std::memcmp(other.at(0, *place, 1000), "here", 4), 0);
  }
  EXPECT_TRUE(heap.allocate(1 << 20));
}

TEST(ArenaHeap, KnowsWhatIsInside) {
  SharedGroup group(2, 1 << 20);
  ArenaHeap heap(group.own[0], group.mapped[0]);
  std::vector<std::byte> elsewhere(10);
  EXPECT_FALSE(heap.place_of(elsewhere));
  const Buffer all = heap.allocate(1 << 20);
  EXPECT_FALSE(heap.place_of({all.data() + 1, size_t{1} << 20}));
  EXPECT_EQ(heap.at(1, 1 << 20, 1), nullptr);
  EXPECT_EQ(heap.at(1, ~uint64_t{0}, 2), nullptr);
  EXPECT_EQ(heap.at(1, 1, ~size_t{0}), nullptr);
  EXPECT_NE(heap.at(1, (1 << 20) - 1, 1), nullptr);
}

TEST(ArenaHeap, OutlivesItsCommunicator) {
  SharedGroup group(2, 1 << 20);
  Buffer kept;
  {
    const auto comm = make_communicator(group.peers(0));
    kept = comm->allocate(100);
  }
  group.own.clear();
  group.mapped.clear();
  std::memset(kept.data(), 1, kept.size());
}

// Which of a rank's arrays lie in its arena.
enum class Where { kAll, kNone, kPartsOnly, kOutOnly, kInPlace };

template <class T>
void check_all_reduce(CollectiveCommunicator& comm, const ShardLayout& layout, size_t count,
                      Where where) {
  auto parts = contributions<T>(layout, comm.rank(), count);
  std::vector<T> plain(count);
  std::vector<Buffer> shared;
  std::vector<const void*> arrays = pointers(parts);
  const size_t bytes = count * sizeof(T);
  if (where == Where::kAll || where == Where::kPartsOnly || where == Where::kInPlace) {
    for (size_t k = 0; k < parts.size(); ++k) {
      shared.push_back(comm.allocate(bytes));
      if (bytes > 0) std::memcpy(shared.back().data(), parts[k].data(), bytes);
      arrays[k] = shared.back().data();
    }
  }
  void* out = plain.data();
  if (where == Where::kInPlace) out = shared.back().data();
  if (where == Where::kAll || where == Where::kOutOnly) {
    shared.push_back(comm.allocate(bytes));
    out = shared.back().data();
  }
  const Status status = comm.all_reduce(layout, kType<T>, arrays, out, count, kLabel).wait(soon());
  ASSERT_TRUE(status.ok()) << status.to_string();
  std::vector<T> sum(count);
  if (bytes > 0) std::memcpy(sum.data(), out, bytes);
  ASSERT_TRUE(same_bits(sum, sum_of_contributions<T>(layout, count)))
      << comm.size() << " ranks, " << count << ", " << static_cast<int>(where);
}

template <class T>
class ReadingReductions : public ::testing::Test {};
using Types = ::testing::Types<float, double, int64_t, Float16, BFloat16>;
TYPED_TEST_SUITE(ReadingReductions, Types);

TYPED_TEST(ReadingReductions, HaveTheBitsOfTheTreeWhereverArraysLie) {
  for (const int ranks : {2, 3, 4}) {
    for (const int shards : {ranks, 2 * ranks + 3}) {
      const ShardLayout layout(ranks, shards);
      const auto body = [&](CollectiveCommunicator& comm) {
        for (const size_t count : {0, 1, 1000, 20'011}) {
          for (const int turn : {0, 1, 2, 3, 4}) {
            // Not the same at all ranks.
            const auto where = static_cast<Where>((turn + comm.rank()) % 5);
            check_all_reduce<TypeParam>(comm, layout, count, where);
          }
        }
      };
      run_shared_ranks(ranks, body, kReading, kHeap);
      if (this->HasFatalFailure()) return;
    }
  }
}

TEST(ReadingReductions, SeveralAreUnderWayAtATime) {
  run_shared_ranks(
      3,
      [](CollectiveCommunicator& comm) {
        const ShardLayout layout(3, 3);
        std::vector<std::vector<float>> values;
        std::vector<CollectiveToken> tokens;
        values.reserve(20);
        tokens.reserve(20);
        for (size_t i = 0; i < 20; ++i) {
          auto& own = values.emplace_back(shard_values<float>(comm.rank(), 1 + 9000 * (i % 5)));
          const void* part = own.data();
          tokens.push_back(comm.all_reduce(layout, ElementType::kFloat32, {&part, 1}, own.data(),
                                           own.size(), kLabel));
        }
        for (size_t i = tokens.size(); i-- > 0;) {
          ASSERT_TRUE(tokens[i].wait(soon()).ok());
          EXPECT_TRUE(same_bits(values[i], local_sum<float>(3, values[i].size())));
        }
      },
      kReading, kHeap);
}

TEST(ReadingReductions, APlaceOutsideAnArenaIsAnError) {
  SharedGroup group(2, kHeap);
  const auto comm = make_communicator(group.peers(0), kReading);
  const auto other = group.peers(1);
  const ShardLayout layout(2, 2);
  std::vector<float> values(100);
  const void* part = values.data();
  auto token =
      comm->all_reduce(layout, ElementType::kFloat32, {&part, 1}, values.data(), 100, kLabel);
  const auto messages =
      other->messages({0, CollectiveKind::kAllReduce, ElementType::kFloat32, 100});
  const std::array<uint64_t, 4> places = {kHeap - 10, 0, 0, 0};
  messages->send(0, std::as_bytes(std::span(places)));
  const Status status = token.wait(soon());
  EXPECT_EQ(status.code(), ErrorCode::kBadFrame);
  EXPECT_THAT(status.text().what, HasSubstr("outside its memory"));
}

}  // namespace
}  // namespace fleet::transport
