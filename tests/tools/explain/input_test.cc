// Programs to explain, as they come from files.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/transpiler/sample_nets.h"
#include "tools/explain/explain.h"
#include "tools/explain/read_input.h"

namespace fleet::explain {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;

class ExplainInput : public ::testing::Test {
 protected:
  ExplainInput() : net_(transpiler::reference_net()) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / (std::string(test->name()) + std::to_string(getpid()));
  }
  ~ExplainInput() override { fs::remove_all(folder_); }

  static strategies::JobDescription description() {
    strategies::JobDescription job{.mode = "parameter_server",
                                   .trainers = 2,
                                   .servers = 2,
                                   .shards = 4,
                                   .server_endpoints = {"a:1", "b:2"},
                                   .worker_endpoints = {},
                                   .strategy = "sync",
                                   .config = transpiler::DistributeTranspilerConfig()};
    job.config->min_block_size = 10'000;
    job.config->dc_asgd_m = 0.9;
    return job;
  }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(folder_);
    std::ofstream(folder_ / name) << text;
  }

  transpiler::SampleNet net_;
  fs::path folder_;
};

TEST_F(ExplainInput, ReadsWhatAJobDumped) {
  strategies::dump_program(folder_, "worker_0.origin_main", net_.main);
  strategies::dump_program(folder_, "worker_0.origin_startup", net_.startup);
  strategies::dump_program(folder_, "worker_0.main", net_.main);
  strategies::dump_program(folder_, "server_1.main", net_.main);
  strategies::dump_job(folder_, "worker_0", description());
  const Input input = read_input(folder_);
  EXPECT_EQ(input.main.to_string(), net_.main.to_string());
  EXPECT_EQ(input.startup.to_string(), net_.startup.to_string());
  EXPECT_EQ(input.job, description());
  EXPECT_THAT(input.ran, ElementsAre(Key("server 1"), Key("trainer 0")));
  EXPECT_EQ(input.title, folder_.filename().string());
  // Files are there wholly or not at all.
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const std::string extension = entry.path().extension().string();
    EXPECT_TRUE(extension == ".txt" || extension == ".json") << entry.path();
  }
}

TEST_F(ExplainInput, ReadsAProgramAsJsonAndAsBytes) {
  write("net.json", net_.main.to_json());
  EXPECT_EQ(read_input(folder_ / "net.json").main.to_string(), net_.main.to_string());
  const auto bytes = net_.main.to_bytes();
  write("net.bin", std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  write("start.json", net_.startup.to_json());
  const Input input = read_input(folder_ / "net.bin", folder_ / "start.json");
  EXPECT_EQ(input.main.to_string(), net_.main.to_string());
  EXPECT_EQ(input.startup.to_string(), net_.startup.to_string());
  EXPECT_EQ(input.title, "net");
  // A program that was saved without its startup program can be explained as well.
  EXPECT_EQ(explain(net_.main, fluid::Program(), {}).servers.size(), 2u);
}

TEST_F(ExplainInput, FindsTheStartupProgramBesideADumpedOne) {
  strategies::dump_program(folder_, "worker_3.origin_main", net_.main);
  strategies::dump_program(folder_, "worker_3.origin_startup", net_.startup);
  const Input input = read_input(folder_ / "worker_3.origin_main.json");
  EXPECT_EQ(input.title, "worker_3");
  EXPECT_EQ(input.startup.to_string(), net_.startup.to_string());
}

TEST_F(ExplainInput, NamesWhatIsWrongWithAFile) {
  EXPECT_THROW(read_input(folder_ / "nothing.json"), ResourceError);
  write("broken.json", "{\"magic\": 1}");
  EXPECT_THROW(read_input(folder_ / "broken.json"), ResourceError);
  EXPECT_THROW(read_input(folder_), ResourceError);
  write("worker_0.cluster.json", "{\"mode\": 3}");
  try {
    strategies::read_job(folder_ / "worker_0.cluster.json");
    FAIL();
  } catch (const ResourceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("worker_0.cluster.json"));
  }
}

TEST_F(ExplainInput, WantsTheProgramBeforeItWasTranspiled) {
  const auto shown = explain(net_.main, net_.startup, {});
  write("trainer.json", shown.main.trainer.program.to_json());
  try {
    read_input(folder_ / "trainer.json");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("has been transpiled already"));
  }
}

}  // namespace
}  // namespace fleet::explain
