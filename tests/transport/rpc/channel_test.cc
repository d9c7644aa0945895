// Server and client over simulated links: payloads, answers, faults, deadlines.
#include <gtest/gtest.h>

#include "tests/transport/support.h"

namespace fleet::transport {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder

struct Cluster {
  explicit Cluster(uint64_t seed, SimFaults faults = {}, uint32_t lanes = 1)
      : world(seed, faults),
        server_loop(world.add_loop("server")),
        client_loop(world.add_loop("client")),
        server(world, {&server_loop, &store}, {&server_loop, &store}, seeded(server_options()),
               quiet()),
        client(client_loop, world, seeded(client_options(), lanes), quiet()) {}

  ServerOptions seeded(ServerOptions options) {
    options.random = seeded_random(world);
    return options;
  }
  ClientOptions seeded(ClientOptions options, uint32_t lanes) {
    options.random = seeded_random(world);
    options.lanes = lanes;
    return options;
  }
  bool run(const PendingRequests& pending, Duration limit = 600s) {
    return world.run_until([&pending] { return pending.done(); }, world.now() + limit);
  }

  SimWorld world;
  SimLoop& server_loop;
  SimLoop& client_loop;
  Store store;
  Server server;
  Client client;
};

TEST(Channel, PushesAndGetsPayloadsOfEverySize) {
  Cluster cluster(1);
  ASSERT_TRUE(cluster.server.listen().ok());
  cluster.client.start();
  uint32_t variable = 0;
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{63}, size_t{4096}, size_t{32767}, size_t{32768}, size_t{32769},
        kPieceBytes, kPieceBytes + 1, 4 * kPieceBytes + 77}) {
    ++variable;
    const auto bytes = pattern(size, variable);
    std::vector<std::byte> back(size);
    PendingRequests pending;
    cluster.client.submit(0, 0, push(variable, bytes, pending.track()));
    cluster.client.submit(0, 0, get(variable, back, pending.track()));
    ASSERT_TRUE(cluster.run(pending));
    EXPECT_TRUE(pending.status().ok()) << pending.status().to_string();
    EXPECT_EQ(back, bytes) << "size " << size;
  }
}

TEST(Channel, SmallChunksAndSmallPipesChangeNothing) {
  SimFaults faults;
  faults.max_chunk = 7;
  faults.pipe_bytes = 500;
  faults.delay_max = 2us;
  faults.delay_min = 0us;
  Cluster cluster(2, faults);
  ASSERT_TRUE(cluster.server.listen().ok());
  cluster.client.start();
  const auto bytes = pattern(20000, 5);
  std::vector<std::byte> back(bytes.size());
  PendingRequests pending;
  cluster.client.submit(0, 0, push(1, bytes, pending.track(), 3000));
  cluster.client.submit(0, 0, get(1, back, pending.track(), 3000));
  ASSERT_TRUE(cluster.run(pending));
  EXPECT_EQ(back, bytes);
}

TEST(Channel, AClientMayStartLongBeforeTheServer) {
  Cluster cluster(3);
  cluster.client.start();
  PendingRequests pending;
  const auto bytes = pattern(100, 1);
  cluster.client.submit(0, 0, push(1, bytes, pending.track()));
  EXPECT_FALSE(cluster.run(pending, 100s));
  ASSERT_TRUE(cluster.server.listen().ok());
  ASSERT_TRUE(cluster.run(pending, 1s));
  EXPECT_TRUE(pending.status().ok());
}

