// What is written into a trainer's or a rank's program is what is read from it.
#include "fluid/ops/distributed/trainer_program.h"

#include <gmock/gmock.h>
#include <string>
#include <vector>

#include "base/error.h"
#include "fluid/ops/distributed/names.h"
#include "fluid/ops/shape/shape_ops.h"

namespace fleet::fluid {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Operator receive(std::vector<std::string> outputs) {
  return make_receive(std::move(outputs), to_attributes(RecvAttrs{}));
}

std::vector<std::string> wholes(const Block& block) {
  std::vector<std::string> names;
  for (const TrainerReceive& receive : read_trainer_block(block).receives) {
    names.push_back(receive.whole);
  }
  return names;
}

TEST(TrainerProgram, ReceivesKnowWhatTheirRowsMakeUp) {
  Program program;
  Block& block = program.global_block();
  block.append_op(receive({"w.block0", "w.block1"}));
  block.append_op(receive({"b"}));
  block.append_op(receive({"v.block0", "v.block1"}));
  block.append_op(make_join({"w.block0", "w.block1"}, "w"));
  Operator columns = make_join({"v.block0", "v.block1"}, "v");
  columns.attrs = to_attributes(ConcatAttrs{.axis = 1});
  block.append_op(std::move(columns));
  EXPECT_THAT(wholes(block), ElementsAre("w", "", ""));
  EXPECT_EQ(read_trainer_block(block).receives[1].op, block.ops()[1].get());
}

TEST(TrainerProgram, ReceivesEndWithAFetchBarrierOrWithout) {
  Program program;
  Block& block = program.global_block();
  block.append_op(receive({"w"}));
  block.append_op(make_send_barrier({}, {}, {"sent"}));
  EXPECT_FALSE(read_trainer_block(block).fetch_barrier);
  block.append_op(make_fetch_barrier({}, {"sent"}, {"w"}));
  EXPECT_TRUE(read_trainer_block(block).fetch_barrier);
}

TEST(TrainerProgram, TheStartNoticeIsNoStepNotice) {
  Program program;
  Block& block = program.global_block();
  block.append_op(make_step_notice({"ids"}, {"table"}, "control"));
  EXPECT_EQ(read_trainer_block(block).start_notice, nullptr);
  block.append_op(make_start_notice("control"));
  EXPECT_EQ(read_trainer_block(block).start_notice, block.ops()[1].get());
  EXPECT_THAT(block.ops()[1]->input("X"), ElementsAre(kParamInit));
}

void declare(Block& block, const std::string& name) {
  VarDesc var;
  var.name = name;
  block.add_var(std::move(var));
}

TEST(RankProgram, SumsComeInTheirOrder) {
  Program program;
  Block& block = program.global_block();
  for (const char* name : {"a", "b", "c"}) declare(block, name);
  EXPECT_THAT(read_rank_program(program).sums, IsEmpty());
  block.append_op(make_rank_sum("c", 1));
  Operator fused = make_rank_sum("b", 0);
  fused.inputs["X"].emplace_back("a");
  block.append_op(std::move(fused));
  EXPECT_THAT(read_rank_program(program).sums,
              ElementsAre(&block.var("c"), &block.var("b"), &block.var("a")));
  block.append_op(make_rank_sum("nobody", 0));
  EXPECT_THROW(read_rank_program(program), Error);
}

TEST(RankProgram, TheAverageHasWhatItsScheduleAsksFor) {
  Program program;
  Block& block = program.global_block();
  EXPECT_EQ(read_rank_program(program).average, nullptr);
  block.append_op(make_rank_average({"w", "b"}, "loss", {"rate"}));
  const Operator* average = read_rank_program(program).average;
  ASSERT_EQ(average, block.ops()[0].get());
  EXPECT_THAT(average->output("Out"), ElementsAre("w", "b"));
  EXPECT_THAT(average->input("Loss"), ElementsAre("loss"));
  EXPECT_THAT(make_rank_average({"w"}, "", {}).inputs, testing::SizeIs(1));
}

}  // namespace
}  // namespace fleet::fluid
