#include "tools/inspect/render.h"

#include <gmock/gmock.h>
#include <limits>
#include <nlohmann/json.hpp>

namespace fleet::inspect {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr const char* kHostile = "w\x1b[2J\x7f";

Checkpoint hostile_checkpoint() {
  Checkpoint checkpoint;
  checkpoint.folder = "checkpoints/step-000000007";
  checkpoint.info = {.step = 7, .mode = kHostile, .values = {{kHostile, kHostile}}};
  checkpoint.tensors = {
      {.name = kHostile,
       .tensor = {.shape = {2, 3}, .pieces = {{.file = kHostile, .name = kHostile}}},
       .bytes = 24,
       .values = ValueSummary{.norm = 2, .nonfinite = 1}}};
  return checkpoint;
}

Status hostile_damage() {
  return {ErrorCode::kCorruptFile,
          {.what = kHostile, .where = kHostile, .expected = kHostile, .got = kHostile, .fix = ""}};
}

TEST(Render, ShowsControlCharactersAsDigits) {
  EXPECT_EQ(printable("größer\n\x1b\x7f"), "größer\\x0a\\x1b\\x7f");
  const Checkpoint checkpoint = hostile_checkpoint();
  Checkpoint damaged = checkpoint;
  damaged.status = hostile_damage();
  const Listing listing{kHostile, {checkpoint, damaged}, {kHostile}};
  const Comparison comparison{
      kHostile,
      kHostile,
      {{kHostile, kHostile, std::nullopt}},
      {{kHostile, checkpoint.tensors[0], std::nullopt, std::nullopt},
       {kHostile, checkpoint.tensors[0], checkpoint.tensors[0], ValueDifference{1, 2, 3}}},
      1};
  for (const std::string& text :
       {draw_text(listing), draw_text(checkpoint),
        draw_text(std::vector<Verified>{{checkpoint, {hostile_damage()}}}),
        draw_text(comparison)}) {
    EXPECT_THAT(text,
                AllOf(HasSubstr("w\\x1b[2J\\x7f"), Not(HasSubstr("\x1b")), Not(HasSubstr("\x7f"))));
  }
  EXPECT_THAT(draw_text(checkpoint, {.colour = true}), HasSubstr("\x1b[1m"));
}

TEST(Render, ShowsTextsOfSeveralLines) {
  Checkpoint checkpoint = hostile_checkpoint();
  checkpoint.info.values.clear();
  checkpoint.info.strategy = "one = 1\ntwo = 2\n";
  EXPECT_THAT(draw_text(checkpoint), HasSubstr("  strategy         one = 1\n"
                                               "                   two = 2\n"));
  const Comparison comparison{
      "a", "b", {{"strategy", "one = 1\ntwo = 2\n", "two = 2\nthree = 3\n"}}, {}, 0};
  EXPECT_THAT(draw_text(comparison), HasSubstr("\nstrategy, lines that one lacks\n"
                                               "  A  one = 1\n"
                                               "  B  three = 3\n"));
  EXPECT_THAT(draw_text(comparison), Not(HasSubstr("info")));
}

TEST(Render, WritesJson) {
  const Checkpoint checkpoint = hostile_checkpoint();
  const Json shown = Json::parse(to_json(checkpoint));
  EXPECT_EQ(shown["mode"], kHostile);
  EXPECT_EQ(shown["tensors"][0]["shape"], Json({2, 3}));
  EXPECT_EQ(shown["tensors"][0]["nonfinite"], 1);
  const Json verified =
      Json::parse(to_json(std::vector<Verified>{{checkpoint, {hostile_damage()}}}));
  EXPECT_EQ(verified["whole"], false);
  EXPECT_EQ(verified["checkpoints"][0]["damage"][0]["code"], "CORRUPT_FILE");
  const double infinity = std::numeric_limits<double>::infinity();
  const TensorInfo tensor = checkpoint.tensors[0];
  const Json compared = Json::parse(to_json(
      Comparison{"a", "\xff", {}, {{"w", tensor, tensor, ValueDifference{1, infinity, 1}}}, 3}));
  EXPECT_EQ(compared["equal"], false);
  EXPECT_EQ(compared["equal_tensors"], 3);
  EXPECT_TRUE(compared["tensors"][0]["absolute"].is_null());
  EXPECT_EQ(compared["tensors"][0]["relative"], 1);
}

}  // namespace
}  // namespace fleet::inspect
