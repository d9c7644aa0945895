// Random and mutated frames against a live server, before and after a valid hello, while a good
// client beside them keeps working.
#include <atomic>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "base/archive.h"
#include "base/hash.h"
#include "tests/transport/raw_peer.h"
#include "tests/transport/support.h"
#include "transport/coordinator/coordinator.h"
#include "transport/link/asio_network.h"

namespace fleet::transport {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder

constexpr int kFrames = 10000;
#ifdef __SANITIZE_ADDRESS__
constexpr size_t kGrowthBytes = size_t{768} << 20;  // freed memory stays in quarantine
#else
constexpr size_t kGrowthBytes = size_t{64} << 20;
#endif

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

// A store of bounded size, so that only the transport's own memory can grow.
class SmallStore : public Store {
 public:
  PayloadTarget prepare_payload(Session& session, const FrameHeader& header,
                                ConstBytes control) override {
    if (header.variable >= 8 || header.piece >= 8 || header.payload_bytes > 65536) {
      return PayloadTarget::refuse(
          Status(ErrorCode::kBadFrame,
                 {.what = "no such piece", .where = {}, .expected = {}, .got = {}, .fix = {}}));
    }
    return Store::prepare_payload(session, header, control);
  }
};

struct Live {
  explicit Live(ServerHandler& handler) {
    thread.run_there([&] {
      ServerOptions options = server_options();
      options.endpoint.port = 0;
      options.handshake_timeout = 300ms;
      server = std::make_unique<Server>(network, ServerLane{&thread.loop(), &handler},
                                        ServerLane{&thread.loop(), &handler}, options, quiet());
      server->listen().throw_if_error();
    });
  }
  ~Live() {
    thread.stop_and_join();
    server.reset();
  }
  uint16_t port() const { return server->bound().port; }

  AsioNetwork network;
  LoopThread thread{"server"};
  std::unique_ptr<Server> server;
};

// Pushes, reads back and compares until it is told to stop.
class GoodClient {
 public:
  explicit GoodClient(const Server& server) {
    ClientOptions options = client_options(1);
    options.servers = {server.bound()};
    thread_ = std::thread([this, options] { work(options); });
  }
  ~GoodClient() { finish(); }
  void finish() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int rounds() const { return rounds_; }
  const Status& status() const { return status_; }

 private:
  void work(const ClientOptions& options) {
    AsioLoop loop;
    AsioNetwork network;
    Client client(loop, network, options, quiet());
    client.start();
    while ((!stop_ || rounds_ == 0) && status_.ok()) {
      const auto bytes = pattern(40000, static_cast<uint32_t>(rounds_));
      std::vector<std::byte> back(bytes.size());
      PendingRequests pending;
      client.submit(0, 0, push(7, bytes, pending.track()));
      client.submit(0, 0, get(7, back, pending.track()));
      status_ = wait(loop, pending);
      if (status_.ok() && back != bytes) {
        status_ = Status(
            ErrorCode::kInternal,
            {.what = "other bytes came back", .where = {}, .expected = {}, .got = {}, .fix = {}});
      }
      ++rounds_;
    }
  }

  std::atomic<bool> stop_{false};
  std::atomic<int> rounds_{0};
  Status status_;
  std::thread thread_;
};

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  uint64_t below(uint64_t n) { return n == 0 ? 0 : random_() % n; }

