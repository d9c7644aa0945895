// launch over two hosts: ranks over sockets. Skipped where two hosts cannot be made.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <iterator>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "tests/fleet/torchrun.h"
#include "tests/fleet/two_hosts.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr const char* kSecret = "FLEET_JOB_SECRET=a-secret-of-two-hosts-in-a-test ";

struct Outcome {
  CommandResult hosts[2];
};

// The parameter: whether hosts have addresses of IPv6 only.
class RankHosts : public ::testing::TestWithParam<bool> {
 protected:
  RankHosts() : hosts_(GetParam()) {}
  void SetUp() override {
    folder_ = ::testing::TempDir() + "rank-hosts-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    if (!hosts_.problem().empty()) GTEST_SKIP() << hosts_.problem();
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  std::string model(const std::string& name) const { return read(name + "/params.safetensors"); }

  // Paddle's spelling, and torchrun's.
  std::string by_list(int host) const {
    return str_cat(" --cluster_node_ips ", hosts_.address(0), ",", hosts_.address(1), " --node_ip ",
                   hosts_.address(host), " --started_port 7400");
  }
  std::string by_number(int host) const {
    return str_cat(" --nnodes 2 --node-rank=", host, " --master-addr ", hosts_.address(0),
                   " --master-port 7500");
  }
  std::string launcher(int host, const std::string& variables, const std::string& options) const {
    return str_cat(TwoHosts::on(host), "env ", variables, binary_path("bin/launch"), options,
                   " --nproc-per-node 2 --log_dir ", path(str_cat("logs", host)), " ",
                   binary_path("bin/facade_worker"), " ");
  }

  static Outcome run_on_both(const std::string& first, const std::string& second) {
    Outcome outcome;
    std::thread other([&] { outcome.hosts[1] = run_command(second, 60); });
    outcome.hosts[0] = run_command(first, 60);
    other.join();
    return outcome;
  }
  static bool becomes(const std::function<bool()>& condition) {
    for (int i = 0; i < 300; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  }
  // Four ranks must train to the parameters of four on one host.
  void expect_trained(const Outcome& outcome, const std::string& name) {
    for (int host = 0; host < 2; ++host) {
      EXPECT_EQ(outcome.hosts[host].code, 0)
          << outcome.hosts[host].output << read(str_cat("logs", host, "/workerlog.", 2 * host));
    }
    const auto alone = run_command(
        str_cat(binary_path("bin/launch"), " --collectives sockets --nproc_per_node 4 --log_dir ",
                path("logs"), " ", binary_path("bin/facade_worker"), " --steps 40 --save ",
                path("alone")),
        60);
    ASSERT_EQ(alone.code, 0) << alone.output;
    ASSERT_FALSE(model("alone").empty());
    EXPECT_TRUE(model(name) == model("alone"));
  }

  TwoHosts hosts_;
  std::string folder_;
};
INSTANTIATE_TEST_SUITE_P(Over, RankHosts, ::testing::Bool(),
                         [](const auto& ipv6) { return ipv6.param ? "Ipv6" : "Ipv4"; });

TEST_P(RankHosts, TrainAsOneHostDoes) {
  const std::string job = str_cat("--steps 40 --save ", path("list"));
  expect_trained(
      run_on_both(launcher(0, kSecret, by_list(0)) + job, launcher(1, kSecret, by_list(1)) + job),
      "list");
  EXPECT_TRUE(std::filesystem::exists(path("logs0/workerlog.1")));
  EXPECT_TRUE(std::filesystem::exists(path("logs1/workerlog.3")));
}

TEST_P(RankHosts, MeetByNodeNumbers) {
  const std::string job = str_cat("--steps 40 --save ", path("numbers"));
  expect_trained(run_on_both(launcher(0, kSecret, by_number(0)) + job,
                             launcher(1, kSecret, by_number(1)) + job),
                 "numbers");
}

TEST_P(RankHosts, MeetByVariablesOfSchedulers) {
  const std::string job = str_cat("--steps 40 --save ", path("scheduled"));
  const auto kubeflow = [&](int host) {
    return str_cat(kSecret, "PET_NNODES=2 PET_NODE_RANK=", host,
                   " PET_MASTER_ADDR=", hosts_.address(0), " PET_MASTER_PORT=7600 ");
  };
  expect_trained(
      run_on_both(launcher(0, kubeflow(0), "") + job, launcher(1, kubeflow(1), "") + job),
      "scheduled");
  const auto sky = [&](int host) {
    return str_cat(kSecret, "SKYPILOT_NUM_NODES=2 SKYPILOT_NODE_RANK=", host,
                   " SKYPILOT_NODE_IPS=\"$(printf \"", hosts_.address(0), "\\n", hosts_.address(1),
                   "\")\" ");
  };
  expect_trained(run_on_both(launcher(0, sky(0), "") + job, launcher(1, sky(1), "") + job),
                 "scheduled");
}

TEST_P(RankHosts, AreStartedByTorchrunItself) {
  const std::string program = torchrun_program();
  if (program.empty()) GTEST_SKIP() << "PyTorch's torchrun is not installed";
  const auto agent = [&](int host) {
    return str_cat(TwoHosts::on(host), "env ", kSecret, program, " --nnodes 2 --node-rank ", host,
                   " --master-addr ", hosts_.address(0),
                   " --master-port 7800 --nproc-per-node 2 --no-python ",
                   binary_path("bin/facade_worker"), " --steps 40 --save ", path("torchrun"));
  };
  expect_trained(run_on_both(agent(0), agent(1)), "torchrun");
}

TEST_P(RankHosts, AKilledRankOfAnotherHostIsNamedOnBoth) {
  const std::string job =
      "--sleep_ms 1 --steps 100000 --leave_worker 3 --leave_at 20 "
      "--leave_by kill";
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome =
      run_on_both(launcher(0, kSecret, by_list(0)) + job, launcher(1, kSecret, by_list(1)) + job);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_EQ(outcome.hosts[0].code, 1) << outcome.hosts[0].output;
  EXPECT_EQ(outcome.hosts[1].code, 1) << outcome.hosts[1].output;
  EXPECT_THAT(outcome.hosts[1].output, HasSubstr("worker 3 (pid ")) << outcome.hosts[1].output;
  EXPECT_THAT(outcome.hosts[0].output,
              AnyOf(HasSubstr("worker 3 was lost in phase"), HasSubstr("rank 3 was lost")));
}

// A link that is down forgets its addresses of IPv6.
class CutOffHosts : public RankHosts {};
INSTANTIATE_TEST_SUITE_P(Over, CutOffHosts, ::testing::Values(false));

TEST_P(CutOffHosts, AreTakenInAgain) {
  const std::string job = str_cat("--sleep_ms 1 --steps 100000 --save ", path("endless"));
  const std::string options = " --max_restarts 3 --heartbeat_timeout 2 --launcher_port 7390";
  const auto has_begun_again = [this] {
    return read("logs1/workerlog.2").find("== attempt 2 of 4") != std::string::npos;
  };
  Outcome outcome;
  std::vector<std::thread> launchers;
  launchers.reserve(2);
  for (int host = 0; host < 2; ++host) {
    launchers.emplace_back([&, host] {
      outcome.hosts[host] = run_command(str_cat(launcher(host, kSecret, by_list(host) + options),
                                                job, " > ", path(str_cat("said", host)), " 2>&1"),
                                        60);
    });
  }
  const auto says = [this](int host, const char* text) {
    return becomes(
        [=, this] { return read(str_cat("said", host)).find(text) != std::string::npos; });
  };
  const auto link = [](const char* state) {
    return run_command(str_cat(TwoHosts::on(1), "ip link set ", TwoHosts::link(1), " ", state))
        .code;
  };
  EXPECT_TRUE(becomes([this] { return std::filesystem::exists(path("logs1/workerlog.3")); }));
  EXPECT_EQ(link("down"), 0);
  EXPECT_TRUE(says(0, "waits for host ")) << read("said0");
  EXPECT_TRUE(says(1, "the launcher of the first node was lost: "));
  EXPECT_EQ(link("up"), 0);
  EXPECT_TRUE(becomes(has_begun_again)) << read("said0");
  run_command(str_cat("pkill -TERM -f \"[l]aunch --cluster_node_ips.*--node_ip ", hosts_.address(0),
                      " .*", path("endless"), "\""));
  for (std::thread& thread : launchers) thread.join();
  for (int host = 0; host < 2; ++host) {
    EXPECT_EQ(outcome.hosts[host].code, 128 + SIGTERM) << read(str_cat("said", host));
  }
}

TEST_P(RankHosts, NeedASecret) {
  const auto result = run_command(launcher(0, "", by_number(0)) + "--steps 5", 20);
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.output, HasSubstr("openssl rand -hex 32 > job.secret"));
}

// Each on an interface of its own choice: one names loopback.
TEST_P(RankHosts, ThatListenOutOfReachAreNamed) {
  const std::string lo = "FLAGS_rpc_deadline=5000 FLEET_SOCKET_IFNAME=lo ";
  const Outcome outcome = run_on_both(
      launcher(0, str_cat(kSecret, "FLEET_SOCKET_IFNAME=", TwoHosts::link(0), " "), by_number(0)) +
          "--steps 5",
      launcher(1, kSecret + lo, by_number(1)) + "--steps 5");
  EXPECT_NE(outcome.hosts[0].code, 0);
  EXPECT_NE(outcome.hosts[1].code, 0);
  EXPECT_THAT(outcome.hosts[0].output, HasSubstr("do not agree about their network"));
  EXPECT_THAT(outcome.hosts[0].output, HasSubstr("FLEET_SOCKET_IFNAME"));
}

}  // namespace
}  // namespace fleet::testing
