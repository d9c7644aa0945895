#include "role_maker/contracts.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace fleet::role_maker {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string, std::less<>>;

ClusterSpec read(const Variables& variables, std::optional<bool> is_collective = std::nullopt) {
  return read_environment(Environment(variables), is_collective);
}

// The message of the error, or an empty text when there is none.
std::string error_of(const Variables& variables, std::optional<bool> is_collective = std::nullopt) {
  try {
    read(variables, is_collective);
  } catch (const UsageError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kEnvironment);
    EXPECT_FALSE(error.text().where.empty());
    EXPECT_FALSE(error.text().expected.empty());
    EXPECT_FALSE(error.text().got.empty());
    EXPECT_FALSE(error.text().fix.empty());
    return error.what();
  }
  return "";
}

Variables with(Variables base, const Variables& changes) {
  for (const auto& [name, value] : changes) base.insert_or_assign(name, value);
  return base;
}

Variables without(Variables base, const std::string& name) {
  base.erase(name);
  return base;
}

const Variables kTrainer = {{"TRAINING_ROLE", "TRAINER"},
                            {"PADDLE_PSERVERS_IP_PORT_LIST", "10.0.0.1:6170,10.0.0.2:6171"},
                            {"PADDLE_TRAINERS_NUM", "3"},
                            {"PADDLE_TRAINER_ID", "2"}};
const Variables kServer = {{"TRAINING_ROLE", "PSERVER"},
                           {"PADDLE_PSERVERS_IP_PORT_LIST", "10.0.0.1:6170,10.0.0.2:6171"},
                           {"PADDLE_TRAINERS_NUM", "3"},
                           {"POD_IP", "10.0.0.2"},
                           {"PADDLE_PORT", "6171"}};
const Variables kOldTrainer = {{"TRAINING_ROLE", "TRAINER"},
                               {"PADDLE_PSERVERS", "10.0.0.1,10.0.0.2"},
                               {"PADDLE_PORT", "7000"},
                               {"PADDLE_TRAINERS_NUM", "2"},
                               {"PADDLE_TRAINER_ID", "1"}};
const Variables kCollective = {{"PADDLE_TRAINER_ID", "1"},
                               {"PADDLE_TRAINERS_NUM", "2"},
                               {"PADDLE_TRAINER_ENDPOINTS", "127.0.0.1:6070,127.0.0.1:6071"},
                               {"PADDLE_CURRENT_ENDPOINT", "127.0.0.1:6071"}};
