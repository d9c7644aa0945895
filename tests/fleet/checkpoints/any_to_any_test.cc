// Checkpoints of a job that any other takes up: real processes, in every mode, with every count of
// workers and servers.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/strings.h"
#include "tests/fleet/checkpoints/checkpoint_files.h"
#include "tests/fluid/io/sample_checkpoints.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kEvery = 4;

// A job's processes: without servers ranks, or one process alone.
struct Processes {
  int workers = 1;
  int servers = 0;

  std::string name() const {
    return servers > 0 ? str_cat(workers, "x", servers) : str_cat(workers);
  }
};

class Jobs : public ::testing::Test {
 protected:
  Jobs() {
    std::string folder = ::testing::TempDir() + "checkpoints-XXXXXX";
    root_ = mkdtemp(folder.data());
    setenv("FLEET_SERVER_FOLDERS", root_.c_str(), 1);
  }
  ~Jobs() override {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  fs::path path(const std::string& name) const { return root_ / name; }

  // Runs a job to its end; returns what it wrote.
  std::string run(const Processes& job, const std::string& options, int code = 0) const {
    std::string launcher;
    const std::string logs = path("logs").string();
    if (job.servers > 0) {
      launcher = str_cat(binary_path("bin/launch_ps"), " --worker_num ", job.workers,
                         " --server_num ", job.servers, " --log_dir ", logs, " --tee ");
    } else if (job.workers > 1) {
      launcher = str_cat(binary_path("bin/launch"), " --collectives sockets --nproc_per_node ",
                         job.workers, " --log_dir ", logs, " --tee ");
    }
    const auto done =
        run_command(launcher + binary_path("bin/checkpoint_worker") + " " + options, 100);
    EXPECT_EQ(done.code, code) << options << "\n" << done.output;
    return done.output;
  }

  fs::path root_;
};

// In step, with four logical shards. One job after the other takes up what the one before left,
// some steps behind its last checkpoint, which are trained again.
class InStep : public Jobs {
 protected:
  void expect_bits_of_one_run(const std::vector<Processes>& jobs,
                              const std::string& options) const {
    const int steps = kEvery * static_cast<int>(jobs.size());
    run({}, str_cat(options, " --steps ", steps, " --every ", steps, " --folder ",
                    path("whole").string()));
    int end = 0;
    for (const Processes& job : jobs) {
      end += kEvery;
      const int until = end == steps ? steps : end + 1;
      SCOPED_TRACE(job.name());
      run(job, str_cat(options, " --steps ", until, " --every ", kEvery, " --keep 0 --folder ",
                       path("parts").string()));
    }
    EXPECT_THAT(differences(of_step(path("whole"), steps), of_step(path("parts"), steps)),
                IsEmpty());
  }
};

class AnyToAny : public InStep, public ::testing::WithParamInterface<const char*> {};

TEST_P(AnyToAny, GivesTheBitsOfARunThatWasNeverStopped) {
  expect_bits_of_one_run({{1, 0}, {2, 2}, {4, 0}, {1, 3}, {2, 0}, {4, 1}},
                         str_cat("--optimizer ", GetParam()));
}

// Rows of a growing table are on servers, or in the one process.
TEST_F(InStep, OfGrowingTablesHasTheBitsOfOneRun) {
  for (const char* optimizer : {"adam", "adagrad_plain"}) {
    SCOPED_TRACE(optimizer);
    expect_bits_of_one_run({{1, 0}, {2, 2}, {1, 3}, {1, 0}, {4, 1}},
                           str_cat("--growing --optimizer ", optimizer));
    const auto saved = fluid::io::CheckpointReader::open(of_step(path("parts"), 5 * kEvery));
    ASSERT_TRUE(saved.ok());
    EXPECT_TRUE(saved.value().tables().contains("grown"));
    EXPECT_THAT(fluid::io::CheckpointReader::find_damage(of_step(path("parts"), 5 * kEvery)),
                IsEmpty());
    fs::remove_all(path("whole"));
    fs::remove_all(path("parts"));
  }
}

// What each logical shard has kept back of its gradients.
TEST_F(InStep, GoesOnWithWhatShardsHaveKept) {
  expect_bits_of_one_run({{1, 0}, {2, 0}, {4, 0}, {2, 0}, {1, 0}}, "--optimizer dgc");
}

// Each rank of a collective job has running statistics of its own.
TEST_F(InStep, OfServersHasTheBitsOfRunningStatisticsToo) {
  expect_bits_of_one_run({{2, 2}, {1, 0}, {4, 1}, {1, 2}}, "--batch_norm --optimizer adam");
}

INSTANTIATE_TEST_SUITE_P(Optimizers, AnyToAny,
                         ::testing::Values("sgd", "momentum", "adam", "lamb", "adagrad", "rmsprop",
                                           "ftrl", "dpsgd"),
                         [](const auto& param) { return std::string(param.param); });

// What workers have for themselves goes on, too, where there are as many.
class OwnState : public Jobs {
 protected:
  // Saved at steps that all agree on.
  void expect_what_one_run_saves(const Processes& job, const std::string& options) const {
    const std::string each = str_cat(options, " --copy_every ", kEvery);
    run(job, str_cat(each, " --steps 12 --copy_to ", path("whole").string()));
    const std::string parts = str_cat(" --copy_to ", path("parts").string());
    run(job, str_cat(each, parts, " --steps 5"));
    for (const int until : {9, 12}) {
      run(job, str_cat(each, parts, " --steps ", until, " --load ", path("parts").string()));
    }
    EXPECT_THAT(differences(of_step(path("whole"), 12), of_step(path("parts"), 12)), IsEmpty());
  }
  void expect_own(const std::vector<std::string>& names) const {
    const auto saved = fluid::io::CheckpointReader::open(of_step(path("whole"), 12));
    ASSERT_TRUE(saved.ok());
    for (const std::string& name : names) EXPECT_TRUE(saved.value().tensors().contains(name));
  }
};

TEST_F(OwnState, OfRanksIsTheirRunningStatistics) {
  expect_what_one_run_saves({2, 0}, "--batch_norm --optimizer adam");
  expect_own({"worker-0/batch_norm_0.w_1", "worker-1/batch_norm_0.w_1"});
}

TEST_F(OwnState, OfLocalSgdIsOptimizersAndTheSchedule) {
  expect_what_one_run_saves({2, 0}, "--strategy local_sgd --optimizer momentum");
  expect_own({"worker-1/fc_0.w_0_velocity_0", "worker-1/@counts"});
  EXPECT_THAT(run({3, 0}, "--strategy local_sgd --optimizer momentum --shards 3 --print --folder " +
                              path("whole").string() + " --steps 13"),
              HasSubstr("begins with step 12"));
}

TEST_F(OwnState, OfGeoIsOptimizersAndTheStepsBetweenExchanges) {
  expect_what_one_run_saves({1, 1}, "--strategy geo --optimizer adam");
  expect_own({"worker-0/fc_0.w_0_moment1_0", "worker-0/@counts"});
}

TEST_F(OwnState, OfEasgdIsParametersToo) {
  expect_what_one_run_saves({1, 2}, "--strategy easgd --optimizer momentum");
  expect_own({"worker-0/fc_0.w_0", "worker-0/fc_0.w_0_velocity_0", "worker-0/@counts"});
}

struct OtherMode {
  const char* strategy;
  Processes job;
};

class EveryMode : public Jobs, public ::testing::WithParamInterface<OtherMode> {};

// What such a job saves is taken up exactly, by itself and by one process. Its workers save when
// one of them has taken so many steps, each behind a step of its own.
TEST_P(EveryMode, IsTakenUpAsItWasSaved) {
  const auto& [strategy, job] = GetParam();
  const std::string options = str_cat("--optimizer plain --strategy ", strategy);
  const std::string saving = str_cat(" --sleep_ms 8 --every 10 --folder ", path("saved").string());
  run(job, options + saving + " --steps 60");
  const auto saved = fluid::io::CheckpointStore(path("saved")).list();
  ASSERT_FALSE(saved.empty());
  EXPECT_GE(saved.front().step, 20);
  for (const Processes& next : {job, Processes{}}) {
    SCOPED_TRACE(next.name());
    const std::string copy = path("copy" + next.name()).string();
    run(next,
        str_cat(options, " --load ", saved.front().folder.string(), " --steps 0 --copy_to ", copy));
    EXPECT_THAT(differences(saved.front().folder, of_step(copy, saved.front().step),
                            next.workers == job.workers),
                IsEmpty());
  }
  EXPECT_THAT(run(job, options + saving + " --steps 70 --print"),
              HasSubstr(str_cat("begins with step ", saved.front().step)));
}

INSTANTIATE_TEST_SUITE_P(Modes, EveryMode,
                         ::testing::Values(OtherMode{"async", {2, 2}},
                                           OtherMode{"half_async", {2, 1}},
                                           OtherMode{"dc_asgd", {2, 1}}, OtherMode{"geo", {2, 2}},
                                           OtherMode{"easgd", {2, 1}},
                                           OtherMode{"local_sgd", {2, 0}}),
                         [](const auto& param) { return std::string(param.param.strategy); });

TEST_F(Jobs, GoOnWithReadersAndWhatTheUserSaved) {
  const std::string options = str_cat("--print --every 5 --folder ", path("saved").string());
  EXPECT_THAT(run({}, options + " --steps 7"),
              HasSubstr("begins with step 0, position 0, mine ''"));
  EXPECT_THAT(run({2, 1}, options + " --steps 8"),
              HasSubstr("begins with step 5, position 5, mine 'of the user'"));
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST_F(Jobs, SaveAndLoadInPaddlesForm) {
  const std::string whole = path("whole").string();
  const std::string parts = path("parts").string();
  run({}, "--optimizer adam --steps 12 --copy_to " + whole);
  const std::string options = "--optimizer adam --print --paddle " + path("paddle").string();
  EXPECT_THAT(run({}, options + " --keep 2 --steps 4"), HasSubstr("begins with step 0"));
  EXPECT_THAT(run({2, 2}, options + " --keep 2 --steps 8"), HasSubstr("begins with step 4"));
  EXPECT_THAT(names_in(path("paddle")), ::testing::ElementsAre("__paddle_fleet_checkpoint__.0",
                                                               "__paddle_fleet_checkpoint__.1"));
  EXPECT_THAT(run({2, 0}, options + " --steps 12 --copy_to " + parts),
              HasSubstr("begins with step 8"));
  EXPECT_THAT(names_in(path("paddle")), ::testing::ElementsAre("__paddle_fleet_checkpoint__.2"));
  EXPECT_THAT(names_in(path("paddle") / "__paddle_fleet_checkpoint__.2"),
              ::testing::ElementsAre("_paddle_fleet_param__", "fleet_train_status"));
  EXPECT_THAT(differences(of_step(whole, 12), of_step(parts, 12)), IsEmpty());
}

TEST_F(Jobs, RefuseADamagedCheckPointOfPaddlesForm) {
  const std::string options = "--optimizer adam --steps 2 --paddle " + path("paddle").string();
  run({}, options);
  const fs::path folder = path("paddle") / "__paddle_fleet_checkpoint__.0";
  std::ofstream(folder / "fleet_train_status") << "{\"epoch_no\": -3}";
  EXPECT_THAT(run({2, 1}, options, 1), HasSubstr("epoch_no = -3"));
}

std::vector<std::string> parts_in(const fs::path& folder) {
  std::vector<std::string> names = names_in(folder);
  std::erase_if(names, [](const std::string& name) { return !name.starts_with("part-"); });
  return names;
}

// Parameters are cut into slices.
TEST_F(Jobs, HaveServersWriteAndReadWhatTheyKeep) {
  const std::string options = "--optimizer adam --width 200 --every 4 --keep 0 --folder ";
  run({}, options + path("whole").string() + " --steps 12");
  run({1, 2}, options + path("saved").string() + " --steps 4");
  EXPECT_EQ(parts_in(of_step(path("saved"), 4)).size(), 3U);
  const auto checkpoint = fluid::io::CheckpointReader::open(of_step(path("saved"), 4));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
  EXPECT_GT(checkpoint.value().tensors().at("fc_1.w_0").pieces.size(), 1U);
  EXPECT_THAT(differences(of_step(path("whole"), 4), of_step(path("saved"), 4)), IsEmpty());
  const std::string said = run({2, 3}, options + path("saved").string() + " --steps 8");
  EXPECT_THAT(said, Not(HasSubstr("workers read what servers keep")));
  run({2, 0}, options + path("saved").string() + " --steps 12");
  EXPECT_THAT(differences(of_step(path("whole"), 12), of_step(path("saved"), 12)), IsEmpty());
}

TEST_F(Jobs, HaveWorkersWriteAndReadWhereServersMayNot) {
  setenv("FLEET_SERVER_FOLDERS", path("other").c_str(), 1);
  const std::string options = "--optimizer adam --every 4 --folder " + path("saved").string();
  const std::string said = run({1, 2}, options + " --steps 4");
  EXPECT_THAT(said, HasSubstr("workers write what servers keep"));
  EXPECT_THAT(said, HasSubstr("FLEET_SERVER_FOLDERS of the servers"));
  EXPECT_EQ(parts_in(of_step(path("saved"), 4)).size(), 1U);
  EXPECT_THAT(run({1, 2}, options + " --steps 8"), HasSubstr("workers read what servers keep"));
  run({}, "--optimizer adam --every 8 --steps 8 --folder " + path("whole").string());
  EXPECT_THAT(differences(of_step(path("whole"), 8), of_step(path("saved"), 8)), IsEmpty());
}

// Nothing of the damaged one has been taken by any process.
TEST_F(Jobs, TakeAnOlderCheckpointWhereAServerFindsDamage) {
  const std::string options = "--optimizer adam --width 200 --every 4 --keep 0 --folder ";
  run({}, options + path("whole").string() + " --steps 8");
  run({1, 2}, options + path("saved").string() + " --steps 8");
  const fs::path part = of_step(path("saved"), 8) / "part-2-of-3.safetensors";
  fluid::testing::flip_bit(part, fs::file_size(part) - 1);
  const std::string said = run({1, 2}, options + path("saved").string() + " --steps 8");
  EXPECT_THAT(said, HasSubstr("an older one is looked for"));
  EXPECT_THAT(said, HasSubstr("part-2-of-3.safetensors"));
  EXPECT_THAT(differences(of_step(path("whole"), 8), of_step(path("saved"), 8)), IsEmpty());
}

TEST_F(Jobs, TakeAnOlderCheckpointWhereAGrowingTableIsDamaged) {
  const std::string options =
      "--optimizer adam --growing --every 4 --keep 0 --folder " + path("saved").string();
  run({1, 2}, options + " --steps 8");
  const fs::path newest = of_step(path("saved"), 8);
  fs::path table;
  for (const auto& entry : fs::directory_iterator(newest)) {
    if (entry.path().extension() == ".table") table = entry.path();
  }
  ASSERT_FALSE(table.empty());
  fluid::testing::flip_bit(table, fs::file_size(table) / 2);
  const std::string said = run({1, 2}, options + " --steps 8");
  EXPECT_THAT(said, HasSubstr("an older one is looked for"));
  EXPECT_THAT(said, HasSubstr(table.filename().string()));
}

// Servers that do not see the folder, such as those of other machines.
TEST_F(Jobs, HaveWorkersWriteWhatServersKeepElsewhere) {
  if (run_command("unshare -m true").code != 0) GTEST_SKIP() << "unshare -m needs privileges";
  const std::string folder = path("saved").string();
  fs::create_directories(folder);
  std::ofstream(path("train.sh")) << "if [ $TRAINING_ROLE != PSERVER ]; then exec \"$@\"; fi\n"
                                  << "exec unshare -m sh -c 'mount -t tmpfs none " << folder
                                  << " && exec \"$@\"' sh \"$@\"\n";
  const auto done =
      run_command(str_cat(binary_path("bin/launch_ps"), " --worker_num 2 --server_num 2 --log_dir ",
                          path("logs").string(), " --tee sh ", path("train.sh").string(), " ",
                          binary_path("bin/checkpoint_worker"),
                          " --optimizer adam --every 4 --steps 8 --folder ", folder),
                  100);
  EXPECT_EQ(done.code, 0) << done.output;
  EXPECT_THAT(done.output, HasSubstr("workers write what servers keep"));
  EXPECT_EQ(parts_in(of_step(folder, 8)).size(), 2U);
  run({}, "--optimizer adam --every 8 --steps 8 --folder " + path("whole").string());
  EXPECT_THAT(differences(of_step(path("whole"), 8), of_step(folder, 8)), IsEmpty());
}

TEST_F(Jobs, SaveEverySoManySeconds) {
  for (const char* strategy : {"sync", "async"}) {
    const std::string folder = path(strategy).string();
    run({2, 1}, str_cat("--optimizer plain --sleep_ms 5 --steps 300 --every_ms 400 --folder ",
                        folder, " --strategy ", strategy));
    const size_t count = fluid::io::CheckpointStore(folder).list().size();
    EXPECT_GE(count, 2U) << strategy;
  }
}

// A worker that has fewer rows than the others leaves early; the others save without it.
TEST_F(Jobs, SaveWithoutWorkersThatHaveStopped) {
  for (const std::string strategy : {"sync", "async", "geo", "all_reduce"}) {
    const Processes job = strategy == "all_reduce" ? Processes{3, 0} : Processes{3, 1};
    const std::string folder = path(strategy).string();
    run(job,
        str_cat("--optimizer plain --sleep_ms 8 --shards 3 --steps 60 --short_by 40 --every 10 "
                "--folder ",
                folder, " --strategy ", strategy));
    const auto saved = fluid::io::CheckpointStore(folder).list();
    ASSERT_FALSE(saved.empty()) << strategy;
    EXPECT_GE(saved.front().step, 30) << strategy;
  }
}

// A worker that waits for the others, in a call of its own program, saves with them meanwhile.
TEST_F(Jobs, SaveWhileAWorkerWaitsForTheOthers) {
  for (const std::string strategy : {"async", "half_async", "geo", "all_reduce"}) {
    const Processes job = strategy == "all_reduce" ? Processes{2, 0} : Processes{2, 1};
    const std::string folder = path(strategy).string();
    const std::string said = run(
        job, str_cat("--optimizer plain --sleep_ms 5 --shards 2 --steps 60 --short_by 45 --meet "
                     "--every 10 --folder ",
                     folder, " --copy_to ", folder, "-end --strategy ", strategy));
    EXPECT_THAT(said, HasSubstr("2 workers met"));
    const auto saved = fluid::io::CheckpointStore(folder).list();
    ASSERT_FALSE(saved.empty()) << strategy;
    EXPECT_GE(saved.front().step, 50) << strategy;
    const auto reader = fluid::io::CheckpointReader::open(saved.front().folder);
    ASSERT_TRUE(reader.ok());
    const int64_t step_of_the_other = strategy == "all_reduce" ? 0 : 15;
    EXPECT_GE(reader.value().info().worker_steps.at(1), step_of_the_other);
    EXPECT_TRUE(fs::exists(of_step(folder + "-end", 60))) << strategy;
  }
}

// Also where the first worker is the one that leaves.
TEST_F(Jobs, SaveWithoutTheFirstWorker) {
  for (const char* strategy : {"sync", "async"}) {
    const std::string folder = path(strategy).string();
    const std::string options = str_cat("--optimizer plain --shards 3 --every 10 --folder ", folder,
                                        " --strategy ", strategy);
    run({3, 1}, options + " --sleep_ms 8 --steps 60 --short_by 25 --short_worker 0");
    const auto saved = fluid::io::CheckpointStore(folder).list();
    ASSERT_FALSE(saved.empty()) << strategy;
    EXPECT_GE(saved.front().step, 40) << strategy;
    const auto reader = fluid::io::CheckpointReader::open(saved.front().folder);
    ASSERT_TRUE(reader.ok());
    EXPECT_GE(reader.value().info().worker_steps.front(), 10) << strategy;
    EXPECT_EQ(reader.value().info().values.at("mine"), "of the user") << strategy;
  }
}

// The first worker's own step is below that of the checkpoint.
TEST_F(Jobs, KeepTheCheckpointThatTheyAreToldToGoOnFrom) {
  const std::string options =
      str_cat("--optimizer plain --strategy async --folder ", path("saved").string());
  run({2, 1}, options + " --every 10 --sleep_ms 8 --steps 60 --short_by 25 --short_worker 0");
  const auto saved = fluid::io::CheckpointStore(path("saved")).list();
  ASSERT_FALSE(saved.empty());
  setenv("FLEET_RESUME", saved.front().folder.c_str(), 1);
  run({2, 1}, options + " --steps 1");
  unsetenv("FLEET_RESUME");
  EXPECT_TRUE(fs::exists(saved.front().folder));
}

// From the step of the furthest.
TEST_F(Jobs, GoInStepFromWorkersThatWereNot) {
  const std::string options =
      str_cat("--optimizer plain --every 10 --print --folder ", path("saved").string());
  run({2, 1}, options + " --strategy async --sleep_ms 8 --steps 40 --short_by 7");
  const auto saved = fluid::io::CheckpointStore(path("saved")).list();
  ASSERT_FALSE(saved.empty());
  const std::string begins = str_cat("begins with step ", saved.front().step);
  for (const Processes& job : {Processes{2, 1}, Processes{2, 0}}) {
    fs::copy(path("saved"), path("copy"), fs::copy_options::recursive);
    const std::string said = run(
        job,
        str_cat("--optimizer plain --every 3 --print --steps 55 --folder ", path("copy").string()));
    EXPECT_NE(said.find(begins), said.rfind(begins)) << "both workers\n" << said;
    fs::remove_all(path("copy"));
  }
}

TEST_F(Jobs, KeepTheNewest) {
  run({}, str_cat("--every 2 --keep 2 --steps 9 --folder ", path("saved").string()));
  std::vector<int64_t> steps;
  for (const auto& stored : fluid::io::CheckpointStore(path("saved")).list()) {
    steps.push_back(stored.step);
  }
  EXPECT_THAT(steps, ::testing::ElementsAre(8, 6));
}

TEST_F(Jobs, BeginWithWhatTheEnvironmentNames) {
  const std::string options = str_cat("--print --every 2 --folder ", path("saved").string());
  run({}, options + " --steps 6");
  setenv("FLEET_RESUME", of_step(path("saved"), 4).c_str(), 1);
  EXPECT_THAT(run({2, 0}, options + " --steps 5"), HasSubstr("begins with step 4"));
  EXPECT_TRUE(fs::exists(path("saved") / "step-000000006.aside"));
  setenv("FLEET_RESUME", "none", 1);
  EXPECT_THAT(run({}, options + " --steps 3"), HasSubstr("begins with step 0"));
  EXPECT_TRUE(fs::exists(path("saved") / "step-000000004.aside"));
  EXPECT_EQ(fluid::io::CheckpointStore(path("saved")).list().size(), 1U);
  setenv("FLEET_RESUME", path("nowhere").c_str(), 1);
  EXPECT_THAT(run({}, options + " --steps 5", 1),
              HasSubstr("there is no checkpoint to go on from"));
  unsetenv("FLEET_RESUME");
}

// Cuts a file short.
void tear(const fs::path& file) {
  fs::resize_file(file, fs::file_size(file) - 3);
}

TEST_F(Jobs, TakeTheCheckpointBeforeADamagedOne) {
  const std::string options = str_cat("--print --every 2 --folder ", path("saved").string());
  run({2, 0}, options + " --steps 6");
  tear(of_step(path("saved"), 6) / "part-1-of-2.safetensors");
  const std::string said = run({2, 1}, options + " --steps 5");
  EXPECT_THAT(said, HasSubstr("begins with step 4"));
  EXPECT_THAT(said, HasSubstr("cannot be used; an older one is looked for"));
  EXPECT_THAT(said, HasSubstr("part-1-of-2.safetensors"));
}

TEST_F(Jobs, DoNotBeginAnewWhereNoCheckpointCanBeUsed) {
  const std::string options = str_cat("--every 2 --folder ", path("saved").string());
  run({}, options + " --steps 2");
  tear(of_step(path("saved"), 2) / "part-0-of-1.safetensors");
  for (const Processes& job : {Processes{}, Processes{2, 1}}) {
    EXPECT_THAT(run(job, options + " --steps 4", 1),
                HasSubstr("none of the checkpoints can be used"));
  }
  EXPECT_TRUE(fs::exists(of_step(path("saved"), 2)));
}

// Its checkpoints are not to be replaced by those of another.
TEST_F(Jobs, RefuseACheckpointOfAnotherNet) {
  const std::string options = str_cat("--every 2 --steps 2 --folder ", path("saved").string());
  run({}, options);
  for (const Processes& job : {Processes{}, Processes{2, 1}}) {
    const std::string said = run(job, options + " --width 18", 1);
    EXPECT_THAT(said, HasSubstr("a variable of the checkpoint has another type or shape"));
    EXPECT_THAT(said, HasSubstr("or begin in another folder"));
  }
  EXPECT_THAT(run({}, options + " --optimizer adam", 2),
              HasSubstr("the checkpoint holds no such variable"));
  EXPECT_EQ(fluid::io::CheckpointStore(path("saved")).list().size(), 1U);
}

TEST_F(Jobs, TrainOnWhenACheckpointCannotBeWritten) {
  std::ofstream(path("file")) << "not a folder";
  const std::string said =
      run({2, 0}, str_cat("--every 2 --steps 5 --folder ", path("file").string(), "/below"));
  EXPECT_THAT(said, HasSubstr("not saved; the checkpoints before stay"));
}

}  // namespace
}  // namespace fleet::testing
