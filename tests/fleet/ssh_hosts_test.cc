// launch --hosts: one command starts a job on two hosts over ssh. The hosts are network namespaces,
// reached over sshd where it is installed, and over a stand-in for ssh. Skipped where namespaces
// cannot be made.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <iterator>
#include <thread>

#include "base/strings.h"
#include "tests/fleet/two_hosts.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSshd = "/usr/sbin/sshd";

struct Way {
  bool real = false;  // sshd and ssh
  bool ipv6 = false;
};

class SshHosts : public ::testing::TestWithParam<Way> {
 protected:
  SshHosts() : hosts_(GetParam().ipv6) {}

  void SetUp() override {
    folder_ = ::testing::TempDir() + "ssh-hosts-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    if (!hosts_.problem().empty()) GTEST_SKIP() << hosts_.problem();
    if (!GetParam().real) return stand_in();
    if (!std::filesystem::exists(kSshd)) GTEST_SKIP() << kSshd << " is not installed";
    start_sshd();
  }
  void TearDown() override {
    run_command(str_cat("kill $(cat ", path("sshd0.pid"), " ", path("sshd1.pid"), ")"), 10);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  std::string model(const std::string& name) const { return read(name + "/params.safetensors"); }

  // Enters the namespace, and writes down what it was told.
  void stand_in() {
    std::ofstream script(path("ssh"));
    script << "#!/bin/sh\n"
           << "echo \"$*\" >> " << path("told") << "\n"
           << "case $1 in " << hosts_.address(0) << ") shift; exec " << TwoHosts::on(0)
           << "sh -c \"$*\";; esac\n"
           << "shift; exec " << TwoHosts::on(1) << "sh -c \"$*\"\n";
    script.close();
    std::filesystem::permissions(path("ssh"), std::filesystem::perms::owner_all);
    ssh_ = path("ssh");
  }
  void start_sshd() {
    const auto keys =
        run_command(str_cat("mkdir -p /run/sshd && ssh-keygen -q -t ed25519 -N \"\" -f ",
                            path("host"), " && ssh-keygen -q -t ed25519 -N \"\" -f ", path("user"),
                            " && cp ", path("user.pub"), " ", path("authorized")),
                    20);
    ASSERT_EQ(keys.code, 0) << keys.output;
    for (int host = 0; host < 2; ++host) {
      const auto started = run_command(
          str_cat(TwoHosts::on(host), kSshd, " -p 2222 -h ", path("host"), " -f /dev/null",
                  " -o StrictModes=no -o AuthorizedKeysFile=", path("authorized"),
                  " -o PidFile=", path(str_cat("sshd", host, ".pid"))),
          20);
      ASSERT_EQ(started.code, 0) << started.output;
    }
    ssh_ = str_cat("ssh -p 2222 -i ", path("user"),
                   " -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
                   " -o LogLevel=ERROR");
  }

  std::string both() const { return str_cat(hosts_.address(0), ",", hosts_.address(1)); }
  // From the first host.
  std::string command(const std::string& launcher, const std::string& options,
                      const std::string& job) const {
    return str_cat("cd ", folder_, " && exec ", TwoHosts::on(0), binary_path("bin/" + launcher),
                   " --hosts ", both(), " --ssh \"", ssh_, "\" --log_dir ", path("logs"), " ",
                   options, " ", binary_path("bin/facade_worker"), " ", job);
  }
  std::string endless() const {
    return str_cat("--sleep_ms 1 --steps 100000 --save ", path("endless"));
  }
  bool anything_runs() const {
    return run_command(str_cat("pgrep -f \"[-]-save ", path("endless"), "\""), 10).code == 0;
  }
  // Of the job that endless() is.
  bool wait_until_it(bool runs, int seconds) const {
    for (int i = 0; i < 10 * seconds; ++i) {
      if (anything_runs() == runs) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  }

  TwoHosts hosts_;
  std::string folder_;
  std::string ssh_;
};
std::string way_name(const ::testing::TestParamInfo<Way>& way) {
  return str_cat(way.param.real ? "Sshd" : "StandIn", way.param.ipv6 ? "Ipv6" : "Ipv4");
}
class SshCommandLines : public SshHosts {};
INSTANTIATE_TEST_SUITE_P(Over, SshCommandLines, ::testing::Values(Way{}, Way{.ipv6 = true}),
                         way_name);
INSTANTIATE_TEST_SUITE_P(Over, SshHosts,
                         ::testing::Values(Way{}, Way{.ipv6 = true}, Way{.real = true},
                                           Way{.real = true, .ipv6 = true}),
                         way_name);

TEST_P(SshHosts, OneCommandTrainsOnBoth) {
  const auto result = run_command(
      command("launch", "--nproc_per_node 2", str_cat("--steps 40 --save ", path("two"))), 60);
  ASSERT_EQ(result.code, 0) << result.output;
  for (int host = 0; host < 2; ++host) {
    EXPECT_THAT(result.output,
                HasSubstr(str_cat("[", hosts_.address(host), "] launch: ended well")));
  }
  const auto alone = run_command(
      str_cat(binary_path("bin/launch"), " --collectives sockets --nproc_per_node 4 --log_dir ",
              path("logs-alone"), " ", binary_path("bin/facade_worker"), " --steps 40 --save ",
              path("alone")),
      60);
  ASSERT_EQ(alone.code, 0) << alone.output;
  ASSERT_FALSE(model("alone").empty());
  EXPECT_TRUE(model("two") == model("alone"));
}

TEST_P(SshHosts, ServersAndWorkersStartOnBoth) {
  const auto result =
      run_command(command("launch_ps", "--worker_num 2 --server_num 2 --start_port 7700 --json",
                          "--strategy sync --steps 40"),
                  60);
  ASSERT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("\n{"));
  for (const char* log : {"workerlog.0", "workerlog.1", "serverlog.0", "serverlog.1"}) {
    EXPECT_TRUE(std::filesystem::exists(path(str_cat("logs/", log)))) << log;
  }
}

TEST_P(SshHosts, ARankThatIsKilledEndsAllAndIsNamed) {
  const auto begin = std::chrono::steady_clock::now();
  const auto result =
      run_command(command("launch", "--nproc_per_node 1",
                          endless() + " --leave_worker 1 --leave_at 20 --leave_by kill"),
                  60);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_EQ(result.code, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("worker 1 (pid "));
  EXPECT_THAT(result.output, HasSubstr("launch: failed: worker 1 was killed by SIGKILL"));
  EXPECT_TRUE(wait_until_it(false, 10));
}

// Ctrl-C, and the launcher's own sudden end: nothing stays on any host.
TEST_P(SshHosts, NothingStaysWhenTheLauncherEnds) {
  for (const int signal : {SIGINT, SIGKILL}) {
    CommandResult result;
    std::thread job([&] { result = run_command(command("launch", "", endless()), 60); });
    ASSERT_TRUE(wait_until_it(true, 20));
    std::this_thread::sleep_for(std::chrono::seconds(1));
    run_command(str_cat("pkill -", signal, " -f \"[l]aunch --hosts.*", path("endless"), "\""), 10);
    job.join();
    EXPECT_NE(result.code, 0);
    if (signal == SIGINT) {
      EXPECT_THAT(result.output, HasSubstr("SIGINT: ending the job on 2 hosts"));
    }
    EXPECT_TRUE(wait_until_it(false, 15)) << result.output;
  }
}

// The stand-in writes down what it is told.
TEST_P(SshCommandLines, HaveNoSecret) {
  const std::string secret = "a-secret-of-two-hosts-in-a-test";
  const auto result = run_command(
      "export FLEET_JOB_SECRET=" + secret + "; " + command("launch", "", "--steps 5"), 60);
  ASSERT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(read("told"), HasSubstr("--orders_from_stdin"));
  EXPECT_THAT(read("told"), Not(HasSubstr(secret)));
}

TEST_P(SshHosts, AHostThatCannotBeReachedIsNamed) {
  if (!GetParam().real) run_command(str_cat("printf \"exit 255\\n\" > ", path("refuse")), 10);
  const auto result = run_command(
      str_cat(TwoHosts::on(0), binary_path("bin/launch"), " --heartbeat_timeout 1 --hosts ",
              hosts_.address(0), ",nowhere.invalid --ssh \"",
              GetParam().real ? ssh_ : str_cat("sh ", path("refuse")), "\" --log_dir ",
              path("logs"), " ", binary_path("bin/facade_worker"), " --steps 5"),
      60);
  EXPECT_EQ(result.code, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("ssh to host "));
}

}  // namespace
}  // namespace fleet::testing
