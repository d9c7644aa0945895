#include "base/files/file_system.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "tests/fluid/io/temporary_directory.h"

namespace fleet {
namespace {

using std::filesystem::path;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class SystemFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_FALSE(files_.create_folder(root_)); }
  path write(const path& beginning, const std::string& text) {
    std::error_code error;
    const auto file = files_.create(beginning, error);
    EXPECT_FALSE(error) << error.message();
    EXPECT_FALSE(file->append(std::as_bytes(std::span(text))));
    EXPECT_FALSE(file->write_back(0, text.size(), true));
    EXPECT_FALSE(file->sync());
    return file->path();
  }
  std::string read(const path& file, uint64_t from = 0) {
    std::error_code error;
    const auto opened = files_.open(file, error);
    if (error) return error.message();
    EXPECT_FALSE(opened->seek(from));
    std::string text(100, '\0');
    size_t got = 0;
    EXPECT_FALSE(opened->read(std::as_writable_bytes(std::span(text)), got));
    EXPECT_EQ(got, opened->size() - from);
    return text.substr(0, got);
  }

  FileSystem& files_ = system_files();
  fluid::testing::TemporaryDirectory directory_;
  const path root_ = directory_.path() / "a";
};

TEST_F(SystemFilesTest, AFileIsReadAsItWasWrittenUnderItsNewName) {
  const path written = write(root_ / ".part.", "some text");
  EXPECT_TRUE(files_.exists(written));
  EXPECT_FALSE(files_.rename(written, root_ / "part"));
  EXPECT_FALSE(files_.sync_folder(root_));
  EXPECT_FALSE(files_.exists(written));
  EXPECT_EQ(read(root_ / "part"), "some text");
  EXPECT_EQ(read(root_ / "part", 5), "text");
}

TEST_F(SystemFilesTest, TwoFoldersHaveEachOthersName) {
  ASSERT_FALSE(files_.create_folder(root_ / "one"));
  ASSERT_FALSE(files_.create_folder(root_ / "two"));
  EXPECT_FALSE(files_.rename(write(root_ / "one" / "x", "first"), root_ / "one" / "x"));
  if (files_.exchange(root_ / "one", root_ / "two")) GTEST_SKIP() << "not on this file system";
  EXPECT_EQ(read(root_ / "two" / "x"), "first");
  EXPECT_THAT(files_.folders_in(root_), UnorderedElementsAre(root_ / "one", root_ / "two"));
}

TEST_F(SystemFilesTest, WhatIsRemovedIsGone) {
  ASSERT_FALSE(files_.create_folder(root_ / "one"));
  const path file = write(root_ / "one" / "x", "first");
  EXPECT_FALSE(files_.remove(file));
  EXPECT_FALSE(files_.remove(file));
  write(root_ / "one" / "x", "second");
  EXPECT_FALSE(files_.remove_all(root_ / "one"));
  EXPECT_THAT(files_.folders_in(root_), ElementsAre());
}

TEST_F(SystemFilesTest, WhatIsMissingIsAnError) {
  std::error_code error;
  EXPECT_EQ(files_.open(root_ / "none", error), nullptr);
  EXPECT_EQ(error, std::errc::no_such_file_or_directory);
  EXPECT_EQ(files_.create(root_ / "none" / "x", error), nullptr);
  EXPECT_EQ(error, std::errc::no_such_file_or_directory);
  EXPECT_EQ(files_.create_folder(root_ / "none" / "x"), std::errc::no_such_file_or_directory);
  EXPECT_EQ(files_.create_folder(root_), std::errc::file_exists);
  EXPECT_EQ(files_.rename(root_ / "none", root_ / "one"), std::errc::no_such_file_or_directory);
  EXPECT_THAT(files_.folders_in(root_), ElementsAre());
}

}  // namespace
}  // namespace fleet
