// launch_ps over two hosts. Skipped where they cannot be made.
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <thread>

#include "base/strings.h"
#include "tests/fleet/two_hosts.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet::testing {
namespace {

class Hosts : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "hosts-XXXXXX";
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

  // The launcher of one host.
  std::string launcher(int host, const std::string& options) const {
    return str_cat(TwoHosts::on(host), "env FLEET_JOB_SECRET=a-secret-of-two-hosts-in-a-test ",
                   binary_path("bin/launch_ps"), " --cluster_node_ips ", hosts_.address(0), ",",
                   hosts_.address(1), " --node_ip ", hosts_.address(host), " ", options,
                   " --log_dir ", path(str_cat("logs", host)), " ");
  }
  // The same options and trainer on both hosts; the exit codes.
  std::pair<int, int> run_on_both(const std::string& options, const std::string& trainer) {
    CommandResult second;
    std::thread other([&] { second = run_command(launcher(1, options) + trainer, 60); });
    const CommandResult first = run_command(launcher(0, options) + trainer, 60);
    other.join();
    EXPECT_EQ(first.code, 0) << first.output;
    EXPECT_EQ(second.code, 0) << second.output;
    return {first.code, second.code};
  }
  static std::string trainer() {
    return binary_path("bin/distributed_train") + " --steps 40 --shards 3 --batch_size 48 ";
  }

  TwoHosts hosts_;
  std::string folder_;
};

TEST_F(Hosts, TrainAsOneMachineDoes) {
  ASSERT_EQ(run_command(binary_path("bin/local_trainer") +
                        " --steps 40 --shards 3 --batch_size 48 --model_dir " + path("local"))
                .code,
            0);
  const std::string alone = read("local/params.safetensors");
  ASSERT_FALSE(alone.empty());
  run_on_both("--worker_num 3 --server_num 2", trainer() + "--model_dir " + path("ports"));
  EXPECT_TRUE(read("ports/params.safetensors") == alone);
  // Workers are assigned in order, the first host gets one more.
  EXPECT_TRUE(std::filesystem::exists(path("logs0/workerlog.1")));
  EXPECT_TRUE(std::filesystem::exists(path("logs1/workerlog.2")));
  run_on_both(str_cat("--worker_num 3 --endpoints ", hosts_.address(1), ":7301,", hosts_.address(0),
                      ":7301,", hosts_.address(1), ":7302"),
              trainer() + "--model_dir " + path("endpoints"));
  EXPECT_TRUE(read("endpoints/params.safetensors") == alone);
}

// A process of another host may come back, unless its launcher knows that it has ended.
TEST_F(Hosts, AKilledProcessOfAnotherHostIsNamedAtOnce) {
  for (const char* kind : {"", "FLEET_FRAME_ENCRYPTION=on "}) {
    CommandResult second;
    const std::string options = "--worker_num 2 --server_num 1";
    const std::string job =
        str_cat(binary_path("bin/facade_worker"),
                " --strategy sync --sleep_ms 1 --steps 100000 --leave_worker 1 --leave_at 20 "
                "--leave_by kill");
    const auto grace = str_cat("env FLEET_RECONNECT_GRACE_MS=40000 ", kind);
    const auto begin = std::chrono::steady_clock::now();
    std::thread other([&] { second = run_command(str_cat(grace, launcher(1, options), job), 60); });
    const CommandResult first = run_command(str_cat(grace, launcher(0, options), job), 60);
    other.join();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
    EXPECT_EQ(first.code, 1) << first.output;
    EXPECT_EQ(second.code, 1) << second.output;
    EXPECT_NE(second.output.find("worker 1 (pid "), std::string::npos) << second.output;
    EXPECT_NE(read("logs0/serverlog.0").find("its launcher says that it was killed by SIGKILL"),
              std::string::npos)
        << read("logs0/serverlog.0");
    EXPECT_NE(first.output.find("worker 1 was lost in phase"), std::string::npos) << first.output;
  }
}

TEST_F(Hosts, TrainWithoutACommonStep) {
  run_on_both("--worker_num 2 --server_num 2",
              binary_path("bin/distributed_train") + " --steps 100 --strategy async");
}

}  // namespace
}  // namespace fleet::testing
