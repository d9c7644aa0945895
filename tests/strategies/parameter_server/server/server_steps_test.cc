// Server programs whose updates need numbers of other servers, as docs/transpiler.md writes them.
#include "strategies/parameter_server/server/server_steps.h"

#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "fluid/ops/distributed/comm.h"
#include "strategies/parameter_server/protocol/server_exchange.h"
#include "strategies/parameter_server/server/server_variables.h"

namespace fleet::strategies {
namespace {

using fluid::DType;
using fluid::Operator;
using fluid::Program;
using fluid::Shape;

constexpr int64_t kRows[] = {3, 2};
constexpr int64_t kColumns = 3;

Operator op(const char* type, fluid::SlotMap inputs, fluid::SlotMap outputs,
            fluid::AttributeMap attrs = {}) {
  Operator made;
  made.type = type;
  made.inputs = std::move(inputs);
  made.outputs = std::move(outputs);
  made.attrs = std::move(attrs);
  made.role = fluid::OpRole::kOptimize;
  return made;
}

// w -= 0.5 * g * (sum of squares of g), with the rows of w on two servers.
class ToyServer {
 public:
  explicit ToyServer(int server) : server_(server) {
    program_.distribution().endpoints = {"a:1", "b:2"};
    declare("w.block", Shape{kRows[server], kColumns}, DType::kFloat32, true);
    declare("g.block", Shape{kRows[server], kColumns}, DType::kFloat32, true);
    declare("rows.block", Shape{kRows[server]}, DType::kFloat64, false);
    declare("rows", Shape{kRows[0] + kRows[1]}, DType::kFloat64, false);
    for (const char* name : {"total", "total32", "rate"}) {
      declare(name, Shape{1}, name == std::string("total") ? DType::kFloat64 : DType::kFloat32,
              name == std::string("rate"));
    }
    declare("g.scaled", Shape{kRows[server], kColumns}, DType::kFloat32, true);
    for (int i = 0; i < 3; ++i) program_.add_block(0);
    program_.block(1).append_op(
        op("squared_row_sums", {{"X", {mine("g.block")}}}, {{"Out", {mine("rows.block")}}}));
    fill_exchange(program_.block(2));
    fill_update(program_.block(3));
    listen();
  }

  Program& program() { return program_; }
  fluid::ListenAndServAttrs attrs() const { return attrs_; }
  void set_attrs(const fluid::ListenAndServAttrs& attrs) {
    program_.global_block().op(0).attrs = fluid::to_attributes(attrs);
  }
  fluid::ServerProgram parse() const {
    return read_server_program(program_, program_.global_block().op(0), fluid::ServerMode::kSync,
                               1);
  }

  // Initial values, and the objects that train.
  void start() {
    auto& w = scope_.var(mine("w.block")).emplace<fluid::Tensor>(DType::kFloat32, shape());
    for (int64_t i = 0; i < w.numel(); ++i) w.data<float>()[i] = 1.0F;
    scope_.var("rate") = fluid::Tensor::scalar(0.5F);
    steps_ = std::make_unique<ServerSteps>(program_, parse(), scope_);
    model_ = steps_->make_model();
    exchange_ =
        std::make_unique<ServerExchange>(static_cast<uint32_t>(server_), 2, model_.exchanges,
                                         [this](uint32_t, std::vector<transport::Message> frames) {
                                           for (auto& frame : frames)
                                             sent.push_back(std::move(frame));
                                         });
  }
  // The stage before the exchange, and what it says.
  void prepare(uint64_t step, float gradient, int shards) {
    auto& g = std::get<fluid::Tensor>(model_.shards[0]->gradient());
    for (int64_t i = 0; i < g.numel(); ++i) {
      g.data<float>()[i] = gradient * static_cast<float>(i + 1 + 10 * server_);
    }
    model_.shards[0]->apply({step, shards, 0});
    exchange_->begin(0, step);
  }
  void receive(const transport::Message& message, uint64_t step) {
    auto header = message.header;
    header.payload_bytes = message.payload.size;
    const auto target = exchange_->prepare(1U - static_cast<uint32_t>(server_), 9, header, step);
    ASSERT_TRUE(target.refusal.ok()) << target.refusal.to_string();
    std::memcpy(target.memory.data(), message.payload.data, message.payload.size);
    ASSERT_TRUE(
        exchange_->take(1U - static_cast<uint32_t>(server_), 9, header, target.memory, step).ok());
  }
  void finish(uint64_t step) {
    ASSERT_TRUE(exchange_->complete(0));
    exchange_->end(0);
    model_.shards[0]->apply({step, 1, 1});
    exchange_->next_step();
    sent.clear();
  }
  std::vector<float> values() const {
    const auto all = std::as_const(scope_).tensor(mine("w.block")).values<float>();
    return {all.begin(), all.end()};
  }
  const ServerModel& model() const { return model_; }
  const fluid::Scope& scope() const { return scope_; }

