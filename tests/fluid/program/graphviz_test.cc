#include "fluid/program/graphviz.h"

#include "tests/fluid/net_fixture.h"

namespace fleet::fluid {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class GraphvizTest : public NetFixture {};

TEST_F(GraphvizTest, DrawsOpsVariablesAndWhatGoesBetweenThem) {
  const Variable x = layers::data("x", {4});
  layers::fc(x, 3, {.param_attr = {.name = "w"}, .bias_attr = no_bias(), .act = "tanh"});
  const std::string graph = to_graphviz(main_);
  EXPECT_THAT(graph, AllOf(HasSubstr("digraph"), HasSubstr("p0_b0_0 [label=\"mul\""),
                           HasSubstr("label=\"w\\nfloat32 [4, 3]\", shape=ellipse"),
                           HasSubstr("p0_b0_0 -> p0_b0_1 [label=\"fc_0.tmp_0\\n"),
                           HasSubstr("role=forward")));
  EXPECT_EQ(graph, to_graphviz(main_));
}

TEST_F(GraphvizTest, EscapesNames) {
  const Variable x = layers::data("a\"b\\c", {4});
  layers::scale(x, {});
  EXPECT_THAT(to_graphviz(main_), HasSubstr("\"a\\\"b\\\\c\\nfloat32"));
}

TEST_F(GraphvizTest, FramesBlocksAndLeadsToThem) {
  const Variable x = layers::data("x", {4});
  layers::scale(x, {});
  Block& inner = main_.add_block(0);
  Operator op = main_.global_block().op(0);
  inner.append_op(op);
  op.type = "while";
  op.attrs["sub_block"] = BlockRef{1};
  main_.global_block().append_op(op);
  const std::string graph = to_graphviz(main_);
  EXPECT_THAT(graph, AllOf(HasSubstr("subgraph cluster_p0_b1"),
                           HasSubstr("p0_b0_1 -> p0_b1_0 [style=dashed, lhead=cluster_p0_b1]")));
}

TEST_F(GraphvizTest, PutsSeveralProgramsIntoOneGraph) {
  const Variable x = layers::data("x", {4});
  layers::scale(x, {});
  GraphvizWriter writer;
  writer.add_program(main_, "here");
  const size_t there = writer.add_program(main_, "there", [](int32_t, size_t) {
    return GraphvizWriter::OpNote{.line = "added", .emphasis = true};
  });
  writer.add_edge(GraphvizWriter::node(0, 0, 0), GraphvizWriter::node(there, 0, 0), "4 B");
  const std::string graph = writer.text();
  EXPECT_THAT(graph, AllOf(HasSubstr("label=\"here\""), HasSubstr("label=\"there\""),
                           HasSubstr("p1_b0_0 [label=\"scale\\nadded\""), HasSubstr("penwidth=2.5"),
                           HasSubstr("p0_b0_0 -> p1_b0_0 [label=\"4 B\"")));
  EXPECT_THAT(to_graphviz(main_), Not(HasSubstr("penwidth=2.5")));
}

}  // namespace
}  // namespace fleet::fluid
