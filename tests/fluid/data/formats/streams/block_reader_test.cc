#include "fluid/data/formats/streams/block_reader.h"

#include <gmock/gmock.h>

#include "tests/fluid/data/formats/text_files.h"

namespace fleet::fluid::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BlockReaderTest : public TextFiles {
 protected:
  static std::vector<std::string> blocks(BlockReader& reader) {
    std::vector<std::string> found;
    TextBuffer block;
    while (reader.next(block)) found.emplace_back(block.text());
    return found;
  }
  std::vector<std::string> blocks_of(std::string_view text, size_t bytes) {
    BlockReader reader(write("file", text), whole_lines, {.block_bytes = bytes});
    return blocks(reader);
  }
};

TEST_F(BlockReaderTest, CutsBehindWholeLines) {
  EXPECT_THAT(blocks_of("ab\ncd\nef\n", 6), ElementsAre("ab\ncd\n", "ef\n"));
  EXPECT_THAT(blocks_of("ab\ncd\nef\n", 5), ElementsAre("ab\n", "cd\n", "ef\n"));
  EXPECT_THAT(blocks_of("ab\ncd\nef\n", 100), ElementsAre("ab\ncd\nef\n"));
}

TEST_F(BlockReaderTest, AddsTheLastLineEndThatIsMissing) {
  EXPECT_THAT(blocks_of("ab\ncd", 100), ElementsAre("ab\ncd\n"));
  EXPECT_THAT(blocks_of("ab\ncd", 5), ElementsAre("ab\n", "cd\n"));
  EXPECT_THAT(blocks_of("ab", 2), ElementsAre("ab\n"));
}

TEST_F(BlockReaderTest, FilesMayBeEmptyAndLinesLong) {
  EXPECT_THAT(blocks_of("", 10), IsEmpty());
  const std::string line(1000, 'x');
  EXPECT_THAT(blocks_of(line + "\n" + line + "\nab\n", 10),
              ElementsAre(line + "\n", line + "\nab\n"));
}

TEST_F(BlockReaderTest, ALineThatIsTooLongIsAnError) {
  BlockReader reader(write("file", "ab\n" + std::string(1000, 'x')), whole_lines,
                     {.block_bytes = 8, .max_record_bytes = 64});
  EXPECT_THAT(message_of([&] { blocks(reader); }), HasSubstr("byte 3"));
}

TEST_F(BlockReaderTest, TheHeaderIsNoPartOfABlock) {
  for (const size_t bytes : {1, 4, 5, 6, 100}) {
    BlockReader reader(write("file", "a,b\n1,2\n"), whole_lines,
                       {.block_bytes = bytes, .header = true});
    EXPECT_EQ(reader.header(), "a,b\n");
    EXPECT_THAT(blocks(reader), ElementsAre("1,2\n"));
  }
  BlockReader only(write("file", "a,b"), whole_lines, {.header = true});
  EXPECT_EQ(only.header(), "a,b\n");
  EXPECT_THAT(blocks(only), IsEmpty());
}

// From every block's begin, the same blocks follow: of every size, with and without a last line
// end.
TEST_F(BlockReaderTest, GoesOnWhereItWas) {
  std::string text = "the,header\n";
  for (size_t i = 0; i < 60; ++i) text += std::string(i * 37 % 23, 'a' + i % 26) + "\n";
  for (const bool ends : {true, false}) {
    if (!ends) text += "last";
    for (const auto& [name, bytes] : {std::pair("p", text), std::pair("g", gzip(text))}) {
      const std::string file = write(name, bytes);
      for (size_t size = 1; size < 80; size += 3) {
        const BlockReaderOptions options = {.block_bytes = size, .header = size % 2 == 0};
        BlockReader reader(file, whole_lines, options);
        std::vector<uint64_t> offsets = {reader.offset()};
        std::vector<std::string> all;
        TextBuffer block;
        while (reader.next(block)) {
          all.emplace_back(block.text());
          offsets.push_back(reader.offset());
        }
        for (size_t i = 0; i < offsets.size(); ++i) {
          BlockReader other(file, whole_lines, options);
          other.seek(offsets[i]);
          EXPECT_EQ(blocks(other), std::vector(all.begin() + static_cast<int64_t>(i), all.end()))
              << size << " " << i;
        }
      }
    }
  }
}

TEST_F(BlockReaderTest, APositionBehindTheFileIsAMistake) {
  BlockReader reader(write("file", "ab\n"), whole_lines, {});
  EXPECT_THROW(reader.seek(100), UsageError);
}

TEST_F(BlockReaderTest, ACommandThatFailsIsAnErrorBehindItsLines) {
  BlockReader reader(write("file", "ab\n"), whole_lines,
                     {.source = {.pipe_command = "cat; exit 4"}});
  TextBuffer block;
  EXPECT_TRUE(reader.next(block));
  EXPECT_THAT(message_of([&] { reader.next(block); }), HasSubstr("exit code 4"));
}

}  // namespace
}  // namespace fleet::fluid::data
