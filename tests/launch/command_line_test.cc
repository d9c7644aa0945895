#include "launch/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/launch/launcher_process.h"

namespace fleet::launch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

CommandLine parse_ps(const std::vector<std::string>& arguments) {
  return parse_command_line(Launcher::kParameterServer, arguments, Environment());
}

std::string refusal(Launcher launcher, const std::vector<std::string>& arguments) {
  try {
    parse_command_line(launcher, arguments, Environment());
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(CommandLine, OwnOptionsEndAtTheProgram) {
  const CommandLine line =
      parse_ps({"--worker_num", "3", "--server_num=1", "--tee", "prog", "--worker_num", "9"});
  EXPECT_EQ(line.workers, 3);
  EXPECT_EQ(line.servers, 1);
  EXPECT_TRUE(line.supervision.tee);
  EXPECT_THAT(line.command, ElementsAre("prog", "--worker_num", "9"));
}

TEST(CommandLine, TwoDashesEndTheOwnOptions) {
  EXPECT_THAT(parse_ps({"--tee", "--", "--odd", "--"}).command, ElementsAre("--odd", "--"));
}

TEST(CommandLine, DefaultsAreTwoAndTwo) {
  const CommandLine line = parse_ps({"prog"});
  EXPECT_EQ(line.workers, 2);
  EXPECT_EQ(line.servers, 2);
  EXPECT_EQ(line.log_dir, "logs");
  EXPECT_FALSE(line.start_port.has_value());
}

TEST(CommandLine, AnUnknownOptionNamesTheNearest) {
  EXPECT_THAT(refusal(Launcher::kParameterServer, {"--worker_nun", "2", "prog"}),
              AllOf(HasSubstr("'--worker_nun'"), HasSubstr("did you mean '--worker_num'")));
  EXPECT_THAT(refusal(Launcher::kCollective, {"--nproc_per_nod=2", "prog"}),
              HasSubstr("did you mean '--nproc_per_node'"));
}

TEST(CommandLine, AbbreviationsAreNotGuessed) {
  EXPECT_THAT(refusal(Launcher::kParameterServer, {"--worker=2", "prog"}), HasSubstr("unknown"));
}

TEST(CommandLine, WrongValuesAreRefused) {
  const auto ps = Launcher::kParameterServer;
  EXPECT_THAT(refusal(ps, {"--worker_num", "0", "prog"}), HasSubstr("--worker_num"));
  EXPECT_THAT(refusal(ps, {"--worker_num", "two", "prog"}), HasSubstr("two"));
  EXPECT_THAT(refusal(ps, {"--start_port", "65535", "prog"}), HasSubstr("--start_port"));
  EXPECT_THAT(refusal(ps, {"--endpoints", "a:1,b:2", "--server_num", "3", "prog"}),
              HasSubstr("disagree"));
  EXPECT_THAT(refusal(ps, {"--endpoints", "a:1", "--start_port", "9", "prog"}),
              HasSubstr("exclude"));
  EXPECT_THAT(refusal(ps, {"--on_nonfinite", "halt", "prog"}), HasSubstr("stop or warn"));
  EXPECT_THAT(refusal(ps, {"--worker_num", "2"}), HasSubstr("no program"));
  EXPECT_THAT(refusal(ps, {}), HasSubstr("no program"));
  EXPECT_THAT(refusal(ps, {"-x", "prog"}), HasSubstr("unknown option '-x'"));
}

TEST(CommandLine, EndpointsAndGpusGiveTheCounts) {
  EXPECT_EQ(parse_ps({"--endpoints", "a:1,b:2,c:3", "prog"}).servers, 3);
  const CommandLine line =
      parse_command_line(Launcher::kCollective, {"--selected_gpus", "0,2", "prog"},
                         testing::variable("CUDA_VISIBLE_DEVICES", "0,1,2"));
  EXPECT_EQ(line.workers, 2);
  EXPECT_THAT(line.gpus, ElementsAre("0", "2"));
}

TEST(CommandLine, TheHeartbeatTimeoutFollowsTheJobs) {
  const Environment environment = testing::variable("FLEET_HEARTBEAT_TIMEOUT_MS", "3000");
  EXPECT_EQ(parse_command_line(Launcher::kCollective, {"prog"}, environment)
                .supervision.heartbeat_timeout,
            std::chrono::seconds(3));
}

TEST(CommandLine, SaysHowOftenAJobIsStartedAgain) {
  for (const Launcher launcher : {Launcher::kCollective, Launcher::kParameterServer}) {
    EXPECT_EQ(parse_command_line(launcher, {"prog"}, Environment()).restarts.most, 0);
    const CommandLine line = parse_command_line(
        launcher,
        {"--max_restarts", "3", "--restart-window=600", "--resume", "/checkpoints/7", "p"},
        Environment());
    EXPECT_EQ(line.restarts.most, 3);
    EXPECT_EQ(line.restarts.window, std::chrono::seconds(600));
    EXPECT_EQ(line.resume, "/checkpoints/7");
    EXPECT_THAT(refusal(launcher, {"--max_restarts=-1", "prog"}), HasSubstr("--max_restarts"));
    EXPECT_THAT(refusal(launcher, {"--restart_window=9", "prog"}), HasSubstr("--max_restarts N"));
    EXPECT_THAT(refusal(launcher, {"--max_restarts=1", "--restart_window=0", "prog"}),
                HasSubstr("1 second or more"));
    EXPECT_THAT(refusal(launcher, {"--resume", "", "prog"}), HasSubstr("latest, none or"));
  }
}

TEST(CommandLine, LaunchersOfHostsGetNoOptionsOfTheWholeJob) {
  const CommandLine line = parse_command_line(
      Launcher::kParameterServer,
      {"--hosts", "a,b", "--max_restarts", "3", "--restart-window=600", "--host_wait", "5",
       "--progress", "--json", "--end_with_stdin", "--ssh", "ssh", "--save_grace", "7", "p"},
      Environment());
  EXPECT_EQ(line.restarts.most, 3);
  EXPECT_EQ(line.host_wait, std::chrono::seconds(5));
  EXPECT_THAT(line.options_of_hosts, ElementsAre("--save_grace", "7"));
}

TEST(CommandLine, TheStallDeadlineIsAtLeastASecond) {
  for (const Launcher launcher : {Launcher::kCollective, Launcher::kParameterServer}) {
    const CommandLine line =
        parse_command_line(launcher, {"--stall_deadline", "2.5", "prog"}, Environment());
    EXPECT_EQ(line.stall_deadline, std::chrono::milliseconds(2500));
    EXPECT_FALSE(parse_command_line(launcher, {"prog"}, Environment()).stall_deadline);
    EXPECT_THROW(parse_command_line(launcher, {"--stall_deadline", "0", "prog"}, Environment()),
                 UsageError);
  }
}

class Binary : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Each, Binary, ::testing::Values("launch", "launch_ps"));

TEST_P(Binary, HelpShowsOptionsAndAnExample) {
  testing::Workplace place;
  testing::LauncherProcess launcher(place, GetParam(), {"--help"});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.output(), AllOf(HasSubstr("--log_dir"), HasSubstr("Example:")));
}

