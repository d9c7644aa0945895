// Nets trained for 50 steps: the file's own ops, run by this library's executor.
#include <algorithm>
#include <map>
#include <numeric>

#include "base/strings.h"
#include "tests/base/process/tile_threads.h"
#include "tests/golden/numeric/numeric_case.h"
#include "tests/golden/numeric/numeric_departures.h"
#include "tests/golden/numeric/numeric_nets.h"
#include "tests/golden/numeric/program_text.h"

namespace fleet::fluid::golden {
namespace {

using Bits = std::map<std::string, std::string>;

std::string bytes_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.raw()), tensor.bytes()};
}

class Training : public FileCase {
 protected:
  // A net in training.
  struct Net {
    Program program;
    Executor executor;
    std::string loss;
  };

  void build(Net& net, bool paddle_form) const {
    Block& block = net.program.global_block();
    for (const auto& [name, entry] : reader_.entries()) {
      if (name.starts_with("init/")) {
        add_var(block, name.substr(5), entry, true);
        net.executor.scope().var(name.substr(5)) = tensor(name);
      }
      if (name.starts_with("data/") && !name.ends_with("/lengths")) {
        const bool sequence = name.ends_with("/values");
        const std::string text = name.substr(5, name.size() - 5 - (sequence ? 7 : 0));
        add_var(block, text, entry, false).lod_level = sequence ? 1 : 0;
      }
    }
    append_ops(block, json_["ops"]);
    for (size_t i = 0; i < block.op_count(); ++i) {
      Operator* op = &block.op(i);
      if (op->type == "mean") net.loss = op->output("Out").front();
      const auto& attrs = OpTable::standard().at(op->type).normalize({});
      if (attrs.contains("paddle_form")) op->attrs["paddle_form"] = paddle_form;
      // The file has neither; the library's layers would have set both.
      if (op->type.starts_with("lookup_table") && !op->type.ends_with("_grad")) {
        block.var(op->output("Out").front()).lod_level =
            block.var(op->input("Ids").front()).lod_level;
      }
      if (op->type.starts_with("lookup_table") && op->type.ends_with("_grad") &&
          std::get<bool>(op->attrs.at("is_sparse"))) {
        block.var(op->output("W@GRAD").front()).kind = VarKind::kSelectedRows;
      }
    }
    // States that have no initial value in the file start as the optimizer makes them.
    for (const auto& name : json_["state_at_end"]) {
      const auto text = name.get<std::string>();
      if (reader_.contains("init/" + text)) continue;
      const auto& entry = reader_.entries().at("final/" + text);
      add_var(block, text, entry, true);
      net.executor.scope().var(text) = first_state(block, text, entry);
    }
  }

  static VarDesc& add_var(Block& block, const std::string& name,
                          const SafetensorsReader::Entry& entry, bool persistable) {
    VarDesc var;
    var.name = name;
    var.dtype = entry.dtype;
    var.shape = entry.shape;
    if (!persistable && var.shape.rank() == 1) var.shape.push_back(1);
    var.persistable = persistable;
    var.is_data = !persistable;
    if (!persistable) var.shape.set(0, Shape::kUnknown);
    block.add_var(std::move(var));
    return block.var(name);
  }

  Tensor first_state(const Block& block, const std::string& name,
                     const SafetensorsReader::Entry& entry) const {
    for (const auto& op : block.ops()) {
      for (const auto& [slot, names] : op->inputs) {
        if (std::find(names.begin(), names.end(), name) == names.end()) continue;
        const auto number = [&, &attrs = op->attrs](const char* attr) {
          return Tensor::scalar(static_cast<float>(std::get<double>(attrs.at(attr))));
        };
        if (op->type == "increment") return Tensor::scalar<int64_t>(-1);
        if (slot == "LearningRate") return Tensor::scalar(json_["settings"]["lr"].get<float>());
        if (slot == "Beta1Pow") return number("beta1");
        if (slot == "Beta2Pow") return number("beta2");
      }
    }
    return Tensor::zeros(entry.dtype, entry.shape);
  }

  void compare(const Tensor& got, const std::string& stored, const Json& tolerance,
               std::vector<std::string>& differences) const {
    const std::string differs = difference(got, tensor(stored), rtol(tolerance));
    if (!differs.empty()) differences.push_back(stored + " " + differs);
  }

  // All steps, and the inference after them; what differs from the file.
  std::vector<std::string> train(Net& net) const {
    const Tensor batches = tensor("batch_index");
    const Tensor losses = tensor("losses");
    const Json& tolerance = json_["tolerance"];
    Tensor got(losses.dtype(), losses.shape());
    const auto batch = static_cast<size_t>(batches.shape()[1]);
    std::vector<std::string> differences;
    Scope& scope = net.executor.scope();
    for (int64_t step = 0; step < batches.shape()[0]; ++step) {
      const auto rows = batches.values<int64_t>().subspan(static_cast<size_t>(step) * batch, batch);
      const auto fetched = net.executor.run(net.program, feed_of("data/", rows), {net.loss});
      got.data<float>()[step] = fetched[0].item<float>();
      if (step != 0) continue;
      for (const auto& [name, shape] : json_["parameters"].items()) {
        compare(scope.tensor(name), "after_step_1/" + name, tolerance["parameters"], differences);
      }
    }
    compare(got, "losses", tolerance["losses"], differences);
    for (const auto& name : json_["state_at_end"]) {
      const auto text = name.get<std::string>();
      compare(scope.tensor(text), "final/" + text, tolerance["parameters"], differences);
    }
    compare(infer(net, batch), "infer/out", tolerance["parameters"], differences);
    return differences;
  }

