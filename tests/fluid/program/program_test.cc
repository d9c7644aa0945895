#include "fluid/program/program.h"

#include <algorithm>
#include <array>

#include "base/philox.h"
#include "base/strings.h"
#include "fluid/ops/append.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ProgramTest : public NetFixture {
 protected:
  ProgramTest() {
    const Variable x = layers::data("x", {4});
    hidden_ = layers::fc(x, 3, {.act = "tanh"});
    probabilities_ = layers::fc(hidden_, 2, {.act = "softmax"});
    side_ = layers::scale(x, {.scale = 2.0});
  }
  Variable hidden_;
  Variable probabilities_;
  Variable side_;
};

TEST_F(ProgramTest, CopyIsDeepAndTellsTheSame) {
  Program copy = main_;
  EXPECT_EQ(copy.to_string(), main_.to_string());
  EXPECT_EQ(copy.hash(), main_.hash());
  EXPECT_NE(copy.id(), main_.id());
  copy.global_block().op(0).attrs["x_num_col_dims"] = int64_t{2};
  copy.global_block().var("x").shape.set(1, 9);
  EXPECT_NE(copy.to_string(), main_.to_string());
  EXPECT_EQ(block().var("x").shape[1], 4);
}

TEST_F(ProgramTest, CloneForTestKeepsForwardAndSetsIsTest) {
  {
    const RoleGuard guard(main_, OpRole::kOptimize);
    layers::scale(hidden_, {});
  }
  const Program test = main_.clone(true);
  EXPECT_EQ(test.global_block().op_count() + 1, block().op_count());
  for (const auto& op : test.global_block().ops()) {
    if (op->type == "softmax") {
      EXPECT_EQ(op->attrs.at("is_test"), Attribute(true));
    }
  }
  EXPECT_EQ(op_of("softmax").attrs.at("is_test"), Attribute(false));
}

TEST_F(ProgramTest, PruneKeepsWhatTheTargetNeeds) {
  const std::vector<std::string> targets = {hidden_.name()};
  const Program pruned = main_.prune(targets);
  std::vector<std::string> types;
  for (const auto& op : pruned.global_block().ops()) types.push_back(op->type);
  EXPECT_THAT(types, ElementsAre("mul", "elementwise_add", "tanh"));
  EXPECT_EQ(pruned.global_block().find_var(side_.name()), nullptr);
  EXPECT_NE(pruned.global_block().find_var("fc_0.w_0"), nullptr);
  EXPECT_EQ(pruned.global_block().find_var("fc_1.w_0"), nullptr);
}

TEST_F(ProgramTest, PruneCutsAtFeeds) {
  const std::vector<std::string> targets = {probabilities_.name()};
  const std::vector<std::string> feeds = {hidden_.name()};
  const Program pruned = main_.prune(targets, feeds);
  EXPECT_EQ(pruned.global_block().op_count(), 3u);
  EXPECT_EQ(pruned.global_block().find_var("x"), nullptr);
}

TEST_F(ProgramTest, BytesAndJsonBringBackTheSameProgram) {
  main_.set_random_seed(7);
  main_.distribution().endpoints = {"127.0.0.1:1"};
  block().var(block().parameters().front()->name).do_model_average = false;
  const auto bytes = main_.to_bytes();
  const auto from_bytes = Program::from_bytes(bytes);
  ASSERT_TRUE(from_bytes.ok()) << from_bytes.status().to_string();
  EXPECT_EQ(from_bytes.value().hash(), main_.hash());
  const auto from_json = Program::from_json(main_.to_json());
  ASSERT_TRUE(from_json.ok()) << from_json.status().to_string();
  EXPECT_EQ(from_json.value().to_string(), main_.to_string());
  EXPECT_EQ(from_json.value().hash(), main_.hash());
}

// The words are in saved programs.
TEST_F(ProgramTest, RecordsTheModeOfServersByItsWord) {
  const auto json_of = [this](std::optional<ServerMode> mode) {
    main_.distribution().server_mode = mode;
    const auto from_bytes = Program::from_bytes(main_.to_bytes());
    EXPECT_EQ(from_bytes.value().distribution().server_mode, mode);
    return main_.to_json();
  };
  const std::pair<std::optional<ServerMode>, std::string> words[] = {
      {std::nullopt, ""},
      {ServerMode::kSync, "sync"},
      {ServerMode::kAsync, "async"},
      {ServerMode::kHalfAsync, "half_async"},
      {ServerMode::kGeo, "geo"},
      {ServerMode::kEasgd, "easgd"}};
  for (const auto& [mode, word] : words) {
    const std::string json = json_of(mode);
    EXPECT_THAT(json, HasSubstr("\"server_mode\": \"" + word + "\""));
    EXPECT_EQ(Program::from_json(json).value().distribution().server_mode, mode) << word;
  }
}

