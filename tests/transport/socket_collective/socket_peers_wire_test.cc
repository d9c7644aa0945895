// What is on the wire, to the byte, and ranks that do not keep to it.
#include <gtest/gtest.h>
#include <memory>

#include "tests/transport/socket_collective/rank_group.h"

namespace fleet::transport {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder

// Rank 0 of two, and a rank 1 that is made by hand.
class SocketPeersWire : public ::testing::Test {
 protected:
  SocketPeersWire() {
    SocketPeersOptions options = options_of_rank(0, 2);
    options.listen.port = 7000;
    options.early_bytes = 4096;
    options.refused_grace = 100s;  // nobody listens as rank 1
    options.random = seeded_random(world_);
    peers_ = std::make_unique<SocketPeers>(loop_, world_, options, quiet());
    EXPECT_TRUE(peers_->listen().ok());
    peers_->connect({Endpoint{"127.0.0.1", 7000}, Endpoint{"127.0.0.1", 7001}});
    channel_ = make_channel(hello_of(PeerRole::kWorker, 1, 2, 0));
  }

  std::unique_ptr<Channel> make_channel(const Hello& hello) {
    ChannelOptions options;
    options.endpoint = Endpoint{"127.0.0.1", 7000};
    options.hello = hello;
    options.secret = secret();
    options.random = seeded_random(world_);
    options.rpc_deadline = 5s;
    auto channel = std::make_unique<Channel>(
        other_, world_, options,
        ChannelEvents{.on_notice = [this](const FrameHeader& header,
                                          ConstBytes) { notices_.push_back(header.verb); }},
        quiet());
    channel->start();
    return channel;
  }

  // Seconds later: the answer's control part, or why there is none.
  Result<std::vector<std::byte>> ask(Channel& channel, Verb verb, std::vector<std::byte> control,
                                     const std::vector<std::byte>& payload = {},
                                     uint32_t flags = 0) {
    Request request;
    Message& frame = request.frames.emplace_back();
    frame.header.verb = verb;
    frame.header.flags = flags;
    frame.header.step = 17;
    frame.header.variable = number_;
    frame.control = std::move(control);
    frame.payload = Payload(payload.data(), payload.size(), nullptr);
    std::vector<std::byte> answer;
    std::optional<Status> end;
    request.on_reply = [&](const FrameHeader&, ConstBytes said, MutableBytes) {
      answer.assign(said.begin(), said.end());
    };
    request.on_done = [&](const Status& status) { end = status; };
    const uint64_t id = channel.submit(std::move(request));
    world_.run_until([&] { return end.has_value(); }, world_.now() + 3s);
    if (!end) {
      channel.cancel(id);
      return Status(ErrorCode::kDeadline, {.what = "no answer"});
    }
    if (!end->ok()) return *end;
    return answer;
  }

  static std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
    std::vector<std::byte> bytes;
    for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
    return bytes;
  }
  // all_gather, float64, of 0x0102 bytes; a message of `bytes`.
  static std::vector<std::byte> note(int bytes, int kind = 3, int type = 1) {
    return bytes_of(
        {kind, type, 2, 1, 0, 0, 0, 0, 0, 0, bytes % 256, bytes / 256, 0, 0, 0, 0, 0, 0});
  }

  SimWorld world_{1};
  SimLoop& loop_ = world_.add_loop("rank 0");
  SimLoop& other_ = world_.add_loop("rank 1");
  std::unique_ptr<SocketPeers> peers_;
  std::unique_ptr<Channel> channel_;
  std::vector<Verb> notices_;
  uint32_t number_ = 0;
  const OperationId id_{17, CollectiveKind::kAllGather, ElementType::kFloat64, 0x0102};
};

TEST_F(SocketPeersWire, AJoinIsAnsweredWithTheGrant) {
  const auto answer = ask(*channel_, Verb::kCollectiveJoin, {});
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer.value(), bytes_of({0, 16, 0, 0, 0, 0, 0, 0}));
}

TEST_F(SocketPeersWire, AMessageIsPutWhereItsReceiveSays) {
  const auto messages = peers_->messages(id_);
  std::vector<std::byte> memory(5);
  messages->receive(1, memory);
  const auto sent = pattern(5, 1);
  const auto answer = ask(*channel_, Verb::kCollectiveMessage, note(5), sent);
  ASSERT_TRUE(answer.ok()) << answer.status().to_string();
  EXPECT_TRUE(answer.value().empty());
  EXPECT_EQ(memory, sent);
  EXPECT_TRUE(messages->test());
}

