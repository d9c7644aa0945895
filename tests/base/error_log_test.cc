#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <vector>

#include "base/buffer.h"
#include "base/caught.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/status.h"
#include "base/strings.h"

namespace fleet {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ErrorTable, HasOneRowForEachCodeInOrder) {
  size_t i = 0;
  for (const ErrorInfo& info : error_table()) {
    EXPECT_EQ(static_cast<size_t>(info.code), i++);
    EXPECT_EQ(error_info(info.code).name, info.name);
    EXPECT_FALSE(info.remedy.empty()) << info.name;
  }
  EXPECT_EQ(i, static_cast<size_t>(ErrorCode::kNoMemory) + 1);
}

TEST(Error, TextNamesEveryPartThatIsThere) {
  const ErrorText text{.what = "bad", .where = "op 'mul'", .expected = "2", .got = "3", .fix = {}};
  EXPECT_EQ(text.to_string(), "bad\n  where: op 'mul'\n  expected: 2\n  got: 3");
}

TEST(Error, WantOfMemoryIsNoDefectAndSaysWhatToDo) {
  Status caught;
  try {
    throw std::bad_alloc();
  } catch (...) {
    caught = caught_status("server 1");
  }
  EXPECT_EQ(error_info(caught.code()).name, "NO_MEMORY");
  EXPECT_THAT(caught.to_string(), AllOf(HasSubstr("no memory left"), HasSubstr("server 1"),
                                        HasSubstr("batch"), HasSubstr("servers")));
  EXPECT_THROW(caught.throw_if_error(), ResourceError);
}

TEST(Error, CodesThrowTheirOwnKind) {
  EXPECT_THROW(throw_error(ErrorCode::kFeed, {}), ProgramError);
  EXPECT_THROW(throw_error(ErrorCode::kPeerLost, {}), PeerError);
  EXPECT_THROW(throw_error(ErrorCode::kEnvironment, {}), UsageError);
  EXPECT_THROW(throw_error(ErrorCode::kAddressInUse, {}), ResourceError);
}

TEST(Result, HoldsAValueOrThrowsItsStatus) {
  const Result<int> good(3);
  EXPECT_EQ(good.value(), 3);
  const Result<int> bad(Status(ErrorCode::kDeadline, {.what = "late"}));
  EXPECT_FALSE(bad.ok());
  EXPECT_THROW(static_cast<void>(bad.value()), PeerError);
}

TEST(Logger, WritesLevelIdentityAndQuotedFields) {
  std::string line;
  Logger logger(LogLevel::kInfo, [&line](LogLevel, std::string_view text) { line = text; });
  logger.set_identity("worker/1");
  logger.info("transport", "connected", {{"peer", "server/0"}, {"note", "a \"b\""}});
  EXPECT_THAT(line, HasSubstr(" info worker/1 transport connected peer=server/0 "));
  EXPECT_THAT(line, HasSubstr("note=\"a \\\"b\\\"\"\n"));
}

TEST(Logger, StaysSilentBelowItsLevel) {
  int lines = 0;
  const Logger logger(LogLevel::kWarning, [&lines](LogLevel, std::string_view) { ++lines; });
  logger.info("x", "quiet");
  logger.warning("x", "loud");
  EXPECT_EQ(lines, 1);
}

TEST(Logger, RefusesAnUnknownLevel) {
  EXPECT_THROW(parse_log_level("loud"), UsageError);
}

TEST(Strings, NearestNameFindsSlipsOnly) {
  const std::vector<std::string> names = {"heartbeat_timeout", "rpc_deadline"};
  EXPECT_EQ(nearest_name("rpc_deadlin", names), "rpc_deadline");
  EXPECT_EQ(nearest_name("zebra", names), std::nullopt);
}

TEST(Strings, ShortestReadsBack) {
  EXPECT_EQ(shortest(0.1f), "0.1");
  EXPECT_EQ(shortest(0.1), "0.1");
  EXPECT_EQ(shortest(1.0 / 3.0), "0.3333333333333333");
  EXPECT_EQ(shortest(1e300), "1e+300");
}

TEST(Strings, FlagsHaveTheSpellingsThatMessagesName) {
  for (const char* text : {"1", "true", "True", "on"}) EXPECT_EQ(parse_flag(text), true) << text;
  for (const char* text : {"0", "false", "False", "off"}) {
    EXPECT_EQ(parse_flag(text), false) << text;
  }
  for (const char* text : {"", "2", "TRUE", "yes", " on"}) {
    EXPECT_EQ(parse_flag(text), std::nullopt) << text;
  }
  for (const char* text : {"1", "0", "true", "false", "on", "off"}) {
    EXPECT_NE(kFlagSpellings.find(text), std::string_view::npos) << text;
  }
}