const Variables kTorchrun = {
    {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.9"}, {"MASTER_PORT", "29500"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
const Variables kSlurm = {
    {"SLURM_PROCID", "3"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "77"}};

TEST(LocalTest, NoRoleVariableIsALocalJob) {
  const ClusterSpec spec = read({{"HOME", "/root"}});
  EXPECT_EQ(spec.mode, Mode::kLocal);
  EXPECT_EQ(spec.contract, Contract::kNone);
  EXPECT_TRUE(spec.is_first_worker());
  EXPECT_EQ(spec.worker_num, 1);
}

TEST(LocalTest, AddressesJobsAndHalfTriggersAloneTriggerNothing) {
  for (const auto& variables : std::vector<Variables>{{{"POD_IP", "10.0.0.1"}},
                                                      {{"PADDLE_PORT", "6174"}},
                                                      {{"SLURM_JOB_ID", "5"}},
                                                      {{"RANK", "1"}},
                                                      {{"WORLD_SIZE", "2"}},
                                                      {{"SLURM_PROCID", "1"}},
                                                      {{"SLURM_STEP_ID", "1"}},
                                                      {{"PADDLE_TRAINER_ID", "1"}},
                                                      {{"TRAINING_ROLE", ""}},
                                                      {{"OMPI_COMM_WORLD_SIZE", "2"}}}) {
    EXPECT_EQ(read(variables).mode, Mode::kLocal) << variables.begin()->first;
  }
}

TEST(LocalTest, StaysLocalWhateverKindOfJobIsAskedFor) {
  EXPECT_EQ(read({}, true).mode, Mode::kLocal);
  EXPECT_EQ(read({}, false).mode, Mode::kLocal);
}

TEST(PaddleTest, TrainerOfAParameterServerJob) {
  const ClusterSpec spec = read(kTrainer);
  EXPECT_EQ(spec.mode, Mode::kParameterServer);
  EXPECT_EQ(spec.contract, Contract::kPaddle);
  EXPECT_TRUE(spec.is_worker());
  EXPECT_EQ(spec.index, 2);
  EXPECT_EQ(spec.worker_num, 3);
  EXPECT_EQ(spec.server_num, 2);
  EXPECT_THAT(spec.server_endpoints, ElementsAre("10.0.0.1:6170", "10.0.0.2:6171"));
  EXPECT_EQ(spec.origins.at("index"), "PADDLE_TRAINER_ID");
}

TEST(PaddleTest, ServerFindsItsPlaceByItsEndpoint) {
  const ClusterSpec spec = read(kServer);
  EXPECT_TRUE(spec.is_server());
  EXPECT_EQ(spec.index, 1);
  EXPECT_EQ(spec.current_endpoint(), "10.0.0.2:6171");
}

TEST(PaddleTest, ServerOutsideTheListIsNamed) {
  EXPECT_THAT(error_of(with(kServer, {{"PADDLE_PORT", "9"}})),
              AllOf(HasSubstr("POD_IP"), HasSubstr("10.0.0.2:9"), HasSubstr("10.0.0.1:6170")));
}

TEST(PaddleTest, ServerMayHaveAnIdWhichMustAgree) {
  EXPECT_EQ(read(with(without(kServer, "POD_IP"), {{"PADDLE_PSERVER_ID", "0"}})).index, 0);
  EXPECT_EQ(read(with(kServer, {{"PADDLE_PSERVER_ID", "1"}})).index, 1);
  EXPECT_THAT(error_of(with(kServer, {{"PADDLE_PSERVER_ID", "0"}})),
              HasSubstr("PADDLE_PSERVER_ID"));
}

TEST(PaddleTest, TrainersIgnoreTheServersOwnAddress) {
  EXPECT_EQ(read(with(kTrainer, {{"POD_IP", "10.0.0.2"}, {"PADDLE_PORT", "6171"}})).index, 2);
}

TEST(PaddleTest, AllProcessesOfAJobDeriveTheSameJobId) {
  EXPECT_EQ(read(kTrainer).job_id, read(kServer).job_id);
  EXPECT_NE(read(kTrainer).job_id, read(with(kTrainer, {{"PADDLE_TRAINERS_NUM", "4"}})).job_id);
  EXPECT_EQ(read(with(kTrainer, {{"FLEET_JOB_ID", "mine"}})).job_id, "mine");
}

TEST(PaddleTest, EveryVariableIsNeededAndTheMissingOneIsNamed) {
  for (const char* name : {"TRAINING_ROLE", "PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINERS_NUM",
                           "PADDLE_TRAINER_ID"}) {
    EXPECT_THAT(error_of(without(kTrainer, name)), AllOf(HasSubstr(name), HasSubstr("missing")));
  }
  for (const char* name : {"TRAINING_ROLE", "PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINERS_NUM",
                           "POD_IP", "PADDLE_PORT"}) {
    EXPECT_NE(error_of(without(kServer, name)), "") << name;
  }
}

TEST(PaddleTest, ATriggerAloneNamesAllThatIsMissing) {
  EXPECT_THAT(error_of({{"TRAINING_ROLE", "TRAINER"}}),
              AllOf(HasSubstr("PADDLE_PSERVERS_IP_PORT_LIST"), HasSubstr("PADDLE_TRAINERS_NUM"),
                    HasSubstr("PADDLE_TRAINER_ID")));
  EXPECT_THAT(error_of({{"PADDLE_TRAINING_ROLE", "TRAINER"}}), HasSubstr("PADDLE_PSERVERS"));
  EXPECT_THAT(error_of({{"PADDLE_PSERVERS_FOO", "x"}}), HasSubstr("TRAINING_ROLE"));
  EXPECT_THAT(error_of({{"PADDLE_TRAINER_ENDPOINTS", "a:1,b:2"}}),
              AllOf(HasSubstr("PADDLE_CURRENT_ENDPOINT"), HasSubstr("PADDLE_TRAINER_ID")));
}

TEST(PaddleTest, WrongValuesAreNamedWithWhatIsExpected) {
  EXPECT_THAT(error_of(with(kTrainer, {{"TRAINING_ROLE", "BOSS"}})),
              AllOf(HasSubstr("'BOSS'"), HasSubstr("TRAINER or PSERVER")));
  EXPECT_THAT(error_of(with(kTrainer, {{"PADDLE_TRAINER_ID", "3"}})),
              AllOf(HasSubstr("PADDLE_TRAINER_ID"), HasSubstr("0 to 2")));
  EXPECT_THAT(error_of(with(kTrainer, {{"PADDLE_TRAINER_ID", "-1"}})), HasSubstr("'-1'"));
  EXPECT_THAT(error_of(with(kTrainer, {{"PADDLE_TRAINERS_NUM", "two"}})),
              AllOf(HasSubstr("PADDLE_TRAINERS_NUM"), HasSubstr("'two'")));
  EXPECT_THAT(error_of(with(kTrainer, {{"PADDLE_TRAINERS_NUM", "0"}})), HasSubstr("1 or more"));
  EXPECT_THAT(error_of(with(kTrainer, {{"PADDLE_PSERVERS_IP_PORT_LIST", "a:1,b"}})),
              AllOf(HasSubstr("PADDLE_PSERVERS_IP_PORT_LIST"), HasSubstr("'b'")));
  EXPECT_THAT(error_of(with(kTrainer, {{"PADDLE_PSERVERS_IP_PORT_LIST", "a:1,a:1"}})),
              HasSubstr("twice"));
  EXPECT_NE(error_of(with(kTrainer, {{"PADDLE_PSERVERS_IP_PORT_LIST", "a:1,,b:2"}})), "");
}

TEST(PaddleTest, TheTwoNamesOfTheRoleMustAgree) {
  EXPECT_EQ(read(with(kTrainer, {{"PADDLE_TRAINING_ROLE", "TRAINER"}})).index, 2);
  EXPECT_THAT(error_of(with(kTrainer, {{"PADDLE_TRAINING_ROLE", "PSERVER"}})),
              AllOf(HasSubstr("TRAINER and PSERVER"), HasSubstr("PADDLE_TRAINING_ROLE")));
}

TEST(PaddleTest, TheOlderNamesJoinAddressesToOnePort) {
  const ClusterSpec spec = read(kOldTrainer);
  EXPECT_THAT(spec.server_endpoints, ElementsAre("10.0.0.1:7000", "10.0.0.2:7000"));
  EXPECT_EQ(spec.index, 1);
  EXPECT_THAT(read(without(kOldTrainer, "PADDLE_PORT")).server_endpoints,
              ElementsAre("10.0.0.1:6174", "10.0.0.2:6174"));
  const ClusterSpec server = read({{"TRAINING_ROLE", "PSERVER"},
                                   {"PADDLE_PSERVERS", "10.0.0.1,10.0.0.2"},
                                   {"PADDLE_TRAINERS_NUM", "2"},
                                   {"POD_IP", "10.0.0.2"}});
  EXPECT_EQ(server.index, 1);
  EXPECT_EQ(read({{"TRAINING_ROLE", "TRAINER"}, {"PADDLE_PSERVERS", "10.0.0.1"}}).worker_num, 1);
}

TEST(PaddleTest, TheOlderNamesGuessNoIdAmongSeveralWorkers) {
  EXPECT_THAT(error_of(without(kOldTrainer, "PADDLE_TRAINER_ID")), HasSubstr("PADDLE_TRAINER_ID"));
  EXPECT_NE(error_of(with(kOldTrainer, {{"PADDLE_PSERVERS", "10.0.0.1:1,10.0.0.2:2"}})), "");
}

TEST(PaddleTest, BothListsOfServersMustAgree) {
  EXPECT_EQ(read(with(kTrainer, {{"PADDLE_PSERVERS", "10.0.0.1,10.0.0.2"}})).server_num, 2);
  EXPECT_THAT(error_of(with(kTrainer, {{"PADDLE_PSERVERS", "10.0.0.7"}})), HasSubstr("10.0.0.7"));
}

TEST(PaddleTest, AddressesOfIpv6StandInBracketsBeforeAPort) {
  const Variables list = {{"TRAINING_ROLE", "PSERVER"},
                          {"PADDLE_TRAINERS_NUM", "1"},
                          {"PADDLE_PSERVERS_IP_PORT_LIST", "[fd00::1]:7000,[fd00::2]:7000"},
                          {"PADDLE_PORT", "7000"}};
  for (const char* own : {"fd00::2", "[fd00::2]"}) {
    EXPECT_EQ(read(with(list, {{"POD_IP", own}})).index, 1) << own;
  }
  EXPECT_THAT(error_of(with(list, {{"POD_IP", "fd00::3"}})), HasSubstr("[fd00::3]:7000"));
  for (const char* servers : {"fd00::1,fd00::2", "[fd00::1],[fd00::2]"}) {
    const ClusterSpec old = read(
        {{"TRAINING_ROLE", "TRAINER"}, {"PADDLE_PSERVERS", servers}, {"PADDLE_TRAINER_ID", "0"}});
    EXPECT_THAT(old.server_endpoints, ElementsAre("[fd00::1]:6174", "[fd00::2]:6174"));
    EXPECT_EQ(read(with(list, {{"POD_IP", "fd00::1"}, {"PADDLE_PSERVERS", servers}})).index, 0);
  }
  EXPECT_THAT(error_of(with(
                  list, {{"POD_IP", "fd00::1"}, {"PADDLE_PSERVERS_IP_PORT_LIST", "fd00::1:7000"}})),
              AllOf(HasSubstr("without brackets"), HasSubstr("PADDLE_PSERVERS_IP_PORT_LIST")));
}

TEST(PaddleTest, CollectiveWorker) {
  const ClusterSpec spec = read(kCollective);
  EXPECT_EQ(spec.mode, Mode::kCollective);
  EXPECT_EQ(spec.index, 1);
  EXPECT_EQ(spec.worker_num, 2);
  EXPECT_EQ(spec.server_num, 0);
  EXPECT_TRUE(spec.is_worker());
  EXPECT_EQ(read(with(kCollective, {{"TRAINING_ROLE", "TRAINER"}})).mode, Mode::kCollective);
}

TEST(PaddleTest, CollectiveContradictionsAreNamed) {
  EXPECT_THAT(error_of(with(kCollective, {{"PADDLE_TRAINERS_NUM", "3"}})),
              AllOf(HasSubstr("PADDLE_TRAINERS_NUM"), HasSubstr("2 endpoints")));
  EXPECT_THAT(error_of(with(kCollective, {{"PADDLE_TRAINER_ID", "0"}})),
              HasSubstr("PADDLE_CURRENT_ENDPOINT"));
  EXPECT_THAT(error_of(with(kCollective, {{"TRAINING_ROLE", "PSERVER"}}), true),
              HasSubstr("no servers"));
  EXPECT_THAT(error_of(kTrainer, true), HasSubstr("PADDLE_TRAINER_ENDPOINTS"));
  EXPECT_THAT(error_of(kCollective, false), HasSubstr("PADDLE_PSERVERS_IP_PORT_LIST"));
}

TEST(PaddleTest, ListsOfServersAndWorkersTogetherAreAParameterServerJob) {
  const Variables workers = {{"PADDLE_TRAINER_ENDPOINTS", "a:1,b:2,c:3"}};
  const ClusterSpec spec = read(with(kTrainer, workers));
  EXPECT_EQ(spec.mode, Mode::kParameterServer);
  EXPECT_EQ(spec.current_endpoint(), "c:3");
  EXPECT_NE(error_of(with(kTrainer, {{"PADDLE_TRAINER_ENDPOINTS", "a:1,b:2"}})), "");
}

TEST(TorchrunTest, RankOfACollectiveJob) {
  const ClusterSpec spec = read(kTorchrun);
  EXPECT_EQ(spec.mode, Mode::kCollective);
  EXPECT_EQ(spec.contract, Contract::kTorchrun);
  EXPECT_EQ(spec.index, 1);
  EXPECT_EQ(spec.worker_num, 4);
}

TEST(TorchrunTest, NeedsItsWholeContract) {
  EXPECT_THAT(error_of(without(kTorchrun, "MASTER_ADDR")), HasSubstr("MASTER_ADDR"));
  EXPECT_THAT(error_of(without(kTorchrun, "MASTER_PORT")), HasSubstr("MASTER_PORT"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"MASTER_PORT", "x"}})), HasSubstr("MASTER_PORT"));
  EXPECT_EQ(read(with(kTorchrun, {{"MASTER_ADDR", "fd00::9"}})).worker_num, 4);
  EXPECT_THAT(error_of(with(kTorchrun, {{"RANK", "4"}})), HasSubstr("RANK below WORLD_SIZE"));
  EXPECT_THAT(error_of(with(kTorchrun, {{"RANK", "x"}})), HasSubstr("'x'"));
}

