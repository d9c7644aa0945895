#include "fluid/data/formats/streams/byte_source.h"

#include <chrono>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <thread>

#include "tests/fluid/data/formats/text_files.h"

namespace fleet::fluid::data {
namespace {

using ::testing::HasSubstr;

class ByteSourceTest : public TextFiles {
 protected:
  static std::string all(ByteSource& source, size_t step = 1000) {
    std::string text;
    std::string part(step, '\0');
    for (size_t got = step; got == step;) {
      got = source.read(part);
      text.append(part, 0, got);
    }
    EXPECT_EQ(source.read(part), 0u);
    return text;
  }
  static std::string all_of(const std::string& file, const SourceOptions& options = {}) {
    return all(*open_source(file, options));
  }
  static std::string some_text() {
    std::string text;
    for (int i = 0; i < 50000; ++i) text += std::to_string(i * 7919) + "\n";
    return text;
  }
  static void expect_no_children() {
    int status = 0;
    EXPECT_EQ(::waitpid(-1, &status, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
  }
};

TEST_F(ByteSourceTest, FilesArePlainOrPackedByTheirFirstBytes) {
  const std::string text = some_text();
  EXPECT_EQ(all_of(write("plain", text)), text);
  EXPECT_EQ(all_of(write("packed", gzip(text))), text);
  EXPECT_EQ(all_of(write("packed2", zstd(text))), text);
  for (const std::string few : {"", "1", "12", "\x1F", "\x28\xB5"}) {
    EXPECT_EQ(all_of(write("few", few)), few);
  }
}

TEST_F(ByteSourceTest, MembersAndFramesFollowEachOther) {
  const std::string text = some_text();
  EXPECT_EQ(all_of(write("a", gzip("x\n") + gzip("") + gzip(text) + gzip("y"))),
            "x\n" + text + "y");
  EXPECT_EQ(all_of(write("b", zstd("x\n") + zstd("") + zstd(text) + zstd("y"))),
            "x\n" + text + "y");
  const std::string skippable = std::string("\x50\x2A\x4D\x18\x03\0\0\0abc", 11);
  EXPECT_EQ(all_of(write("c", skippable + zstd("x"))), "x");
}

TEST_F(ByteSourceTest, DamagedPackedFilesAreErrorsThatNameThem) {
  for (const std::string& packed : {gzip(some_text()), zstd(some_text())}) {
    const std::string cut = write("cut", packed.substr(0, packed.size() / 2));
    EXPECT_THAT(message_of([&] { all_of(cut); }), HasSubstr(cut));
    std::string damaged = packed;
    damaged[damaged.size() / 2] ^= 0x55;
    damaged[damaged.size() / 2 + 1] ^= 0x55;
    write("damaged", damaged);
    EXPECT_THROW(all_of(path("damaged")), ResourceError);
    EXPECT_THROW(all_of(write("behind", packed + "rubbish")), ResourceError);
  }
}

TEST_F(ByteSourceTest, SkipsBytesOfEveryKind) {
  const std::string text = some_text();
  for (const std::string& file :
       {write("a", text), write("b", gzip(text)), write("c", zstd(text))}) {
    const auto source = open_source(file);
    EXPECT_TRUE(source->skip(12345));
    EXPECT_EQ(all(*source), text.substr(12345));
    EXPECT_TRUE(open_source(file)->skip(text.size()));
    EXPECT_FALSE(open_source(file)->skip(text.size() + 1));
  }
}

TEST_F(ByteSourceTest, MissingFilesAndFoldersAreErrors) {
  EXPECT_THAT(message_of([&] { open_source(path("none")); }), HasSubstr(path("none")));
  EXPECT_THROW(open_source(folder_), ResourceError);
}

TEST_F(ByteSourceTest, ACommandHasTheFileAsItsInput) {
  const std::string text = some_text();
  write("a", text);
  EXPECT_EQ(all_of(path("a"), {.pipe_command = "cat"}), text);
  EXPECT_EQ(all_of(path("a"), {.pipe_command = "head -n 2 | tail -n 1"}), "7919\n");
  EXPECT_EQ(all_of(path("a"), {.pipe_command = "cat # and a comment"}), text);
  EXPECT_EQ(all_of(path("a"), {.pipe_command = "true"}), "");
  expect_no_children();
}

// As Paddle's, which puts zcat before the command for such names.
TEST_F(ByteSourceTest, ACommandGetsFilesUnpackedByTheirName) {
  write("a.gz", gzip("7\n"));
  write("b", gzip("7\n"));
  EXPECT_EQ(all_of(path("a.gz"), {.pipe_command = "sed s/7/8/"}), "8\n");
  EXPECT_EQ(all_of(path("b"), {.pipe_command = "zcat"}), "7\n");
}

TEST_F(ByteSourceTest, ACommandThatFailsIsAnErrorAfterWhatItWrote) {
  write("a", "1\n2\n");
  const auto source = open_source(path("a"), {.pipe_command = "cat; exit 3"});
  std::string part(100, '\0');
  EXPECT_EQ(source->read(part), 4u);
  const std::string text = message_of([&] { source->read(part); });
  EXPECT_THAT(text, HasSubstr(path("a")));
  EXPECT_THAT(text, HasSubstr("cat; exit 3"));
  EXPECT_THAT(text, HasSubstr("exit code 3"));
  EXPECT_THAT(message_of([&] { all_of(path("a"), {.pipe_command = "no_such_program_here"}); }),
              HasSubstr("127"));
  EXPECT_THAT(message_of([&] { all_of(path("a"), {.pipe_command = "kill -9 $$"}); }),
              HasSubstr("signal 9"));
  EXPECT_THAT(message_of([&] { all_of(path("a"), {.pipe_command = "false | cat"}); }),
              HasSubstr("exit code 1"));
  write("broken.gz", "no gzip");
  EXPECT_THROW(all_of(path("broken.gz"), {.pipe_command = "cat - "}), ResourceError);
  expect_no_children();
}

TEST_F(ByteSourceTest, ACommandIsEndedWhenNobodyReadsOn) {
  write("a", "1\n");
  const auto begin = std::chrono::steady_clock::now();
  {
    const auto endless = open_source(path("a"), {.pipe_command = "yes"});
    std::string part(1000, '\0');
    EXPECT_EQ(endless->read(part), 1000u);
    const auto silent = open_source(path("a"), {.pipe_command = "sleep 1000"});
    const auto stubborn =
        open_source(path("a"), {.pipe_command = "trap '' TERM; echo on; sleep 1000"});
    EXPECT_EQ(stubborn->read(std::span(part).first(3)), 3u);
  }
  expect_no_children();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST_F(ByteSourceTest, ACommandMayCloseItsOutputAndGoOn) {
  write("a", "1\n");
  const StopEvent stop;
  const SourceOptions options = {.pipe_command = "echo on; exec >&-; sleep 1000", .stop = &stop};
  const auto silent = open_source(path("a"), options);
  std::string part(100, '\0');
  EXPECT_EQ(silent->read(part), 3u);
  stop.set();
  EXPECT_THROW(silent->read(part), Error);
}

TEST_F(ByteSourceTest, AnotherThreadStopsAWaitForACommand) {
  write("a", "1\n");
  const StopEvent stop;
  const auto silent = open_source(path("a"), {.pipe_command = "sleep 1000", .stop = &stop});
  std::thread other([&] { stop.set(); });
  std::string part(10, '\0');
  try {
    silent->read(part);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  }
  other.join();
}

}  // namespace
}  // namespace fleet::fluid::data
