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
  for (const char* name : {"a", "b", "c", "d"}) declare(block, name);
  EXPECT_THAT(read_rank_program(program).sums, IsEmpty());
  block.append_op(make_rank_sum("c", 1));
  Operator fused = make_rank_sum("b", 0);
  fused.inputs["X"].emplace_back("a");
  block.append_op(std::move(fused));
  Operator joins = make_rank_sum("d", 0);
  joins.type = "shard_sum";
  block.append_op(std::move(joins));
  EXPECT_THAT(read_rank_program(program).sums,
              ElementsAre(RankSum{&block.var("c")}, RankSum{&block.var("b")},
                          RankSum{&block.var("a")}, RankSum{&block.var("d"), true}));
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

Program with_op(std::string type, AttributeMap attrs) {
  Program program;
  Operator op;
  op.type = std::move(type);
  op.attrs = std::move(attrs);
  program.global_block().append_op(std::move(op));
  return program;
}

TEST(RankPlace, IsThatOfTheOpsThatMakeCommunicators) {
  const CGenNcclIdAttrs second{.endpoint = "b:2", .other_endpoints = {"a:1", "c:3"}, .rank = 1};
  const auto collective = read_rank_place(with_op("c_gen_nccl_id", to_attributes(second)));
  EXPECT_EQ(collective->rank, 1);
  EXPECT_THAT(collective->endpoints, ElementsAre("a:1", "b:2", "c:3"));
  EXPECT_FALSE(collective->executor_reduces);
  EXPECT_EQ(collective->communicators, 1);
  auto rings = with_op("c_gen_nccl_id", to_attributes(second));
  rings.global_block().append_op(Operator(*rings.global_block().ops().front()));
  EXPECT_EQ(read_rank_place(rings)->communicators, 2);

  const GenNcclIdAttrs nccl2{.trainers = {"a:1", "b:2"},
                             .trainer_id = 1,
                             .nccl_comm_num = 3,
                             .use_hierarchical_allreduce = true,
                             .hierarchical_allreduce_inter_nranks = 2};
  const auto whole = read_rank_place(with_op("gen_nccl_id", to_attributes(nccl2)));
  EXPECT_EQ(whole->rank, 1);
  EXPECT_THAT(whole->endpoints, ElementsAre("a:1", "b:2"));
  EXPECT_TRUE(whole->executor_reduces);
  EXPECT_EQ(whole->communicators, 3);
  EXPECT_TRUE(whole->hierarchical);
  EXPECT_EQ(whole->group_ranks, 2);

  EXPECT_TRUE(read_rank_place(with_op("c_comm_init_all", {}))->in_process);
  EXPECT_FALSE(read_rank_place(with_op("mean", {})));
}

TEST(RankPlace, ARankWithoutAnEndpointIsRefused) {
  const CGenNcclIdAttrs far{.endpoint = "b:2", .other_endpoints = {"a:1"}, .rank = 2};
  EXPECT_THROW(read_rank_place(with_op("c_gen_nccl_id", to_attributes(far))), ProgramError);
  const GenNcclIdAttrs none{.trainers = {"a:1"}, .trainer_id = 1};
  EXPECT_THROW(read_rank_place(with_op("gen_nccl_id", to_attributes(none))), ProgramError);
  Program two =
      with_op("c_gen_nccl_id",
              to_attributes(CGenNcclIdAttrs{.endpoint = "b:2", .other_endpoints = {"a:1"}}));
  Operator other;
  other.type = "c_gen_nccl_id";
  other.attrs = to_attributes(CGenNcclIdAttrs{.endpoint = "b:2", .other_endpoints = {"c:1"}});
  two.global_block().append_op(std::move(other));
  EXPECT_THROW(read_rank_place(two), ProgramError);
}

}  // namespace
}  // namespace fleet::fluid
