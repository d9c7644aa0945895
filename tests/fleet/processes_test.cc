// Whole jobs of real processes: uneven data, people who ask, progress.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

#include "base/strings.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Processes : public ::testing::Test {
 protected:
  Processes() {
    folder_ = ::testing::TempDir() + "modes-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  ~Processes() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  static std::string worker() { return binary_path("bin/facade_worker"); }
  std::string servers(int workers, int server_num, const std::string& options = "") const {
    return str_cat(binary_path("bin/launch_ps"), " ", options, " --worker_num ", workers,
                   " --server_num ", server_num, " --log_dir ", path("logs"), " ", worker());
  }
  std::string ranks(int workers, const std::string& options = "") const {
    return str_cat(binary_path("bin/launch"), " ", options, " --nproc_per_node ", workers,
                   " --log_dir ", path("logs"), " ", worker());
  }
  std::string logs() const {
    std::string all;
    if (!std::filesystem::exists(path("logs"))) return all;
    for (const auto& file : std::filesystem::directory_iterator(path("logs"))) {
      all += "\n" + file.path().filename().string() + ":\n" +
             read("logs/" + file.path().filename().string());
    }
    return all;
  }

  std::string folder_;
};

// A command that runs beside the test; killed with the test.
class Beside {
 public:
  Beside(const std::string& command, const std::string& output) {
    const std::string text = "exec " + command + " > " + output + " 2>&1 < /dev/null";
    const char* arguments[] = {"sh", "-c", text.c_str(), nullptr};
    if (posix_spawn(&pid_, "/bin/sh", nullptr, nullptr, const_cast<char**>(arguments), environ) !=
        0) {
      ADD_FAILURE() << "posix_spawn";
    }
  }
  ~Beside() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Beside(const Beside&) = delete;
  Beside& operator=(const Beside&) = delete;

  pid_t pid() const { return pid_; }
  // The exit code, or 128 + signal.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  pid_t pid_ = 0;
};

// Looks until the condition holds; a test failure after half a minute.
template <class Condition>
bool eventually(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    usleep(2000);
  }
  return true;
}

// What can be read of /proc/<pid>/<name>: a process may end while its file is open.
std::string process_file(int64_t pid, const char* name) {
  const std::ifstream file(str_cat("/proc/", pid, "/", name), std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The processes of this user whose command line and environment have these texts.
std::vector<pid_t> find_processes(const std::string& command, const std::string& variable) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto pid = parse_int(entry.path().filename().string());
    if (!pid) continue;
    if (process_file(*pid, "cmdline").starts_with(command) &&
        ('\0' + process_file(*pid, "environ")).find('\0' + variable + '\0') != std::string::npos) {
      found.push_back(static_cast<pid_t>(*pid));
    }
  }
  return found;
}

TEST_F(Processes, AWorkerThatFinishesEarlyDoesNotHoldUpACollectiveJob) {
  for (const std::string strategy : {"all_reduce", "local_sgd"}) {
    const auto result = run_command(
        ranks(3) + " --strategy " + strategy + " --steps 40,5,0 --save " + path("model"), 60);
    EXPECT_EQ(result.code, 0) << strategy << result.output << logs();
    EXPECT_THAT(read("logs/workerlog.0"), HasSubstr("worker 0 ended after 40 steps"));
    EXPECT_THAT(read("logs/workerlog.1"), HasSubstr("worker 1 ended after 5 steps"));
    EXPECT_THAT(read("logs/workerlog.2"), HasSubstr("worker 2 ended after 0 steps"));
    EXPECT_TRUE(std::filesystem::exists(path("model/params.safetensors")));
  }
}

TEST_F(Processes, AWorkerThatFinishesEarlyDoesNotHoldUpASynchronousJob) {
  const auto result = run_command(servers(2, 2) + " --strategy sync --steps 40,5", 60);
  EXPECT_EQ(result.code, 0) << result.output << logs();
  EXPECT_THAT(read("logs/workerlog.0"), HasSubstr("worker 0 ended after 40 steps"));
  EXPECT_THAT(read("logs/workerlog.1"), HasSubstr("worker 1 ended after 5 steps"));
}

// What the last line of --json says.
nlohmann::json last_json(const std::string& output) {
  nlohmann::json last;
  for (const std::string& line : split(output, '\n')) {
    if (line.starts_with("{")) last = nlohmann::json::parse(line);
  }
  return last;
}

