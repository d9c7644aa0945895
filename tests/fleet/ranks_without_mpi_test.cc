// Collective jobs over sockets: ranks that a launcher of Fleet's, torchrun's variables, Paddle's
// variables or arguments bring together, without MPI.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <iterator>
#include <map>

#include "base/net/port_reservation.h"
#include "base/strings.h"
#include "tests/fleet/torchrun.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class RanksWithoutMpi : public ::testing::Test {
 protected:
  RanksWithoutMpi() {
    folder_ = ::testing::TempDir() + "ranks-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
    // Open MPI's mpirun as root.
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  ~RanksWithoutMpi() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  std::string model(const std::string& name) const { return read(name + "/params.safetensors"); }
  static std::string worker() { return binary_path("bin/facade_worker"); }
  std::string launch(int ranks, const std::string& options) const {
    return str_cat(binary_path("bin/launch"), " --nproc_per_node ", ranks, " --log_dir ",
                   path("logs"), " ", options, " ", worker(), " --steps 40 --save ");
  }

  // Processes side by side, each with its variables; all must end well. The output of each.
  std::vector<std::string> run_together(const std::vector<std::string>& commands) {
    std::string script;
    for (size_t i = 0; i < commands.size(); ++i) {
      script += str_cat("{ ", commands[i], " > ", path("out"), i, " 2>&1; echo $? > ", path("code"),
                        i, "; } & ");
    }
    const auto result = run_command(script + "wait", 60);
    EXPECT_EQ(result.code, 0) << result.output;
    std::vector<std::string> outputs;
    for (size_t i = 0; i < commands.size(); ++i) {
      outputs.push_back(read(str_cat("out", i)));
      codes_.push_back(static_cast<int>(parse_int(trim(read(str_cat("code", i)))).value_or(-1)));
    }
    return outputs;
  }

  // Two ranks as torchrun starts them, with some more variables.
  static std::vector<std::string> torchrun(const std::string& variables, const Endpoint& master,
                                           const std::string& save) {
    std::vector<std::string> commands;
    commands.reserve(2);
    for (int rank = 0; rank < 2; ++rank) {
      commands.push_back(str_cat(
          "env ", variables, "RANK=", rank, " WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 LOCAL_RANK=", rank,
          " MASTER_ADDR=", master.host, " MASTER_PORT=", master.port, " TORCHELASTIC_RUN_ID=none ",
          worker(), " --steps 40 --save ", save));
    }
    return commands;
  }

  static std::vector<std::string> free_endpoints(int count) {
    std::vector<std::string> texts;
    const PortReservation ports = PortReservation::any("127.0.0.1", count);
    for (const Endpoint& endpoint : ports.endpoints()) texts.push_back(endpoint.to_string());
    return texts;
  }
  static std::string paddle(const std::vector<std::string>& endpoints, size_t rank) {
    return str_cat("env PADDLE_TRAINER_ENDPOINTS=", join(endpoints, ","),
                   " PADDLE_CURRENT_ENDPOINT=", endpoints[rank], " PADDLE_TRAINER_ID=", rank,
                   " PADDLE_TRAINERS_NUM=", endpoints.size(), " TRAINING_ROLE=TRAINER ");
  }

  std::string folder_;
  std::vector<int> codes_;
};

TEST_F(RanksWithoutMpi, TrainToTheBitsOfThoseOverMpi) {
  for (const int ranks : {2, 3, 4}) {
    for (const char* way : {"mpi", "sockets"}) {
      const auto result =
          run_command(launch(ranks, str_cat("--collectives ", way)) + path(way), 60);
      ASSERT_EQ(result.code, 0) << result.output << read("logs/workerlog.0");
    }
    EXPECT_EQ(model("mpi"), model("sockets")) << ranks << " ranks";
    EXPECT_THAT(read("logs/workerlog.0"), HasSubstr("tensors travel through shared memory"));
  }
}