TEST(Strings, NumbersMustFillTheText) {
  EXPECT_EQ(parse_int("12"), 12);
  EXPECT_EQ(parse_int("12x"), std::nullopt);
  EXPECT_EQ(parse_int(""), std::nullopt);
  EXPECT_EQ(parse_double("0.5"), 0.5);
}

TEST(Strings, SplitKeepsEmptyPieces) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_TRUE(split("", ',').empty());
}

TEST(Hash, Crc32cMatchesThePublishedCheckValue) {
  const std::string_view digits = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(digits))), 0xE3069283u);
}

TEST(Hash, Crc32cOfManyBytesIsThatOfOneAfterTheOther) {
  std::vector<std::byte> bytes(40'000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(mix64(i));
  std::vector<uint32_t> sums = {7};  // of the first so many bytes
  for (const std::byte& byte : bytes) sums.push_back(crc32c(std::span(&byte, 1), sums.back()));
  for (const size_t count : {0, 1, 9, 12'287, 12'288, 12'289, 24'576, 36'871, 40'000}) {
    EXPECT_EQ(crc32c(std::span(bytes).first(count), 7), sums[count]) << count << " bytes";
  }
}

TEST(Hash, FnvMatchesThePublishedValues) {
  EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325ULL);
  EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cULL);
}

// Of texts of every length that another path is taken for, what libxxhash 0.8.1 gives.
TEST(Hash, Xxh64MatchesTheLibrary) {
  std::string text;
  for (int i = 0; i < 101; ++i) text += static_cast<char>(i * 7 + 3);
  EXPECT_EQ(xxh64(text.substr(0, 0), 0), 0xef46db3751d8e999ULL);
  EXPECT_EQ(xxh64(text.substr(0, 1), 1), 0x610f93f8c89889feULL);
  EXPECT_EQ(xxh64(text.substr(0, 3), 4), 0xcd70241d99b3a977ULL);
  EXPECT_EQ(xxh64(text.substr(0, 4), 9), 0x27e045c979c49c51ULL);
  EXPECT_EQ(xxh64(text.substr(0, 5), 16), 0xe22b884ea49d8e02ULL);
  EXPECT_EQ(xxh64(text.substr(0, 8), 25), 0xc83e352d2857cca3ULL);
  EXPECT_EQ(xxh64(text.substr(0, 12), 36), 0xc25291f98c82d3ebULL);
  EXPECT_EQ(xxh64(text.substr(0, 15), 49), 0xf248c1d7d073ef0cULL);
  EXPECT_EQ(xxh64(text.substr(0, 31), 64), 0x839e01205a51fe2bULL);
  EXPECT_EQ(xxh64(text.substr(0, 32), 81), 0xe2bd05ba9d0a6393ULL);
  EXPECT_EQ(xxh64(text.substr(0, 33), 100), 0xfd4bb170a757699cULL);
  EXPECT_EQ(xxh64(text.substr(0, 63), 121), 0xaa676160824d14deULL);
  EXPECT_EQ(xxh64(text.substr(0, 64), 144), 0x85478a69972193a4ULL);
  EXPECT_EQ(xxh64(text.substr(0, 77), 169), 0xe7618fb8ea74e526ULL);
  EXPECT_EQ(xxh64(text.substr(0, 101), 196), 0xdbbf80b97de891d9ULL);
}

// What the `hash` op of Paddle 1.8.5 gives for the rows [1, 2], [3, -4] and [2^62 + 5, 7], with
// num_hash 3 and mod_by 1000003.
TEST(Hash, Xxh64OfRowsIsPaddlesHashOp) {
  const std::array<std::array<int64_t, 2>, 3> rows = {
      std::array<int64_t, 2>{1, 2}, {3, -4}, {(int64_t{1} << 62) + 5, 7}};
  const std::array<std::array<uint64_t, 3>, 3> expected = {
      std::array<uint64_t, 3>{837327, 661866, 80687},
      {583995, 787557, 430820},
      {631592, 922858, 977466}};
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string_view bytes(reinterpret_cast<const char*>(rows[i].data()), 16);
    for (uint64_t seed = 0; seed < 3; ++seed) {
      EXPECT_EQ(xxh64(bytes, seed) % 1000003, expected[i][seed]);
    }
  }
}

TEST(Buffer, IsAlignedSharedAndKnowsWhenItIsAlone) {
  Buffer buffer(100);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  EXPECT_TRUE(buffer.unique());
  const Buffer other = buffer;  // NOLINT(performance-unnecessary-copy-initialization): is looked at
  EXPECT_FALSE(buffer.unique());
  EXPECT_EQ(other.data(), buffer.data());
}

}  // namespace
}  // namespace fleet