// Each of 2 servers has one of the net's two parameters, w and b: a gradient of each step.
TEST_F(Processes, NothingIsLostWhereWorkersSendWhatTheyHave) {
  for (const std::string strategy : {"async", "ssp", "dc_asgd"}) {
    const auto result =
        run_command(servers(3, 2, "--json") + " --strategy " + strategy + " --steps 40,5,0", 60);
    ASSERT_EQ(result.code, 0) << strategy << result.output << logs();
    const auto last = last_json(result.output);
    for (const auto& server : last.at("servers")) EXPECT_EQ(server.at("updates"), 45) << strategy;
    EXPECT_THAT(read("logs/workerlog.0"), HasSubstr("worker 0 ended after 40 steps"));
    EXPECT_THAT(read("logs/workerlog.1"), HasSubstr("worker 1 ended after 5 steps"));
    EXPECT_THAT(read("logs/workerlog.2"), HasSubstr("worker 2 ended after 0 steps"));
  }
}

TEST_F(Processes, AWorkerThatFinishesEarlyHoldsUpNoExchangeOfDifferences) {
  for (const std::string strategy : {"half_async", "geo", "easgd"}) {
    const auto result = run_command(servers(3, 2) + " --strategy " + strategy +
                                        " --interval 3 --steps 40,5,0 --save " + path("model"),
                                    60);
    EXPECT_EQ(result.code, 0) << strategy << result.output << logs();
    EXPECT_TRUE(std::filesystem::exists(path("model/params.safetensors"))) << strategy;
    std::filesystem::remove_all(path("model"));
  }
}

// Trainer threads of the facade's program; what they did is counted.
TEST_F(Processes, SeveralTrainerThreadsShareAWorker) {
  setenv("CPU_NUM", "2", 1);
  for (const std::string strategy : {"async", "half_async", "geo", "easgd"}) {
    const auto result =
        run_command(servers(2, 1, "--json") + " --strategy " + strategy + " --steps 30", 60);
    ASSERT_EQ(result.code, 0) << strategy << result.output << logs();
    const auto last = last_json(result.output);
    for (const auto& worker : last.at("workers")) {
      EXPECT_EQ(worker.at("step"), 60) << strategy;
      EXPECT_EQ(worker.at("samples"), 480) << strategy;
    }
  }
  unsetenv("CPU_NUM");
}

// By the servers' version counters. A worker that receives in step gets values right behind its
// gradient, so that each update of another one falls between two of its own. They sleep, so that
// they are equal on a busy machine too.
TEST_F(Processes, MeanStalenessOfFreeRunningWorkersIsTheNumberOfTheOthers) {
  setenv("FLAGS_communicator_independent_recv_thread", "false", 1);
  const auto result = run_command(
      servers(4, 1, "--json") + " --strategy async --meet --steps 200 --sleep_ms 5", 60);
  unsetenv("FLAGS_communicator_independent_recv_thread");
  ASSERT_EQ(result.code, 0) << result.output << logs();
  const double staleness = last_json(result.output).at("servers").at(0).at("staleness");
  std::cout << "mean staleness of 4 workers: " << staleness << "\n";
  EXPECT_NEAR(staleness, 3.0, 0.6);
}

// Starts a job whose worker 1 pauses, and asks the waiting worker 0 (and a server) by SIGUSR1.
class WaitsOf : public Processes {
 protected:
  void start(const std::string& command) {
    setenv("FLEET_JOB_ID", folder_.c_str(), 1);
    job_ = std::make_unique<Beside>(command + " --pause_at 3 --pause_worker 1", path("output"));
    unsetenv("FLEET_JOB_ID");
    ASSERT_TRUE(eventually([this] {
      return read("logs/workerlog.1").find("pausing") != std::string::npos;
    })) << logs();
  }
  pid_t process(const std::string& variable) {
    for (const pid_t pid : find_processes(worker(), "FLEET_JOB_ID=" + folder_)) {
      const std::string variables = '\0' + process_file(pid, "environ");
      if (variables.find('\0' + variable + '\0') != std::string::npos) return pid;
    }
    ADD_FAILURE() << "no process with " << variable;
    return 0;
  }
  // Asks until the log says the text: at first the process may not have come to wait yet.
  bool asked(const std::string& variable, const std::string& log, const std::string& text) {
    const pid_t pid = process(variable);
    if (pid == 0) return false;
    return eventually([&] {
      kill(pid, SIGUSR1);
      usleep(20000);
      return read("logs/" + log).find(text) != std::string::npos;
    });
  }
  void go_on() {
    kill(process("PADDLE_TRAINER_ID=1"), SIGUSR2);
    EXPECT_EQ(job_->wait(), 0) << read("output") << logs();
  }

  std::unique_ptr<Beside> job_;
};

