// The same classes over real sockets, in one process: TCP, Unix, loops on threads of their own.
#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <future>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <thread>

#include "base/strings.h"
#include "tests/testing/delay_proxy.h"
#include "tests/transport/raw_peer.h"
#include "tests/transport/support.h"
#include "transport/coordinator/coordinator.h"
#include "transport/coordinator/coordinator_client.h"
#include "transport/link/asio_network.h"

namespace fleet::transport {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder

constexpr Duration kLimit = 20s;

// Opens connections that say nothing, from an address of its own, for as long as it lives.
class Flood {
 public:
  explicit Flood(uint16_t port) : thread_([this, port] { run(port); }) {}
  ~Flood() {
    over_ = true;
    thread_.join();
  }

 private:
  static sockaddr_in address(const char* host, uint16_t port) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    inet_pton(AF_INET, host, &in.sin_addr);
    return in;
  }
  void run(uint16_t port) {
    std::deque<int> open;
    const sockaddr_in target = address("127.0.0.1", port);
    while (!over_) {
      const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
      open.push_back(fd);
      const sockaddr_in from = address("127.0.0.2", 0);
      (void)::bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from);
      // Refused or not: the next one follows.
      (void)::connect(fd, reinterpret_cast<const sockaddr*>(&target), sizeof target);
      if (open.size() < 200) continue;
      ::close(open.front());
      open.pop_front();
    }
    for (const int fd : open) ::close(fd);
  }

  std::atomic<bool> over_{false};
  std::thread thread_;
};

// While its handshake is under way strangers fill the server's places several times.
TEST(Strangers, AFloodDoesNotKeepAMemberFromComingBack) {
  AsioNetwork network(TransportChoice::kTcp);
  Store store;
  std::atomic<int> lines{0};
  LoopThread thread("server");
  std::unique_ptr<Server> server;
  thread.run_there([&] {
    ServerOptions options = free_port();
    options.max_handshakes = 16;
    const ServerLane lane{&thread.loop(), &store};
    server = std::make_unique<Server>(
        network, lane, lane, options,
        Logger(LogLevel::kWarning, [&lines](LogLevel, std::string_view) { ++lines; }));
    server->listen().throw_if_error();
  });
  fleet::testing::DelayProxy proxy(server->bound(), {});
  fleet::testing::ProxiedNetwork far({{server->bound().port, &proxy}});
  AsioLoop loop;
  Client client(loop, far, to(*server), quiet());
  client.start();
  const auto bytes = pattern(100, 1);
  PendingRequests first;
  client.submit(0, 0, push(0, bytes, first.track()));
  ASSERT_TRUE(loop.run_until([&] { return first.done(); }, loop.now() + kLimit));
  const uint64_t before = proxy.connections();
  proxy.cut_all();
  proxy.hold();
  PendingRequests second;
  client.submit(0, 0, push(1, bytes, second.track()));
  const TimePoint limit = loop.now() + kLimit;
  while (proxy.connections() == before && loop.now() < limit) {
    loop.run_until([] { return false; }, loop.now() + 1ms);
  }
  {
    const Flood flood(server->bound().port);
    // The member comes back while all waiting places are taken. Only who is turned away for want
    // of a place has a line: strangers that were gone before they were looked at count, no more.
    uint64_t refused = 0;
    while ((refused <= 50 || lines == 0) && loop.now() < limit) {
      thread.run_there([&] { refused = server->refused(); });
    }
    EXPECT_GT(refused, 50U);
    proxy.release();
    EXPECT_TRUE(loop.run_until([&] { return second.done(); }, loop.now() + kLimit));
  }
  EXPECT_TRUE(second.status().ok()) << second.status().to_string();
  EXPECT_EQ(proxy.connections(), before + 1);
  EXPECT_GT(lines, 0);
  EXPECT_LE(lines, 30);
  client.finish();
  thread.stop_and_join();
  server.reset();
}

// A server with a thread of its own and a client that the test drives.
class Sockets : public ::testing::TestWithParam<TransportChoice> {
 protected:
  void SetUp() override {
    thread_.run_there([this] {
      server_ =
          std::make_unique<Server>(network_, ServerLane{&thread_.loop(), &store_},
                                   ServerLane{&thread_.loop(), &store_}, free_port(), quiet());
      server_->listen().throw_if_error();
    });
  }
  void TearDown() override {
    thread_.stop_and_join();
    server_.reset();
  }
  // The client must reach the server in the way that the test asks for.
  AsioNetwork chosen() const { return AsioNetwork(GetParam()); }
  bool drive(const PendingRequests& pending) {
    return loop_.run_until([&] { return pending.done(); }, loop_.now() + kLimit);
  }

