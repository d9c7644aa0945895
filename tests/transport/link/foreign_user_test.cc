// Unix sockets whose other end is not the job's: another user's process, or a relay.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "tests/transport/raw_peer.h"
#include "tests/transport/relay.h"
#include "tests/transport/support.h"
#include "transport/link/asio_network.h"

namespace fleet::transport {
namespace {

using namespace testing;  // NOLINT: the helpers of this folder

constexpr uid_t kNobody = 65534;

// A child of another user that does one thing; its exit code is what the thing returns.
class ForeignProcess {
 public:
  explicit ForeignProcess(const std::function<int()>& work) : pid_(::fork()) {
    if (pid_ != 0) return;
    const bool changed = ::setresuid(kNobody, kNobody, kNobody) == 0;
    ::_exit(changed ? work() : 120);
  }
  ~ForeignProcess() { exit_code(); }
  pid_t pid() const { return pid_; }
  int exit_code() {
    if (!ended_) {
      ::waitpid(pid_, &status_, 0);
      ended_ = true;
    }
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 121;
  }

 private:
  pid_t pid_;
  int status_ = 0;
  bool ended_ = false;
};

struct Warnings {
  std::vector<std::string> lines;
  Logger logger() {
    return Logger(LogLevel::kWarning,
                  [this](LogLevel, std::string_view line) { lines.emplace_back(line); });
  }
  std::string text() const { return join(lines, "\n"); }
};

// A server on a port whose Unix name somebody else may hold already.
struct Listening {
  Listening(uint16_t port, TransportChoice choice, Logger logger) : network(choice) {
    thread.run_there([&] {
      ServerOptions options = server_options();
      options.endpoint.port = port;
      server = std::make_unique<Server>(network, ServerLane{&thread.loop(), &store},
                                        ServerLane{&thread.loop(), &store}, options, logger);
      server->listen().throw_if_error();
    });
  }
  ~Listening() {
    thread.stop_and_join();
    server.reset();
  }
  AsioNetwork network;
  Store store;
  LoopThread thread{"server"};
  std::unique_ptr<Server> server;
};

Status push_something(uint16_t port, const Logger& logger) {
  AsioNetwork network;
  AsioLoop loop;
  ClientOptions options = client_options(0);
  options.servers = {Endpoint{"127.0.0.1", port}};
  Client client(loop, network, options, logger);
  client.start();
  const auto bytes = pattern(100000, 1);
  PendingRequests pending;
  client.submit(0, 0, push(1, bytes, pending.track()));
  return wait(loop, pending);
}

uint16_t free_tcp_port() {
  uint16_t port = 0;
  ::close(listen_on_tcp(port));
  return port;
}

TEST(ForeignUser, AListenerOfAnotherUserIsToldNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can run a process as another user";
  const uint16_t port = free_tcp_port();
  int ready[2];
  int done[2];
  ASSERT_EQ(::pipe(ready) + ::pipe(done), 0);
  // Says how many bytes it was sent.
  ForeignProcess squatter([&] {
    ::close(done[1]);
    const int fd = listen_on_unix_name(port);
    char byte = 0;
    if (fd < 0 || ::write(ready[1], &byte, 1) != 1) return 122;
    if (::read(done[0], &byte, 1) < 0) return 123;
    int bytes = 0;
    pollfd wanted{fd, POLLIN, 0};
    while (::poll(&wanted, 1, 0) > 0) {
      const int client = ::accept(fd, nullptr, nullptr);
      char buffer[100];
      const ssize_t got = ::recv(client, buffer, sizeof buffer, MSG_DONTWAIT);
      bytes += got > 0 ? static_cast<int>(got) : 0;
    }
    return bytes;
  });
  ::close(done[0]);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  Warnings of_server;
  Warnings of_worker;
  {
    Listening listening(port, TransportChoice::kAuto, of_server.logger());
    const Status status = push_something(port, of_worker.logger());
    EXPECT_TRUE(status.ok()) << status.to_string();
  }
  ::close(done[1]);
  EXPECT_EQ(squatter.exit_code(), 0);
  const std::string holder = str_cat("user ", kNobody, ", process ", squatter.pid());
  EXPECT_NE(of_worker.text().find(holder), std::string::npos) << of_worker.text();
  EXPECT_NE(of_server.text().find(holder), std::string::npos) << of_server.text();
  EXPECT_EQ(of_worker.lines.size(), 1U) << of_worker.text();
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(ForeignUser, AConnectionOfAnotherUserIsToldNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can run a process as another user";
  Warnings warnings;
  Listening listening(0, TransportChoice::kAuto, warnings.logger());
  const uint16_t port = listening.server->bound().port;
  ForeignProcess stranger([port] {
    const RawPeer peer(port);
    return peer.connected() ? static_cast<int>(peer.read_to_end()) : 124;
  });
  EXPECT_EQ(stranger.exit_code(), 0);
  listening.thread.run_there([&] {
    EXPECT_EQ(listening.server->refused(), 1U);
    EXPECT_EQ(listening.server->last_refusal().code(), ErrorCode::kAuthentication);
  });
  EXPECT_NE(warnings.text().find(str_cat("user ", kNobody)), std::string::npos);
  EXPECT_TRUE(push_something(port, quiet()).ok());
}

TEST(ForeignUser, ARelayOfTheSameUserIsRefusedAndTheJobGoesOnOverTcp) {
  const uint16_t port = free_tcp_port();
  const int name = listen_on_unix_name(port);
  ASSERT_GE(name, 0);
  Listening listening(port, TransportChoice::kTcp, quiet());
  Relay relay(name, port);
  Warnings warnings;
  const Status status = push_something(port, warnings.logger());
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_GE(relay.connections(), 1);
  EXPECT_LT(relay.bytes(true), 2000U);  // a refusal
  EXPECT_NE(warnings.text().find("relays"), std::string::npos) << warnings.text();
}

}  // namespace
}  // namespace fleet::transport
