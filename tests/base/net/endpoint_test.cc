#include "base/net/endpoint.h"

#include <gmock/gmock.h>

namespace fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Endpoint read(const char* text) {
  return Endpoint::parse(text, "LIST").value();
}

TEST(Endpoint, IsANameOrAnAddressAndAPort) {
  EXPECT_EQ(read("node-1.example.org:80"), (Endpoint{"node-1.example.org", 80}));
  EXPECT_EQ(read("10.0.0.1:1"), (Endpoint{"10.0.0.1", 1}));
  EXPECT_EQ(read("[::1]:65535"), (Endpoint{"::1", 65535}));
  EXPECT_EQ(read("[fe80::1%eth0]:7"), (Endpoint{"fe80::1%eth0", 7}));
  EXPECT_EQ(read(" a:1\n"), (Endpoint{"a", 1}));
}

TEST(Endpoint, IsWrittenAsItIsRead) {
  for (const char* text : {"node-1:80", "10.0.0.1:6170", "[::1]:6170", "[fe80::1%eth0]:7"}) {
    EXPECT_EQ(read(text).to_string(), text);
  }
  EXPECT_THAT(to_strings({{"a", 1}, {"::1", 2}}), ElementsAre("a:1", "[::1]:2"));
}

TEST(Endpoint, WrongTextsAreNamedWithTheirFieldAndTheirFault) {
  const std::vector<std::pair<const char*, const char*>> wrong = {
      {"", "no port"},
      {"host", "no port"},
      {"[::1]", "no port"},
      {"host:", "port ''"},
      {"host:0", "port '0'"},
      {"host:65536", "port '65536'"},
      {"host:-1", "port '-1'"},
      {"host:8x", "port '8x'"},
      {":80", "no host"},
      {"[]:80", "no IPv6 address"},
      {"[host]:80", "'host' in brackets"},
      {"::1:80", "without brackets"},
      {"fd00::1:80", "without brackets"},
      {"[::1:80", "without brackets"},
      {"a b:80", "host 'a b'"},
      {"a/b:80", "host 'a/b'"},
      {"http://a:80", "without brackets"},
  };
  for (const auto& [text, fault] : wrong) {
    const auto result = Endpoint::parse(text, "LIST", ErrorCode::kEnvironment);
    ASSERT_FALSE(result.ok()) << text;
    const Status status = result.status();
    EXPECT_EQ(status.code(), ErrorCode::kEnvironment) << text;
    EXPECT_EQ(status.text().where, "LIST") << text;
    EXPECT_THAT(status.text().got, HasSubstr(fault)) << text;
    EXPECT_THAT(status.text().expected, HasSubstr("[::1]:6170")) << text;
  }
}

TEST(BareHost, HasNoBrackets) {
  EXPECT_EQ(bare_host("[::1]"), "::1");
  EXPECT_EQ(bare_host("::1"), "::1");
  EXPECT_EQ(bare_host("node"), "node");
}

}  // namespace
}  // namespace fleet
