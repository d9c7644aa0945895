#include "tests/testing/virtual_time/sim_disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <string>

#include "base/hash.h"

namespace fleet::testing {
namespace {

using std::filesystem::path;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

// What is on a disk of the seed after `work` and a loss of power.
class Disk {
 public:
  explicit Disk(uint64_t seed)
      : disk([state = mix64(seed)](uint64_t below) mutable {
          state = mix64(state);
          return state % below;
        }) {}

  void write(const path& file, const std::string& text, bool synced) {
    std::error_code error;
    const auto output = disk.create(file.parent_path() / ".new.", error);
    ASSERT_FALSE(error);
    ASSERT_FALSE(output->append(std::as_bytes(std::span(text))));
    ASSERT_TRUE(!synced || !output->sync());
    ASSERT_FALSE(disk.rename(output->path(), file));
  }
  std::string read(const path& file) {
    std::error_code error;
    const auto input = disk.open(file, error);
    if (error) return "none";
    std::string text(input->size(), '?');
    size_t got = 0;
    EXPECT_FALSE(input->read(std::as_writable_bytes(std::span(text)), got));
    return text;
  }

  SimDisk disk;
};

TEST(SimDisk, WhatIsSyncedStays) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Disk made(seed);
    ASSERT_FALSE(made.disk.create_folder("/a"));
    ASSERT_FALSE(made.disk.sync_folder("/"));
    made.write("/a/file", "text", true);
    ASSERT_FALSE(made.disk.sync_folder("/a"));
    made.disk.lose_power();
    EXPECT_EQ(made.read("/a/file"), "text");
  }
}

TEST(SimDisk, WhatIsNotSyncedMayStayInPart) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Disk made(seed);
    made.write("/file", "text", false);
    made.disk.lose_power();
    seen.insert(made.read("/file"));
  }
  const std::string torn("te\0\0", 4);
  EXPECT_THAT(seen, AllOf(Contains("none"), Contains("text"), Contains("te"), Contains(torn)));
}

// The second name is never there without the first.
TEST(SimDisk, ChangesOfAFolderStayInTheirOrder) {
  std::set<std::string> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Disk made(seed);
    made.write("/one", "1", true);
    made.write("/two", "2", true);
    made.disk.lose_power();
    seen.insert(made.read("/one") + made.read("/two"));
  }
  EXPECT_THAT(
      seen, AllOf(Contains("nonenone"), Contains("1none"), Contains("12"), Not(Contains("none2"))));
}

TEST(SimDisk, TheWriteThatHasNoRoomDoesAPart) {
  Disk made(1);
  made.disk.set_room(6);
  std::error_code error;
  const auto output = made.disk.create("/file", error);
  const std::string text = "text";
  EXPECT_FALSE(output->append(std::as_bytes(std::span(text))));
  EXPECT_EQ(output->append(std::as_bytes(std::span(text))), std::errc::no_space_on_device);
  EXPECT_EQ(made.read(output->path()), "textte");
}

TEST(SimDisk, OneBitChanges) {
  Disk made(1);
  made.write("/file", "aa", true);
  made.disk.flip_bit("/file", 8 + 1);
  EXPECT_EQ(made.read("/file"), "ac");
}

TEST(SimDisk, FoldersAreRenamedAndTakenAwayWithWhatIsInThem) {
  Disk made(1);
  ASSERT_FALSE(made.disk.create_folder("/a"));
  EXPECT_EQ(made.disk.create_folder("/a"), std::errc::file_exists);
  EXPECT_EQ(made.disk.create_folder("/b/c"), std::errc::no_such_file_or_directory);
  made.write("/a/file", "text", true);
  EXPECT_EQ(made.disk.remove("/a"), std::errc::directory_not_empty);
  ASSERT_FALSE(made.disk.create_folder("/b"));
  ASSERT_FALSE(made.disk.exchange("/a", "/b"));
  EXPECT_EQ(made.read("/b/file"), "text");
  EXPECT_THAT(made.disk.folders_in("/"), ElementsAre("/a", "/b"));
  ASSERT_FALSE(made.disk.remove_all("/b"));
  EXPECT_THAT(made.disk.folders_in("/"), ElementsAre("/a"));
}

}  // namespace
}  // namespace fleet::testing
