// What docs/growing_tables.md shows is compiled and run here: each block of the page is what stands
// between two marks of this file.

#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "fleet/fleet.h"
#include "fluid/executor/executor.h"
#include "fluid/io/checkpoint.h"
#include "fluid/io/growing_tables.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "tests/docs/page_blocks.h"

namespace {

namespace layers = fleet::fluid::layers;
using fleet::fluid::DType;
using fleet::fluid::Tensor;

Tensor sequences(const std::vector<int64_t>& ids) {
  Tensor tensor = Tensor::from(ids, {4, 1});
  tensor.set_lod({{0, 1, 4}});
  return tensor;
}

TEST(GrowingTablesPage, TrainsShrinksAndSaves) {
  std::string name = (std::filesystem::temp_directory_path() / "tables_page_XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(name.data());
  std::filesystem::current_path(folder);
  fluid::Program program;
  fluid::Program startup;
  const fluid::ProgramGuard programs(program, startup);
  // [
  const fluid::Variable user = layers::data("user", {1}, DType::kInt64, {.lod_level = 1});
  const fluid::Variable item = layers::data("item", {1}, DType::kInt64, {.lod_level = 1});
  const fluid::Variable label = layers::data("label", {1});
  const auto rows = layers::sparse_embedding(
      {user, item}, 8,
      {.padding_idx = 0,
       .entry = fluid::CountFilterEntry{2},
       .param_attr = {.name = "ctr",
                      .initializer = fluid::initializer::Uniform{.low = -0.1, .high = 0.1}},
       .fields = {.seen = true},
       .deltas = true});
  const fluid::Variable both = layers::concat(
      {layers::sequence_pool(rows[0], "sum"), layers::sequence_pool(rows[1], "sum")}, 1);
  const fluid::Variable loss =
      layers::mean(layers::sigmoid_cross_entropy_with_logits(layers::fc(both, 1), label));
  fluid::optimizer::Adam({.learning_rate = 0.01}).minimize(loss);
  // ]
  fluid::Executor executor;
  fluid::Executor other;
  executor.run(startup);
  other.run(startup);
  const fluid::Feed feed = {{"user", sequences({1, 0, 2, 3})},
                            {"item", sequences({-1, 7, 7, 0})},
                            {"label", Tensor::from(std::vector<float>{0, 1}, {2, 1})}};
  for (int step = 0; step < 3; ++step) executor.run(program, feed);
  // [
  const auto table = fluid::growing_table(executor.scope(), "ctr");
  const fluid::tables::TableStatistics now = table->statistics();  // rows, bytes, hits, evicted …
  table->alone([](fluid::tables::GrowingTable& all) {
    all.set_clock(all.clock() + 1);  // a pass is over
    return all.evict_unseen(7);      // rows that were not seen for seven passes
  });
  // ]
  EXPECT_EQ(now.rows, 5U);
  // [
  fluid::io::save_persistables(executor, "model", program);  // with a file for each table
  fluid::io::save_table_delta(executor.scope(), "ctr", "1.delta");
  fluid::io::read_table_delta(other.scope(), "ctr", "1.delta");
  // ]
  EXPECT_EQ(fluid::growing_table(other.scope(), "ctr")->statistics().rows, 5U);
  EXPECT_TRUE(std::filesystem::exists("model/ctr.0.table"));
  std::filesystem::current_path(folder.parent_path());
  std::filesystem::remove_all(folder);
}

TEST(GrowingTablesPage, EndsPassesWhereverRowsAre) {
  namespace role_maker = fleet::role_maker;
  fluid::Program program;
  fluid::Program startup;
  const fluid::ProgramGuard programs(program, startup);
  const fluid::unique_name::Guard names;
  const auto rows = layers::sparse_embedding(
      layers::data("ids", {1}, DType::kInt64), 8,
      {.param_attr = {.name = "ctr"}, .fields = {.seen = true}, .deltas = true});
  const fluid::Variable loss = layers::mean(layers::square(rows));
  fleet::init(role_maker::PaddleCloudRoleMaker({}, fleet::Environment()));
  fluid::optimizer::SGD sgd({.learning_rate = 0.1});
  fleet::distributed_optimizer(sgd).minimize(loss);
  fluid::Executor exe;
  exe.run(fleet::startup_program());
  exe.run(fleet::main_program(),
          {{"ids", Tensor::from(std::vector<int64_t>{1, -2, 3, 1}, {4, 1})}});
  EXPECT_EQ(fleet::table_statistics(exe, "ctr").rows, 3U);
  // [
  fleet::end_pass(exe, "ctr", {.clock = 1, .shrink = {.delete_unseen = 7}});  // needs fields.seen
  fleet::end_pass(exe, "ctr", {.rank = fluid::tables::RowRank::kNorm, .evict_below = 1e-4});
  // ]
  EXPECT_EQ(fleet::table_statistics(exe, "ctr").rows, 3U);
  std::string name = (std::filesystem::temp_directory_path() / "deltas_XXXXXX").string();
  const std::filesystem::path folder = ::mkdtemp(name.data());
  const auto files = fleet::save_table_delta(exe, "ctr", folder / "new" / "1.delta");
  EXPECT_EQ(files, std::vector<std::filesystem::path>{folder / "new" / "1.delta"});
  EXPECT_TRUE(std::filesystem::exists(files.front()));
  EXPECT_EQ(fleet::end_pass(exe, "ctr", {.rank = fluid::tables::RowRank::kNorm, .evict_below = 9}),
            3U);
  EXPECT_THROW(fleet::end_pass(exe, "ctr", {.shrink = {.decay = 0.5}}), fleet::UsageError);
  std::filesystem::remove_all(folder);
}

TEST(GrowingTablesPageText, ShowsWhatIsRunHere) {
  EXPECT_EQ(fleet::testing::blocks_shown("docs/growing_tables.md"),
            fleet::testing::blocks_that_run("tests/docs/growing_tables_page_test.cc"));
}

}  // namespace