TEST_P(Binary, VersionIsPrinted) {
  testing::Workplace place;
  testing::LauncherProcess launcher(place, GetParam(), {"--version"});
  EXPECT_EQ(launcher.wait(), 0);
  EXPECT_THAT(launcher.output(), HasSubstr(std::string(GetParam()) + " 0."));
}

TEST_P(Binary, AnUnknownOptionHasExitCodeTwo) {
  testing::Workplace place;
  testing::LauncherProcess launcher(place, GetParam(), {"--log_dirr", "x", "prog"});
  EXPECT_EQ(launcher.wait(), 2);
  EXPECT_THAT(launcher.output(), HasSubstr("did you mean '--log_dir'"));
}

TEST(CommandLine, JsonAndTeeBothWantStdout) {
  EXPECT_TRUE(parse_ps({"--json", "prog"}).supervision.json);
  EXPECT_THAT(refusal(Launcher::kParameterServer, {"--json", "--tee", "prog"}),
              HasSubstr("--json and --tee"));
}

TEST(Nodes, ANodeIsNamedAndBelongsToTheJob) {
  const CommandLine line =
      parse_ps({"--cluster_node_ips", "10.0.0.1,10.0.0.2", "--node_ip", "10.0.0.2", "prog"});
  EXPECT_THAT(line.nodes, ElementsAre("10.0.0.1", "10.0.0.2"));
  EXPECT_EQ(line.node_ip, "10.0.0.2");
  EXPECT_THAT(parse_ps({"--node_ip", "10.0.0.7", "prog"}).nodes, ElementsAre("10.0.0.7"));
  EXPECT_EQ(parse_ps({"--cluster_node_ips", "10.0.0.7", "prog"}).node_ip, "10.0.0.7");
  const auto refused = [](std::vector<std::string> options) {
    options.emplace_back("prog");
    return refusal(Launcher::kParameterServer, options);
  };
  EXPECT_THAT(refused({"--cluster_node_ips", "a,b"}), HasSubstr("--node_ip"));
  EXPECT_THAT(refused({"--cluster_node_ips", "a,b", "--node_ip", "c"}),
              AllOf(HasSubstr("one of a, b"), HasSubstr("c")));
  EXPECT_THAT(refused({"--cluster_node_ips", "a,a", "--node_ip", "a"}), HasSubstr("twice"));
  EXPECT_THAT(refused({"--cluster_node_ips", "a,b", "--node_ip", "a", "--endpoints", "c:1,a:2"}),
              HasSubstr("c:1"));
}