  std::vector<transport::Message> sent;

 private:
  Shape shape() const { return {kRows[server_], kColumns}; }
  std::string mine(const std::string& name) const { return str_cat(name, server_); }
  void declare(const std::string& name, const Shape& shape, DType dtype, bool persistable) {
    fluid::VarDesc var;
    var.name = name.ends_with(".block") || name == "g.scaled" ? mine(name) : name;
    var.shape = shape;
    var.dtype = dtype;
    var.persistable = persistable;
    program_.global_block().add_var(var);
  }
  void fill_exchange(fluid::Block& block) {
    fluid::ExchangeRowsAttrs exchange;
    exchange.varnames = {"rows.block0", "rows.block1"};
    exchange.sections = {kRows[0], kRows[1]};
    exchange.epmap = {"a:1", "b:2"};
    block.append_op(op("exchange_rows", {{"X", {mine("rows.block")}}}, {{"Out", {"rows"}}},
                       fluid::to_attributes(exchange)));
    block.append_op(op("reduce_sum", {{"X", {"rows"}}}, {{"Out", {"total"}}},
                       {{"reduce_all", true}, {"dim", std::vector<int64_t>{0}}}));
    block.append_op(
        op("cast", {{"X", {"total"}}}, {{"Out", {"total32"}}},
           {{"out_dtype", std::string("float32")}, {"in_dtype", std::string("float64")}}));
  }
  void fill_update(fluid::Block& block) {
    block.append_op(op("elementwise_mul", {{"X", {mine("g.block")}}, {"Y", {"total32"}}},
                       {{"Out", {mine("g.scaled")}}}, {{"axis", int64_t{-1}}}));
    block.append_op(
        op("sgd",
           {{"Param", {mine("w.block")}}, {"Grad", {mine("g.scaled")}}, {"LearningRate", {"rate"}}},
           {{"ParamOut", {mine("w.block")}}}));
  }
  void listen() {
    attrs_.endpoint = server_ == 0 ? "a:1" : "b:2";
    attrs_.pserver_id = server_;
    attrs_.optimize_blocks = {{1}, {3}};
    attrs_.grad_to_block_id = {mine("g.block") + ":1"};
    attrs_.exchange_blocks = {{2}};
    attrs_.next_blocks = {"1:3"};
    program_.global_block().append_op(
        op("listen_and_serv", {{"X", {mine("g.block")}}}, {}, fluid::to_attributes(attrs_)));
  }