  // The loss of each step, and what the net keeps from one to the next.
  Bits trained(Net& net, int steps) const {
    const Tensor batches = tensor("batch_index");
    const auto batch = static_cast<size_t>(batches.shape()[1]);
    Bits bits;
    for (int step = 0; step < steps; ++step) {
      const auto rows = batches.values<int64_t>().subspan(static_cast<size_t>(step) * batch, batch);
      const auto fetched = net.executor.run(net.program, feed_of("data/", rows), {net.loss});
      bits[str_cat("loss ", step)] = bytes_of(fetched[0]);
    }
    for (const VarDesc* var : net.program.global_block().vars()) {
      if (var->persistable) bits[var->name] = bytes_of(net.executor.scope().tensor(var->name));
    }
    return bits;
  }

  // The variable that the file names in quotes, of the net's test form, on the pool's first rows.
  Tensor infer(Net& net, size_t batch) const {
    const auto text = json_["infer"].get<std::string>();
    const size_t begin = text.find('"') + 1;
    const std::string target = text.substr(begin, text.find('"', begin) - begin);
    Program forward = net.program;
    Block& block = forward.global_block();
    for (size_t i = block.op_count(); i-- > 0;) {
      const Operator& op = block.op(i);
      const bool trains = op.type.ends_with("_grad") || op.type == "increment" ||
                          !op.input("Param").empty() || op.type == "cross_entropy_grad2";
      if (trains) block.remove_op(i);
    }
    const Program tested = forward.clone(true).prune(std::vector<std::string>{target});
    std::vector<int64_t> rows(batch);
    std::iota(rows.begin(), rows.end(), 0);
    Feed used;
    for (auto& fed : feed_of("data/", rows)) {
      const auto& ops = tested.global_block().ops();
      const bool read = std::any_of(ops.begin(), ops.end(), [&](const auto& op) {
        const auto names = op->input_names();
        return std::find(names.begin(), names.end(), fed.first) != names.end();
      });
      if (read) used.push_back(fed);
    }
    return net.executor.run(tested, used, {target})[0];
  }
};

// The library's layers and optimizers write the file's net.
TEST_P(Training, IsWhatLayersWrite) {
  const NumericNet net = build_net(json_["description"].get<std::string>(), json_["settings"],
                                   [this](const std::string& name, Tensor& value) {
                                     if (!reader_.contains(name)) return false;
                                     value = tensor(name);
                                     return true;
                                   });
  std::vector<std::string> written;
  std::vector<std::string> expected;
  for (const Json& json : json_["ops"]) {
    Operator op;
    op.type = json["type"].get<std::string>();
    op.inputs = json["inputs"].get<SlotMap>();
    op.outputs = json["outputs"].get<SlotMap>();
    op.attrs = attributes(OpTable::standard().at(op.type), json["attrs"]);
    for (auto& [slot, names] : op.outputs) {
      std::replace(names.begin(), names.end(), std::string("@EMPTY@"), std::string());
    }
    const auto& ops = net.main.global_block().ops();
    const size_t i = expected.size();
    if (i < ops.size()) written.push_back(op_text(*ops[i], op.attrs));
    expected.push_back(op_text(op, op.attrs));
  }
  EXPECT_EQ(net.main.global_block().op_count(), expected.size());
  EXPECT_EQ(join(written, "\n"), join(expected, "\n"));
}

TEST_P(Training, HasTheSameBitsAtAnyNumberOfThreads) {
  const SmallTiles small(2);
  compare_thread_counts(
      [this] {
        Net net;
        build(net, false);
        return trained(net, 5);
      },
      [](const Bits& got, const Bits& wanted) {
        for (const auto& [name, bytes] : wanted) EXPECT_TRUE(got.at(name) == bytes) << name;
      });
}

TEST_P(Training, InPaddlesFormFollowsItStepByStep) {
  Net net;
  build(net, true);
  EXPECT_EQ(join(train(net), "\n"), "");
}

TEST_P(Training, FollowsItUnlessADepartureIsListed) {
  const auto departures = find_departures("training", json_);
  Net net;
  build(net, false);
  const std::string differs = join(train(net), "\n");
  if (departures.empty()) {
    EXPECT_EQ(differs, "");
  }
  const Tensors tensors = [this](const std::string& name) { return tensor(name); };
  for (const NumericDeparture* departure : departures) {
    if (departure->differs && departure->differs(json_, tensors)) {
      EXPECT_NE(differs, "") << "listed as a departure: " << departure->here;
    }
  }
}

TEST(TrainingFiles, WithASettingThatIsNotKnownAreRefused) {
  const auto build = [] {
    build_net("quick-start mlp", {{"lr", 0.1}, {"foo", 1}},
              [](const std::string&, Tensor&) { return false; });
  };
  EXPECT_THAT(build, ::testing::ThrowsMessage<std::runtime_error>(::testing::HasSubstr("foo")));
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Training);
INSTANTIATE_TEST_SUITE_P(Golden, Training, ::testing::ValuesIn(cases("training")), case_name);

}  // namespace
}  // namespace fleet::fluid::golden