TEST_F(RanksWithoutMpi, TrainToTheSameBitsInSharedMemoryOverTcpAndOverUnixSockets) {
  // Files may not be as large as what ranks share: then over Unix sockets.
  const std::map<std::string, std::string> ways = {
      {"shared", ""}, {"tcp", "FLEET_TRANSPORT=tcp "}, {"unix", "ulimit -f 500; "}};
  for (const auto& [name, before] : ways) {
    const auto result =
        run_command(str_cat(before, launch(3, "--collectives sockets"), path(name)), 60);
    ASSERT_EQ(result.code, 0) << result.output << read("logs/workerlog.0");
    const bool refused = name == "unix";
    const std::string log = read("logs/workerlog.0");
    EXPECT_EQ(log.find("ranks do not share memory") != std::string::npos, refused) << log;
  }
  EXPECT_EQ(model("shared"), model("tcp"));
  EXPECT_EQ(model("shared"), model("unix"));
}

TEST_F(RanksWithoutMpi, AverageNowAndThen) {
  for (const char* way : {"mpi", "sockets"}) {
    const auto result = run_command(
        str_cat(launch(2, str_cat("--collectives ", way)), path(way), " --strategy local_sgd"), 60);
    ASSERT_EQ(result.code, 0) << result.output << read("logs/workerlog.0");
  }
  EXPECT_EQ(model("mpi"), model("sockets"));
}

TEST_F(RanksWithoutMpi, MeetByPaddlesVariables) {
  const auto endpoints = free_endpoints(2);
  std::vector<std::string> commands;
  commands.reserve(2);
  for (size_t rank = 0; rank < endpoints.size(); ++rank) {
    commands.push_back(
        str_cat(paddle(endpoints, rank), worker(), " --steps 40 --save ", path("paddle")));
  }
  const auto outputs = run_together(commands);
  EXPECT_THAT(codes_, ::testing::Each(0)) << join(outputs, "\n");
  ASSERT_EQ(run_command(launch(2, "--collectives sockets") + path("launch"), 60).code, 0);
  EXPECT_EQ(model("paddle"), model("launch"));
}

TEST_F(RanksWithoutMpi, MeetByArguments) {
  const auto endpoints = free_endpoints(2);
  std::vector<std::string> commands;
  commands.reserve(2);
  for (size_t rank = 0; rank < endpoints.size(); ++rank) {
    commands.push_back(str_cat(worker(), " --endpoints ", join(endpoints, ","), " --rank ", rank,
                               " --steps 40 --save ", path("arguments")));
  }
  const auto outputs = run_together(commands);
  EXPECT_THAT(codes_, ::testing::Each(0)) << join(outputs, "\n");
  ASSERT_EQ(run_command(launch(2, "--collectives sockets") + path("launch"), 60).code, 0);
  EXPECT_EQ(model("arguments"), model("launch"));
}

TEST_F(RanksWithoutMpi, MeetByTorchrunsVariables) {
  // torchrun holds MASTER_PORT itself.
  const PortReservation held = PortReservation::any("127.0.0.1", 1);
  const auto outputs = run_together(torchrun("", held.endpoints()[0], path("torchrun")));
  EXPECT_THAT(codes_, ::testing::Each(0)) << join(outputs, "\n");
  ASSERT_EQ(run_command(launch(2, "--collectives sockets") + path("launch"), 60).code, 0);
  EXPECT_EQ(model("torchrun"), model("launch"));
}

TEST_F(RanksWithoutMpi, AreStartedByTorchrunItself) {
  const std::string program = torchrun_program();
  if (program.empty()) GTEST_SKIP() << "PyTorch's torchrun is not installed";
  for (const char* options :
       {"--master-port 0", "--standalone", "--rdzv-backend c10d --rdzv-endpoint localhost:0"}) {
    std::string agent = options;
    if (agent == "--master-port 0") {
      const PortReservation port = PortReservation::any("127.0.0.1", 1);
      agent = str_cat("--master-port ", port.endpoints()[0].port);
    }
    const auto result = run_command(str_cat(program, " ", agent, " --nproc-per-node 2 --no-python ",
                                            worker(), " --steps 40 --save ", path("by_torchrun")),
                                    100);
    ASSERT_EQ(result.code, 0) << options << "\n" << result.output;
    ASSERT_EQ(run_command(launch(2, "--collectives sockets") + path("launch"), 60).code, 0);
    EXPECT_EQ(model("by_torchrun"), model("launch")) << options;
  }
}