  std::vector<std::byte> noise(size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random_());
    return bytes;
  }

  // A frame of `verbs` with fields, control and payload as they come; in some, bytes are changed
  // or missing, with or without a checksum that fits.
  std::vector<std::byte> frame(const std::vector<Verb>& verbs) {
    FrameHeader header;
    header.verb = verbs[below(verbs.size())];
    header.flags = static_cast<uint32_t>(random_()) & kKnownFlags;
    header.request_id = below(50);
    header.step = below(10);
    header.variable = static_cast<uint32_t>(below(7));
    header.piece = static_cast<uint32_t>(below(4));
    std::vector<std::byte> control = below(3) == 0 ? noise(below(200)) : sample_control();
    damage(control, 3);
    const auto payload = header.verb == Verb::kPush ? noise(below(3000)) : noise(0);
    auto bytes = frame_bytes(header, control, payload);
    switch (below(6)) {
      case 0:
        damage(bytes, 4);
        break;
      case 1:
        damage_header(bytes);
        break;
      case 2:
        bytes.resize(below(bytes.size()));
        break;
      case 3:
        return noise(1 + below(300));
      default:
        break;
    }
    return bytes;
  }

 private:
  void damage(std::vector<std::byte>& bytes, uint64_t places) {
    for (uint64_t i = below(places); i > 0 && !bytes.empty(); --i) {
      bytes[below(bytes.size())] = static_cast<std::byte>(random_());
    }
  }
  // Changes fields and makes the checksum fit again, so that what follows is reached.
  void damage_header(std::vector<std::byte>& bytes) {
    for (uint64_t i = 1 + below(3); i > 0; --i) {
      bytes[4 + below(56)] = static_cast<std::byte>(random_());
    }
    const uint32_t crc = crc32c(ConstBytes(bytes).first(60));
    std::memcpy(bytes.data() + 60, &crc, sizeof crc);
  }
  std::vector<std::byte> sample_control() {
    switch (below(6)) {
      case 0:
        return encode(HeartbeatNote{static_cast<Phase>(below(15)), below(9), below(9), {}});
      case 1: {
        ReduceCall call;
        call.group = static_cast<Group>(1 + below(3));
        call.name = std::string(below(4), 'x');
        call.sequence = below(4);
        call.op = static_cast<ReduceOp>(below(6));
        call.values = std::vector<double>(below(4), 1.0);
        call.deadline_ms = random_();
        return encode(call);
      }
      case 2:
        return encode(Verdict{{PeerRole::kWorker, static_cast<uint32_t>(below(5))},
                              Phase::kSaving,
                              3,
                              static_cast<ErrorCode>(below(40)),
                              "reason"});
      case 3:
        return encode(hello_of(PeerRole::kWorker, static_cast<uint32_t>(below(3))));
      case 4:
        return encode_status(Status(
            ErrorCode::kInput, {.what = "x", .where = {}, .expected = {}, .got = {}, .fix = {}}));
      default:
        return {};
    }
  }

  std::mt19937_64 random_;
};

const std::vector<Verb> kHandshakeVerbs = {
    Verb::kAuthChallenge, Verb::kAuthResponse, Verb::kAuthConfirm, Verb::kHello,
    Verb::kWelcome,       Verb::kRefuse,       Verb::kPush,        Verb::kPing};
const std::vector<Verb> kDataVerbs = {
    Verb::kPush,       Verb::kPush,   Verb::kGet,      Verb::kReply,          Verb::kPing,
    Verb::kPong,       Verb::kInit,   Verb::kNotify,   Verb::kHello,          Verb::kGoodbye,
    Verb::kErrorReply, Verb::kReduce, Verb::kSnapshot, static_cast<Verb>(999)};
const std::vector<Verb> kControlVerbs = {Verb::kHeartbeat, Verb::kReduce, Verb::kReduce,
                                         Verb::kComplete,  Verb::kAbort,  Verb::kPing,
                                         Verb::kInit,      Verb::kReply};

// A few frames, then waits until the server has read them. How many were sent.
int burst(const RawPeer& peer, Mutator& mutator, const std::vector<Verb>& verbs) {
  int sent = 0;
  for (const auto count = 1 + mutator.below(8); sent < static_cast<int>(count); ++sent) {
    if (!peer.send(mutator.frame(verbs))) break;
  }
  peer.finish();
  return std::max(sent, 1);
}

TEST(LiveFuzz, FramesBeforeHelloHurtNobody) {
  SmallStore store;
  Live live(store);
  GoodClient good(*live.server);
  Mutator mutator(2024);
  const size_t before = resident_bytes();
  for (int sent = 0; sent < kFrames;) {
    const RawPeer peer(live.port());
    ASSERT_TRUE(peer.connected());
    sent += burst(peer, mutator, kHandshakeVerbs);
  }
  good.finish();
  EXPECT_TRUE(good.status().ok()) << good.status().to_string();
  EXPECT_GT(good.rounds(), 0);
  EXPECT_LT(resident_bytes(), before + kGrowthBytes);
  live.thread.run_there([&] { EXPECT_EQ(store.opened, 1); });
}

