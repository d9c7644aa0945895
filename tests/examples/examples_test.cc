// Every example as a job of real processes: what it prints, and how it ends at Ctrl-C.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <map>
#include <memory>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/strings.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"
#include "tests/testing/ports.h"

namespace fleet::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using Variables = std::map<std::string, std::string>;

// A process with these variables on top of ours, in a process group of its own.
class Process {
 public:
  Process(const std::vector<std::string>& command, const Variables& variables,
          const std::string& output)
      : output_(output) {
    // Here and now, or says() could still find the words of the process before.
    std::ofstream(output, std::ios::trunc).close();
    std::string text = "exec env";
    for (const auto& [name, value] : variables) text += str_cat(" ", name, "=", value);
    for (const std::string& word : command) text += " " + word;
    text += " > " + output + " 2>&1 < /dev/null";
    const char* arguments[] = {"sh", "-c", text.c_str(), nullptr};
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    if (posix_spawn(&pid_, "/bin/sh", nullptr, &attributes, const_cast<char**>(arguments),
                    environ) != 0) {
      ADD_FAILURE() << "posix_spawn";
    }
    posix_spawnattr_destroy(&attributes);
  }
  ~Process() {
    if (pid_ <= 0) return;
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void interrupt() const { kill(pid_, SIGINT); }
  std::string output() const {
    std::ifstream file(output_);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  // The exit code, or 128 + signal; a test failure and -1 after `limit_s`.
  int wait(double limit_s = 30) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) {
        ADD_FAILURE() << "still running\n" << output();
        return -1;
      }
      usleep(2000);
    }
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  bool says(const std::string& text) const {
    for (int i = 0; i < 10000; ++i) {
      if (output().find(text) != std::string::npos) return true;
      usleep(2000);
    }
    return false;
  }

 private:
  std::string output_;
  pid_t pid_ = 0;
};

