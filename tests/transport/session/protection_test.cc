// Frames on TCP links against somebody in the middle who reads, changes, repeats or leaves out
// bytes.
#include <algorithm>
#include <gtest/gtest.h>

#include "tests/transport/relay.h"
#include "tests/transport/support.h"
#include "transport/link/asio_network.h"

namespace fleet::transport {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder

// What a push and a get of these bytes through a relay leave behind.
struct Outcome {
  Status status;
  bool same_there = false;
  bool same_back = false;
  int connections = 0;
  std::string ends;  // what the server's sessions ended with
  std::vector<std::string> warnings;
};

class EndingStore : public Store {
 public:
  void on_closed(Session& session, const Status& why) override {
    Store::on_closed(session, why);
    ends += why.to_string();
  }
  std::string ends;
};

Outcome exchange_through(FrameProtection protection, const Relay::Touch& touch) {
  AsioNetwork network(TransportChoice::kTcp);
  EndingStore store;
  LoopThread thread("server");
  std::unique_ptr<Server> server;
  Secret proof = secret();
  proof.protection = protection;
  thread.run_there([&] {
    ServerOptions options = server_options();
    options.endpoint.port = 0;
    options.secret = proof;
    server = std::make_unique<Server>(network, ServerLane{&thread.loop(), &store},
                                      ServerLane{&thread.loop(), &store}, options, quiet());
    server->listen().throw_if_error();
  });
  Outcome outcome;
  const auto bytes = pattern(300000, 7);
  std::vector<std::byte> back(bytes.size());
  {
    uint16_t port = 0;
    const int listener = listen_on_tcp(port);
    Relay relay(listener, server->bound().port, touch);
    AsioLoop loop;
    ClientOptions options = client_options(0);
    options.secret = proof;
    options.servers = {Endpoint{"127.0.0.1", port}};
    Client client(loop, network, options,
                  Logger(LogLevel::kWarning, [&outcome](LogLevel, std::string_view line) {
                    outcome.warnings.emplace_back(line);
                  }));
    client.start();
    PendingRequests pending;
    client.submit(0, 0, push(1, bytes, pending.track()));
    client.submit(0, 0, get(1, back, pending.track()));
    outcome.status = wait(loop, pending);
    outcome.connections = relay.connections();
  }
  thread.stop_and_join();
  std::vector<std::byte> there;
  for (const auto& [key, piece] : store.data) there.insert(there.end(), piece.begin(), piece.end());
  outcome.same_there = there == bytes;
  outcome.same_back = back == bytes;
  outcome.ends = store.ends + server->last_refusal().to_string();
  server.reset();
  return outcome;
}

// Changes one byte, once.
Relay::Touch flip(bool to_server, size_t offset) {
  return [=, done = false](bool way, size_t at, MutableBytes bytes) mutable {
    if (done || way != to_server || offset < at || offset >= at + bytes.size()) return;
    bytes[offset - at] ^= std::byte{0x10};
    done = true;
  };
}

class Protected : public ::testing::TestWithParam<FrameProtection> {};

TEST_P(Protected, BytesArriveAsTheyWere) {
  const Outcome outcome = exchange_through(GetParam(), {});
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.to_string();
  EXPECT_TRUE(outcome.same_there && outcome.same_back);
  EXPECT_EQ(outcome.connections, 1);
}

TEST_P(Protected, AChangedByteEndsTheConnectionAndNothingElse) {
  for (const bool to_server : {true, false}) {
    // In the hello, in a header's step, in a payload, in its last piece.
    for (const size_t offset :
         {size_t{300}, size_t{700}, size_t{5000}, size_t{150000}, size_t{290000}}) {
      const Outcome outcome = exchange_through(GetParam(), flip(to_server, offset));
      EXPECT_TRUE(outcome.status.ok()) << offset << outcome.status.to_string();
      EXPECT_TRUE(outcome.same_there && outcome.same_back) << offset;
      EXPECT_GE(outcome.connections, 2) << offset;
      EXPECT_NE(outcome.ends.find("tampered with on their way"), std::string::npos)
          << offset << outcome.ends;
    }
  }
}

TEST_P(Protected, ARepeatedStretchOfBytesIsNotAccepted) {
  std::vector<std::byte> first;
  const Outcome outcome = exchange_through(
      GetParam(), [&first, done = false](bool way, size_t at, MutableBytes bytes) mutable {
        if (!way || done) return;
        if (at > 2000 && first.empty()) first.assign(bytes.begin(), bytes.end());
        if (at <= 100000 || first.empty()) return;
        std::copy_n(first.begin(), std::min(first.size(), bytes.size()), bytes.begin());
        done = true;
      });
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.to_string();
  EXPECT_TRUE(outcome.same_there && outcome.same_back);
  EXPECT_GE(outcome.connections, 2);
}

INSTANTIATE_TEST_SUITE_P(Forms, Protected,
                         ::testing::Values(FrameProtection::kIntegrity,
                                           FrameProtection::kEncryption));

TEST(Unprotected, AChangedByteIsNotNoticed) {
  const Outcome outcome = exchange_through(FrameProtection::kNone, flip(true, 150000));
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_FALSE(outcome.same_there);
}

TEST(Encryption, HidesWhatIsSent) {
  const auto bytes = pattern(300000, 7);
  for (const auto protection : {FrameProtection::kIntegrity, FrameProtection::kEncryption}) {
    std::vector<std::byte> seen;
    const Outcome outcome =
        exchange_through(protection, [&seen](bool, size_t, MutableBytes passed) {
          seen.insert(seen.end(), passed.begin(), passed.end());
        });
    EXPECT_TRUE(outcome.same_back);
    const auto found = std::search(seen.begin(), seen.end(), bytes.begin(), bytes.begin() + 64);
    EXPECT_EQ(found == seen.end(), protection == FrameProtection::kEncryption);
    const std::string_view job = "strategy";
    const auto text = std::as_bytes(std::span(job));
    const auto hello = std::search(seen.begin(), seen.end(), text.begin(), text.end());
    EXPECT_EQ(hello == seen.end(), protection == FrameProtection::kEncryption);
  }
}

TEST(FrameCipher, PartsOpenInTheirOrderAndOnce) {
  FrameKey key;
  key.key.fill(std::byte{7});
  const auto content = pattern(1000, 3);
  FrameCipher sealer(FrameCipher::Use::kSeal, FrameProtection::kIntegrity, key);
  std::vector<FrameTag> tags;
  for (int part = 0; part < 3; ++part) {
    sealer.begin();
    sealer.process(content, nullptr);
    tags.push_back(sealer.seal());
  }
  EXPECT_NE(tags[0], tags[1]);
  FrameCipher opener(FrameCipher::Use::kOpen, FrameProtection::kIntegrity, key);
  const auto opens = [&](const FrameTag& tag) {
    opener.begin();
    opener.process(ConstBytes(content).first(333), nullptr);
    opener.process(ConstBytes(content).subspan(333), nullptr);
    return opener.opens(tag);
  };
  EXPECT_TRUE(opens(tags[0]));
  EXPECT_FALSE(opens(tags[0]));
  EXPECT_TRUE(opens(tags[2]));
}

}  // namespace
}  // namespace fleet::transport
