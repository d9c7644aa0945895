// Sparse gradients and distributed tables in jobs of real processes: the file of a local run.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>

#include "base/strings.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet::testing {
namespace {

class RowsProcesses : public ::testing::Test {
 protected:
  RowsProcesses() {
    folder_ = ::testing::TempDir() + "rows-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  }
  ~RowsProcesses() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  // The parameter file that the job leaves.
  std::string train(const std::string& name, const std::string& launcher,
                    const std::string& options) const {
    const std::string model = folder_ + "/" + name;
    const auto result = run_command(
        str_cat(launcher, " ", binary_path("bin/rows_worker"), " ", options, " --save ", model),
        60);
    EXPECT_EQ(result.code, 0) << name << ": " << result.output;
    std::string bytes = bytes_of(model + "/params.safetensors");
    EXPECT_FALSE(bytes.empty()) << name;
    return bytes;
  }
  static std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  std::string servers(int workers, int servers) const {
    return str_cat(binary_path("bin/launch_ps"), " --worker_num ", workers, " --server_num ",
                   servers, " --log_dir ", folder_, "/logs");
  }
  std::string ranks(int workers) const {
    return str_cat(binary_path("bin/launch"), " --nproc_per_node ", workers, " --log_dir ", folder_,
                   "/logs");
  }

  // The parameters of the inference program that a run leaves, behind what it says of a batch.
  std::string infer(const std::string& name, const std::string& launcher,
                    const std::string& options) const {
    const std::string model = str_cat(folder_, "/infer_", name);
    train(name, launcher, str_cat(options, " --infer ", model));
    const auto loaded =
        run_command(str_cat("cat ", model, "/model.json ", model, "/manifest.json"), 60);
    EXPECT_EQ(loaded.code, 0) << name;
    return loaded.output + bytes_of(model + "/params.safetensors");
  }

  std::string folder_;
};

TEST_F(RowsProcesses, JobsOfEveryShapeEndWithTheFileOfALocalRun) {
  const std::string local = train("local", "", "");
  EXPECT_TRUE(train("two_servers", servers(2, 2), "") == local);
  EXPECT_TRUE(train("three_servers", servers(1, 3), "") == local);
  EXPECT_TRUE(train("ranks", ranks(2), "") == local);
}

TEST_F(RowsProcesses, EveryOpThatLooksRowsUpEndsWithTheFileOfALocalRun) {
  for (const char* loss : {"nce", "hsigmoid", "v2", "v2 --distributed"}) {
    const std::string options = str_cat("--loss ", loss);
    const std::string local = train("local", "", options);
    EXPECT_TRUE(train("two_servers", servers(2, 2), options) == local) << loss;
    EXPECT_TRUE(train("three_servers", servers(1, 3), options) == local) << loss;
  }
}

TEST_F(RowsProcesses, DistributedTablesEndWithTheFileOfALocalRun) {
  const std::string local = train("local", "", "--distributed");
  EXPECT_TRUE(train("two_servers", servers(2, 2), "--distributed") == local);
  EXPECT_TRUE(train("three_servers", servers(2, 3), "--distributed") == local);
}

// Servers exchange what they know of two tables.
TEST_F(RowsProcesses, NormsOfWholeDistributedTablesEndWithTheFileOfALocalRun) {
  for (const char* rule : {"lamb", "clip"}) {
    const std::string options = str_cat("--loss v2 --distributed --rule ", rule);
    const std::string local = train("local", "", options);
    EXPECT_TRUE(train("servers", servers(2, 3), options) == local) << rule;
  }
}

// Saved by two servers, loaded by three and by one machine: the file of a run in one go.
TEST_F(RowsProcesses, SavedModelsGoOnAtOtherNumbersOfServers) {
  for (const char* table : {"", " --distributed"}) {
    SCOPED_TRACE(table);
    train("local", "", table);
    const std::string whole =
        train("local_rest", "", str_cat("--first 12 --load ", folder_, "/local", table));
    const std::string saved = str_cat(folder_, "/two_servers");
    train("two_servers", servers(2, 2), table);
    const std::string rest = str_cat("--first 12", table);
    EXPECT_TRUE(train("by_servers", servers(2, 3), str_cat(rest, " --model ", saved)) == whole);
    EXPECT_TRUE(train("by_workers", servers(1, 3), str_cat(rest, " --load ", saved)) == whole);
    EXPECT_TRUE(train("locally", "", str_cat(rest, " --load ", saved)) == whole);
  }
}

double first_loss(const std::string& text) {
  const std::string mark = "the first loss is ";
  const size_t at = text.find(mark);
  EXPECT_NE(at, std::string::npos) << text;
  return at == std::string::npos ? 0 : std::stod(text.substr(at + mark.size()));
}

// The mean over the workers' parts of a batch is the local loss.
TEST_F(RowsProcesses, WorkersOfGeoTrainTheTablesThatTheServersLoad) {
  train("saved", "", "");
  const std::string rest = "--first 12";
  const auto local = run_command(
      str_cat(binary_path("bin/rows_worker"), " ", rest, " --load ", folder_, "/saved"), 60);
  const auto fresh = run_command(str_cat(binary_path("bin/rows_worker"), " ", rest), 60);
  ASSERT_GT(std::abs(first_loss(local.output) - first_loss(fresh.output)), 1e-3);
  train("geo", servers(2, 2), str_cat(rest, " --strategy geo --model ", folder_, "/saved"));
  double sum = 0;
  for (const int worker : {0, 1}) {
    sum += first_loss(bytes_of(str_cat(folder_, "/logs/workerlog.", worker)));
  }
  EXPECT_NEAR(sum / 2, first_loss(local.output), 1e-5);
}

TEST_F(RowsProcesses, ServersSaveTheRowsOfADistributedTable) {
  setenv("FLEET_SERVER_FOLDERS", str_cat("/none:", folder_).c_str(), 1);
  const auto save_to = [this](const std::string& name, const std::string& strategy) {
    train(name, servers(1, 3),
          str_cat("--distributed --shards 1 --tables ", folder_, "/", name, "/__lookup_table__",
                  strategy));
    return folder_ + "/" + name;
  };
  const std::string synchronous = save_to("sync", "");
  for (const char* strategy : {"async", "half_async"}) {
    const std::string other = save_to(strategy, str_cat(" --strategy ", strategy));
    for (const int server : {0, 1, 2}) {
      const auto file = str_cat("/__lookup_table__/table_", server);
      EXPECT_FALSE(bytes_of(synchronous + file).empty()) << file;
      EXPECT_TRUE(bytes_of(synchronous + file) == bytes_of(other + file)) << strategy << file;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(synchronous + "/__lookup_table__/table_3"));
  unsetenv("FLEET_SERVER_FOLDERS");
  const auto refused =
      run_command(str_cat(servers(1, 3), " ", binary_path("bin/rows_worker"),
                          " --distributed --shards 1 --tables ", folder_, "/refused"),
                  60);
  EXPECT_NE(refused.code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/refused"));
}

TEST_F(RowsProcesses, AsynchronousTablesOfOneWorkerEndWithTheFileOfALocalRun) {
  for (const char* table : {"", " --distributed"}) {
    const std::string local = train("local", "", str_cat("--shards 1", table));
    for (const char* strategy : {"async", "half_async"}) {
      const std::string options = str_cat("--strategy ", strategy, table);
      EXPECT_TRUE(train("two_servers", servers(1, 2), options) == local) << options;
      EXPECT_TRUE(train("three_servers", servers(1, 3), options) == local) << options;
    }
  }
}

// The model of a job is that of a local run, in every mode.
TEST_F(RowsProcesses, InferenceProgramsHaveTheTablesOfTheServers) {
  for (const char* net : {"", "--distributed", "--loss nce", "--loss hsigmoid"}) {
    SCOPED_TRACE(net);
    const std::string local = infer("local", "", net);
    EXPECT_TRUE(infer("servers", servers(2, 3), net) == local);
    EXPECT_TRUE(infer("ranks", ranks(2), net) == local);
    const std::string one = str_cat("--shards 1 ", net);
    const std::string alone = infer("alone", "", one);
    for (const char* strategy : {"async", "half_async"}) {
      SCOPED_TRACE(strategy);
      EXPECT_TRUE(infer(strategy, servers(1, 2), str_cat(one, " --strategy ", strategy)) == alone);
    }
    infer("geo", servers(2, 2), str_cat(net, " --strategy geo"));
    const auto size = [this](const char* job) {
      return bytes_of(str_cat(folder_, "/infer_", job, "/params.safetensors")).size();
    };
    EXPECT_EQ(size("geo"), size("local"));
  }
}

TEST_F(RowsProcesses, SeveralWorkersOfAnAsynchronousTableEnd) {
  train("async", servers(2, 3), "--strategy async --distributed");
  train("half_async", servers(2, 2), "--strategy half_async --distributed");
}

}  // namespace
}  // namespace fleet::testing
