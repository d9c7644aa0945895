#include <algorithm>
#include <limits>
#include <set>

#include "fluid/ops/append.h"
#include "fluid/ops/math/elementwise.h"
#include "fluid/ops/math/scale.h"
#include "fluid/ops/paddle_form.h"
#include "fluid/ops/shape/fill.h"
#include "fluid/ops/shape/shape_ops.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid {
namespace {

using ::testing::ElementsAre;

TEST(OpTable, DefaultsAreStableForEveryOp) {
  for (const auto& [type, schema] : OpTable::standard().all()) {
    EXPECT_EQ(type, schema.type);
    if (!schema.normalize) continue;
    const AttributeMap defaults = schema.normalize({});
    EXPECT_EQ(schema.normalize(defaults), defaults) << type;
  }
}

TEST(PaddleForms, AreTakenByEveryOpThatHasOne) {
  Program program;
  Block& inner = program.add_block(0);
  for (Block* block : {&program.global_block(), &inner}) {
    for (const char* type : {"elu", "elu_grad", "relu", "adam", "not_an_op"}) {
      Operator op;
      op.type = type;
      block->append_op(std::move(op));
    }
  }
  take_paddle_forms(program);
  for (const Block* block : {&program.global_block(), &inner}) {
    for (const auto& op : block->ops()) {
      const Attribute* form = op->attr("paddle_form");
      const bool has_one = op->type.starts_with("elu") || op->type == "adam";
      ASSERT_EQ(form != nullptr, has_one) << op->type;
      if (has_one) {
        EXPECT_EQ(*form, Attribute(true));
      }
    }
  }
}

TEST(OpTable, SlotsOfEveryOpAreNamedOnce) {
  for (const auto& [type, schema] : OpTable::standard().all()) {
    for (const auto* slots : {&schema.inputs, &schema.outputs}) {
      std::set<std::string> names;
      for (const SlotSpec& slot : *slots) EXPECT_TRUE(names.insert(slot.name).second) << type;
    }
  }
}

// Types of the ops of which `holds`, in the order of their names.
template <class Holds>
std::vector<std::string> types_where(Holds holds) {
  std::vector<std::string> types;
  for (const auto& [type, schema] : OpTable::standard().all()) {
    if (holds(schema)) types.push_back(type);
  }
  return types;
}

TEST(OpTable, SaysWhoRunsAnOp) {
  EXPECT_THAT(
      types_where([](const OpSchema& op) { return op.run_by == RunBy::kRuntime; }),
      ElementsAre("c_allgather", "c_allreduce_max", "c_allreduce_min", "c_allreduce_prod",
                  "c_allreduce_sum", "c_broadcast", "c_comm_init", "c_comm_init_all",
                  "c_gen_nccl_id", "c_local_sgd", "c_reducescatter", "c_sync_calc_stream",
                  "c_sync_comm_stream", "checkpoint_notify", "distributed_lookup_table",
                  "exchange_rows", "fetch_barrier", "gen_nccl_id", "listen_and_serv",
                  "lookup_remote_growing_tables", "prefetch", "recv", "send", "send_barrier"));
  EXPECT_THAT(types_where([](const OpSchema& op) { return op.run_by == RunBy::kExecutor; }),
              ElementsAre("conditional_block", "conditional_block_grad", "recurrent",
                          "recurrent_grad", "while", "while_grad"));
}

TEST(OpTable, SaysWhatThePlanTakesCareOf) {
  EXPECT_THAT(types_where([](const OpSchema& op) { return op.once_a_shard; }), ElementsAre("send"));
  EXPECT_THAT(types_where([](const OpSchema& op) { return op.makes_views; }),
              ElementsAre("split_byref"));
  EXPECT_THAT(types_where([](const OpSchema& op) { return op.leaves_values_to_servers; }),
              ElementsAre("fake_init"));
}

TEST(OpTable, SaysWhichOpsLookRowsUp) {
  EXPECT_THAT(types_where([](const OpSchema& op) { return op.table_slot == "W"; }),
              ElementsAre("hierarchical_sigmoid", "lookup_table", "lookup_table_v2"));
  EXPECT_THAT(types_where([](const OpSchema& op) { return op.table_slot == "Weight"; }),
              ElementsAre("nce"));
  EXPECT_THAT(types_where([](const OpSchema& op) { return op.gives_table_rows; }),
              ElementsAre("lookup_table", "lookup_table_v2"));
  EXPECT_THAT(types_where([](const OpSchema& op) { return op.ids_end_in_one; }),
              ElementsAre("lookup_table"));
  EXPECT_THAT(types_where([](const OpSchema& op) { return op.table_gradient_slot == "W"; }),
              ElementsAre("lookup_table_grad", "lookup_table_v2_grad"));
}

TEST(OpTable, SaysHowUpdatesTakeGradientsAndNorms) {
  EXPECT_THAT(types_where([](const OpSchema& op) { return op.linear_in_gradient; }),
              ElementsAre("momentum", "sgd"));
  EXPECT_THAT(types_where([](const OpSchema& op) { return op.cut_without_norms; }),
              ElementsAre("dpsgd", "lamb", "lars_momentum"));
  EXPECT_THAT(types_where([](const OpSchema& op) { return !op.norms.empty(); }),
              ElementsAre("clip_by_norm", "lamb_apply", "lars_momentum"));
  EXPECT_THAT(types_where([](const OpSchema& op) { return !op.split_update.apply.empty(); }),
              ElementsAre("lamb"));
  // What a row names is there.
  for (const auto& [type, schema] : OpTable::standard().all()) {
    const auto has = [&inputs = schema.inputs](const std::string& slot) {
      return std::any_of(inputs.begin(), inputs.end(),
                         [&slot](const SlotSpec& spec) { return spec.name == slot; });
    };
    for (const NormInput& norm : schema.norms) {
      EXPECT_TRUE(has(norm.of) && has(norm.row_sums)) << type;
    }
    if (schema.split_update.apply.empty()) continue;
    EXPECT_NE(OpTable::standard().find(schema.split_update.direction), nullptr) << type;
    EXPECT_NE(OpTable::standard().find(schema.split_update.apply), nullptr) << type;
  }
}

TEST(OpTable, SaysWhatOpsDrawCountAndDifferentiate) {
  EXPECT_THAT(types_where([](const OpSchema& op) { return op.draws_numbers; }),
              ElementsAre("add_growing_table_shows", "dpsgd", "dropout", "gaussian_random",
                          "lookup_growing_table", "lookup_remote_growing_tables", "nce",
                          "truncated_gaussian_random", "uniform_random"));
  EXPECT_THAT(types_where([](const OpSchema& op) { return op.flops != nullptr; }),
              ElementsAre("conv2d", "conv2d_grad", "depthwise_conv2d", "depthwise_conv2d_grad",
                          "matmul", "matmul_grad", "mul", "mul_grad"));
  EXPECT_THAT(types_where([](const OpSchema& op) {
                return op.block_gradient.kind != BlockGradient::Kind::kNone;
              }),
              ElementsAre("conditional_block", "recurrent", "while"));
  EXPECT_THAT(types_where([](const OpSchema& op) { return op.comm == CommKind::kSends; }),
              ElementsAre("send", "send_barrier"));
  EXPECT_THAT(types_where([](const OpSchema& op) { return op.comm == CommKind::kReduces; }),
              ElementsAre("c_allgather", "c_allreduce_max", "c_allreduce_min", "c_allreduce_prod",
                          "c_allreduce_sum", "c_broadcast", "c_comm_init", "c_comm_init_all",
                          "c_gen_nccl_id", "c_local_sgd", "c_reducescatter", "c_sync_calc_stream",
                          "c_sync_comm_stream", "gen_nccl_id"));
}

// The slot whose type lists an op's kernels; "" for an op that its output types.
std::string typing_slot(const OpSchema& schema) {
  const auto marked = [](const SlotSpec& slot) { return slot.gives_dtype; };
  const auto input = std::find_if(schema.inputs.begin(), schema.inputs.end(), marked);
  if (input != schema.inputs.end()) return input->name;
  const bool by_output = std::any_of(schema.outputs.begin(), schema.outputs.end(), marked);
  return by_output || schema.inputs.empty() ? std::string() : schema.inputs.front().name;
}

// Programs of files choose kernels by these slots, so a row that is moved or renamed shows here.
TEST(OpTable, TypesKernelsBySlotsWithTheseNames) {
  constexpr const char* kNames[] = {"X",      "Input",     "Param", "Logits", "Out@GRAD",
                                    "Y@GRAD", "Loss@GRAD", "Grad",  "Show"};
  for (const auto& [type, schema] : OpTable::standard().all()) {
    if (schema.run_by != RunBy::kKernel) continue;
    std::string expected;
    for (const char* name : kNames) {
      const bool has = std::any_of(schema.inputs.begin(), schema.inputs.end(),
                                   [name](const SlotSpec& slot) { return slot.name == name; });
      if (has && expected.empty()) expected = name;
    }
    EXPECT_EQ(typing_slot(schema), expected) << type;
  }
}

// A gradient rule must give ops of the table, with slots that they have.
TEST(OpTable, GradientRulesGiveKnownOpsAndSlots) {
  const OpTable& table = OpTable::standard();
  const auto has = [](const std::vector<SlotSpec>& slots, const std::string& name) {
    for (const SlotSpec& slot : slots) {
      if (slot.name == name) return true;
    }
    return false;
  };
  Program program;
  int rules = 0;
  for (const auto& [type, schema] : table.all()) {
    if (!schema.gradient) continue;
    Operator forward;
    forward.type = type;
    forward.attrs = schema.normalize({});
    for (const SlotSpec& slot : schema.inputs) forward.inputs[slot.name] = {"i" + slot.name};
    for (const SlotSpec& slot : schema.outputs) forward.outputs[slot.name] = {"o" + slot.name};
    const auto wanted = [](const std::string& name) { return name + "@GRAD"; };
    for (const Operator& op :
         schema.gradient(GradContext(forward, program.global_block(), wanted))) {
      const OpSchema& grad = table.at(op.type);
      for (const auto& [slot, names] : op.inputs) {
        EXPECT_TRUE(has(grad.inputs, slot)) << op.type << " input " << slot;
      }
      for (const auto& [slot, names] : op.outputs) {
        EXPECT_TRUE(has(grad.outputs, slot)) << op.type << " output " << slot;
      }
      EXPECT_NO_THROW(grad.normalize(op.attrs)) << op.type;
    }
    ++rules;
  }
  EXPECT_GE(rules, 30);
}

TEST(OpTable, UnknownOpNamesTheNearest) {
  expect_error([] { OpTable::standard().at("elementwise_ad"); }, ErrorCode::kUnknownName,
               {"did you mean 'elementwise_add'"});
}

TEST(OpTable, CopiesTakeOwnOps) {
  OpTable own = OpTable::standard();
  OpSchema schema = own.at("relu");
  schema.type = "my_relu";
  own.add(schema);
  EXPECT_NE(own.find("my_relu"), nullptr);
  EXPECT_EQ(OpTable::standard().find("my_relu"), nullptr);
}

class AppendOp : public NetFixture {
 protected:
  AppendOp() : x_(layers::data("x", {4})), out_(layers::relu(x_)) { before_ = main_.to_string(); }