TEST(Channel, ASilentWaitForAServerIsSaidInTheLogNowAndThen) {
  SimWorld world(11);
  std::vector<std::string> lines;
  ClientOptions options = client_options();
  options.random = seeded_random(world);
  options.lanes = 2;
  Client client(world.add_loop("client"), world, options,
                Logger(LogLevel::kWarning,
                       [&lines](LogLevel, std::string_view line) { lines.emplace_back(line); }));
  client.start();
  world.run_until([] { return false; }, world.now() + 2s);
  EXPECT_TRUE(lines.empty());
  world.run_until([] { return false; }, world.now() + 98s);
  ASSERT_EQ(lines.size(), 6U);  // after about 3, 6, 12, 24, 48 and 96 s
  EXPECT_NE(lines[0].find("server 0"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("refused"), std::string::npos) << lines[0];
}

TEST(Channel, WithoutAServerARequestEndsAtItsDeadline) {
  Cluster cluster(4);
  cluster.client.start();
  PendingRequests pending;
  const auto bytes = pattern(100, 1);
  const TimePoint begin = cluster.world.now();
  cluster.client.submit(0, 0, push(1, bytes, pending.track()));
  ASSERT_TRUE(cluster.run(pending));
  EXPECT_EQ(pending.status().code(), ErrorCode::kDeadline);
  EXPECT_NE(pending.status().text().where.find("server 0"), std::string::npos);
  EXPECT_NE(pending.status().text().got.find("refused"), std::string::npos);
  EXPECT_GE(cluster.world.now() - begin, 179s);
  EXPECT_LE(cluster.world.now() - begin, 200s);
}

TEST(Channel, AStoppedServerIsFoundAtTheDeadline) {
  Cluster cluster(5);
  ASSERT_TRUE(cluster.server.listen().ok());
  cluster.client.start();
  cluster.world.run_until([&] { return cluster.client.all_open(); }, cluster.world.now() + 1s);
  cluster.world.pause(cluster.server_loop);
  PendingRequests pending;
  Request request = simple(Verb::kGet, pending.track());
  request.deadline = 5s;
  const TimePoint begin = cluster.world.now();
  cluster.client.submit(0, 0, std::move(request));
  ASSERT_TRUE(cluster.run(pending));
  EXPECT_EQ(pending.status().code(), ErrorCode::kDeadline);
  EXPECT_LE(cluster.world.now() - begin, 6s);
}

// Ends every connection at a moment of its choice, however often the client comes back.
struct Dropping : Store {
  enum class When { kOpened, kAsked, kHalfAnswered } when = When::kOpened;

  Loop* on_open(Session& session) override {
    ++opened;
    if (when == When::kOpened) session.close();
    return nullptr;
  }
  void on_frame(Session& session, const FrameHeader& header, ConstBytes, MutableBytes) override {
    ++frames;
    if (header.verb == Verb::kPush && header.has(kFlagMore)) return;
    if (when == When::kHalfAnswered) {
      Message reply = make_reply(header);
      reply.header.flags = kFlagMore;
      session.send(std::move(reply));
      session.flush();
      session.finish();
      return;
    }
    session.close();
  }
};

TEST(Channel, AServerThatAlwaysDropsTheConnectionIsFoundAtTheDeadline) {
  using When = Dropping::When;
  for (const When when : {When::kOpened, When::kAsked, When::kHalfAnswered}) {
    SCOPED_TRACE(static_cast<int>(when));
    Cluster cluster(19);
    Dropping dropping;
    dropping.when = when;
    Server server(cluster.world, {&cluster.server_loop, &dropping},
                  {&cluster.server_loop, &dropping}, server_options(), quiet());
    ASSERT_TRUE(server.listen().ok());
    cluster.client.start();
    const auto bytes = pattern(3 * kPieceBytes, 1);
    PendingRequests pending;
    const TimePoint begin = cluster.world.now();
    cluster.client.submit(0, 0, push(1, bytes, pending.track()));
    cluster.client.submit(0, 0, simple(Verb::kGet, pending.track()));
    ASSERT_TRUE(cluster.run(pending, 1000s));
    EXPECT_EQ(pending.status().code(), ErrorCode::kDeadline);
    EXPECT_LE(cluster.world.now() - begin, 200s);
    EXPECT_GT(dropping.opened, 100);
  }
}

TEST(Channel, SendingAgainIsGivenTheDeadlineOnceMore) {
  SimFaults slow;
  slow.pipe_bytes = 1000;  // 16 KB a second
  slow.delay_min = slow.delay_max = 60ms;
  Cluster cluster(20, slow);
  ASSERT_TRUE(cluster.server.listen().ok());
  cluster.client.start();
  const auto bytes = pattern(2'000'000, 1);
  PendingRequests pending;
  Request request = push(1, bytes, pending.track(), 100'000);
  request.deadline = 40s;  // less than what was sent before the cut takes
  cluster.client.submit(0, 0, std::move(request));
  ASSERT_TRUE(cluster.world.run_until([&] { return cluster.store.pushes == 10; },
                                      cluster.world.now() + 1000s));
  cluster.world.cut(cluster.server_loop, cluster.client_loop);
  ASSERT_TRUE(cluster.run(pending, 1000s));
  EXPECT_TRUE(pending.status().ok()) << pending.status().to_string();
}

TEST(Channel, ARequestMayWaitForOthersBeyondTheDeadline) {
  Cluster cluster(6);
  ASSERT_TRUE(cluster.server.listen().ok());
  cluster.client.start();
  PendingRequests pending;
  cluster.client.submit(0, 0, simple(Verb::kSnapshot, pending.track()));  // never answered
  EXPECT_FALSE(cluster.run(pending, 3600s)) << pending.status().to_string();
  cluster.world.kill(cluster.server_loop);
  ASSERT_TRUE(cluster.run(pending, 3600s));
  EXPECT_EQ(pending.status().code(), ErrorCode::kDeadline);
}

TEST(Channel, TimeInWhichNobodyDrivesTheClientDoesNotCount) {
  Cluster cluster(7);
  ASSERT_TRUE(cluster.server.listen().ok());
  cluster.client.start();
  cluster.world.run_until([&] { return cluster.client.all_open(); }, cluster.world.now() + 1s);
  PendingRequests pending;
  cluster.client.submit(0, 0, simple(Verb::kGet, pending.track()));
  cluster.world.pause(cluster.client_loop);
  cluster.world.run_for(1000s);
  cluster.world.resume(cluster.client_loop);
  ASSERT_TRUE(cluster.run(pending));
  EXPECT_TRUE(pending.status().ok()) << pending.status().to_string();
}

TEST(Channel, ErrorRepliesArriveAsTheyWereMade) {
  Cluster cluster(8);
  ASSERT_TRUE(cluster.server.listen().ok());
  cluster.client.start();
  PendingRequests pending;
  cluster.client.submit(0, 0, simple(Verb::kInit, pending.track()));
  ASSERT_TRUE(cluster.run(pending));
  EXPECT_EQ(pending.status().code(), ErrorCode::kNotSupported);
  EXPECT_EQ(pending.status().text().got, "init");
}

TEST(Channel, WhatAServersHandlerThrowsIsAnswered) {
  Cluster cluster(17);
  struct Throwing : Store {
    void on_frame(Session&, const FrameHeader& header, ConstBytes, MutableBytes) override {
      if (header.verb == Verb::kInit) throw std::runtime_error("a defect");
      throw_error(ErrorCode::kShapeMismatch, {.what = "a shape does not fit",
                                              .where = "fc_0.w_0",
                                              .expected = {},
                                              .got = {},
                                              .fix = {}});
    }
  } store;
  Server server(cluster.world, {&cluster.server_loop, &store}, {&cluster.server_loop, &store},
                server_options(), quiet());
  ASSERT_TRUE(server.listen().ok());
  cluster.client.start();
  PendingRequests first;
  cluster.client.submit(0, 0, simple(Verb::kGet, first.track()));
  ASSERT_TRUE(cluster.run(first));
  EXPECT_EQ(first.status().code(), ErrorCode::kShapeMismatch);
  EXPECT_EQ(first.status().text().where, "fc_0.w_0");
  PendingRequests second;
  cluster.client.submit(0, 0, simple(Verb::kInit, second.track()));
  ASSERT_TRUE(cluster.run(second));
  EXPECT_EQ(second.status().code(), ErrorCode::kInternal);
  EXPECT_EQ(second.status().text().what, "a defect");
}

TEST(Channel, APayloadOfTheWrongSizeEndsTheSessionAndNamesWhy) {
  Cluster cluster(9);
  cluster.store.max_payload = 10;
  ASSERT_TRUE(cluster.server.listen().ok());
  cluster.client.start();
  PendingRequests pending;
  const auto bytes = pattern(100, 1);
  cluster.client.submit(0, 0, push(1, bytes, pending.track()));
  ASSERT_TRUE(cluster.run(pending));
  EXPECT_EQ(pending.status().code(), ErrorCode::kBadFrame);
  EXPECT_NE(pending.status().text().what.find("too large"), std::string::npos);
  EXPECT_EQ(cluster.store.closed, 1);
}

TEST(Channel, DiscardedPayloadsKeepTheStreamInStep) {
  Cluster cluster(10);
  cluster.store.discard = true;
  ASSERT_TRUE(cluster.server.listen().ok());
  cluster.client.start();
  PendingRequests pending;
  const auto bytes = pattern(700000, 1);
  cluster.client.submit(0, 0, push(1, bytes, pending.track()));
  cluster.client.submit(0, 0, push(2, bytes, pending.track()));
  ASSERT_TRUE(cluster.run(pending));
  EXPECT_TRUE(pending.status().ok());
  EXPECT_TRUE((cluster.store.data[{2, 0}].empty()));
}

TEST(Channel, ACancelledRequestNeitherCallsBackNorTouchesItsMemory) {
  Cluster cluster(11);
  ASSERT_TRUE(cluster.server.listen().ok());
  cluster.client.start();
  const auto bytes = pattern(3 * kPieceBytes, 1);
  PendingRequests pending;
  cluster.client.submit(0, 0, push(1, bytes, pending.track()));
  ASSERT_TRUE(cluster.run(pending));
  for (int steps = 0; steps < 60; ++steps) {
    auto memory = std::make_unique<std::vector<std::byte>>(bytes.size());
    bool called = false;
    const uint64_t id =
        cluster.client.submit(0, 0, get(1, *memory, [&](const Status&) { called = true; }));
    int left = steps;
    cluster.world.run_until([&] { return left-- == 0 || called; }, cluster.world.now() + 1s);
    if (called) break;
    cluster.client.channel(0).cancel(id);
    memory.reset();
    std::vector<std::byte> back(bytes.size());
    PendingRequests after;
    cluster.client.submit(0, 0, get(1, back, after.track()));
    ASSERT_TRUE(cluster.run(after));
    EXPECT_FALSE(called);
    EXPECT_EQ(back, bytes);
  }
}

TEST(Channel, FailAllEndsWhatIsPendingAndWhatComes) {
  Cluster cluster(12);
  cluster.client.start();
  PendingRequests pending;
  cluster.client.submit(0, 0, simple(Verb::kGet, pending.track()));
  cluster.client.fail_all(
      Status(ErrorCode::kJobAborted,
             {.what = "culprit", .where = {}, .expected = {}, .got = {}, .fix = {}}));
  EXPECT_TRUE(pending.done());
  EXPECT_EQ(pending.status().code(), ErrorCode::kJobAborted);
  PendingRequests later;
  cluster.client.submit(0, 0, simple(Verb::kGet, later.track()));
  EXPECT_FALSE(later.done());
  ASSERT_TRUE(cluster.run(later));
  EXPECT_EQ(later.status().code(), ErrorCode::kJobAborted);
}

TEST(Channel, RefusalsAreFinalAndNameBothSides) {
  Cluster cluster(13);
  ServerOptions options = server_options();
  options.endpoint.port += 5;
  options.hello.worker_num = 4;
  options.hello.facts["program"] = "ffff0000";
  Store store;
  Server other(cluster.world, {&cluster.server_loop, &store}, {&cluster.server_loop, &store},
               options, quiet());
  ASSERT_TRUE(other.listen().ok());
  ClientOptions mine = client_options();
  mine.servers[0].port += 5;
  Client client(cluster.client_loop, cluster.world, mine, quiet());
  client.start();
  PendingRequests pending;
  client.submit(0, 0, simple(Verb::kGet, pending.track()));
  ASSERT_TRUE(cluster.run(pending, 1s));
  for (const Status& status : {pending.status(), other.last_refusal()}) {
    EXPECT_EQ(status.code(), ErrorCode::kHandshakeRefused);
    const std::string text = status.to_string();
    for (const char* part : {"server 0: number of workers = 4, program = ffff0000",
                             "worker 0: number of workers = 2, program = 0123abcd"}) {
      EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

TEST(Channel, AnAdmissionIsRefusedWithItsReason) {
  Cluster cluster(14);
  cluster.store.admission =
      Status(ErrorCode::kHandshakeRefused,
             {.what = "not today", .where = {}, .expected = {}, .got = {}, .fix = {}});
  ASSERT_TRUE(cluster.server.listen().ok());
  cluster.client.start();
  PendingRequests pending;
  cluster.client.submit(0, 0, simple(Verb::kGet, pending.track()));
  ASSERT_TRUE(cluster.run(pending, 1s));
  EXPECT_EQ(pending.status().text().what, "not today");
}

TEST(Channel, ACutLinkIsMendedAndRequestsAreSentAgain) {
  Cluster cluster(15);
  ASSERT_TRUE(cluster.server.listen().ok());
  cluster.client.start();
  PendingRequests waiting;
  cluster.client.submit(0, 0, simple(Verb::kSnapshot, waiting.track()));
  cluster.world.run_until([&] { return cluster.store.frames == 1; }, cluster.world.now() + 1s);
  const FrameHeader first = cluster.store.headers.back();
  cluster.world.cut(cluster.server_loop, cluster.client_loop);
  const TimePoint cut = cluster.world.now();
  ASSERT_TRUE(
      cluster.world.run_until([&] { return cluster.store.frames >= 2; }, cluster.world.now() + 1s));
  EXPECT_LT(cluster.world.now() - cut, 10ms);
  EXPECT_EQ(cluster.store.headers.back(), first);
}

TEST(Channel, APartitionThatHealsInTimeCostsTimeOnly) {
  Cluster cluster(18);
  ASSERT_TRUE(cluster.server.listen().ok());
  cluster.client.start();
  const auto bytes = pattern(3 * kPieceBytes, 1);
  PendingRequests pending;
  cluster.client.submit(0, 0, push(1, bytes, pending.track()));
  cluster.world.run_until([&] { return cluster.store.pushes == 1; }, cluster.world.now() + 1s);
  cluster.world.partition(cluster.server_loop, cluster.client_loop);
  EXPECT_FALSE(cluster.run(pending, 100s));
  ASSERT_EQ(cluster.client.waits().size(), 1U);
  EXPECT_NE(cluster.client.waits()[0].find("push waits for server 0"), std::string::npos);
  cluster.world.heal(cluster.server_loop, cluster.client_loop);
  ASSERT_TRUE(cluster.run(pending, 1s));
  EXPECT_TRUE(pending.status().ok()) << pending.status().to_string();
  EXPECT_TRUE((cluster.store.data[{1, 2}].size() == kPieceBytes));
}

TEST(Channel, FinishSaysGoodbyeAfterTheLastAnswer) {
  Cluster cluster(16);
  ASSERT_TRUE(cluster.server.listen().ok());
  cluster.client.start();
  PendingRequests pending;
  const auto bytes = pattern(100, 1);
  cluster.client.submit(0, 0, push(1, bytes, pending.track()));
  cluster.client.finish();
  ASSERT_TRUE(cluster.run(pending));
  ASSERT_TRUE(
      cluster.world.run_until([&] { return cluster.store.closed == 1; }, cluster.world.now() + 1s));
  EXPECT_TRUE(cluster.store.last_end.ok()) << cluster.store.last_end.to_string();
  EXPECT_EQ(cluster.store.pushes, 1U);
}

// Many seeds: delays, chunks, cuts, refused connections and repeated frames, over several lanes.
class FaultyLinks : public ::testing::TestWithParam<uint64_t> {};

uint64_t run_faulty(uint64_t seed) {
  SimFaults faults;
  faults.max_chunk = 5000;
  faults.pipe_bytes = 20000;
  faults.cut = 0.01;
  faults.duplicate = 0.05;
  faults.refuse = 0.2;
  Cluster cluster(seed, faults, 3);
  EXPECT_TRUE(cluster.server.listen().ok());
  cluster.client.start();
  std::vector<std::vector<std::byte>> sent;
  for (uint32_t round = 0; round < 12; ++round) {
    sent.push_back(pattern(cluster.world.random(60000), round));
  }
  for (uint32_t round = 0; round < sent.size(); ++round) {
    PendingRequests pending;
    cluster.client.submit(0, round % 3, push(round, sent[round], pending.track(), 9000));
    if (round > 0) {
      cluster.client.submit(0, (round + 1) % 3,
                            push(100 + round, sent[round - 1], pending.track(), 9000));
    }
    EXPECT_TRUE(cluster.run(pending)) << "seed " << seed;
    EXPECT_TRUE(pending.status().ok()) << "seed " << seed << ": " << pending.status().to_string();
    std::vector<std::byte> back(sent[round].size());
    PendingRequests read;
    cluster.client.submit(0, (round + 2) % 3, get(round, back, read.track(), 9000));
    EXPECT_TRUE(cluster.run(read)) << "seed " << seed;
    EXPECT_TRUE(back == sent[round]) << "seed " << seed;
  }
  return cluster.world.trace_hash();
}

TEST_P(FaultyLinks, EveryRequestIsAnsweredRightly) {
  for (uint64_t seed = GetParam() * 25; seed < (GetParam() + 1) * 25; ++seed) run_faulty(seed);
}

INSTANTIATE_TEST_SUITE_P(Seeds, FaultyLinks, ::testing::Range<uint64_t>(0, 8));

TEST(SimWorld, TheSameSeedGivesTheSameRun) {
  EXPECT_EQ(run_faulty(77), run_faulty(77));
  EXPECT_NE(run_faulty(77), run_faulty(78));
}

}  // namespace
}  // namespace fleet::transport