TEST(LiveFuzz, FramesAfterHelloHurtNobody) {
  SmallStore store;
  Live live(store);
  GoodClient good(*live.server);
  Mutator mutator(2025);
  const size_t before = resident_bytes();
  for (int sent = 0; sent < kFrames;) {
    const RawPeer peer(live.port());
    ASSERT_TRUE(peer.connected());
    ASSERT_TRUE(peer.shake_hands(hello_of(PeerRole::kWorker, 0), secret()));
    sent += burst(peer, mutator, kDataVerbs);
  }
  good.finish();
  EXPECT_TRUE(good.status().ok()) << good.status().to_string();
  EXPECT_GT(good.rounds(), 0);
  EXPECT_LT(resident_bytes(), before + kGrowthBytes);
  live.thread.run_there([&] { EXPECT_GT(store.pushes, 100U); });
}

TEST(LiveFuzz, AMemberThatTalksNonsenseDoesNotBreakTheCoordinator) {
  // Each attacker may end the job, which is its right as a member; the coordinator lives on.
  AsioNetwork network;
  Mutator mutator(2026);
  int sent = 0;
  while (sent < kFrames) {
    CoordinatorOptions options;
    options.worker_num = 2;
    options.server_num = 2;
    std::unique_ptr<Coordinator> coordinator;
    struct Late : ServerHandler {  // made on the loop that it lives on
      ServerHandler* to = nullptr;
      Status admit(const Hello& peer) override { return to->admit(peer); }
      Loop* on_open(Session& s) override { return to->on_open(s); }
      PayloadTarget prepare_payload(Session& s, const FrameHeader& h, ConstBytes c) override {
        return to->prepare_payload(s, h, c);
      }
      void on_frame(Session& s, const FrameHeader& h, ConstBytes c, MutableBytes p) override {
        to->on_frame(s, h, c, p);
      }
      void on_closed(Session& s, const Status& why) override { to->on_closed(s, why); }
    } handler;
    Live live(handler);
    live.thread.run_there([&] {
      coordinator = std::make_unique<Coordinator>(live.thread.loop(), options, quiet());
      handler.to = coordinator.get();
      coordinator->start();
    });
    for (int round = 0; round < 40 && sent < kFrames; ++round) {
      Hello hello = hello_of(mutator.below(2) == 0 ? PeerRole::kWorker : PeerRole::kServer,
                             static_cast<uint32_t>(mutator.below(2)));
      hello.lane = LaneKind::kControl;
      const RawPeer peer(live.port());
      ASSERT_TRUE(peer.connected());
      ASSERT_TRUE(peer.shake_hands(hello, secret()));
      sent += burst(peer, mutator, kControlVerbs);
    }
    live.thread.run_there([&] { EXPECT_EQ(coordinator->members().size(), 4U); });
    live.thread.stop_and_join();
    live.server.reset();
    coordinator.reset();
  }
}

template <class T>
void fuzz_decoder(const T& good, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto bytes = encode(good);
  ASSERT_TRUE(decode<T>(bytes, "good").ok());
  for (int round = 0; round < kFrames; ++round) {
    auto bad = bytes;
    for (uint64_t i = random() % 4; i > 0; --i) {
      bad[random() % bad.size()] = static_cast<std::byte>(random());
    }
    if (random() % 3 == 0) bad.resize(random() % (bad.size() + 1));
    const auto decoded = decode<T>(bad, "bad");
    if (!decoded.ok()) {
      EXPECT_EQ(decoded.status().code(), ErrorCode::kBadFrame);
    }
  }
}

TEST(Decoders, RefuseWhatDoesNotFit) {
  fuzz_decoder(hello_of(PeerRole::kWorker, 1), 1);
  ReduceCall call;
  call.name = "name";
  call.values = std::vector<std::string>{"a", "bc"};
  fuzz_decoder(call, 2);
  fuzz_decoder(HeartbeatNote{Phase::kSaving, 1, 2, "operation 3, barrier"}, 3);
  fuzz_decoder(Verdict{{PeerRole::kServer, 1}, Phase::kSaving, 1, ErrorCode::kInput, "r"}, 4);
}

}  // namespace
}  // namespace fleet::transport