class Examples : public ::testing::Test {
 protected:
  Examples() {
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    folder_ = ::testing::TempDir() + "examples-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
  }
  ~Examples() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

TEST_F(Examples, TranspilerDirectTrainsAsThreeProcesses) {
  const std::string server = str_cat("127.0.0.1:", free_port());
  const Variables job = {{"PSERVERS", server},
                         {"TRAINERS", "2"},
                         {"FLEET_JOB_SECRET", "0123456789abcdef0123456789abcdef"}};
  const auto with = [&job](Variables own) {
    own.insert(job.begin(), job.end());
    return own;
  };
  const std::vector<std::string> program = {binary_path("bin/transpiler_direct")};
  Process pserver(program, with({{"TRAINING_ROLE", "PSERVER"}, {"CURRENT_ENDPOINT", server}}),
                  path("server"));
  Process first(program, with({{"TRAINING_ROLE", "TRAINER"}, {"TRAINER_ID", "0"}}), path("first"));
  Process second(program, with({{"TRAINING_ROLE", "TRAINER"}, {"TRAINER_ID", "1"}}),
                 path("second"));
  EXPECT_EQ(first.wait(), 0) << first.output();
  EXPECT_EQ(second.wait(), 0) << second.output();
  EXPECT_EQ(pserver.wait(), 0) << pserver.output();
  for (const Process* trainer : {&first, &second}) {
    const std::string text = trainer->output();
    EXPECT_THAT(text, HasSubstr("step 200 cost"));
    const auto cost = [&text](const std::string& step) {
      return std::stod(text.substr(text.find(step + " cost ") + step.size() + 6));
    };
    EXPECT_LT(cost("step 200"), cost("step 50"));
  }
}

std::string line_of(const std::string& text, const std::string& begin) {
  const size_t at = text.find(begin);
  if (at == std::string::npos) return "no line " + begin + " in " + text;
  return text.substr(at, text.find('\n', at) - at);
}

TEST_F(Examples, TranspilerNccl2HasTheSameBitsAsOneAndAsTwoProcesses) {
  const std::vector<std::string> program = {binary_path("bin/transpiler_nccl2")};
  Process alone(program, {{"CPU_NUM", "2"}}, path("alone"));
  EXPECT_EQ(alone.wait(), 0) << alone.output();
  const std::string weights = line_of(alone.output(), "weights ");
  EXPECT_THAT(weights, HasSubstr("0x"));

  Variables job = {{"TRAINERS", str_cat("127.0.0.1:", free_port(), ",127.0.0.1:", free_port())},
                   {"CPU_NUM", "1"},
                   {"FLEET_COLLECTIVES", "sockets"},
                   {"FLEET_JOB_SECRET", "0123456789abcdef0123456789abcdef"}};
  Process first(program, job, path("first"));
  job["TRAINER_ID"] = "1";
  Process second(program, job, path("second"));
  EXPECT_EQ(first.wait(), 0) << first.output();
  EXPECT_EQ(second.wait(), 0) << second.output();
  EXPECT_EQ(line_of(first.output(), "weights "), weights);
  EXPECT_EQ(line_of(second.output(), "weights "), weights);
  const auto loss = [&alone](const std::string& step) {
    return std::stod(line_of(alone.output(), step + " loss ").substr(step.size() + 6));
  };
  EXPECT_LT(loss("step 100"), loss("step 25"));
}

class TranspilerDirect : public Examples {
 protected:
  // One trainer and one server; `common` and `of_trainer` are shell text in front of the program.
  CommandResult run(const std::string& common, const std::string& of_trainer) const {
    const std::string server = str_cat("127.0.0.1:", free_port());
    const std::string job =
        str_cat("export PSERVERS=", server, " CURRENT_ENDPOINT=", server,
                " TRAINERS=1 FLEET_JOB_SECRET=0123456789abcdef0123456789abcdef; ", common, "; ");
    const std::string program = binary_path("bin/transpiler_direct");
    return run_command(str_cat(job, "TRAINING_ROLE=PSERVER ", program, " & TRAINING_ROLE=TRAINER ",
                               of_trainer, " ", program, "; wait"),
                       60);
  }
};

TEST_F(TranspilerDirect, NamesTooFewDescriptorsBeforeItStarts) {
  const auto result = run("ulimit -n 40", "");
  EXPECT_THAT(result.output, HasSubstr("file descriptors for a job of this size"));
  EXPECT_THAT(result.output, HasSubstr("worker/0"));
  EXPECT_THAT(result.output, HasSubstr("server/0"));
}

TEST_F(TranspilerDirect, RaisesTheSoftLimitOfDescriptors) {
  EXPECT_THAT(run("ulimit -Sn 40", "").output, HasSubstr("step 200 cost"));
}

TEST_F(TranspilerDirect, NamesMachinesThatMayComputeOtherBits) {
  const auto result = run("true", "DNNL_MAX_CPU_ISA=SSE41");
  EXPECT_THAT(result.output, HasSubstr("results may differ in bits"));
  EXPECT_THAT(result.output, HasSubstr("bits.DNNL_MAX_CPU_ISA"));
  EXPECT_THAT(result.output, HasSubstr("step 200 cost"));
}

TEST_F(TranspilerDirect, RefusesThemWhereBitsMustBeTheSame) {
  // The refused trainer leaves a server that would wait for it.
  const auto result =
      run("export FLEET_REQUIRE_SAME_BITS=1 FLAGS_rpc_deadline=3000", "DNNL_MAX_CPU_ISA=SSE41");
  EXPECT_THAT(result.output, HasSubstr("they differ in bits.DNNL_MAX_CPU_ISA"));
  EXPECT_THAT(result.output, Not(HasSubstr("step 200 cost")));
}

// Roles that the code says, without a launcher.
class UserDefinedRoles : public Examples {
 protected:
  static std::string some_servers(int count) {
    std::string servers;
    for (int i = 0; i < count; ++i) {
      servers += str_cat(i > 0 ? "," : "", "127.0.0.1:", free_port());
    }
    return servers;
  }
  std::unique_ptr<Process> start(const std::string& role, int index, int workers,
                                 const std::string& servers, const std::string& output,
                                 const std::string& folder = "") const {
    return std::make_unique<Process>(
        std::vector<std::string>{binary_path("bin/user_defined_roles"), role, str_cat(index),
                                 str_cat(workers), servers, folder},
        Variables{{"FLEET_JOB_SECRET", "0123456789abcdef0123456789abcdef"}}, path(output));
  }
  // The files of the model that two workers train.
  std::map<std::string, std::string> train(int server_num) const {
    const std::string servers = some_servers(server_num);
    const std::string folder = path(str_cat("model", server_num));
    std::vector<std::unique_ptr<Process>> all;
    all.reserve(static_cast<size_t>(server_num) + 2);
    for (int i = 0; i < server_num; ++i) {
      all.push_back(start("server", i, 2, servers, str_cat("server", i)));
    }
    for (int i = 0; i < 2; ++i) {
      all.push_back(start("worker", i, 2, servers, str_cat("worker", i), folder));
    }
    for (const auto& process : all) EXPECT_EQ(process->wait(), 0) << process->output();
    for (int i = 0; i < 2; ++i) {
      const std::string text = all[all.size() - 2 + static_cast<size_t>(i)]->output();
      const auto cost = [&](int step) {
        const std::string line = str_cat("worker ", i, " step ", step, " cost ");
        return std::stod(text.substr(text.find(line) + line.size()));
      };
      EXPECT_LT(cost(100), cost(1)) << text;
    }
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      files[entry.path().filename()] = {std::istreambuf_iterator<char>(file),
                                        std::istreambuf_iterator<char>()};
    }
    return files;
  }
};

TEST_F(UserDefinedRoles, TrainTheSameModelWithAnyNumberOfServers) {
  const auto of_one = train(1);
  EXPECT_THAT(of_one, ::testing::Contains(::testing::Key("params.safetensors")));
  EXPECT_EQ(train(2), of_one);
}