TEST_F(WaitsOf, AWorkerAndAServerAreToldBySigusr1) {
  start(servers(2, 1) + " --strategy sync");
  EXPECT_TRUE(asked("PADDLE_TRAINER_ID=0", "workerlog.0", "receiving at step 3")) << logs();
  EXPECT_THAT(read("logs/workerlog.0"), ContainsRegex("requests: [a-z]+ waits for server 0"));
  EXPECT_TRUE(asked("TRAINING_ROLE=PSERVER", "serverlog.0", "step 4 waits for worker 1")) << logs();
  go_on();
}

TEST_F(WaitsOf, ARankOfACollectiveJobIsToldBySigusr1) {
  start(ranks(2));
  EXPECT_TRUE(asked("PADDLE_TRAINER_ID=0", "workerlog.0", "reducing at step 3")) << logs();
  go_on();
}

TEST_F(Processes, ProgressEndsWithATableOfWorkersAndServers) {
  const auto result = run_command(servers(2, 2, "--progress") + " --strategy sync --steps 50", 60);
  EXPECT_EQ(result.code, 0) << result.output << logs();
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("worker  steps  samples"), ContainsRegex("\n  0 +50 +400 "),
                    ContainsRegex("\n  1 +50 +400 "), HasSubstr("server  received"),
                    ContainsRegex("\n  1 +[0-9.]+ k?B +[0-9.]+ k?B +50 ")));
}

// Each worker of 2 takes 100 steps of 8 rows, at least 40 ms each; the net's two parameters, w and
// b, have a server each.
TEST_F(Processes, EveryFieldOfEveryJsonLineIsThere) {
  const auto result = run_command(
      servers(2, 2, "--json") + " --strategy async --steps 100 --sleep_ms 40 --report", 60);
  ASSERT_EQ(result.code, 0) << result.output << logs();
  std::vector<nlohmann::json> lines;
  for (const std::string& line : split(result.output, '\n')) {
    if (line.starts_with("{")) lines.push_back(nlohmann::json::parse(line));
  }
  ASSERT_GE(lines.size(), 3U) << "a line a second, and one at the end";
  double time = 0;
  for (const auto& line : lines) {
    EXPECT_GT(line.at("t"), time);
    time = line.at("t");
    EXPECT_EQ(line.at("worker_num"), 2);
    EXPECT_EQ(line.at("server_num"), 2);
    EXPECT_EQ(line.contains("final"), &line == &lines.back());
  }
  for (const char* key : {"steps_per_s", "samples_per_s", "loss", "staleness", "eta_s",
                          "slowest_worker", "busiest_server"}) {
    EXPECT_TRUE(std::any_of(lines.begin(), lines.end() - 1,
                            [key](const auto& line) { return line.contains(key); }))
        << key << " in " << result.output;
  }
  const auto& last = lines.back();
  EXPECT_EQ(last.at("workers_done"), 2);
  ASSERT_EQ(last.at("workers").size(), 2U);
  for (const auto& worker : last.at("workers")) {
    EXPECT_EQ(worker.at("step"), 100);
    EXPECT_EQ(worker.at("steps"), 100);
    EXPECT_EQ(worker.at("samples"), 800);
    EXPECT_GE(worker.at("loss"), 0);
    EXPECT_GT(worker.at("compute_s"), 0);
    double shares = 0;
    for (const char* key : {"compute", "send", "receive", "reduce", "barrier"}) {
      const double share = worker.value(str_cat(key, "_share"), 0.0);
      EXPECT_EQ(share > 0, worker.value(str_cat(key, "_s"), 0.0) > 0) << key;
      shares += share;
    }
    EXPECT_NEAR(shares, 1, 1e-9);
    EXPECT_NEAR(worker.at("wait_share"), 1 - worker.at("compute_share").get<double>(), 1e-9);
  }
  ASSERT_EQ(last.at("servers").size(), 2U);
  for (const auto& server : last.at("servers")) {
    EXPECT_EQ(server.at("updates"), 200);
    EXPECT_GE(server.at("bytes_in"), 200 * 4);
    EXPECT_GT(server.at("bytes_out"), 0);
    EXPECT_GE(server.at("staleness"), 0);
    EXPECT_DOUBLE_EQ(server.at("busy"),
                     server.at("cpu_s").get<double>() / server.at("up_s").get<double>());
  }
}

