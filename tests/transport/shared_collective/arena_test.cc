// The memory itself, and how ranks hand it to each other.
#include "transport/shared_collective/arena.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/strings.h"
#include "tests/transport/shared_collective/shared_ranks.h"

namespace fleet::transport {
namespace {

using ::testing::HasSubstr;
using namespace testing;  // NOLINT: the helpers of this folder

TEST(Arena, KeepsItsSizeAndIsTheSameForAll) {
  const ArenaLayout layout{3, 0};
  const auto own = Arena::make(layout).value();
  EXPECT_NE(ftruncate(own->file(), 100), 0);
  EXPECT_NE(ftruncate(own->file(), 1 << 30), 0);
  const auto seen = Arena::map(FileDescriptor(dup(own->file())), layout).value();
  own->line(2).put.store(17);
  EXPECT_EQ(seen->line(2).put.load(), 17U);
  seen->bell().rings.store(4);
  EXPECT_EQ(own->bell().rings.load(), 4U);
}

TEST(Arena, IsNotWrittenByOthers) {
  const ArenaLayout layout{2, 0};
  const auto own = Arena::make(layout).value();
  const auto seen = Arena::map(FileDescriptor(dup(own->file())), layout).value();
  EXPECT_DEATH(seen->line(0).put.store(1), "");
  EXPECT_DEATH(*seen->slot(1, 0) = std::byte{1}, "");
}

TEST(Arena, OfAnotherFormIsRefused) {
  const ArenaLayout layout{2, 0};
  const auto refused = [&](FileDescriptor file) {
    const Status status = Arena::map(std::move(file), layout).status();
    EXPECT_EQ(status.code(), ErrorCode::kBadFrame);
    return status.text().got;
  };
  FileDescriptor open(memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(open.get(), static_cast<off_t>(layout.bytes())), 0);
  EXPECT_THAT(refused(FileDescriptor(dup(open.get()))), HasSubstr("may change its size"));
  const auto larger = Arena::make(ArenaLayout{3, 0}).value();
  EXPECT_THAT(refused(FileDescriptor(dup(larger->file()))), HasSubstr("bytes"));
  EXPECT_THAT(refused(FileDescriptor(::open("/dev/null", O_RDONLY))), HasSubstr("may change"));
}

TEST(ArenaExchange, RefusesOtherMachinesAndUsersAndRanksWithoutMemory) {
  const auto own = Arena::make(ArenaLayout{2, 0}).value();
  ArenaExchange exchange;
  ASSERT_TRUE(exchange.listen(2).ok());
  const std::string mine = exchange.invitation();
  const size_t user = mine.find(' ');
  const auto refused = [&](const std::string& theirs) {
    const Status status = exchange.join(0, own, {mine, theirs}, soon()).status();
    EXPECT_EQ(status.code(), ErrorCode::kNotSupported);
    EXPECT_EQ(status.text().where, "rank 1");
    return status.text().got;
  };
  EXPECT_THAT(refused(str_cat("x", mine)), HasSubstr("another machine"));
  EXPECT_THAT(refused(str_cat(mine.substr(0, user + 1), "9", mine.substr(user + 1))),
              HasSubstr("of user 9"));
  EXPECT_THAT(refused(""), HasSubstr("no memory"));
}

TEST(ArenaExchange, DoesNotTakeAnArenaFromWhoDoesNotKnowTheWord) {
  const auto own = Arena::make(ArenaLayout{2, 0}).value();
  ArenaExchange exchange;
  ArenaExchange other;
  ASSERT_TRUE(exchange.listen(2).ok());
  ASSERT_TRUE(other.listen(2).ok());
  const std::string mine = exchange.invitation();
  std::string wrong = mine;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  const auto shortly = soon(std::chrono::milliseconds(300));
  (void)other.join(1, own, {wrong, other.invitation()}, shortly);
  const Status status =
      exchange.join(0, own, {mine, other.invitation()}, soon(std::chrono::milliseconds(300)))
          .status();
  EXPECT_EQ(status.code(), ErrorCode::kNotSupported);
}

TEST(ArenaExchange, GivesUpAtItsDeadlineWhenARankDoesNotCome) {
  const auto own = Arena::make(ArenaLayout{2, 0}).value();
  ArenaExchange exchange;
  ArenaExchange silent;
  ASSERT_TRUE(exchange.listen(2).ok());
  ASSERT_TRUE(silent.listen(2).ok());
  const std::vector<std::string> invitations = {exchange.invitation(), silent.invitation()};
  const TimePoint deadline = soon(std::chrono::milliseconds(200));
  const Status status = exchange.join(0, own, invitations, deadline).status();
  EXPECT_EQ(status.code(), ErrorCode::kNotSupported);
  EXPECT_THAT(status.text().expected, HasSubstr("accept"));
  EXPECT_GE(steady_clock().now() + std::chrono::milliseconds(1), deadline);  // it counts in those
}

}  // namespace
}  // namespace fleet::transport