  AsioNetwork network_;
  Store store_;
  LoopThread thread_{"server"};
  std::unique_ptr<Server> server_;
  AsioLoop loop_;
};

TEST_P(Sockets, PayloadsGoToAndFro) {
  AsioNetwork network = chosen();
  Client client(loop_, network, to(*server_), quiet());
  client.start();
  uint32_t variable = 0;
  for (const size_t size : {size_t{1}, size_t{4096}, size_t{100000}, size_t{20} << 20}) {
    const auto bytes = pattern(size, ++variable);
    std::vector<std::byte> back(size);
    PendingRequests pending;
    client.submit(0, 0, push(variable, bytes, pending.track()));
    client.submit(0, 0, get(variable, back, pending.track()));
    const Status status = wait(loop_, pending);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(back == bytes);
  }
}

TEST_P(Sockets, ServersThatCloseAreFoundAgain) {
  AsioNetwork network = chosen();
  Client client(loop_, network, to(*server_), quiet());
  client.start();
  const auto bytes = pattern(1000, 1);
  for (int round = 0; round < 5; ++round) {
    PendingRequests pending;
    client.submit(0, 0, push(1, bytes, pending.track()));
    ASSERT_TRUE(drive(pending));
    EXPECT_TRUE(pending.status().ok()) << pending.status().to_string();
    thread_.run_there([this] {
      if (const auto session = store_.last_session.lock()) session->close();
    });
  }
  thread_.run_there([this] { EXPECT_GE(store_.opened, 4); });
}

TEST_P(Sockets, AnotherSecretIsRefusedAtOnce) {
  AsioNetwork network = chosen();
  ClientOptions options = to(*server_);
  options.secret = Secret::of_text("not the secret of the job", "test");
  Client client(loop_, network, options, quiet());
  client.start();
  PendingRequests pending;
  client.submit(0, 0, simple(Verb::kGet, pending.track()));
  ASSERT_TRUE(drive(pending));
  EXPECT_EQ(pending.status().code(), ErrorCode::kAuthentication);
}

TEST_P(Sockets, ManyClientsAtOnce) {
  AsioNetwork network = chosen();
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::vector<std::byte>> sent;
  PendingRequests pending;
  for (uint32_t i = 0; i < 20; ++i) {
    ClientOptions options = to(*server_, i % 2);
    options.lanes = 2;
    clients.push_back(std::make_unique<Client>(loop_, network, options, quiet()));
    clients.back()->start();
    sent.push_back(pattern(50000, i));
  }
  for (uint32_t i = 0; i < 20; ++i) {
    clients[i]->submit(0, i % 2, push(i, sent[i], pending.track()));
  }
  ASSERT_TRUE(drive(pending));
  EXPECT_TRUE(pending.status().ok()) << pending.status().to_string();
  thread_.run_there([&] {
    for (uint32_t i = 0; i < 20; ++i) EXPECT_TRUE((store_.data[{i, 0}] == sent[i]));
  });
}

std::string kind_name(const ::testing::TestParamInfo<TransportChoice>& kind) {
  switch (kind.param) {
    case TransportChoice::kAuto:
      return "Auto";
    case TransportChoice::kTcp:
      return "Tcp";
    case TransportChoice::kUnix:
      return "Unix";
  }
  return "Unknown";
}

INSTANTIATE_TEST_SUITE_P(Kinds, Sockets,
                         ::testing::Values(TransportChoice::kAuto, TransportChoice::kTcp,
                                           TransportChoice::kUnix),
                         kind_name);

TEST(Server, ControlAndDataLanesLiveOnTheirLoops) {
  AsioNetwork network;
  LoopThread control("control");
  LoopThread data("data");
  struct Where : Store {
    void on_frame(Session& session, const FrameHeader& header, ConstBytes control_part,
                  MutableBytes payload) override {
      thread = std::this_thread::get_id();
      Store::on_frame(session, header, control_part, payload);
    }
    std::atomic<std::thread::id> thread{};
  };
  Where on_control;
  Where on_data;
  std::unique_ptr<Server> server;
  control.run_there([&] {
    server = std::make_unique<Server>(network, ServerLane{&control.loop(), &on_control},
                                      ServerLane{&data.loop(), &on_data}, free_port(), quiet());
    server->listen().throw_if_error();
  });
  AsioLoop loop;
  ClientOptions options = to(*server);
  Client data_client(loop, network, options, quiet());
  options.lane = LaneKind::kControl;
  Client control_client(loop, network, options, quiet());
  data_client.start();
  control_client.start();
  const auto bytes = pattern(300000, 1);
  std::vector<std::byte> back(bytes.size());
  PendingRequests pending;
  data_client.submit(0, 0, push(1, bytes, pending.track()));
  data_client.submit(0, 0, get(1, back, pending.track()));
  control_client.submit(0, 0, push(2, bytes, pending.track()));
  const Status status = wait(loop, pending);
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(back == bytes);
  std::thread::id control_id;
  std::thread::id data_id;
  control.run_there([&] { control_id = std::this_thread::get_id(); });
  data.run_there([&] { data_id = std::this_thread::get_id(); });
  EXPECT_EQ(on_control.thread.load(), control_id);
  EXPECT_EQ(on_data.thread.load(), data_id);
  control.stop_and_join();
  data.stop_and_join();
  server.reset();
}

