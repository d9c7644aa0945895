// Processes that do not belong together are refused, and both sides' values are named.

#include <arpa/inet.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <sys/socket.h>
#include <unistd.h>

#include "base/strings.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"
#include "tests/testing/ports.h"

namespace fleet {
namespace {

using fleet::testing::run_command;
using ::testing::HasSubstr;

struct Pair {
  int server_code = 0;
  int worker_code = 0;
  std::string server;
  std::string worker;
};

class Refusals : public ::testing::Test {
 protected:
  Refusals() {
    folder_ = ::testing::TempDir() + "refusals-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
  }
  ~Refusals() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  // What one server and one worker of a job say when each has these variables and flags.
  Pair run(const std::string& server_variables, const std::string& worker_variables,
           const std::string& worker_flags = "") const {
    const std::string trainer = fleet::testing::binary_path("bin/distributed_train");
    const std::string common =
        str_cat("env PADDLE_PSERVERS_IP_PORT_LIST=127.0.0.1:", port_, " POD_IP=127.0.0.1 ",
                "FLAGS_rpc_deadline=3000 FLEET_HEARTBEAT_TIMEOUT_MS=2000 ",
                "FLEET_HEARTBEAT_INTERVAL_MS=200 ");
    const std::string server = str_cat(common, "TRAINING_ROLE=PSERVER PADDLE_PORT=", port_, " ",
                                       server_variables, " ", trainer, " --steps 5 > ", folder_,
                                       "/server 2>&1; echo $? > ", folder_, "/server_code");
    const std::string worker =
        str_cat(common, "TRAINING_ROLE=TRAINER PADDLE_TRAINER_ID=0 ", worker_variables, " ",
                trainer, " --steps 5 ", worker_flags, " > ", folder_, "/worker 2>&1; echo $? > ",
                folder_, "/worker_code");
    const auto both = run_command("( " + server + " ) & ( " + worker + " ) & wait", 30);
    EXPECT_EQ(both.code, 0) << both.output;
    return {std::atoi(read("server_code").c_str()), std::atoi(read("worker_code").c_str()),
            read("server"), read("worker")};
  }

  std::string read(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  const std::string kSecret = "FLEET_JOB_SECRET=0123456789abcdef0123456789abcdef ";
  const std::string kOne = "PADDLE_TRAINERS_NUM=1 ";
  int port_ = fleet::testing::free_port();
  std::string folder_;
};

TEST_F(Refusals, ProcessesThatAgreeTrain) {
  const Pair pair = run(kSecret + kOne, kSecret + kOne);
  EXPECT_EQ(pair.server_code, 0) << pair.server;
  EXPECT_EQ(pair.worker_code, 0) << pair.worker;
}

TEST_F(Refusals, AnotherSecret) {
  const Pair pair = run(kSecret + kOne, "FLEET_JOB_SECRET=another-secret-of-this-job " + kOne);
  EXPECT_NE(pair.worker_code, 0) << pair.worker;
  EXPECT_NE(pair.server_code, 0) << pair.server;
  EXPECT_THAT(pair.worker, HasSubstr("secret"));
  EXPECT_THAT(pair.worker, Not(HasSubstr("another-secret-of-this-job")));
}

TEST_F(Refusals, NoSecretAtAll) {
  const Pair pair = run(kOne, kOne);
  EXPECT_NE(pair.worker_code, 0) << pair.worker;
  EXPECT_THAT(pair.worker, HasSubstr("FLEET_JOB_SECRET"));
  EXPECT_THAT(pair.worker, HasSubstr("fix:"));
}

TEST_F(Refusals, AnotherWorldSize) {
  const Pair pair = run(kSecret + kOne, kSecret + "PADDLE_TRAINERS_NUM=2 ");
  EXPECT_NE(pair.worker_code, 0) << pair.worker;
  EXPECT_THAT(pair.worker, HasSubstr("1"));
  EXPECT_THAT(pair.worker, HasSubstr("2"));
  EXPECT_THAT(pair.worker, HasSubstr("worker"));
}

TEST_F(Refusals, AnotherProgram) {
  const Pair pair = run(kSecret + kOne, kSecret + kOne, "--learning_rate 0.3");
  EXPECT_NE(pair.worker_code, 0) << pair.worker;
  EXPECT_THAT(pair.worker, HasSubstr("program"));
}

TEST_F(Refusals, AnotherJobOnTheSamePort) {
  const Pair pair =
      run(kSecret + kOne + "FLEET_JOB_ID=first ", kSecret + kOne + "FLEET_JOB_ID=second ");
  EXPECT_NE(pair.worker_code, 0) << pair.worker;
  EXPECT_THAT(pair.worker, HasSubstr("first"));
  EXPECT_THAT(pair.worker, HasSubstr("second"));
}

// One line each time for a server, however many lanes lead there.
TEST_F(Refusals, AServerThatNeverComesIsNamedMeanwhile) {
  const std::string trainer = fleet::testing::binary_path("bin/distributed_train");
  const auto worker =
      run_command(str_cat("env ", kSecret, kOne, "PADDLE_PSERVERS_IP_PORT_LIST=127.0.0.1:", port_,
                          " FLAGS_rpc_deadline=5000 TRAINING_ROLE=TRAINER PADDLE_TRAINER_ID=0 ",
                          trainer, " --steps 5 2>&1"),
                  30);
  EXPECT_NE(worker.code, 0) << worker.output;
  const std::string said = "not connected yet; trying again until the deadline peer=";
  const size_t first = worker.output.find(said);
  ASSERT_NE(first, std::string::npos) << worker.output;
  EXPECT_EQ(worker.output.find(said, first + 1), std::string::npos) << worker.output;
  EXPECT_THAT(worker.output.substr(first), HasSubstr(str_cat("127.0.0.1:", port_)));
}

TEST_F(Refusals, APortThatIsTaken) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int reuse = 1;  // the port is held without listening
  ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse), 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port_));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  const Pair pair = run(kSecret + kOne, kSecret + kOne);
  close(fd);
  EXPECT_NE(pair.server_code, 0);
  EXPECT_THAT(pair.server, HasSubstr(std::to_string(port_)));
  EXPECT_NE(pair.worker_code, 0);
}

}  // namespace
}  // namespace fleet
