// Kills and stops processes of real jobs at seeded moments: everything must be gone in time, with
// a non-zero exit code and one line that names the process that was hit.

#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <mutex>
#include <regex>
#include <signal.h>
#include <thread>

#include "base/philox.h"
#include "base/strings.h"
#include "tests/faults/job_under_test.h"

namespace fleet {
namespace {

using fleet::testing::JobUnderTest;
using fleet::testing::Seconds;
using Clock = std::chrono::steady_clock;

constexpr int kHeartbeatTimeoutMs = 2000;
// Beyond detection: everything must be gone by then.
constexpr Seconds kGrace{5};

enum class Moment { kStart, kMiddle, kEnd };

const char* name_of(Moment moment) {
  return moment == Moment::kStart ? "start" : moment == Moment::kMiddle ? "middle" : "end";
}

enum class Kind { kServers, kRanks, kRanksOverSockets, kRanksSharingMemory };

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kServers:
      return "servers";
    case Kind::kRanks:
      return "ranks";
    case Kind::kRanksOverSockets:
      return "sockets";
    case Kind::kRanksSharingMemory:
      return "shared";
  }
  return "?";
}

struct Fault {
  Kind kind = Kind::kServers;
  int signal = SIGKILL;
  Moment moment = Moment::kMiddle;
  std::string victim;  // "worker 1", "server 0", "agent 1", "launcher"
  int seed = 0;
  double end_s = 0.15;  // the last moment of Moment::kEnd, after the first steps
  int steps() const { return moment == Moment::kEnd ? 150 : 1000000; }
};

struct Outcome {
  bool hit = false;  // false when the job had ended before
  double detection_s = 0;
};

class Faults : public ::testing::Test {
 protected:
  Faults() {
    folder_ = ::testing::TempDir() + "faults-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
  }
  ~Faults() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  // A moment of the job's life, drawn by the seed.
  void wait_for_moment(JobUnderTest& job, const Fault& fault) const {
    const double draw =
        uniform_double(RandomKey::of(static_cast<uint64_t>(fault.seed), "moment"), 0);
    if (fault.moment == Moment::kStart) {
      std::this_thread::sleep_for(Seconds(0.05 * draw));
      return;
    }
    ASSERT_TRUE(job.wait_until_training(Seconds(30))) << job.output();
    std::this_thread::sleep_for(
        Seconds(fault.moment == Moment::kMiddle ? 0.2 + 0.5 * draw : fault.end_s * draw));
  }

  pid_t find_victim(JobUnderTest& job, const Fault& fault) const {
    return fault.victim == "launcher" ? job.launcher()
                                      : job.wait_for_member(fault.victim, Seconds(30));
  }

  // Hits one process of one job and checks what becomes of all of them.
  Outcome run(const Fault& fault) {
    const JobUnderTest::Plan plan{.servers = fault.kind == Kind::kServers,
                                  .over_mpi = fault.kind == Kind::kRanks,
                                  .over_tcp = fault.kind == Kind::kRanksOverSockets,
                                  .steps = fault.steps(),
                                  .heartbeat_timeout_ms = kHeartbeatTimeoutMs};
    JobUnderTest job(plan, folder_);
    const pid_t early = fault.moment == Moment::kStart ? find_victim(job, fault) : 0;
    wait_for_moment(job, fault);
    const pid_t victim = early != 0 ? early : find_victim(job, fault);
    job.remember_processes();
    Outcome outcome;
    outcome.hit = victim != 0 && job.exit_code() == -1 && kill(victim, fault.signal) == 0;
    const auto start = Clock::now();
    const Seconds limit =
        kGrace + Seconds(fault.signal == SIGSTOP ? kHeartbeatTimeoutMs * 1e-3 : 0.0);
    const bool gone = job.all_gone(outcome.hit ? limit : Seconds(60));
    outcome.detection_s = Seconds(Clock::now() - start).count();
    const std::string story =
        str_cat(name_of(fault.kind), " seed ", fault.seed, " ", name_of(fault.moment), " signal ",
                fault.signal, " to ", fault.victim, "\n", job.output(), job.logs());
    EXPECT_TRUE(gone) << "processes are left: " << story;
    check_verdict(job, fault, outcome.hit, story);
    return outcome;
  }

  void check_verdict(JobUnderTest& job, const Fault& fault, bool& hit, const std::string& story) {
    if (job.exit_code() == 0) {
      // Only a job that was over when the signal came may end well.
      EXPECT_TRUE(fault.moment == Moment::kEnd || !hit) << story;
      hit = false;
      return;
    }
    if (!hit || fault.victim == "launcher") return;
    EXPECT_EQ(job.exit_code(), 1) << story;
    // The rank of an agent is the worker's.
    const std::string culprit = std::regex_replace(fault.victim, std::regex("agent"), "worker");
    const std::string said = job.output();
    const size_t first = said.find(": ");
    EXPECT_EQ(said.substr(0, said.find('\n')).find(culprit), first + 2) << story;
    std::smatch blamed;
    if (std::regex_search(said, blamed,
                          std::regex("culprit=\"([a-z]+ [0-9]+)\" phase=([a-z]+) "
                                     "step=([0-9]+)"))) {
      EXPECT_EQ(blamed[1], culprit) << story;
      const bool serving = blamed[2] == "serving";
      EXPECT_TRUE(serving == culprit.starts_with("server") || blamed[2] == "starting" ||
                  blamed[2] == "finishing")
          << story;
      EXPECT_LE(std::stoi(blamed[3]), fault.steps() + 1) << story;
    }
  }