TEST_F(RanksWithoutMpi, ListenAtTheChosenInterface) {
  const PortReservation held = PortReservation::any("127.0.0.1", 1);
  const Endpoint& master = held.endpoints()[0];
  const auto outputs =
      run_together(torchrun("FLEET_TRANSPORT=tcp FLEET_SOCKET_IFNAME=lo ", master, path("chosen")));
  EXPECT_THAT(codes_, ::testing::Each(0)) << join(outputs, "\n");
  EXPECT_THAT(outputs[0], HasSubstr("listens=127.0.0.1:"));
  codes_.clear();
  const auto refused = run_together(
      torchrun("FLAGS_rpc_deadline=3000 FLEET_SOCKET_IFNAME=none0 ", master, path("refused")));
  EXPECT_THAT(codes_, ::testing::Each(::testing::Ne(0)));
  for (const std::string& output : refused) {
    EXPECT_THAT(output, AllOf(HasSubstr("FLEET_SOCKET_IFNAME"), HasSubstr("got: none0"),
                              HasSubstr("lo (127.0.0.1)")));
  }
}

TEST_F(RanksWithoutMpi, WithAnotherSecretAreRefused) {
  const auto endpoints = free_endpoints(2);
  std::vector<std::string> commands;
  commands.reserve(2);
  for (size_t rank = 0; rank < endpoints.size(); ++rank) {
    commands.push_back(str_cat("FLAGS_rpc_deadline=3000 FLEET_JOB_SECRET=the-secret-of-rank-", rank,
                               " ", paddle(endpoints, rank), worker(), " --steps 5"));
  }
  const auto outputs = run_together(commands);
  EXPECT_THAT(codes_, ::testing::Each(::testing::Ne(0)));
  EXPECT_THAT(outputs[1], HasSubstr("secret")) << outputs[0];
}

TEST_F(RanksWithoutMpi, ThatDoNotComeAreNamed) {
  const auto endpoints = free_endpoints(2);
  const auto outputs = run_together(
      {str_cat("FLAGS_rpc_deadline=2000 ", paddle(endpoints, 0), worker(), " --steps 5")});
  EXPECT_NE(codes_[0], 0);
  EXPECT_THAT(outputs[0], HasSubstr("worker 1"));
}

TEST_F(RanksWithoutMpi, OfWhichOneComesLateWaitForIt) {
  const auto endpoints = free_endpoints(2);
  const auto outputs = run_together({paddle(endpoints, 0) + worker() + " --steps 5",
                                     "sleep 1; " + paddle(endpoints, 1) + worker() + " --steps 5"});
  EXPECT_THAT(codes_, ::testing::Each(0)) << join(outputs, "\n");
}

TEST_F(RanksWithoutMpi, WhosePortIsTakenSayWhichOne) {
  const auto endpoints = free_endpoints(2);
  const PortReservation taken =
      PortReservation::of({Endpoint::parse(endpoints[0], "test").value()}, "test");
  const auto outputs = run_together({str_cat("FLEET_TRANSPORT=tcp FLEET_INSECURE=1 ",
                                             paddle(endpoints, 0), worker(), " --steps 5")});
  EXPECT_NE(codes_[0], 0);
  EXPECT_THAT(outputs[0], HasSubstr(endpoints[0]));
}

TEST_F(RanksWithoutMpi, AWordForTheBackEndThatIsUnknownIsRefused) {
  const auto launched =
      run_command(binary_path("bin/launch") + " --collectives socket " + worker(), 20);
  EXPECT_EQ(launched.code, 2);
  EXPECT_THAT(launched.output, AllOf(HasSubstr("--collectives"), HasSubstr("\'sockets\'")));
  const auto endpoints = free_endpoints(1);
  const auto alone = run_command(
      str_cat("FLEET_COLLECTIVES=gloo ", paddle(endpoints, 0), worker(), " --steps 1"), 20);
  EXPECT_NE(alone.code, 0);
  EXPECT_THAT(alone.output,
              AllOf(HasSubstr("FLEET_COLLECTIVES"), HasSubstr("auto, mpi or sockets")));
}

}  // namespace
}  // namespace fleet::testing
