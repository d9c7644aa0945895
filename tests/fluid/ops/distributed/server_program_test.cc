// What is written into a server's program is what is read from it, in every mode.
#include "fluid/ops/distributed/server_program.h"

#include <gmock/gmock.h>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/distributed/names.h"
#include "fluid/ops/no_attrs.h"

namespace fleet::fluid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Operator make_op(const char* type, SlotMap inputs, SlotMap outputs) {
  Operator op;
  op.type = type;
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  op.attrs = to_attributes(NoAttrs{});
  return op;
}

// A server of two contributors with slice "w.block1", written as the mode has it.
class Written {
 public:
  explicit Written(ServerMode mode) : mode_(mode) {
    program_.distribution().endpoints = {"a:1", "b:2"};
    listen_.endpoint = "b:2";
    listen_.pserver_id = 1;
    listen_.fanin = 2;
    listen_.distributed_mode = distributed_mode_of(mode, true);
  }

  Block& add_block() { return program_.add_block(0); }
  void declare(const std::string& name, Shape shape, VarKind kind = VarKind::kLodTensor) {
    VarDesc var;
    var.name = name;
    var.shape = std::move(shape);
    var.kind = kind;
    program_.global_block().add_var(std::move(var));
  }
  static void append_update(Block& block, const std::string& gradient = "w@GRAD.block1") {
    block.append_op(
        make_op("sgd", {{"Param", {"w.block1"}}, {"Grad", {gradient}}, {"LearningRate", {"r"}}},
                {{"ParamOut", {"w.block1"}}}));
  }
  // The whole of a slice's update in this mode.
  void write_slice() {
    Block& block = add_block();
    if (is_synchronous(mode_)) {
      append_average(block, {"w@GRAD.block1.trainer_0", "w@GRAD.block1.trainer_1"},
                     "w@GRAD.block1");
    }
    if (sends_differences(mode_)) {
      append_addition(block, "w.block1", "w.block1.delta");
      bind_update(listen_, "w.block1.delta", block.index());
      return;
    }
    append_update(block);
    bind_update(listen_, "w@GRAD.block1", block.index());
  }

