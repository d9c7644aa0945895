#include "tests/golden/golden_compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fleet::golden {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

// One op of a clip that makes a number, and the same as a file would have it.
class GoldenCompare : public testing::Test {
 protected:
  GoldenCompare() {
    fluid::VarDesc out;
    out.name = "out";
    out.shape = {1};
    program_.global_block().add_var(out);
    fluid::Operator op;
    op.type = "fill_constant";
    op.outputs["Out"] = {"out"};
    op.attrs["str_value"] = std::string("10000.0");
    op.name_scope = "/gradient_clip_@CLIP/";
    program_.global_block().append_op(op);
    expected_ = dump_program(program_);
  }

  Json& attrs() { return expected_["blocks"][0]["ops"][0]["attrs"]; }
  std::vector<std::string> differences() {
    return compare_program(expected_, program_, "main", CompareOptions());
  }

  fluid::Program program_;
  Json expected_;
};

TEST_F(GoldenCompare, EqualProgramsDoNotDiffer) {
  EXPECT_THAT(differences(), IsEmpty());
}

TEST_F(GoldenCompare, ScopesCountByWhetherTheyAreOfAClip) {
  attrs()["op_namescope"] = "/outer/gradient_clip_@CLIP_1/";
  EXPECT_THAT(differences(), IsEmpty());
  attrs()["op_namescope"] = "/outer/";
  EXPECT_THAT(differences(), SizeIs(1));
  attrs().erase("op_namescope");
  EXPECT_THAT(differences(), SizeIs(1));
}

TEST_F(GoldenCompare, NumbersMayBeWrittenInSeveralWays) {
  attrs()["str_value"] = "10000";
  EXPECT_THAT(differences(), IsEmpty());
  attrs()["str_value"] = "1e4";
  EXPECT_THAT(differences(), IsEmpty());
  attrs()["str_value"] = "10001";
  EXPECT_THAT(differences(), SizeIs(1));
  attrs()["str_value"] = "";
  EXPECT_THAT(differences(), SizeIs(1));
}

}  // namespace
}  // namespace fleet::golden