  int server_;
  Program program_;
  fluid::ListenAndServAttrs attrs_;
  fluid::Scope scope_;
  std::unique_ptr<ServerSteps> steps_;
  ServerModel model_;
  std::unique_ptr<ServerExchange> exchange_;
};

TEST(ServerSteps, ReadsChainsAndExchanges) {
  const fluid::ServerProgram parsed = ToyServer(1).parse();
  ASSERT_EQ(parsed.slices.size(), 1U);
  EXPECT_EQ(parsed.slices[0].chain, (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(parsed.slices[0].value, "w.block1");
  ASSERT_EQ(parsed.exchanges.size(), 1U);
  EXPECT_EQ(parsed.exchanges[0].rows[0].servers, (std::vector<uint32_t>{0, 1}));
}

TEST(ServerSteps, ComputesWithNumbersOfEveryServer) {
  ToyServer a(0);
  ToyServer b(1);
  a.start();
  b.start();
  EXPECT_EQ(a.model().shards[0]->stages(), 2);
  std::vector<float> expected(15, 1.0F);
  for (uint64_t step = 1; step <= 3; ++step) {
    const float gradient = 0.01F * static_cast<float>(step);
    a.prepare(step, gradient, 1);
    b.prepare(step, gradient, 1);
    for (const auto& message : b.sent) a.receive(message, step);
    for (const auto& message : a.sent) b.receive(message, step);
    a.finish(step);
    b.finish(step);
    double total = 0;
    std::vector<float> g;
    g.reserve(15);
    for (int i = 0; i < 15; ++i) g.push_back(gradient * static_cast<float>(i < 9 ? i + 1 : i + 2));
    for (int row = 0; row < 5; ++row) {
      double sum = 0;
      for (int i = 0; i < 3; ++i) sum += double{g[row * 3 + i]} * g[row * 3 + i];
      total += sum;
    }
    for (int i = 0; i < 15; ++i) expected[i] -= 0.5F * (g[i] * static_cast<float>(total));
  }
  std::vector<float> got = a.values();
  for (const float value : b.values()) got.push_back(value);
  EXPECT_EQ(got, expected);
}

// Threads that update different slices look variables up, which nobody may make meanwhile.
TEST(ServerSteps, MakesNoVariableWhileItTrains) {
  ToyServer a(0);
  ToyServer b(1);
  a.start();
  b.start();
  const uint64_t before = a.scope().revision();
  a.prepare(1, 0.5F, 1);
  b.prepare(1, 0.5F, 1);
  for (const auto& message : b.sent) a.receive(message, 1);
  a.finish(1);
  EXPECT_EQ(a.scope().revision(), before);
}

TEST(ServerSteps, SaysZeroForASliceWithoutContributions) {
  ToyServer a(0);
  a.start();
  a.prepare(1, 3.0F, 0);
  ASSERT_EQ(a.sent.size(), 1U);
  const std::vector<std::byte> zeros(kRows[0] * sizeof(double));
  ASSERT_EQ(a.sent[0].payload.size, zeros.size());
  EXPECT_EQ(std::memcmp(a.sent[0].payload.data, zeros.data(), zeros.size()), 0);
}

std::string refusal_of(void (*change)(fluid::ListenAndServAttrs&)) {
  ToyServer toy(0);
  fluid::ListenAndServAttrs attrs = toy.attrs();
  change(attrs);
  toy.set_attrs(attrs);
  try {
    toy.parse();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ServerSteps, RefusesChainsThatCannotBe) {
  using Attrs = fluid::ListenAndServAttrs;
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(refusal_of([](Attrs& a) { a.next_blocks = {"1:9"}; }), "next_blocks"));
  EXPECT_TRUE(has(refusal_of([](Attrs& a) { a.next_blocks = {"1:3", "1:2"}; }), "next_blocks"));
  EXPECT_TRUE(has(refusal_of([](Attrs& a) { a.next_blocks = {"1:3", "3:1"}; }), "longer"));
  EXPECT_TRUE(has(refusal_of([](Attrs& a) { a.next_blocks.clear(); }), "updates nothing"));
  EXPECT_TRUE(has(refusal_of([](Attrs& a) { a.exchange_blocks = {{7}}; }), "exchange_blocks"));
}

// ---- what a block changes of a slice

struct UpdateBlock {
  std::vector<Operator> ops;
  bool rows = true;
  bool averages = false;
};

ValueChange change_of(const UpdateBlock& update) {
  Program program;
  fluid::Block& block = program.add_block(0);
  for (const Operator& each : update.ops) block.append_op(each);
  fluid::ServerSlice slice;
  slice.value = "w";
  slice.gradient = "g";
  slice.rows = update.rows;
  slice.averages = update.averages;
  slice.chain = {1};
  return change_by(program, 1, slice);
}

Operator update_op(const char* type, fluid::AttributeMap attrs = {},
                   const std::string& gradient = "g") {
  return op(type, {{"Param", {"w"}}, {"Grad", {gradient}}}, {{"ParamOut", {"w"}}},
            std::move(attrs));
}

TEST(ValueChanges, AreOfTheGradientsRowsWhereTheOpSaysSo) {
  const Operator mean = op("scale", {{"X", {"g"}}}, {{"Out", {"g"}}});
  EXPECT_EQ(change_of({.ops = {update_op("sgd")}}), ValueChange::kNamedRows);
  EXPECT_EQ(change_of({.ops = {mean, update_op("sgd")}, .averages = true}),
            ValueChange::kNamedRows);
  EXPECT_EQ(change_of({.ops = {update_op("adagrad")}}), ValueChange::kNamedRows);
  EXPECT_EQ(change_of({.ops = {update_op("adam", {{"lazy_mode", true}})}}),
            ValueChange::kNamedRows);
  EXPECT_EQ(change_of({.ops = {mean}}), ValueChange::kAll);  // whatever that makes of its rows
  EXPECT_EQ(change_of({.ops = {op("scale", {{"X", {"g"}}}, {{"Out", {"other"}}})}}),
            ValueChange::kNothing);
}

TEST(ValueChanges, AreOfAllRowsWhereNothingSaysLess) {
  const Operator other = op("scale", {{"X", {"g"}}}, {{"Out", {"g"}}});
  EXPECT_EQ(change_of({.ops = {update_op("sgd")}, .rows = false}), ValueChange::kAll);
  EXPECT_EQ(change_of({.ops = {update_op("momentum")}}), ValueChange::kAll);
  EXPECT_EQ(change_of({.ops = {update_op("adam", {{"lazy_mode", false}})}}), ValueChange::kAll);
  EXPECT_EQ(change_of({.ops = {update_op("sgd", {}, "g.decayed")}}), ValueChange::kAll);
  EXPECT_EQ(change_of({.ops = {other, other, update_op("sgd")}, .averages = true}),
            ValueChange::kAll);
  EXPECT_EQ(change_of({.ops = {op("sum", {{"X", {"w", "g"}}}, {{"Out", {"w"}}})}}),
            ValueChange::kAll);
}

// One update of a 4 x 2 parameter by a gradient of rows 1 and 3.
std::vector<float> updated(const fluid::OpSchema& schema, fluid::AttributeMap attrs) {
  Program program;
  fluid::Scope scope;
  Operator update = op(schema.type.c_str(), {}, {}, std::move(attrs));
  const auto declare = [&](const std::string& name, const Shape& shape, fluid::VarKind kind) {
    fluid::VarDesc var;
    var.name = name;
    var.shape = shape;
    var.kind = kind;
    var.persistable = true;
    program.global_block().add_var(var);
  };
  for (const fluid::SlotSpec& slot : schema.inputs) {
    if (slot.optional) continue;
    const bool scalar = slot.name == "LearningRate" || slot.name.ends_with("Pow");
    const bool gradient = slot.name == "Grad";
    const Shape shape = scalar ? Shape{1} : Shape{4, 2};
    declare(slot.name, shape,
            gradient ? fluid::VarKind::kSelectedRows : fluid::VarKind::kLodTensor);
    const fluid::Tensor halves =
        fluid::Tensor::from(std::vector<float>(static_cast<size_t>(shape.numel()), 0.5F), shape);
    if (gradient) {
      scope.var(slot.name) =
          fluid::SelectedRows{.rows = {3, 1}, .height = 4, .value = halves.rows(0, 2)};
    } else {
      scope.var(slot.name) = halves.clone();
    }
    update.inputs[slot.name] = {slot.name};
  }
  for (const fluid::SlotSpec& slot : schema.outputs) {
    update.outputs[slot.name] = {slot.name.substr(0, slot.name.size() - 3)};
  }
  program.add_block(0);
  program.block(1).append_op(update);
  fluid::Executor executor(fluid::CPUPlace(), scope);
  executor.run_block(program, 1, scope);
  const auto values = std::as_const(scope).tensor("Param").values<float>();
  return {values.begin(), values.end()};
}

TEST(ValueChanges, ClaimedByOpsAreAllThatTheyMake) {
  int claims = 0;
  for (const auto& [type, schema] : fluid::OpTable::standard().all()) {
    // Growing tables have nothing but rows that are named.
    if (!schema.changes_named_rows_only || !schema.applies.empty()) continue;
    fluid::AttributeMap attrs = schema.normalize({});
    if (attrs.contains("lazy_mode")) attrs["lazy_mode"] = true;
    ASSERT_TRUE(schema.changes_named_rows_only(attrs)) << type;
    ++claims;
    const std::vector<float> values = updated(schema, attrs);
    for (size_t i = 0; i < values.size(); ++i) {
      const bool named = i / 2 == 1 || i / 2 == 3;
      EXPECT_EQ(values[i] != 0.5F, named) << type << ", element " << i;
    }
  }
  EXPECT_EQ(claims, 3);
}

}  // namespace
}  // namespace fleet::strategies