TEST(Server, AHandshakeThatStopsHalfwayIsEnded) {
  AsioNetwork network;
  LoopThread thread("server");
  Store store;
  std::unique_ptr<Server> server;
  thread.run_there([&] {
    ServerOptions options = free_port();
    options.handshake_timeout = 100ms;
    server = std::make_unique<Server>(network, ServerLane{&thread.loop(), &store},
                                      ServerLane{&thread.loop(), &store}, options, quiet());
    server->listen().throw_if_error();
  });
  const RawPeer raw(server->bound().port);
  ASSERT_TRUE(raw.connected());
  EXPECT_EQ(raw.read_to_end(), kHeaderBytes + 35);  // the challenge, then the end
  thread.run_there([&] { EXPECT_EQ(server->last_refusal().code(), ErrorCode::kDeadline); });
  thread.stop_and_join();
  server.reset();
}

TEST(Server, TooManyUnknownConnectionsCloseTheOldest) {
  AsioNetwork network;
  LoopThread thread("server");
  Store store;
  std::unique_ptr<Server> server;
  thread.run_there([&] {
    ServerOptions options = free_port();
    options.max_handshakes = 4;
    server = std::make_unique<Server>(network, ServerLane{&thread.loop(), &store},
                                      ServerLane{&thread.loop(), &store}, options, quiet());
    server->listen().throw_if_error();
  });
  std::vector<std::unique_ptr<RawPeer>> raw;
  raw.reserve(10);
  for (int i = 0; i < 10; ++i) raw.push_back(std::make_unique<RawPeer>(server->bound().port));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(raw[static_cast<size_t>(i)]->read_to_end() % 99, 0U);
  AsioLoop loop;
  Client client(loop, network, to(*server), quiet());
  client.start();
  PendingRequests pending;
  const auto bytes = pattern(10, 1);
  client.submit(0, 0, push(1, bytes, pending.track()));
  EXPECT_TRUE(wait(loop, pending).ok());
  thread.stop_and_join();
  server.reset();
}

TEST(Server, AllLanesOfALargeJobMayConnectAtOnce) {
  constexpr uint32_t kWorkers = 100;
  AsioNetwork network;
  LoopThread thread("server");
  Store store;
  std::unique_ptr<Server> server;
  thread.run_there([&] {
    ServerOptions options = free_port();
    options.hello.worker_num = kWorkers;
    server = std::make_unique<Server>(network, ServerLane{&thread.loop(), &store},
                                      ServerLane{&thread.loop(), &store}, options, quiet());
    server->listen().throw_if_error();
  });
  AsioLoop loop;
  std::vector<std::unique_ptr<Client>> clients;
  for (uint32_t worker = 0; worker < kWorkers; ++worker) {
    ClientOptions options = to(*server, worker);
    options.hello.worker_num = kWorkers;
    clients.push_back(std::make_unique<Client>(loop, network, options, quiet()));
    clients.back()->start();
  }
  const auto all_open = [&] {
    return std::all_of(clients.begin(), clients.end(),
                       [](const auto& client) { return client->all_open(); });
  };
  EXPECT_TRUE(loop.run_until(all_open, loop.now() + kLimit));
  thread.run_there([&] { EXPECT_EQ(server->refused(), 0U); });
  thread.stop_and_join();
  server.reset();
}

