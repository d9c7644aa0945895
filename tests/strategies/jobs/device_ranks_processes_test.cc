// Real processes of a collective job on emulated devices, which sum by a double of NCCL: they train
// to the bits of sums over host memory, and a rank that is lost or stands still is named by all
// others, none of which hangs.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <iterator>

#include "base/net/port_reservation.h"
#include "base/strings.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class DeviceRanksInProcesses : public ::testing::Test {
 protected:
  DeviceRanksInProcesses() {
    folder_ = ::testing::TempDir() + "device-ranks-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
  }
  ~DeviceRanksInProcesses() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  std::string output(int rank) const { return read(str_cat("out", rank)); }
  int code(int rank) const {
    return static_cast<int>(parse_int(trim(read(str_cat("code", rank)))).value_or(-1));
  }

  // Ranks without a launcher, which would end those that are left. False when not all end in time;
  // `lost` is killed when the others have ended.
  bool run(int ranks, const std::string& options, int lost = -1) {
    const std::string files = str_cat(folder_, "/files", runs_++);
    std::filesystem::create_directories(files);
    std::vector<std::string> endpoints;
    const PortReservation ports = PortReservation::any("127.0.0.1", ranks);
    for (const Endpoint& endpoint : ports.endpoints()) endpoints.push_back(endpoint.to_string());
    std::string script;
    std::string waits;
    for (int rank = 0; rank < ranks; ++rank) {
      script += str_cat(
          "{ env FLEET_HEARTBEAT_TIMEOUT_MS=2000 FLEET_HEARTBEAT_INTERVAL_MS=200 "
          "FLEET_STALL_DEADLINE_MS=4000 FLEET_STALL_REPORT_MS=1000 FLEET_COLLECTIVES=sockets ",
          environment_, " PADDLE_TRAINER_ENDPOINTS=", join(endpoints, ","),
          " PADDLE_CURRENT_ENDPOINT=", endpoints[static_cast<size_t>(rank)],
          " PADDLE_TRAINER_ID=", rank, " PADDLE_TRAINERS_NUM=", ranks, " TRAINING_ROLE=TRAINER ",
          binary_path("bin/device_rank_worker"), " --files ", files, " ", options, " > ",
          path("out"), rank, " 2>&1 & echo $! > ", path("pid"), rank, "; wait $!; echo $? > ",
          path("code"), rank, "; } & p", rank, "=$!; ");
      if (rank != lost) waits += str_cat("wait $p", rank, "; ");
    }
    if (lost >= 0) waits += str_cat("kill -KILL $(cat ", path("pid"), lost, "); ");
    return run_command(script + waits, 40).code != 124;
  }

  // How the ranks but `lost` end.
  void expect_named(int ranks, int lost) {
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == lost) continue;
      EXPECT_EQ(code(rank), 1) << output(rank);
      EXPECT_THAT(output(rank), ContainsRegex(str_cat("error: worker ", lost, " ")));
    }
    if (lost == 0) return;
    EXPECT_THAT(output(0), HasSubstr("gradients on devices are summed by NCCL"));
  }

  std::string folder_;
  std::string environment_;  // "NAME=value NAME=value"
  int runs_ = 0;
};

TEST_F(DeviceRanksInProcesses, TrainToTheBitsOfHostMemory) {
  const std::string ways[] = {"--device_sums host", "--device_sums ordered", "--communicators 3",
                              "--communicators 2 --groups 2"};
  for (size_t way = 0; way < std::size(ways); ++way) {
    ASSERT_TRUE(run(4, str_cat("--save ", path(str_cat("model", way)), " ", ways[way])));
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(code(rank), 0) << output(rank);
    EXPECT_EQ(output(0).find(" 0 bytes by the double") != std::string::npos, way == 0);
    EXPECT_EQ(read(str_cat("model", way, "/params.safetensors")), read("model0/params.safetensors"))
        << ways[way];
  }
  EXPECT_FALSE(read("model0/params.safetensors").empty());
}

TEST_F(DeviceRanksInProcesses, GiveNcclAKeyWhereAskedTo) {
  // By unix sockets: the test holds the ports.
  environment_ =
      "FLEET_TRANSPORT=unix FLEET_JOB_SECRET=a-secret-of-this-test FLEET_NCCL_ENCRYPTION=on";
  ASSERT_TRUE(run(2, ""));
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(code(rank), 0) << output(rank);
  EXPECT_THAT(output(0), HasSubstr("TCP sockets are encrypted by TLS"));
}

TEST_F(DeviceRanksInProcesses, HaveNoKeyForNcclWithoutASecret) {
  environment_ = "FLEET_TRANSPORT=unix FLEET_NCCL_ENCRYPTION=on";
  ASSERT_TRUE(run(2, ""));
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_NE(code(rank), 0);
    EXPECT_THAT(output(rank), AllOf(HasSubstr("FLEET_NCCL_ENCRYPTION"), HasSubstr("job's secret")));
  }
}

TEST_F(DeviceRanksInProcesses, NameARankThatIsKilledInsideOfNccl) {
  ASSERT_TRUE(run(3, "--trouble_at 5 --trouble_worker 1 --trouble kill"));
  EXPECT_EQ(code(1), 137);
  expect_named(3, 1);
}

TEST_F(DeviceRanksInProcesses, NameRankZeroThatIsKilledInsideOfNccl) {
  ASSERT_TRUE(run(3, "--trouble_at 5 --trouble_worker 0 --trouble kill"));
  expect_named(3, 0);
}

// Rank 0 waits for it among its group, ranks 2 and 3 for the sum of that group.
TEST_F(DeviceRanksInProcesses, NameARankOfAnotherGroup) {
  ASSERT_TRUE(run(4, "--trouble_at 5 --trouble_worker 1 --trouble kill --groups 2"));
  expect_named(4, 1);
}

TEST_F(DeviceRanksInProcesses, NameARankThatIsLostInFastSums) {
  ASSERT_TRUE(run(2, "--trouble_at 5 --trouble_worker 1 --trouble kill --device_sums fast"));
  expect_named(2, 1);
}

TEST_F(DeviceRanksInProcesses, NameARankThatIsStopped) {
  ASSERT_TRUE(run(3, "--trouble_at 5 --trouble_worker 2 --trouble stop --communicators 2", 2));
  expect_named(3, 2);
}

TEST_F(DeviceRanksInProcesses, NameARankWhoseCallDoesNotReturn) {
  ASSERT_TRUE(run(3, "--trouble_at 5 --trouble_worker 1 --trouble call --communicators 2", 1));
  expect_named(3, 1);
  EXPECT_THAT(output(0), ContainsRegex("worker 1.*has not advanced for [0-9]+ s"));
}

// All ranks wait for one operation, to which the device of one has not come. It ends as well.
TEST_F(DeviceRanksInProcesses, NameARankWhoseDeviceStandsStill) {
  ASSERT_TRUE(run(3, "--trouble_at 5 --trouble_worker 1 --trouble device --bucket_bytes 1"));
  expect_named(3, 1);
  EXPECT_THAT(output(0), ContainsRegex("worker 1 stood still in phase computing at step 5"));
  EXPECT_EQ(code(1), 1);
  EXPECT_THAT(output(1), HasSubstr("error: worker 1 stood still"));
}

}  // namespace
}  // namespace fleet::testing
