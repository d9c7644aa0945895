// Optimizers, clips and decays: the programs that the library's optimizers append, and the
// parameters and states after each step.
#include "base/strings.h"
#include "fluid/backward/regularizer.h"
#include "fluid/layers/tensor.h"
#include "fluid/program/default_programs.h"
#include "tests/golden/golden_arguments.h"
#include "tests/golden/numeric/numeric_case.h"
#include "tests/golden/numeric/numeric_departures.h"
#include "tests/golden/numeric/program_text.h"

namespace fleet::fluid::golden {
namespace {

Json decay_of(const Json& decay) {
  fleet::golden::Arguments args("regularizer", decay);
  const auto kind = args.get<std::string>("kind", "");
  const auto coefficient = args.get<double>("coefficient", 0.0);
  args.finish();
  return {{kind + "Decay", coefficient}};
}

Json clip_of(const Json& clip) {
  const std::map<std::string, std::string> types = {
      {"by_value", "ByValue"}, {"by_norm", "ByNorm"}, {"by_global_norm", "ByGlobalNorm"}};
  Json args = clip;
  args.erase("kind");
  return {{"type", types.at(clip["kind"].get<std::string>())}, {"args", args}};
}

// Case, and whether Paddle's form is asked for.
class Optimizers : public FileCase {
 protected:
  void SetUp() override {
    FileCase::SetUp();
    if (HasFatalFailure()) return;
    for (const auto& [name, parameter] : json_["parameters"].items()) parameters_.push_back(name);
  }

  bool sparse(const std::string& parameter) const {
    return json_["parameters"][parameter]["gradient"] == "selected_rows";
  }

  // What the file's optimizer is called and given, as golden nets write it.
  Json configuration() const {
    Json args = json_["arguments"];
    Json optimizer = {{"type", json_["optimizer"]}};
    optimizer["learning_rate"] = args.value("learning_rate", 0.001);
    args.erase("learning_rate");
    optimizer["args"] = args;
    const Json decay = json_.value("regularizer", Json());
    if (!decay.is_null()) optimizer["regularization"] = decay_of(decay);
    const Json clip = json_.value("clip", Json());
    if (!clip.is_null()) optimizer["grad_clip"] = clip_of(clip);
    return {{"config", {{"optimizer", optimizer}}}};
  }

  // A parameter's own decay shows in the ops only: `sign` and `scale`, or `scale`, of it.
  std::optional<Penalty> own_decay(const std::string& parameter) const {
    std::string source = parameter;
    std::string kind = "L2";
    for (const Json& op : json_["ops"]) {
      const Json x = op["inputs"].value("X", Json::array());
      if (x.size() != 1 || x[0] != source) continue;
      if (op["type"] == "sign") {
        kind = "L1";
        source = op["outputs"]["Out"][0].get<std::string>();
      }
      if (op["type"] != "scale") continue;
      const double coefficient = op["attrs"]["scale"].get<double>();
      const Json common = json_.value("regularizer", Json());
      const bool same = !common.is_null() && common["kind"] == kind &&
                        static_cast<float>(common["coefficient"].get<double>()) ==
                            static_cast<float>(coefficient);
      if (same) return std::nullopt;
      return kind == "L1" ? regularizer::L1Decay(coefficient) : regularizer::L2Decay(coefficient);
    }
    return std::nullopt;
  }

  // The program that the library's optimizer appends.
  void build(Program& main, bool paddle_form) const {
    Program startup;
    const ProgramGuard programs(main, startup);
    const unique_name::Guard names;
    std::vector<ParamGrad> pairs;
    for (const std::string& name : parameters_) {
      const Tensor init = tensor(str_cat(id(), "/init/", name));
      ParamAttr attr{.name = name};
      attr.learning_rate = json_["parameters"][name].value("learning_rate_factor", 1.0);
      attr.regularizer = own_decay(name);
      const Variable param =
          layers::create_parameter(init.shape(), init.dtype(), {.name = name, .attr = attr});
      VarDesc grad;
      grad.name = name + "@GRAD";
      grad.dtype = init.dtype();
      grad.shape = init.shape();
      grad.kind = sparse(name) ? VarKind::kSelectedRows : VarKind::kLodTensor;
      grad.persistable = true;  // so that rows can be put in the scope, and read there
      pairs.push_back({param, Variable(main.global_block(), main.global_block().add_var(grad))});
    }
    const auto optimizer = fleet::golden::make_optimizer(
        configuration(), paddle_form ? fleet::golden::Form::kPaddle : fleet::golden::Form::kOwn);
    optimizer->apply_gradients(pairs, &startup);
    for (const auto& op : main.global_block().ops()) {
      if (op->input("Param").empty()) continue;
      main.global_block().var(op->input("Grad").front()).persistable = true;
    }
  }

  void set_gradient(Scope& scope, int step, const std::string& parameter) const {
    const std::string stored = str_cat(id(), "/grad/", step, "/", parameter);
    Value& value = scope.var(parameter + "@GRAD");
    if (!sparse(parameter)) {
      value = tensor(stored);
      return;
    }
    SelectedRows rows;
    const Tensor numbers = tensor(stored + "/rows");
    rows.rows.assign(numbers.values<int64_t>().begin(), numbers.values<int64_t>().end());
    rows.height = tensor(str_cat(id(), "/init/", parameter)).shape()[0];
    rows.value = tensor(stored + "/value");
    value = std::move(rows);
  }