TEST_F(SocketPeersWire, AnOfferIsAnsweredWhenItsReceiveIsThere) {
  EXPECT_EQ(ask(*channel_, Verb::kCollectiveOffer, note(5)).status().code(), ErrorCode::kDeadline);
  const auto messages = peers_->messages(id_);
  std::vector<std::byte> memory(5);
  messages->receive(1, memory);
  EXPECT_TRUE(ask(*channel_, Verb::kCollectiveOffer, note(5)).ok());
  const auto sent = pattern(5, 2);
  EXPECT_TRUE(ask(*channel_, Verb::kCollectiveMessage, note(5), sent, kFlagUser0).ok());
  EXPECT_EQ(memory, sent);
}

TEST_F(SocketPeersWire, ADifferentCallIsAnsweredWithBothNames) {
  const auto messages = peers_->messages(id_);
  const auto answer = ask(*channel_, Verb::kCollectiveMessage, note(0, 1, 0));
  const std::string text = answer.status().to_string();
  EXPECT_NE(text.find("operation 17, all_gather of 258 bytes at rank 0"), std::string::npos)
      << text;
  EXPECT_NE(text.find("operation 17, reduce_scatter of 258 float32 at rank 1"), std::string::npos)
      << text;
  EXPECT_EQ(notices_, std::vector<Verb>{Verb::kCollectiveFailed});
  EXPECT_THROW(messages->test(), Error);
  // Whoever comes later hears of it, too.
  EXPECT_EQ(ask(*channel_, Verb::kCollectiveOffer, note(5)).status().to_string(), text);
}

TEST_F(SocketPeersWire, BreachesEndTheConnectionAndHarmNobody) {
  const auto sent = pattern(5, 3);
  const auto large = pattern(4097, 3);
  ASSERT_TRUE(ask(*channel_, Verb::kCollectiveJoin, {}).ok());
  const auto refused = [&](Verb verb, std::vector<std::byte> control,
                           const std::vector<std::byte>& payload, uint32_t flags = 0) {
    const auto answer = ask(*channel_, verb, std::move(control), payload, flags);
    const bool was = answer.status().code() == ErrorCode::kBadFrame;
    // A lane that was refused for good connects no more.
    channel_ = make_channel(hello_of(PeerRole::kWorker, 1, 2, 0));
    return was;
  };
  EXPECT_TRUE(refused(Verb::kCollectiveMessage, note(4097), large)) << "more than the grant";
  EXPECT_TRUE(refused(Verb::kCollectiveMessage, note(5), sent, kFlagUser0)) << "not asked for";
  EXPECT_TRUE(refused(Verb::kCollectiveMessage, note(6), sent)) << "another size";
  EXPECT_TRUE(refused(Verb::kCollectiveMessage, note(5, 5), sent)) << "no such kind";
  EXPECT_TRUE(refused(Verb::kCollectiveMessage, note(5, 3, 5), sent)) << "no such type";
  EXPECT_TRUE(refused(Verb::kCollectiveMessage, bytes_of({3, 1}), sent)) << "too short";
  EXPECT_TRUE(refused(Verb::kCollectiveOffer, note(5), sent)) << "an offer with a payload";
  EXPECT_EQ(ask(*channel_, Verb::kPush, {}).status().code(), ErrorCode::kNotSupported);
  EXPECT_TRUE(peers_->failure().ok()) << peers_->failure().to_string();
  EXPECT_EQ(peers_->early_bytes_of(1), 0U);
}

TEST_F(SocketPeersWire, OnlyTheOtherRanksConnect) {
  Hello launcher = hello_of(PeerRole::kLauncher, 0, 2, 0);
  Hello control = hello_of(PeerRole::kWorker, 1, 2, 0);
  control.lane = LaneKind::kControl;
  Hello second = hello_of(PeerRole::kWorker, 1, 2, 0);
  second.incarnation += 1;
  ASSERT_TRUE(ask(*channel_, Verb::kCollectiveJoin, {}).ok());
  for (const Hello& stranger : {launcher, control, second, hello_of(PeerRole::kWorker, 0, 2, 0)}) {
    const auto channel = make_channel(stranger);
    EXPECT_EQ(ask(*channel, Verb::kCollectiveJoin, {}).status().code(),
              ErrorCode::kHandshakeRefused)
        << stranger.member.to_string();
  }
  EXPECT_TRUE(ask(*channel_, Verb::kCollectiveJoin, {}).ok());
}

}  // namespace
}  // namespace fleet::transport