TEST(OpenMpiTest, PlainMpirunIsCollective) {
  const ClusterSpec spec = read(kOpenMpi);
  EXPECT_EQ(spec.mode, Mode::kCollective);
  EXPECT_EQ(spec.contract, Contract::kOpenMpi);
  EXPECT_EQ(spec.index, 1);
  EXPECT_EQ(spec.worker_num, 2);
  EXPECT_THAT(error_of(without(kOpenMpi, "OMPI_COMM_WORLD_SIZE")),
              HasSubstr("OMPI_COMM_WORLD_SIZE"));
}

TEST(OpenMpiTest, ParameterServersAreRefusedWithTheWayToHaveThem) {
  EXPECT_THAT(error_of(kOpenMpi, false), AllOf(HasSubstr("MPISymetric"), HasSubstr("launch_ps")));
  EXPECT_NE(error_of(kTorchrun, false), "");
  EXPECT_NE(error_of(kSlurm, false), "");
}

TEST(SlurmTest, StepOfSeveralTasksIsCollective) {
  const ClusterSpec spec = read(kSlurm);
  EXPECT_EQ(spec.mode, Mode::kCollective);
  EXPECT_EQ(spec.contract, Contract::kSlurm);
  EXPECT_EQ(spec.index, 3);
  EXPECT_EQ(spec.worker_num, 4);
  EXPECT_EQ(spec.job_id, "slurm-77.0");
  EXPECT_EQ(read(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "8"}})).worker_num, 8);
  EXPECT_THAT(error_of(without(kSlurm, "SLURM_NTASKS")), HasSubstr("SLURM_NTASKS"));
}