TEST(Nodes, HostsGetALauncherEach) {
  const CommandLine line = parse_command_line(
      Launcher::kCollective,
      {"--hosts", "me@a,[fd00::1]", "--tee", "--ssh=ssh -p 22", "--nproc-per-node", "3", "prog"},
      {});
  EXPECT_THAT(line.hosts, ElementsAre("me@a", "fd00::1"));
  EXPECT_THAT(line.nodes, ElementsAre("a", "fd00::1"));
  EXPECT_EQ(line.ssh, "ssh -p 22");
  EXPECT_THAT(line.options_of_hosts, ElementsAre("--tee", "--nproc_per_node", "3"));
  EXPECT_THAT(parse_ps({"prog"}).hosts, ::testing::IsEmpty());
  const auto refused = [](std::vector<std::string> options) {
    options.emplace_back("prog");
    return refusal(Launcher::kCollective, options);
  };
  EXPECT_THAT(refused({"--hosts", "a,b", "--node_ip", "a"}), HasSubstr("--hosts and --node_ip"));
  EXPECT_THAT(refused({"--hosts", "a,b", "--nnodes", "2"}), HasSubstr("--hosts and --nnodes"));
  EXPECT_THAT(refused({"--hosts", "a,a"}), HasSubstr("twice"));
  EXPECT_THAT(refused({"--ssh", "ssh"}), HasSubstr("--ssh goes with --hosts"));
}

CommandLine parse_ranks(std::vector<std::string> arguments, const Environment& environment = {}) {
  arguments.emplace_back("prog");
  return parse_command_line(Launcher::kCollective, arguments, environment);
}

TEST(Ranks, OfSeveralNodesAreOverSockets) {
  const CommandLine listed = parse_ranks({"--cluster_node_ips", "a,b", "--node_ip", "b"});
  EXPECT_EQ(listed.collectives, "sockets");
  EXPECT_EQ(listed.start_port, kStartPort);
  EXPECT_FALSE(listed.numbered);
  const CommandLine numbered =
      parse_ranks({"--nnodes=3", "--node-rank", "2", "--nproc-per-node", "4", "--master-addr",
                   "[fd00::1]", "--master-port=7000"});
  EXPECT_EQ(numbered.collectives, "sockets");
  ASSERT_TRUE(numbered.numbered);
  EXPECT_EQ(numbered.numbered->count, 3);
  EXPECT_EQ(numbered.numbered->rank, 2);
  EXPECT_EQ(numbered.numbered->master, (Endpoint{"fd00::1", 7000}));
  const auto members = numbered_members(*numbered.numbered, numbered.workers, {}, "logs");
  ASSERT_EQ(members.size(), 4U);
  EXPECT_EQ(members[1].title(), "worker 9");
  EXPECT_EQ(members[1].variables.get("RANK"), "9");
  EXPECT_EQ(members[1].variables.get("WORLD_SIZE"), "12");
  EXPECT_EQ(members[1].variables.get("LOCAL_RANK"), "1");
  EXPECT_EQ(members[1].variables.get("MASTER_ADDR"), "fd00::1");
}

