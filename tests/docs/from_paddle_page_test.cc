// What docs/from_paddle.md shows runs as a job of two workers and two servers.

#include <filesystem>
#include <gmock/gmock.h>

#include "tests/docs/page_blocks.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet::testing {
namespace {

TEST(FromPaddlePage, ShowsWhatIsRunHere) {
  const auto run = blocks_that_run("tests/docs/from_paddle_program.cc");
  ASSERT_EQ(run.size(), 1U);
  EXPECT_EQ(blocks_shown("docs/from_paddle.md"), run);
}

TEST(FromPaddlePage, ItsProgramTrainsAndSaves) {
  std::string folder = ::testing::TempDir() + "from-paddle-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const auto job =
      run_command("cd " + folder + " && " + binary_path("bin/launch_ps") +
                  " --worker_num 2 --server_num 2 --tee " + binary_path("bin/from_paddle_program"));
  EXPECT_EQ(job.code, 0) << job.output;
  EXPECT_THAT(job.output, ::testing::HasSubstr("step 50 loss"));
  EXPECT_TRUE(std::filesystem::exists(folder + "/model/params.safetensors")) << job.output;
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace fleet::testing