TEST(SlurmTest, RanksWithoutPmiMeetOnTheFirstNode) {
  const auto rendezvous = [](const Variables& more) { return read(with(kSlurm, more)).rendezvous; };
  EXPECT_EQ(rendezvous({}), "") << "an old Slurm, or another world";
  EXPECT_EQ(rendezvous({{"SLURM_STEP_NODELIST", "node[03-05,9],other"}}), "node03:21232");
  EXPECT_EQ(rendezvous({{"SLURM_STEP_NODELIST", "rack[1-2]n[7,9]x"}}), "rack1n7x:21232");
  EXPECT_EQ(rendezvous({{"SLURM_JOB_NODELIST", "alone"}}), "alone:21232");
  EXPECT_EQ(rendezvous({{"SLURM_STEP_NODELIST", "a,b"}, {"SLURM_STEP_ID", "2"}}), "a:21234");
  EXPECT_EQ(rendezvous({{"SLURM_STEP_NODELIST", "a,b"}, {"MASTER_PORT", "7000"}}), "a:7000");
  for (const char* pmi : {"PMIX_RANK", "PMI_SIZE", "PMI_RANK"}) {
    EXPECT_EQ(rendezvous({{"SLURM_STEP_NODELIST", "a,b"}, {pmi, "3"}}), "") << pmi;
  }
  const auto local = [](const char* nodes) {
    return read(with(kSlurm, {{"SLURM_STEP_NODELIST", "a"}, {"SLURM_STEP_NUM_NODES", nodes}}))
        .local_worker_num;
  };
  EXPECT_EQ(local("1"), 4);
  EXPECT_EQ(local("2"), 0);
}