TEST(Ranks, OfOneNodeAreOverMpiUnlessAsked) {
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{},
        {"--standalone"},
        {"--nnodes", "1"},
        {"--nnodes=1", "--node_rank=0", "--master_addr=a"}}) {
    EXPECT_FALSE(parse_ranks(options).several_nodes());
    EXPECT_EQ(parse_ranks(options).collectives, "mpi");
  }
  EXPECT_EQ(parse_ranks({"--started_port", "7000"}).start_port, 7000);
  EXPECT_GE(parse_ranks({"--nproc_per_node", "auto"}).workers, 1);
}

TEST(Ranks, AreWhereTheSchedulerSays) {
  const Environment kubeflow({{"PET_NNODES", "2"},
                              {"PET_NODE_RANK", "1"},
                              {"PET_NPROC_PER_NODE", "3"},
                              {"PET_MASTER_ADDR", "head"},
                              {"PET_MASTER_PORT", "7000"}});
  const CommandLine line = parse_ranks({}, kubeflow);
  ASSERT_TRUE(line.numbered);
  EXPECT_EQ(line.numbered->rank, 1);
  EXPECT_EQ(line.workers, 3);
  EXPECT_EQ(parse_ranks({"--node_rank", "0"}, kubeflow).numbered->rank, 0) << "said is said";
  EXPECT_FALSE(parse_ranks({"--cluster_node_ips", "a,b", "--node_ip", "a"}, kubeflow).numbered);

  const Environment sky({{"SKYPILOT_NUM_NODES", "2"},
                         {"SKYPILOT_NODE_RANK", "1"},
                         {"SKYPILOT_NODE_IPS", "10.0.0.1\n10.0.0.2\n"}});
  EXPECT_THAT(parse_ranks({}, sky).nodes, ElementsAre("10.0.0.1", "10.0.0.2"));
  EXPECT_EQ(parse_ranks({}, sky).node_ip, "10.0.0.2");
  const CommandLine servers = parse_command_line(Launcher::kParameterServer, {"prog"}, sky);
  EXPECT_EQ(servers.node_ip, "10.0.0.2");
  EXPECT_TRUE(parse_ranks({"--nnodes=2", "--node_rank=0", "--master_addr=a"}, sky).numbered);
}