TEST_F(ProgramTest, RefusesAModeOfServersThatItDoesNotKnow) {
  main_.distribution().server_mode = ServerMode::kHalfAsync;
  std::string json = main_.to_json();
  const std::string word = "half_async";
  json.replace(json.find(word), word.size(), "half_sync");
  const auto refused = Program::from_json(json);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().to_string(), HasSubstr("unknown mode of servers: 'half_sync'"));
  auto bytes = main_.to_bytes();
  const auto found = std::search(bytes.begin(), bytes.end(), word.begin(), word.end(),
                                 [](std::byte a, char b) { return static_cast<char>(a) == b; });
  ASSERT_NE(found, bytes.end());
  *found = std::byte{'c'};
  const auto damaged = Program::from_bytes(bytes);
  ASSERT_FALSE(damaged.ok());
  EXPECT_THAT(damaged.status().to_string(), HasSubstr("unknown mode of servers: 'calf_async'"));
}

TEST_F(ProgramTest, EveryTruncationIsRefused) {
  const auto bytes = main_.to_bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(Program::from_bytes({bytes.data(), size}).ok()) << size << " bytes";
  }
}

TEST_F(ProgramTest, DamagedJsonIsRefused) {
  const std::string json = main_.to_json();
  EXPECT_FALSE(Program::from_json(json.substr(0, json.size() / 2)).ok());
  EXPECT_FALSE(Program::from_json("[]").ok());
}

TEST_F(ProgramTest, VerifyNamesOpAndVariable) {
  EXPECT_TRUE(main_.verify().ok());
  block().op(0).inputs["X"] = {"nowhere"};
  const Status status = main_.verify();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.to_string(), AllOf(HasSubstr("mul"), HasSubstr("nowhere")));
}

// An op that was found to be in order is looked at again when that may no longer be so.
TEST_F(ProgramTest, VerifySeesWhatChangedSinceTheLastTime) {
  const std::string x = std::as_const(block()).op(0).input("X").front();
  ASSERT_TRUE(main_.verify().ok());
  Program edited = main_;
  ASSERT_TRUE(edited.verify().ok());
  edited.global_block().edit_op(0).inputs["X"] = {"nowhere"};
  EXPECT_THAT(edited.verify().to_string(), HasSubstr("nowhere"));
  Program removed = main_;
  ASSERT_TRUE(removed.verify().ok());
  removed.global_block().remove_var(x);
  EXPECT_THAT(removed.verify().to_string(), HasSubstr(x));
  Program renamed = main_;
  ASSERT_TRUE(renamed.verify().ok());
  renamed.global_block().rename_var(x, "other");
  EXPECT_THAT(renamed.verify().to_string(), HasSubstr(x));
  Program foreign;
  OpList ops = main_.global_block().ops();
  foreign.global_block().set_ops(std::move(ops));
  EXPECT_FALSE(foreign.verify().ok());
  EXPECT_TRUE(main_.verify().ok());
}

// What nobody has looked at yet says whether a program is in order.
bool verifies_anew(const Program& program) {
  const auto copy = Program::from_bytes(program.to_bytes());
  return copy.ok() && copy.value().verify().ok();
}

// Three programs that are changed at random, and take ops and all from each other.
class ChangingPrograms {
 public:
  void change(uint64_t step) {
    const auto numbers = philox(RandomKey::of(7, "changes"), step, 0);
    Program& program = programs_[numbers[0] % programs_.size()];
    const Program& other = programs_[numbers[1] % programs_.size()];
    Block& block = program.global_block();
    const std::string name = str_cat("v", numbers[2] % 8);
    const size_t at = block.op_count() == 0 ? 0 : numbers[3] % block.op_count();
    switch (numbers[1] / 8 % 16) {
      case 0:
        block.remove_var(name);
        break;
      case 1:
        block.rename_var(name, str_cat("v", numbers[3] % 8));
        break;
      case 2:
        program = other;
        break;
      case 3:
        block.set_ops(OpList(other.global_block().ops()));
        break;
      case 4:
        if (block.op_count() > 0) block.edit_op(at).inputs["X"] = {name};
        break;
      case 5:
        if (block.op_count() > 0) block.op(at).outputs["Out"] = {name};
        break;
      case 6:
        if (block.op_count() > 4) block.remove_op(at);
        break;
      case 7:
        block.append_op(
            {.type = "assign", .inputs = {{"X", {name}}}, .outputs = {{"Out", {name}}}});
        break;
      default:
        block.add_var({.name = name});
    }
  }
  const std::array<Program, 3>& programs() const { return programs_; }

