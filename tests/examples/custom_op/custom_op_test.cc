// The example with an op of its own, as its users run it: every strategy trains it, and those that
// promise the bits of one process write its file.
#include <gmock/gmock.h>
#include <sstream>

#include "tests/examples/quick_start_fixture.h"

namespace fleet::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CustomOp : public QuickStart {
 protected:
  static std::string alone() { return kBin + "custom_op"; }
  std::string with_servers() const {
    return str_cat(kBin, "launch_ps --worker_num 2 --server_num 2 --log_dir ", path("logs"), " ",
                   alone());
  }
  std::string with_ranks() const {
    return str_cat(kBin, "launch --nproc_per_node 2 --log_dir ", path("logs"), " ", alone());
  }

  // On rows that it has not seen; 0.5 is what a net that learns nothing has.
  double error_of(const std::string& command) const {
    const std::string metrics = path("metrics.json");
    const auto result = run_command(str_cat(command, " --metrics_file ", metrics), 120);
    EXPECT_EQ(result.code, 0) << command << "\n" << result.output << logs();
    if (result.code != 0) return 1;
    return nlohmann::json::parse(read(metrics)).at("squared error").get<double>();
  }
};

TEST_F(CustomOp, OneFileInEveryModeOfTheSameBits) {
  const std::string one = parameters(alone(), "--steps 60 --shards 2");
  ASSERT_FALSE(one.empty());
  EXPECT_EQ(parameters(with_servers(), "--steps 60"), one);
  EXPECT_EQ(parameters(with_ranks(), "--steps 60"), one);
  EXPECT_EQ(parameters("mpirun -np 2 --oversubscribe " + alone(), "--steps 60"), one);
}

TEST_F(CustomOp, LearnsTheWaveAloneAndInStep) {
  for (const std::string& command : {alone(), with_servers(), with_ranks()}) {
    EXPECT_LT(error_of(command), 0.02) << command;
  }
}

// Asynchronous workers are the staler the busier the machine is, and so go by smaller steps here.
TEST_F(CustomOp, TrainsWithEveryOtherStrategy) {
  const std::string commands[] = {
      with_servers() + " --strategy async --learning_rate 0.005 --steps 3000",
      with_servers() + " --strategy dc_asgd --learning_rate 0.005 --steps 3000",
      with_servers() + " --strategy half_async",
      with_servers() + " --strategy ssp",
      // At the default rate one run in sixty diverges on a busy machine: whole periods add up.
      with_servers() + " --strategy geo --learning_rate 0.02",
      with_servers() + " --strategy easgd",
      with_ranks() + " --strategy local_sgd",
  };
  for (const std::string& command : commands) {
    const double error = error_of(command);
    std::cout << error << ": " << command << "\n";
    EXPECT_LT(error, 0.2) << command;
  }
}

TEST_F(CustomOp, GoesOnFromASavedModel) {
  const std::string start = path("start");
  ASSERT_EQ(run_command(str_cat(alone(), " --model_dir ", start)).code, 0);
  EXPECT_LT(error_of(str_cat(with_servers(), " --steps 1 --init_from ", start)), 0.02);
}

// Each block of C++ of the page stands in the example, but for its indentation.
TEST_F(CustomOp, IsWhatThePageShows) {
  const auto plain = [](const std::string& text) {
    std::string joined;
    std::istringstream words(text);
    for (std::string word; words >> word;) joined += word + " ";
    return joined;
  };
  const std::string example = plain(read(source_path("examples/custom_op/custom_op.cc")));
  const std::string page = read(source_path("docs/custom_ops.md"));
  const std::string begin = "```cpp\n";
  int blocks = 0;
  for (size_t at = page.find(begin); at != std::string::npos; at = page.find(begin, at)) {
    at += begin.size();
    const std::string block = page.substr(at, page.find("```", at) - at);
    EXPECT_THAT(example, HasSubstr(plain(block)));
    ++blocks;
  }
  EXPECT_EQ(blocks, 5);
}

// The tool has no table of the op, and says so.
TEST_F(CustomOp, IsExplained) {
  const std::string programs = path("programs");
  ASSERT_EQ(
      run_command(str_cat("FLEET_DUMP_PROGRAM=", programs, " ", with_servers(), " --steps 2")).code,
      0);
  const auto explained = run_command(str_cat(kBin, "fleet-explain ", programs));
  EXPECT_EQ(explained.code, 0) << explained.output;
  EXPECT_THAT(explained.output, AllOf(HasSubstr("does not know these ops: snake, snake_grad"),
                                      HasSubstr("trainer 0")));
}

}  // namespace
}  // namespace fleet::testing