  // What rows stand for: a number may occur several times, and adds up.
  static Tensor dense(const SelectedRows& rows) {
    int64_t height = 0;
    for (const int64_t row : rows.rows) height = std::max(height, row + 1);
    Shape shape = rows.value.shape();
    shape.set(0, height);
    const int64_t width = shape.numel(1, shape.rank());
    const auto& values = rows.value.values<float>();
    std::vector<float> sums(static_cast<size_t>(height * width));
    for (size_t i = 0; i < rows.rows.size(); ++i) {
      for (size_t k = 0; k < static_cast<size_t>(width); ++k) {
        const auto w = static_cast<size_t>(width);
        sums[static_cast<size_t>(rows.rows[i]) * w + k] += values[i * w + k];
      }
    }
    return Tensor::from(sums, shape);
  }

  // The gradient that reached the update op, where the file has it.
  void compare_applied(const Scope& scope, const Operator& update, int step,
                       std::vector<std::string>& differences) const {
    const std::string stored = str_cat(id(), "/applied_grad/", step, "/", update.input("Param")[0]);
    const Value& value = *scope.find(update.input("Grad").front());
    if (reader_.contains(stored + "/rows")) {
      const Tensor numbers = tensor(stored + "/rows");
      SelectedRows wanted;
      wanted.rows.assign(numbers.values<int64_t>().begin(), numbers.values<int64_t>().end());
      wanted.value = tensor(stored + "/value");
      const std::string differs =
          difference(dense(std::get<SelectedRows>(value)), dense(wanted), rtol(json_["tolerance"]));
      if (!differs.empty()) differences.push_back(stored + " " + differs);
    } else if (reader_.contains(stored)) {
      compare(std::get<Tensor>(value), stored, differences);
    }
  }

  void compare(const Tensor& got, const std::string& stored,
               std::vector<std::string>& differences) const {
    if (!reader_.contains(stored)) return;
    const std::string differs = difference(got, tensor(stored), rtol(json_["tolerance"]));
    if (!differs.empty()) differences.push_back(stored + " " + differs);
  }

  // Ten steps; what differs from the file.
  std::vector<std::string> run(Program& program) const {
    Executor executor;
    Scope& scope = executor.scope();
    Block& block = program.global_block();
    std::vector<const Operator*> updates;
    for (const auto& op : block.ops()) {
      if (!op->input("Param").empty()) updates.push_back(op.get());
      if (op->input("LearningRate").empty()) continue;
      scope.var("learning_rate_0") =
          Tensor::scalar(json_["arguments"].value("learning_rate", 0.001f));
    }
    for (const Operator* update : updates) {
      const std::string& param = update->input("Param").front();
      scope.var(param) = tensor(str_cat(id(), "/init/", param));
      for (const auto& slot : json_["state_slots"][param]) {
        const auto text = slot.get<std::string>();
        if (text == "Param") continue;
        scope.var(update->input(text).front()) =
            tensor(str_cat(id(), "/init_state/", param, "/", text));
      }
    }
    std::vector<std::string> differences;
    for (int step = 1; step <= 10; ++step) {
      for (const std::string& parameter : parameters_) set_gradient(scope, step, parameter);
      executor.run(program);
      for (const Operator* update : updates) {
        const std::string& param = update->input("Param").front();
        compare_applied(scope, *update, step, differences);
        for (const auto& slot : json_["state_slots"][param]) {
          const auto text = slot.get<std::string>();
          compare(scope.tensor(update->input(text).front()),
                  str_cat(id(), "/after/", step, "/", param, "/", text), differences);
        }
      }
    }
    return differences;
  }

  std::vector<std::string> parameters_;
};

// The library's optimizer appends the file's ops, names and attributes, and they compute what the
// file says.
TEST_P(Optimizers, InPaddlesFormMatchInProgramAndNumbers) {
  Program program;
  build(program, true);
  EXPECT_EQ(op_texts(program.global_block()), op_texts(json_["ops"]));
  EXPECT_EQ(join(run(program), "\n"), "");
}

// So they do as they are, but for the departures that are listed.
TEST_P(Optimizers, MatchUnlessADepartureIsListed) {
  Program program;
  build(program, false);
  const std::string differs = join(run(program), "\n");
  const auto departures = find_departures(json_["family"].get<std::string>(), json_);
  if (departures.empty()) {
    EXPECT_EQ(differs, "");
  }
  const Tensors tensors = [this](const std::string& name) { return tensor(name); };
  for (const NumericDeparture* departure : departures) {
    if (!departure->differs(json_, tensors)) continue;
    EXPECT_NE(differs, "") << "listed as a departure: " << departure->subject << ", "
                           << departure->here;
  }
}

TEST(OptimizerFiles, WithAKeyThatIsNotKnownAreRefused) {
  const Json clip = clip_of({{"kind", "by_norm"}, {"clip_norm", 1.0}, {"foo", 1}});
  EXPECT_THROW(fleet::golden::make_clip(&clip), fleet::golden::NotYetKnown);
  EXPECT_THROW(decay_of({{"kind", "L1"}, {"coefficient", 0.1}, {"foo", 1}}),
               fleet::golden::NotYetKnown);
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Optimizers);
INSTANTIATE_TEST_SUITE_P(Golden, Optimizers, ::testing::ValuesIn(cases("optimizers")), case_name);
INSTANTIATE_TEST_SUITE_P(Clip, Optimizers, ::testing::ValuesIn(cases("clip_regularizer")),
                         case_name);

}  // namespace
}  // namespace fleet::fluid::golden
