#include "transport/session/frame.h"

#include <cstring>
#include <gtest/gtest.h>
#include <random>

#include "base/hash.h"
#include "base/strings.h"

namespace fleet::transport {
namespace {

FrameHeader sample() {
  FrameHeader header;
  header.verb = Verb::kPush;
  header.flags = kFlagMore | kFlagUser0;
  header.request_id = 0x1122334455667788;
  header.step = 41;
  header.epoch = 7;
  header.shard_begin = 2;
  header.shard_end = 5;
  header.variable = 9;
  header.piece = 3;
  header.control_bytes = 12;
  header.payload_bytes = uint64_t{5} << 32;
  return header;
}

void set_crc(EncodedHeader& bytes) {
  const uint32_t crc = crc32c(ConstBytes(bytes).first(60));
  std::memcpy(bytes.data() + 60, &crc, sizeof crc);
}

TEST(FrameHeader, SurvivesEncodingAndDecoding) {
  EXPECT_EQ(decode_header(encode_header(sample())).value(), sample());
  EXPECT_EQ(decode_header(encode_header(FrameHeader{})).value(), FrameHeader{});
}

TEST(FrameHeader, LiesOnTheWireAsDocumented) {
  const EncodedHeader bytes = encode_header(sample());
  const auto at = [&bytes](size_t i) { return std::to_integer<unsigned>(bytes[i]); };
  EXPECT_EQ(at(0), 'F');
  EXPECT_EQ(at(3), '1');
  EXPECT_EQ(at(4), kProtocolVersion);
  EXPECT_EQ(at(6), 64U);
  EXPECT_EQ(at(8), 1U);
  EXPECT_EQ(at(10), 1U);
  EXPECT_EQ(at(12), 12U);
  EXPECT_EQ(at(16), 0x88U);
  EXPECT_EQ(at(23), 0x11U);
  EXPECT_EQ(at(24), 41U);
  EXPECT_EQ(at(36), 5U);
  EXPECT_EQ(at(40), 7U);
  EXPECT_EQ(at(44), 2U);
  EXPECT_EQ(at(48), 5U);
  EXPECT_EQ(at(52), 9U);
  EXPECT_EQ(at(56), 3U);
}

TEST(FrameHeader, EveryFlippedBitIsFound) {
  const EncodedHeader good = encode_header(sample());
  for (size_t bit = 0; bit < kHeaderBytes * 8; ++bit) {
    EncodedHeader bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(decode_header(bad).ok()) << "bit " << bit;
  }
}

TEST(FrameHeader, AnotherVersionIsRefusedWithBoth) {
  FrameHeader header = sample();
  header.version = 9;
  const auto decoded = decode_header(encode_header(header));
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.status().code(), ErrorCode::kHandshakeRefused);
  EXPECT_NE(decoded.status().text().expected.find(str_cat("version ", kProtocolVersion)),
            std::string::npos);
  EXPECT_NE(decoded.status().text().got.find("version 9"), std::string::npos);
}

TEST(FrameHeader, UnknownVerbsFlagsAndRangesAreRefused) {
  EncodedHeader bytes = encode_header(sample());
  bytes[6] = std::byte{7};
  set_crc(bytes);
  EXPECT_EQ(decode_header(bytes).status().code(), ErrorCode::kBadFrame);

  FrameHeader flags = sample();
  flags.flags = 1U << 30;
  EXPECT_EQ(decode_header(encode_header(flags)).status().code(), ErrorCode::kBadFrame);

  FrameHeader range = sample();
  range.shard_begin = 6;
  EXPECT_EQ(decode_header(encode_header(range)).status().code(), ErrorCode::kBadFrame);

  FrameHeader application = sample();
  application.verb = static_cast<Verb>(300);
  EXPECT_TRUE(decode_header(encode_header(application)).ok());
}

TEST(FrameHeader, RandomBytesAreRefused) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 10000; ++round) {
    EncodedHeader bytes;
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    EXPECT_FALSE(decode_header(bytes).ok());
  }
}

TEST(WireStatus, SurvivesTheWire) {
  const Status status(
      ErrorCode::kPeerSilent,
      {.what = "what", .where = "where", .expected = "expected", .got = "got", .fix = "fix"});
  const Status back = decode_status(encode_status(status));
  EXPECT_EQ(back.code(), status.code());
  EXPECT_EQ(back.text().to_string(), status.text().to_string());
}

TEST(WireStatus, HostileStatusesBecomeHarmless) {
  const Status escape(ErrorCode::kInput, {.what = "a\x1b[2Jb",
                                          .where = std::string(100000, 'x'),
                                          .expected = {},
                                          .got = {},
                                          .fix = {}});
  const Status back = decode_status(encode_status(escape));
  EXPECT_EQ(back.text().what, "a [2Jb");
  EXPECT_LE(back.text().where.size(), 4096U);

  auto bytes = encode_status(escape);
  bytes[0] = bytes[1] = std::byte{0xff};
  EXPECT_EQ(decode_status(bytes).code(), ErrorCode::kInternal);
  bytes[0] = bytes[1] = std::byte{0};
  EXPECT_FALSE(decode_status(bytes).ok());
  for (size_t size = 0; size < 40; ++size) {
    EXPECT_EQ(decode_status(ConstBytes(bytes).first(size)).code(), ErrorCode::kBadFrame);
  }
}

}  // namespace
}  // namespace fleet::transport