  ServerProgram read(int contributors = 2) { return read_as(mode_, contributors); }
  ServerProgram read_as(ServerMode mode, int contributors) {
    if (!serves_) append_listen(program_, {}, listen_);
    serves_ = true;
    return read_server_program(program_, *program_.global_block().ops().back(), mode, contributors);
  }
  std::string refusal(int contributors = 2) { return refusal_as(mode_, contributors); }
  std::string refusal_as(ServerMode mode, int contributors) {
    try {
      read_as(mode, contributors);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  Program& program() { return program_; }
  ListenAndServAttrs& listen() { return listen_; }

 private:
  ServerMode mode_;
  Program program_;
  ListenAndServAttrs listen_;
  bool serves_ = false;
};

constexpr ServerMode kModes[] = {ServerMode::kSync, ServerMode::kAsync, ServerMode::kHalfAsync,
                                 ServerMode::kGeo, ServerMode::kEasgd};

TEST(ServerProgram, IsReadAsItWasWrittenInEveryMode) {
  for (const ServerMode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    Written written(mode);
    written.write_slice();
    const ServerProgram server = written.read();
    EXPECT_EQ(server.mode, mode);
    EXPECT_EQ(server.endpoint, "b:2");
    ASSERT_EQ(server.slices.size(), 1U);
    const ServerSlice& slice = server.slices[0];
    EXPECT_EQ(slice.value, "w.block1");
    EXPECT_EQ(slice.gradient, sends_differences(mode) ? "w.block1.delta" : "w@GRAD.block1");
    EXPECT_EQ(slice.plain, sends_differences(mode));
    EXPECT_THAT(slice.chain, ElementsAre(1));
    EXPECT_EQ(slice.averages, is_synchronous(mode));
    EXPECT_EQ(slice.contributions.size(), is_synchronous(mode) ? 2U : 0U);
    EXPECT_THAT(slice.backups, IsEmpty());
    EXPECT_EQ(server.schedule.block, -1);
    EXPECT_THAT(server.saved_tables, IsEmpty());
  }
}

TEST(ServerProgram, OfASynchronousJobIsNotServedAsynchronously) {
  for (const ServerMode mode : kModes) {
    for (const ServerMode other : kModes) {
      Written written(mode);
      written.write_slice();
      const std::string refusal = written.refusal_as(other, 2);
      if (is_synchronous(mode) == is_synchronous(other)) {
        EXPECT_EQ(refusal, "") << to_string(mode) << " as " << to_string(other);
      } else {
        EXPECT_THAT(refusal, HasSubstr(str_cat("transpile for mode ", to_string(other))));
      }
    }
  }
}

TEST(ServerProgram, IncludesScheduleStatisticsAndTables) {
  Written written(ServerMode::kSync);
  Block& schedule = written.add_block();
  schedule.append_op(make_op("floor", {{"X", {"a"}}}, {{"Out", {"b"}}}));
  schedule.append_op(make_op("sum", {{"X", {"c0", "c1"}}}, {{"Out", {kStepCounter}}}));
  bind_schedule(written.listen(), schedule.index());
  Block& update = written.add_block();
  append_average(update, {"w@GRAD.block1.trainer_0", "w@GRAD.block1.trainer_1"}, "w@GRAD.block1");
  Written::append_update(update);
  bind_update(written.listen(), "w@GRAD.block1", update.index());
  bind_rows(written.listen(), "w@GRAD.block1", "w.block1");
  written.declare("w@GRAD.block1", Shape{4, 2}, VarKind::kSelectedRows);
  Block& statistic = written.add_block();
  append_average(statistic, {"m.0", "m.1"}, "m@STATISTIC");
  append_replacement(statistic, "m", "m@STATISTIC");
  bind_update(written.listen(), "m@STATISTIC", statistic.index());
  Block& lookup = written.add_block();
  append_table_lookup(lookup, "w.block1", "ids", "rows");
  bind_lookup(written.listen(), "ids", lookup.index());
  Block& save = written.add_block();
  append_table_save(save, "w.block1");
  bind_checkpoint(written.listen(), save.index());

  const ServerProgram server = written.read();
  EXPECT_EQ(server.schedule.block, 1);
  EXPECT_EQ(server.schedule.counter, 1);
  EXPECT_TRUE(server.schedule.sums_trainers);
  ASSERT_EQ(server.slices.size(), 2U);
  EXPECT_TRUE(server.slices[0].rows);
  EXPECT_FALSE(server.slices[0].plain);
  EXPECT_EQ(server.slices[0].lookup, "ids");
  EXPECT_EQ(server.slices[1].value, "m");
  EXPECT_TRUE(server.slices[1].plain);
  EXPECT_EQ(server.slices[1].lookup, "");
  EXPECT_THAT(server.saved_tables, ElementsAre("w.block1"));
  // The server itself sums and counts; the mean is over those who contributed.
  const Program some = executable(written.program(), server, 1);
  EXPECT_EQ(some.block(1).op_count(), 1U);
  ASSERT_EQ(some.block(2).op_count(), 2U);
  EXPECT_EQ(some.block(2).op(0).type, "scale");
  EXPECT_EQ(std::get<double>(*some.block(2).op(0).attr("scale")), 1.0);
  const Program all = executable(written.program(), server, 2);
  EXPECT_EQ(std::get<double>(*all.block(2).op(0).attr("scale")), 0.5);
}

TEST(ServerProgram, SaysWhatCompensatesDelays) {
  Written written(ServerMode::kAsync);
  written.listen().dc_asgd = true;
  Block& block = written.add_block();
  append_backup(block, {"w.block1.trainer_0_bak", "w.block1.trainer_1_bak"}, "w.block1.local_bak");
  append_compensation(block,
                      {.value = "w.block1",
                       .gradient = "w@GRAD.block1",
                       .backup = "w.block1.local_bak",
                       .mean_square = "w.block1.dc_mean_square",
                       .out = "t"},
                      {});
  Written::append_update(block, "t");
  bind_update(written.listen(), "w@GRAD.block1", block.index());
  const ServerSlice slice = written.read().slices.at(0);
  EXPECT_THAT(slice.backups, ElementsAre("w.block1.trainer_0_bak", "w.block1.trainer_1_bak"));
  EXPECT_EQ(slice.mean_square, "w.block1.dc_mean_square");
  EXPECT_THAT(written.refusal(3), HasSubstr("delays of another number of trainers"));
}

TEST(ServerProgram, ChainsHaveExchangesBetween) {
  Written written(ServerMode::kSync);
  written.listen().fanin = 1;
  written.declare("sums", Shape{5});
  Block& first = written.add_block();
  bind_update(written.listen(), "w@GRAD.block1", first.index());
  first.append_op(
      make_op("squared_row_sums", {{"X", {"w@GRAD.block1"}}}, {{"Out", {"sums.block1"}}}));
  const int32_t from = first.index();
  Block& exchange = written.add_block();
  const ExchangedRows rows{
      .whole = "sums", .parts = {"sums.block0", "sums.block1"}, .rows = {3, 2}, .servers = {0, 1}};
  append_exchange(exchange, rows, {"a:1", "b:2"}, 1);
  EXPECT_THAT(exchange.op(0).input("X"), ElementsAre("sums.block1"));
  exchange.append_op(make_op("reduce_sum", {{"X", {"sums"}}}, {{"Out", {"total"}}}));
  bind_exchange(written.listen(), exchange.index());
  Block& second = written.add_block();
  Written::append_update(second);
  bind_next(written.listen(), from, second.index());

  const ServerProgram server = written.read(1);
  EXPECT_THAT(server.slices.at(0).chain, ElementsAre(1, 3));
  ASSERT_EQ(server.exchanges.size(), 1U);
  EXPECT_EQ(server.exchanges[0].block, 2);
  const ExchangedRows& read = server.exchanges[0].rows.at(0);
  EXPECT_EQ(read.whole, rows.whole);
  EXPECT_EQ(read.parts, rows.parts);
  EXPECT_EQ(read.rows, rows.rows);
  EXPECT_EQ(read.servers, rows.servers);
  EXPECT_EQ(executable(written.program(), server, 1).block(2).op_count(), 1U);
}

TEST(ServerProgram, OfAnotherJobIsRefused) {
  {
    Written written(ServerMode::kSync);
    written.write_slice();
    EXPECT_THAT(written.refusal(3), HasSubstr("another number of contributors"));
  }
  {
    Written written(ServerMode::kSync);
    Block& block = written.add_block();
    Written::append_update(block);
    bind_update(written.listen(), "w@GRAD.block1", block.index());
    EXPECT_THAT(written.refusal(), HasSubstr("does not begin with the sum over contributors"));
  }
  {
    Written written(ServerMode::kGeo);
    bind_update(written.listen(), "w.block1.delta", 7);
    EXPECT_THAT(written.refusal(), HasSubstr("bound to no block"));
  }
  {
    Written written(ServerMode::kAsync);
    bind_update(written.listen(), "w@GRAD.block1", written.add_block().index());
    EXPECT_THAT(written.refusal(), HasSubstr("updates nothing"));
  }
  {
    Written written(ServerMode::kAsync);
    bind_checkpoint(written.listen(), 7);
    EXPECT_THAT(written.refusal(), HasSubstr("the block that saves tables is not there"));
  }
  {
    Written written(ServerMode::kAsync);
    bind_schedule(written.listen(), 7);
    EXPECT_THAT(written.refusal(), HasSubstr("the block of the schedule is not there"));
  }
}

}  // namespace
}  // namespace fleet::fluid
