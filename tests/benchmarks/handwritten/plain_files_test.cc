#include "benchmarks/handwritten/plain_files.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "base/error.h"
#include "benchmarks/harness/temporary_folder.h"

namespace fleet::benchmarks {
namespace {

// More than a piece, and no whole number of them.
constexpr size_t kBytes = (size_t{8} << 20) + 12345;

TEST(PlainFiles, EachThreadWritesAndReadsAFile) {
  const TemporaryFolder folder;
  EXPECT_GT(write_plain_files_s(folder.file("."), 2, kBytes), 0);
  EXPECT_EQ(std::filesystem::file_size(folder.file("part0")), kBytes);
  EXPECT_EQ(std::filesystem::file_size(folder.file("part1")), kBytes);
  EXPECT_GT(read_plain_files_s(folder.file("."), 2, kBytes), 0);
}

TEST(PlainFiles, AFileThatIsTooShortIsAnError) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("part0")) << "short";
  EXPECT_THROW(read_plain_files_s(folder.file("."), 1, kBytes), Error);
  EXPECT_THROW(write_plain_files_s(folder.file("none"), 1, kBytes), Error);
}

}  // namespace
}  // namespace fleet::benchmarks