  Operator scale() const {
    Operator op;
    op.type = "scale";
    op.inputs["X"] = {x_.name()};
    op.outputs["Out"] = {out_.name()};
    return op;
  }
  void expect_refused(Operator op, ErrorCode code, const std::vector<std::string>& texts) {
    expect_error([&] { append_op(block(), std::move(op)); }, code, texts);
    EXPECT_EQ(main_.to_string(), before_);
  }

  Variable x_;
  Variable out_;
  std::string before_;
};

TEST_F(AppendOp, FillsInDefaults) {
  const Operator& op = append_op(block(), scale());
  EXPECT_EQ(op.attrs.at("scale"), Attribute(1.0));
  EXPECT_EQ(op.attrs.at("bias_after_scale"), Attribute(true));
}

TEST_F(AppendOp, RefusesAnUnknownSlot) {
  Operator op = scale();
  op.inputs["x"] = {x_.name()};
  expect_refused(op, ErrorCode::kInvalidProgram, {"op 'scale' has no input 'x'"});
}

TEST_F(AppendOp, RefusesAMissingInput) {
  Operator op = scale();
  op.inputs.clear();
  expect_refused(op, ErrorCode::kInvalidProgram, {"scale", "input 'X'", "one variable"});
}

TEST_F(AppendOp, RefusesTwoVariablesForOne) {
  Operator op = scale();
  op.inputs["X"].push_back(out_.name());
  expect_refused(op, ErrorCode::kInvalidProgram, {"scale", "'X'", "x, relu_0.tmp_0"});
}

TEST_F(AppendOp, RefusesVariablesThatDoNotExist) {
  Operator op = scale();
  op.outputs["Out"] = {"nowhere"};
  expect_refused(op, ErrorCode::kInvalidProgram, {"scale", "output 'Out'", "'nowhere'"});
}

TEST_F(AppendOp, RefusesAttributesOfAnotherKindOrName) {
  Operator op = scale();
  op.attrs["scale"] = std::string("two");
  expect_refused(op, ErrorCode::kInvalidProgram, {"scale"});
  op.attrs = {{"skale", 2.0}};
  expect_refused(op, ErrorCode::kInvalidProgram, {"skale"});
}

TEST_F(AppendOp, InsertKeepsARoleThatIsSet) {
  Operator op = scale();
  op.role = OpRole::kDist;
  insert_op(block(), 0, op);
  EXPECT_EQ(block().op(0).role, OpRole::kDist);
  EXPECT_EQ(block().op(1).type, "relu");
}

TEST_F(AppendOp, VerifyFindsAShapeThatItsOpDoesNotMake) {
  EXPECT_NO_THROW(verify(main_));
  block().var(out_.name()).shape = Shape{7, 5};
  expect_error([&] { verify(main_); }, ErrorCode::kShapeMismatch,
               {"op 'relu'", "relu_0.tmp_0", "[-1, 4]", "[7, 5]"});
}

// Each of these ops but one is like the others.
TEST_F(AppendOp, VerifyFindsTheOneWrongOpAmongManyAlike) {
  std::vector<Variable> outs;
  outs.reserve(6);
  for (int i = 0; i < 6; ++i) outs.push_back(layers::relu(x_));
  const auto refuses = [this](ErrorCode code, const std::vector<std::string>& texts) {
    expect_error([&] { verify(main_); }, code, texts);
  };
  EXPECT_NO_THROW(verify(main_));
  outs[3].edit().shape = Shape{7, 5};
  refuses(ErrorCode::kShapeMismatch, {"op 'relu'", outs[3].name(), "[7, 5]"});
  outs[3].edit().shape = x_.shape();
  outs[4].edit().dtype = DType::kInt64;
  refuses(ErrorCode::kDTypeMismatch, {"op 'relu'", outs[4].name()});
  outs[4].edit().dtype = x_.dtype();
  Operator& last = block().op(block().op_count() - 1);
  last.attrs["skale"] = 2.0;
  refuses(ErrorCode::kInvalidProgram, {"relu", "skale"});
  last.attrs.erase("skale");
  last.inputs["Y"] = {x_.name()};
  refuses(ErrorCode::kInvalidProgram, {"op 'relu' has no input 'Y'"});
  last.inputs.erase("Y");
  last.outputs["Out"].push_back(outs[0].name());
  refuses(ErrorCode::kInvalidProgram, {"relu", "output 'Out'"});
  last.outputs["Out"].pop_back();
  EXPECT_NO_THROW(verify(main_));
}

TEST(BroadcastShape, FollowsTheAxis) {
  EXPECT_EQ(broadcast_shape({2, 3, 4}, {3, 4}, -1, "t"), (Shape{2, 3, 4}));
  EXPECT_EQ(broadcast_shape({2, 3, 4}, {3}, 1, "t"), (Shape{2, 3, 4}));
  EXPECT_EQ(broadcast_shape({2, 3, 4}, {2, 3}, 0, "t"), (Shape{2, 3, 4}));
  EXPECT_EQ(broadcast_shape({-1, 5}, {-1, 1}, -1, "t"), (Shape{-1, 5}));
  EXPECT_EQ(broadcast_shape({-1, 1}, {-1, 5}, -1, "t"), (Shape{-1, 5}));
  EXPECT_EQ(broadcast_shape({3}, {2, 3}, -1, "t"), (Shape{2, 3}));
  EXPECT_EQ(broadcast_shape({1}, {1}, -1, "t"), (Shape{1}));
  EXPECT_EQ(broadcast_shape({0, 4}, {4}, -1, "t"), (Shape{0, 4}));
}

TEST(BroadcastShape, RefusesWhatDoesNotFit) {
  expect_error(
      [] {
        broadcast_shape({2, 3}, {4}, -1, "here");
      },
      ErrorCode::kShapeMismatch, {"here", "[2, 3]", "[4]"});
  expect_error(
      [] {
        broadcast_shape({2, 3}, {3}, 2, "here");
      },
      ErrorCode::kShapeMismatch, {"axis 2"});
}

TEST(ReshapedShape, KeepsAndInfersDimensions) {
  EXPECT_EQ(reshaped_shape({2, 6}, {-1, 3}, "t"), (Shape{4, 3}));
  EXPECT_EQ(reshaped_shape({2, 6}, {0, 2, 3}, "t"), (Shape{2, 2, 3}));
  EXPECT_EQ(reshaped_shape({-1, 6}, {-1, 2, 3}, "t"), (Shape{-1, 2, 3}));
  EXPECT_EQ(reshaped_shape({-1, 6}, {0, 6}, "t"), (Shape{-1, 6}));
}

TEST(ReshapedShape, RefusesWhatHasNoAnswer) {
  for (const std::vector<int32_t>& wanted :
       std::vector<std::vector<int32_t>>{{5, -1}, {-1, -1}, {3, 3}, {2, 6, 0}, {-2, 6}}) {
    expect_error(
        [&] {
          reshaped_shape({2, 6}, wanted, "here");
        },
        ErrorCode::kShapeMismatch, {"here", "[2, 6]"});
  }
}

TEST(FloatText, IsTheShortestWithAPoint) {
  EXPECT_EQ(float_text(1.0), "1.0");
  EXPECT_EQ(float_text(0.0), "0.0");
  EXPECT_EQ(float_text(-0.5), "-0.5");
  EXPECT_EQ(float_text(0.0001), "0.0001");
  EXPECT_EQ(float_text(0.00001), "1e-05");
  EXPECT_EQ(float_text(20000.0), "20000.0");
  EXPECT_EQ(float_text(1e16), "1e+16");
}

}  // namespace
}  // namespace fleet::fluid