TEST(MixtureTest, PaddleWinsOverOpenMpiAndSlurm) {
  for (const auto& other : {kOpenMpi, kSlurm}) {
    EXPECT_EQ(read(with(kTrainer, other)).contract, Contract::kPaddle);
    EXPECT_EQ(read(with(kServer, other)).index, 1);
    EXPECT_EQ(read(with(kCollective, other)).contract, Contract::kPaddle);
  }
  EXPECT_NE(error_of(with(kOpenMpi, {{"TRAINING_ROLE", "TRAINER"}})), "");
}

TEST(MixtureTest, PaddleAndTorchrunMustAgree) {
  const Variables same = with(kTorchrun, {{"RANK", "2"}, {"WORLD_SIZE", "3"}});
  EXPECT_EQ(read(with(kTrainer, same)).contract, Contract::kPaddle);
  EXPECT_THAT(error_of(with(kTrainer, kTorchrun)),
              AllOf(HasSubstr("worker/2 of 3"), HasSubstr("worker/1 of 4")));
  EXPECT_THAT(error_of(with(kServer, same)), HasSubstr("server/1"));
}

TEST(MixtureTest, TorchrunWinsOverWhatStartedIt) {
  EXPECT_EQ(read(with(kTorchrun, kOpenMpi)).contract, Contract::kTorchrun);
  EXPECT_EQ(read(with(kTorchrun, kSlurm)).contract, Contract::kTorchrun);
  EXPECT_EQ(read(with(kOpenMpi, kSlurm)).contract, Contract::kOpenMpi);
}

}  // namespace
}  // namespace fleet::role_maker