TEST(AsioLoop, TimersRunInTheirOrderAndNotAfterTheyAreCancelled) {
  AsioLoop loop;
  std::vector<int> order;
  loop.call_after(3ms, [&] { order.push_back(3); });
  loop.call_after(1ms, [&] { order.push_back(1); });
  const auto cancelled = loop.call_after(2ms, [&] { order.push_back(9); });
  loop.call_after(2ms, [&] { order.push_back(2); });
  loop.cancel(cancelled);
  EXPECT_TRUE(loop.run_until([&] { return order.size() == 3; }, loop.now() + kLimit));
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(AsioLoop, AHandlerNeverRunsInsideTheCallThatHandsItOver) {
  AsioLoop loop;
  std::vector<int> order;
  loop.post([&] {
    loop.post([&] { order.push_back(2); });
    loop.call_after(Duration(0), [&] { order.push_back(2); });
    order.push_back(1);
  });
  EXPECT_TRUE(loop.run_until([&] { return order.size() == 3; }, loop.now() + kLimit));
  EXPECT_EQ(order, (std::vector<int>{1, 2, 2}));
}

TEST(AsioLoop, WaitsEndAtTheirDeadlineAndWhenStopped) {
  AsioLoop loop;
  EXPECT_FALSE(loop.run_until([] { return false; }, loop.now() + 5ms));
  EXPECT_TRUE(loop.run_until([] { return true; }, loop.now()));
  loop.post([&] { loop.stop(); });
  EXPECT_FALSE(loop.run_until([] { return false; }, TimePoint::max()));
}

TEST(AsioLoop, PostsFromOtherThreadsWakeTheLoop) {
  AsioLoop loop;
  int count = 0;
  std::thread other([&] {
    for (int i = 0; i < 1000; ++i) loop.post([&] { ++count; });
  });
  EXPECT_TRUE(loop.run_until([&] { return count == 1000; }, loop.now() + kLimit));
  other.join();
}

TEST(CoordinatorThreads, ACallAfterTheControlLoopHasStoppedDoesNotHang) {
  AsioNetwork network;
  LoopThread control("control");
  CoordinatorClientOptions options;
  options.endpoint = Endpoint{"127.0.0.1", 9};
  options.hello = hello_of(PeerRole::kWorker, 0);
  options.secret = secret();
  std::unique_ptr<CoordinatorClient> client;
  control.run_there([&] {
    client = std::make_unique<CoordinatorClient>(control.loop(), network, options, quiet());
  });
  control.stop_and_join();
  EXPECT_EQ(client->barrier(Group::kWorkers, "b").code(), ErrorCode::kCancelled);
}

// A job of one process: control threads, blocking calls from training threads.
TEST(CoordinatorThreads, BlockingCallsMeetAndTheVerdictReachesAll) {
  constexpr uint32_t kMembers = 4;
  AsioNetwork network;
  LoopThread home("control");
  CoordinatorOptions options;
  options.worker_num = kMembers;
  options.server_num = 0;
  std::unique_ptr<Coordinator> coordinator;
  std::unique_ptr<Server> server;
  home.run_there([&] {
    coordinator = std::make_unique<Coordinator>(home.loop(), options, quiet());
    ServerOptions listen = free_port();
    listen.hello = hello_of(PeerRole::kWorker, 0, kMembers, 0);
    server = std::make_unique<Server>(network, ServerLane{&home.loop(), coordinator.get()},
                                      ServerLane{&home.loop(), coordinator.get()}, listen, quiet());
    server->listen().throw_if_error();
    coordinator->start();
  });
  std::atomic<int> verdicts{0};
  const auto member = [&](uint32_t index) {
    LoopThread control("member");
    CoordinatorClientOptions mine;
    mine.endpoint = server->bound();
    mine.coordinator = MemberId{PeerRole::kWorker, 0};
    mine.hello = hello_of(PeerRole::kWorker, index, kMembers, 0);
    mine.secret = secret();
    std::promise<Verdict> verdict;
    std::unique_ptr<CoordinatorClient> client;
    control.run_there([&] {
      client = std::make_unique<CoordinatorClient>(control.loop(), network, mine, quiet());
      client->set_on_verdict([&](const Verdict& v) { verdict.set_value(v); });
      client->start();
    });
    for (int64_t step = 0; step < 50; ++step) {
      client->set_phase(Phase::kReducing, static_cast<uint64_t>(step));
      const auto sum = client->reduce(Group::kWorkers, "sum", ReduceOp::kSum,
                                      std::vector<int64_t>{index * step});
      EXPECT_EQ(std::get<std::vector<int64_t>>(sum.value()), (std::vector<int64_t>{6 * step}));
      EXPECT_TRUE(client->barrier(Group::kWorkers, "step").ok());
    }
    if (index == 2) {
      client->abort(Verdict{
          {PeerRole::kWorker, 2}, Phase::kComputing, 50, ErrorCode::kNumerics, "not a number"});
    }
    EXPECT_EQ(verdict.get_future().get().reason, "not a number");
    EXPECT_EQ(client->barrier(Group::kWorkers, "late").code(), ErrorCode::kNumerics);
    ++verdicts;
    control.stop_and_join();
    client.reset();
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < kMembers; ++i) threads.emplace_back(member, i);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(verdicts, 4);
  home.stop_and_join();
  server.reset();
  coordinator.reset();
}

}  // namespace
}  // namespace fleet::transport
