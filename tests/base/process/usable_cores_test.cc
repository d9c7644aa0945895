#include "base/process/usable_cores.h"

#include <gtest/gtest.h>
#include <numeric>

namespace fleet {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Cores machine(int cores, int first = 0, int count = 0) {
  Cores all{.of_machine = cores};
  all.usable.resize(static_cast<size_t>(count > 0 ? count : cores));
  std::iota(all.usable.begin(), all.usable.end(), first);
  return all;
}

int share_of(const Variables& variables, const Cores& cores) {
  return core_share(Environment(variables), cores).count;
}

std::vector<int> cores_of(const Variables& variables, const Cores& cores) {
  return core_share(Environment(variables), cores).cores;
}

TEST(UsableCores, AreOneOrMore) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), static_cast<int>(Cores::of_process().usable.size()));
}

TEST(UsableCores, AreNoMoreThanTheQuota) {
  Cores cores = machine(16);
  EXPECT_EQ(cores.count(), 16);
  cores.quota = 3;
  EXPECT_EQ(cores.count(), 3);
  cores.quota = 40;
  EXPECT_EQ(cores.count(), 16);
}

TEST(Quota, IsOfWholeCores) {
  EXPECT_EQ(quota_of("max 100000"), 0);
  EXPECT_EQ(quota_of(""), 0);
  EXPECT_EQ(quota_of("400000 100000"), 4);
  EXPECT_EQ(quota_of("150000 100000"), 1);
  EXPECT_EQ(quota_of("50000 100000"), 1) << "less than a core";
  EXPECT_EQ(quota_of("x y"), 0);
}

TEST(CoreShare, IsAllOfThemForAProcessAlone) {
  EXPECT_EQ(share_of({}, machine(16)), 16);
  EXPECT_EQ(cores_of({}, machine(4)), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(share_of({}, Cores{}), 1);
}

TEST(CoreShare, IsDividedAmongWhatALauncherStarted) {
  const auto share = [](const char* count, const char* index) {
    return core_share(Environment({{"FLEET_LOCAL_PROCESSES", count}, {"FLEET_LOCAL_INDEX", index}}),
                      machine(8));
  };
  EXPECT_EQ(share("4", "1").count, 2);
  EXPECT_EQ(share("4", "1").cores, (std::vector<int>{2, 3}));
  EXPECT_EQ(share("3", "2").count, 2);
  EXPECT_EQ(share("3", "2").cores, (std::vector<int>{4, 5}));
  EXPECT_EQ(share("20", "19").count, 1);
  EXPECT_TRUE(share("20", "19").cores.empty()) << "there is none for it alone";
}

TEST(CoreShare, KeepsWhatOpenMpiAndSlurmBound) {
  const Variables mpi = {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "3"}};
  EXPECT_EQ(share_of(mpi, machine(16, 12, 4)), 4) << "four cores each";
  EXPECT_EQ(cores_of(mpi, machine(16, 12, 4)), (std::vector<int>{12, 13, 14, 15}));
  EXPECT_EQ(share_of(mpi, machine(16)), 4) << "not bound";
  EXPECT_EQ(cores_of(mpi, machine(16)), (std::vector<int>{12, 13, 14, 15}));
  EXPECT_EQ(share_of(mpi, machine(16, 8, 8)), 4) << "two on each half";
  EXPECT_TRUE(cores_of(mpi, machine(16, 8, 8)).empty()) << "nobody says which two";
  const Variables slurm = {
      {"SLURM_STEP_TASKS_PER_NODE", "2(x2),4"}, {"SLURM_NODEID", "2"}, {"SLURM_LOCALID", "1"}};
  EXPECT_EQ(share_of(slurm, machine(64, 0, 16)), 16);
  EXPECT_EQ(share_of(slurm, machine(64)), 16);
  Variables part = slurm;
  part["SLURM_CPUS_ON_NODE"] = "16";
  EXPECT_EQ(share_of(part, machine(64, 0, 16)), 4) << "a job of a quarter of the node, not bound";
  part["SLURM_NODEID"] = "1";
  EXPECT_EQ(share_of(part, machine(64, 0, 16)), 8);
}

TEST(CoreShare, KnowsOtherLaunchers) {
  EXPECT_EQ(share_of({{"LOCAL_WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}}, machine(8)), 4);
  const Variables paddle = {{"PADDLE_TRAINER_ENDPOINTS", "a:1,a:2,b:1"},
                            {"PADDLE_CURRENT_ENDPOINT", "a:2"}};
  EXPECT_EQ(cores_of(paddle, machine(4)), (std::vector<int>{2, 3}));
}

TEST(CoreShare, IsNoNumberOfCoresWhereAQuotaCounts) {
  Cores cores = machine(16);
  cores.quota = 4;
  EXPECT_EQ(share_of({}, cores), 4);
  EXPECT_TRUE(cores_of({}, cores).empty());
}

TEST(CoreShare, DoesNotBelieveWhatIsNoNumber) {
  for (const char* count : {"", "none", "0", "-3"}) {
    EXPECT_EQ(share_of({{"FLEET_LOCAL_PROCESSES", count}}, machine(8)), 8) << count;
  }
  EXPECT_EQ(share_of({{"SLURM_STEP_TASKS_PER_NODE", "x(y"}, {"SLURM_NODEID", "0"}}, machine(8)), 8);
}

}  // namespace
}  // namespace fleet