class UnlikeHosts : public Processes {
 protected:
  // Workers run as on a machine where oneDNN may use less.
  CommandResult run(const std::string& variables) {
    std::ofstream(path("start")) << "#!/bin/sh\n[ \"$TRAINING_ROLE\" = PSERVER ] || export "
                                    "DNNL_MAX_CPU_ISA=SSE41\nexec "
                                 << worker() << " \"$@\"\n";
    std::filesystem::permissions(path("start"), std::filesystem::perms::owner_all);
    return run_command(str_cat(variables, " ", binary_path("bin/launch_ps"), " --log_dir ",
                               path("logs"), " ", path("start"), " --strategy sync --steps 3"),
                       60);
  }
};

TEST_F(UnlikeHosts, TrainWithMoreLanesThanCoresAndNameWhatDiffers) {
  const auto result = run("FLEET_DATA_LANES=7");
  EXPECT_EQ(result.code, 0) << result.output << logs();
  EXPECT_THAT(read("logs/workerlog.1"),
              AllOf(HasSubstr("results may differ in bits"), HasSubstr("bits.DNNL_MAX_CPU_ISA"),
                    HasSubstr("bits.oneDNN_isa")));
}

TEST_F(UnlikeHosts, AreRefusedWhereBitsMustBeTheSame) {
  const auto result = run("FLEET_REQUIRE_SAME_BITS=1");
  EXPECT_EQ(result.code, 1) << result.output;
  EXPECT_THAT(logs(), AllOf(HasSubstr("they differ in bits.DNNL_MAX_CPU_ISA"),
                            HasSubstr("bits.DNNL_MAX_CPU_ISA = SSE41")));
}

TEST_F(Processes, TooFewDescriptorsAreNamedBeforeTheJobStarts) {
  const auto result =
      run_command("ulimit -n 40; " + servers(1, 1, "--tee") + " --strategy sync --steps 1", 60);
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.output + logs(),
              AllOf(HasSubstr("file descriptors for a job of this size"),
                    HasSubstr("a hard limit of 40"), HasSubstr("LimitNOFILE=")));
}

TEST_F(Processes, RanksAddUpLongVectors) {
  const auto result =
      run_command(ranks(2, "--tee") + " --strategy all_reduce --all_reduce 1000000 --steps 1", 60);
  EXPECT_EQ(result.code, 0) << result.output << logs();
  EXPECT_THAT(result.output, HasSubstr("added up 1000000 numbers"));
}

TEST_F(Processes, WorkersAddUpLongVectorsThroughTheirServers) {
  for (const char* strategy : {"sync", "async"}) {
    const auto result = run_command(str_cat(servers(2, 1, "--tee"), " --strategy ", strategy,
                                            " --all_reduce 1000000 --steps 1"),
                                    60);
    EXPECT_EQ(result.code, 0) << strategy << result.output << logs();
    EXPECT_THAT(result.output, HasSubstr("added up 1000000 numbers"));
  }
}

// The parameter and its gradient are 20 MB each; what else is allocated decides where it ends.
TEST_F(Processes, AServerWithoutMemoryEndsTheJobWithAMessage) {
  const std::pair<const char*, int> kRooms[] = {{"sync", 45}, {"async", 45}, {"async", 65}};
  for (const auto& [strategy, room] : kRooms) {
    SCOPED_TRACE(str_cat(strategy, " ", room, " MB"));
    const auto result = run_command(str_cat(servers(1, 1), " --strategy ", strategy,
                                            " --width 5000000 --steps 3 --server_room_mb ", room),
                                    60);
    EXPECT_EQ(result.code, 1) << result.output << logs();
    EXPECT_THAT(result.output + logs(), HasSubstr("this process has no memory left"));
    EXPECT_THAT(result.output + logs(), Not(HasSubstr("terminate called")));
    EXPECT_THAT(result.output, Not(HasSubstr("was killed by")));
  }
}

TEST_F(Processes, TheSoftLimitOfDescriptorsIsRaised) {
  const auto result =
      run_command("ulimit -Sn 40; " + servers(1, 1, "--tee") + " --strategy sync --steps 1", 60);
  EXPECT_EQ(result.code, 0) << result.output << logs();
}

TEST_F(Processes, TheConfigurationIsPrintedWithTheOriginOfEachValue) {
  setenv("FLAGS_rpc_send_thread_num", "1", 1);
  const auto result =
      run_command(servers(1, 1, "--tee") + " --strategy sync --steps 1 --print", 60);
  unsetenv("FLAGS_rpc_send_thread_num");
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output,
              AllOf(HasSubstr("rpc_send_thread_num = 1  (FLAGS_rpc_send_thread_num)  no effect"),
                    HasSubstr("communicator_thread_pool_size = 5  (default)"),
                    HasSubstr("data_lanes = 1  (default)")));
}

}  // namespace
}  // namespace fleet::testing