TEST_F(UserDefinedRoles, AWorkerThatCountsOtherWorkersIsToldSo) {
  const std::string servers = some_servers(1);
  const auto server = start("server", 0, 2, servers, "server");
  const auto worker = start("worker", 0, 3, servers, "worker");
  EXPECT_EQ(worker->wait(), 1);
  EXPECT_THAT(worker->output(), HasSubstr("number of workers"));
}

TEST_F(UserDefinedRoles, TwoProcessesOfOneRoleAndIndexAreToldSo) {
  const std::string servers = some_servers(1);
  const auto first = start("server", 0, 1, servers, "first");
  ASSERT_TRUE(first->says("serves")) << first->output();
  const auto second = start("server", 0, 1, servers, "second");
  EXPECT_EQ(second->wait(), 1);
  EXPECT_THAT(second->output(), HasSubstr(servers));
}

TEST_F(UserDefinedRoles, MistakesInArgumentsAreNamed) {
  const auto outside = start("worker", 2, 2, some_servers(1), "outside");
  EXPECT_EQ(outside->wait(), 1);
  EXPECT_THAT(outside->output(), HasSubstr("where: UserDefinedRoleMaker, current_id"));
  const auto nowhere = start("server", 0, 2, "127.0.0.1", "nowhere");
  EXPECT_EQ(nowhere->wait(), 1);
  EXPECT_THAT(nowhere->output(), HasSubstr("where: UserDefinedRoleMaker, server_endpoints"));
}

// Ctrl-C ends the whole job with 130, and no process stays.
TEST_F(Examples, CtrlCEndsEveryTrainerInEveryRole) {
  const std::string forever = "--steps 100000000";
  struct Case {
    std::string launcher;
    std::string program;
  };
  for (const auto& [launcher, program] : std::vector<Case>{
           {binary_path("bin/launch_ps") + " --worker_num 1 --server_num 1 --tee --log_dir ",
            "distributed_train"},
           {binary_path("bin/launch") + " --nproc_per_node 2 --tee --log_dir ",
            "distributed_train"},
           {binary_path("bin/launch") + " --nproc_per_node 2 --tee --log_dir ",
            "collective_train"}}) {
    Process job({launcher + path("logs"), binary_path("bin/" + program), forever}, {},
                path("output"));
    ASSERT_TRUE(job.says("starting")) << job.output();
    job.interrupt();
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(job.wait(), 130) << program << job.output();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    EXPECT_THAT(job.output(), HasSubstr("SIGINT"));
  }
}

TEST_F(Examples, CtrlCEndsATrainerThatRunsAlone) {
  for (const char* program : {"local_trainer", "distributed_train"}) {
    Process alone({binary_path(str_cat("bin/", program)), "--steps 100000000 --progress"}, {},
                  path("output"));
    ASSERT_TRUE(alone.says("step")) << program << alone.output();
    alone.interrupt();
    EXPECT_EQ(alone.wait(10), 130) << program << alone.output();
  }
}

TEST_F(Examples, ACollectiveTrainerDoesNotRunAlone) {
  Process alone({binary_path("bin/collective_train"), "--steps 1"}, {}, path("output"));
  EXPECT_EQ(alone.wait(), 2);
  EXPECT_THAT(alone.output(), HasSubstr("this strategy needs a collective job"));
  EXPECT_THAT(alone.output(), HasSubstr("fix: start the processes with launch or mpirun"));
}

TEST_F(Examples, CtrlCEndsAJobOfMpirun) {
  for (const char* role_maker : {"cloud", "mpi_symetric"}) {
    Process job({"mpirun -np 2 --oversubscribe", binary_path("bin/distributed_train"),
                 str_cat("--steps 100000000 --progress --role_maker ", role_maker)},
                {}, path("output"));
    ASSERT_TRUE(job.says("step")) << role_maker << job.output();
    job.interrupt();
    EXPECT_NE(job.wait(15), 0) << role_maker << job.output();
  }
}

TEST_F(Examples, CtrlCEndsADirectServerAndATrainerThatWaitsForOne) {
  const std::string server = str_cat("127.0.0.1:", free_port());
  Variables job = {{"PSERVERS", server},
                   {"TRAINERS", "2"},
                   {"TRAINER_ID", "0"},
                   {"CURRENT_ENDPOINT", server},
                   {"FLEET_JOB_SECRET", "0123456789abcdef0123456789abcdef"}};
  for (const char* role : {"PSERVER", "TRAINER"}) {
    job["TRAINING_ROLE"] = role;
    Process waiting({binary_path("bin/transpiler_direct")}, job, path("output"));
    usleep(300'000);
    waiting.interrupt();
    EXPECT_EQ(waiting.wait(10), 130) << role << waiting.output();
  }
}

}  // namespace
}  // namespace fleet::testing