 private:
  std::array<Program, 3> programs_;
};

TEST(ChangingProgramsTest, VerifyAsIfNobodyHadLookedBefore) {
  ChangingPrograms all;
  int in_order = 0;
  int out_of_order = 0;
  for (uint64_t step = 0; step < 5000; ++step) {
    all.change(step);
    for (const Program& program : all.programs()) {
      const bool verified = program.verify().ok();
      ASSERT_EQ(verified, verifies_anew(program)) << "step " << step << "\n" << program.to_string();
      ++(verified ? in_order : out_of_order);
    }
  }
  EXPECT_GT(in_order, 1000);
  EXPECT_GT(out_of_order, 1000);
}

// Threads share the ops of a long program: whichever finds a problem, the first op's is named.
TEST_F(ProgramTest, VerifyNamesTheFirstProblemOfALongProgram) {
  constexpr size_t kOps = 60000;
  const Operator op = block().op(0);
  while (block().op_count() < kOps) block().append_op(op);
  EXPECT_TRUE(main_.verify().ok());
  EXPECT_NO_THROW(verify(main_));

  const auto expect_first = [this](const std::string& name) {
    EXPECT_THAT(main_.verify().to_string(), HasSubstr(name));
    expect_error([this] { verify(main_); }, ErrorCode::kInvalidProgram, {name});
  };
  block().op(kOps - 1).inputs["X"] = {"last"};
  expect_first("last");
  block().op(kOps / 2 + 9).inputs["X"] = {"middle"};
  expect_first("middle");
  block().op(kOps / 2 - 9).outputs["Result"] = {"x"};
  EXPECT_THAT(main_.verify().to_string(), HasSubstr("middle"));
  expect_error([this] { verify(main_); }, ErrorCode::kInvalidProgram, {"has no output 'Result'"});
  block().op(9).inputs["Y"] = {"first"};
  expect_first("first");
}

TEST_F(ProgramTest, PruneKeepsInMindWhatItCutAway) {
  const Program pruned = main_.prune(std::vector{hidden_.name()});
  EXPECT_FALSE(pruned.was_pruned(hidden_.name()));
  EXPECT_FALSE(main_.was_pruned(side_.name()));
  const Program again = pruned.clone(true).prune(std::vector<std::string>{"x"});
  EXPECT_TRUE(pruned.was_pruned(side_.name()));
  EXPECT_TRUE(again.was_pruned(side_.name()));
  EXPECT_TRUE(again.was_pruned(hidden_.name()));
  EXPECT_FALSE(pruned.was_pruned(again.global_block().vars().front()->name));
}

TEST_F(ProgramTest, UnknownVariableNamesTheNearest) {
  expect_error([&] { block().var("fc_0.w_1"); }, ErrorCode::kUnknownName,
               {"fc_0.w_1", "did you mean 'fc_0."});
}

TEST_F(ProgramTest, GuardsSetRoleAndGiveItBack) {
  {
    const RoleGuard guard(main_, OpRole::kOptimize, {"p", "g"});
    const NameScopeGuard scope(main_, "clip");
    layers::scale(hidden_, {});
  }
  layers::scale(hidden_, {});
  const Operator& guarded = block().op(block().op_count() - 2);
  EXPECT_EQ(guarded.role, OpRole::kOptimize);
  EXPECT_THAT(guarded.role_var, ElementsAre("p", "g"));
  EXPECT_EQ(guarded.name_scope, "/clip");
  const Operator& free = block().op(block().op_count() - 1);
  EXPECT_EQ(free.role, OpRole::kForward);
  EXPECT_TRUE(free.role_var.empty());
}

TEST(UniqueName, CountsPerKeyAndStartsAnewUnderAGuard) {
  const unique_name::Guard outer;
  EXPECT_EQ(unique_name::generate("fc"), "fc_0");
  EXPECT_EQ(unique_name::generate("fc"), "fc_1");
  EXPECT_EQ(unique_name::generate("mean"), "mean_0");
  {
    const unique_name::Guard inner;
    EXPECT_EQ(unique_name::generate("fc"), "fc_0");
  }
  EXPECT_EQ(unique_name::generate("fc"), "fc_2");
}

}  // namespace
}  // namespace fleet::fluid