TEST(Ranks, ThatCannotBePlacedAreRefused) {
  const auto refused = [](std::vector<std::string> options, const Environment& environment = {}) {
    try {
      parse_ranks(std::move(options), environment);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(refused({"--nnodes", "2"}), HasSubstr("--node_rank"));
  EXPECT_THAT(refused({"--nnodes", "2", "--node_rank", "2", "--master_addr", "a"}),
              HasSubstr("0 to 1"));
  EXPECT_THAT(refused({"--nnodes", "2", "--node_rank", "1"}), HasSubstr("--master_addr"));
  EXPECT_THAT(refused({"--nnodes", "1:4"}), HasSubstr("come and go"));
  EXPECT_THAT(refused({"--nnodes=2", "--standalone"}), HasSubstr("--standalone"));
  EXPECT_THAT(refused({"--nnodes=2", "--cluster_node_ips=a,b", "--node_ip=a"}),
              HasSubstr("--nnodes and --cluster_node_ips"));
  EXPECT_THAT(refused({"--cluster_node_ips=a,b", "--node_ip=a", "--collectives=mpi"}),
              HasSubstr("mpirun and a hostfile"));
  EXPECT_THAT(refused({"--cluster_node_ips=a,b"}), HasSubstr("--node_ip"));
  EXPECT_THAT(refused({"--cluster_node_ips=a,b", "--node_ip=a", "--started_port=65535"}),
              HasSubstr("--started_port"));
  EXPECT_THAT(refused({"--nproc_per_node", "many"}), HasSubstr("or auto"));
  EXPECT_THAT(refused({}, Environment({{"SKYPILOT_NUM_NODES", "2"}, {"SKYPILOT_NODE_RANK", "2"}})),
              HasSubstr("SKYPILOT_NODE_IPS"));
  EXPECT_THAT(refused({}, Environment({{"SKYPILOT_NUM_NODES", "2"}, {"PET_NNODES", "2"}})),
              AllOf(HasSubstr("SKYPILOT_NUM_NODES"), HasSubstr("PET_NNODES")));
}

TEST(Nodes, MayHaveAddressesOfIpv6) {
  const CommandLine line =
      parse_ps({"--cluster_node_ips", "fd00::1,[fd00::2]", "--node_ip", "fd00::2", "--endpoints",
                "[fd00::1]:7000,[fd00::2]:7000", "prog"});
  EXPECT_THAT(line.nodes, ElementsAre("fd00::1", "fd00::2"));
  EXPECT_THAT(line.endpoints, ElementsAre(Endpoint{"fd00::1", 7000}, Endpoint{"fd00::2", 7000}));
  const Nodes nodes{.all = line.nodes, .here = line.node_ip};
  EXPECT_EQ(nodes.deal_endpoints(1, 6170).at(0).to_string(), "[fd00::1]:6170");
  const auto members = parameter_server_members(0, line.endpoints, "logs", nodes);
  ASSERT_EQ(members.size(), 1U);
  EXPECT_EQ(members[0].variables.get("POD_IP"), "fd00::2");
  EXPECT_EQ(members[0].variables.get("PADDLE_PSERVERS_IP_PORT_LIST"),
            "[fd00::1]:7000,[fd00::2]:7000");
}

TEST(CommandLine, AWrongEndpointIsNamedWithItsOption) {
  for (const char* wrong : {"127.0.0.1", "127.0.0.1:0", "::1:7000", "a:1,,b:2"}) {
    EXPECT_THAT(refusal(Launcher::kParameterServer, {"--endpoints", wrong, "prog"}),
                AllOf(HasSubstr("--endpoints"), HasSubstr("such as 127.0.0.1:6170")))
        << wrong;
  }
}

TEST(Nodes, ServersAndWorkersAreDealtInOrder) {
  const Nodes first{.all = {"a", "b"}, .here = "a"};
  const Nodes second{.all = {"a", "b"}, .here = "b"};
  EXPECT_EQ(first.workers_here(5), (std::pair{0, 3}));
  EXPECT_EQ(second.workers_here(5), (std::pair{3, 5}));
  const auto servers = first.deal_endpoints(3, 7000);
  EXPECT_THAT(to_strings(servers), ElementsAre("a:7000", "a:7001", "b:7000"));
  EXPECT_THAT(endpoints_here(servers, second), ElementsAre(Endpoint{"b", 7000}));
  const auto members = parameter_server_members(5, servers, "logs", second);
  std::vector<std::string> titles;
  titles.reserve(members.size());
  for (const Member& member : members) titles.push_back(member.title());
  EXPECT_THAT(titles, ElementsAre("server 2", "worker 3", "worker 4"));
  EXPECT_EQ(members[0].port, 0u);
  EXPECT_EQ(members[1].variables.get("PADDLE_TRAINERS_NUM"), "5");
  EXPECT_EQ(members[1].variables.get("PADDLE_PSERVERS_IP_PORT_LIST"), "a:7000,a:7001,b:7000");
  EXPECT_EQ(Nodes{}.workers_here(5), (std::pair{0, 5}));
}

}  // namespace
}  // namespace fleet::launch