  // One of every kind of victim, signal and moment, drawn in turn; prints a table of times.
  void run_series(Kind kind, int signal, Moment moment, int count) {
    std::vector<std::string> victims = {"worker 0", "worker 1"};
    if (kind == Kind::kServers) {
      victims.insert(victims.end(), {"server 0", "server 1"});
    } else if (kind == Kind::kRanks) {
      victims.insert(victims.end(), {"agent 0", "agent 1"});
    }
    if (signal == SIGKILL) victims.push_back("launcher");
    const size_t stride = victims.size() == 3 ? 1 : 3;  // meets each of them
    double worst = 0;
    double sum = 0;
    int hits = 0;
    double end_s = Fault().end_s;
    // A job that was over too soon gives way to another, which is hit earlier.
    for (int i = 0; hits < count && i < 5 * count; ++i) {
      const Fault fault{
          .kind = kind,
          .signal = signal,
          .moment = moment,
          .victim = victims[(static_cast<size_t>(i) * stride + static_cast<size_t>(moment)) %
                            victims.size()],
          .seed = i,
          .end_s = end_s};
      const Outcome outcome = run(fault);
      if (!outcome.hit) {
        end_s *= 0.7;
        continue;
      }
      ++hits;
      sum += outcome.detection_s;
      worst = std::max(worst, outcome.detection_s);
    }
    EXPECT_EQ(hits, count) << "jobs ended before they were hit";
    std::printf("%-10s %-7s %-6s  %2d hit  all gone after: mean %.2f s, worst %.2f s\n",
                name_of(kind), signal == SIGKILL ? "SIGKILL" : "SIGSTOP", name_of(moment), hits,
                hits ? sum / hits : 0.0, worst);
  }

  std::string folder_;
};

// How many jobs each series hits: a few in a usual run, 20 when asked for all of them.
int per_series() {
  const char* asked = std::getenv("FLEET_FAULTS_PER_SERIES");
  return asked == nullptr ? 2 : std::atoi(asked);
}

TEST_F(Faults, KilledWhileServersStart) {
  run_series(Kind::kServers, SIGKILL, Moment::kStart, per_series());
}
TEST_F(Faults, KilledWhileServersTrain) {
  run_series(Kind::kServers, SIGKILL, Moment::kMiddle, per_series() + 3);
}
TEST_F(Faults, KilledWhileServersEnd) {
  run_series(Kind::kServers, SIGKILL, Moment::kEnd, per_series());
}
TEST_F(Faults, StoppedWhileServersStart) {
  run_series(Kind::kServers, SIGSTOP, Moment::kStart, per_series());
}
TEST_F(Faults, StoppedWhileServersTrain) {
  run_series(Kind::kServers, SIGSTOP, Moment::kMiddle, per_series());
}
TEST_F(Faults, StoppedWhileServersEnd) {
  run_series(Kind::kServers, SIGSTOP, Moment::kEnd, per_series());
}

TEST_F(Faults, KilledWhileRanksOverSocketsStart) {
  run_series(Kind::kRanksOverSockets, SIGKILL, Moment::kStart, per_series());
}
TEST_F(Faults, KilledWhileRanksOverSocketsTrain) {
  run_series(Kind::kRanksOverSockets, SIGKILL, Moment::kMiddle, per_series() + 1);
}
TEST_F(Faults, KilledWhileRanksOverSocketsEnd) {
  run_series(Kind::kRanksOverSockets, SIGKILL, Moment::kEnd, per_series());
}
TEST_F(Faults, StoppedWhileRanksOverSocketsEnd) {
  run_series(Kind::kRanksOverSockets, SIGSTOP, Moment::kEnd, per_series());
}
TEST_F(Faults, StoppedWhileRanksOverSocketsTrain) {
  run_series(Kind::kRanksOverSockets, SIGSTOP, Moment::kMiddle, per_series());
}
TEST_F(Faults, KilledWhileRanksSharingMemoryStart) {
  run_series(Kind::kRanksSharingMemory, SIGKILL, Moment::kStart, per_series());
}
TEST_F(Faults, KilledWhileRanksSharingMemoryTrain) {
  run_series(Kind::kRanksSharingMemory, SIGKILL, Moment::kMiddle, per_series() + 1);
}
TEST_F(Faults, KilledWhileRanksSharingMemoryEnd) {
  run_series(Kind::kRanksSharingMemory, SIGKILL, Moment::kEnd, per_series());
}
TEST_F(Faults, StoppedWhileRanksSharingMemoryEnd) {
  run_series(Kind::kRanksSharingMemory, SIGSTOP, Moment::kEnd, per_series());
}
TEST_F(Faults, StoppedWhileRanksSharingMemoryTrain) {
  run_series(Kind::kRanksSharingMemory, SIGSTOP, Moment::kMiddle, per_series());
}

TEST_F(Faults, KilledWhileRanksStart) {
  run_series(Kind::kRanks, SIGKILL, Moment::kStart, per_series());
}
TEST_F(Faults, KilledWhileRanksTrain) {
  run_series(Kind::kRanks, SIGKILL, Moment::kMiddle, per_series() + 3);
}
TEST_F(Faults, KilledWhileRanksEnd) {
  run_series(Kind::kRanks, SIGKILL, Moment::kEnd, per_series());
}
TEST_F(Faults, StoppedWhileRanksStart) {
  run_series(Kind::kRanks, SIGSTOP, Moment::kStart, per_series());
}
TEST_F(Faults, StoppedWhileRanksTrain) {
  run_series(Kind::kRanks, SIGSTOP, Moment::kMiddle, per_series());
}
TEST_F(Faults, StoppedWhileRanksEnd) {
  run_series(Kind::kRanks, SIGSTOP, Moment::kEnd, per_series());
}

}  // namespace
}  // namespace fleet
