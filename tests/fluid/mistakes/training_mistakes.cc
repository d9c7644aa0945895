// Mistakes with losses, gradients, optimizers, schedules, parameters and programs.
#include "fluid/backward/gradient_clip.h"
#include "fluid/backward/regularizer.h"
#include "fluid/ops/append.h"
#include "fluid/optimizer/averages.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/fluid/mistakes/mistakes.h"

namespace fleet::fluid::mistakes {
namespace {

constexpr ErrorCode kProgram = ErrorCode::kInvalidProgram;

// A loss of one trained layer.
Variable loss_of(const Inputs& in) {
  return layers::mean(layers::fc(in.x, 1));
}

void add_loss_mistakes(std::vector<Mistake>& all) {
  all.push_back(
      {"minimize_of_nothing",
       [](const Inputs&) { optimizer::SGD(optimizer::SGDOptions{}).minimize(Variable()); },
       kArgument,
       {"optimizer 'sgd'", "empty variable", "pass the loss"}});
  all.push_back({"minimize_of_many_numbers",
                 [](const Inputs& in) {
                   optimizer::SGD(optimizer::SGDOptions{}).minimize(layers::fc(in.x, 3));
                 },
                 kShape,
                 {"fc_0.tmp_1", "one number", "[-1, 3]", "mean"}});
  all.push_back(
      {"minimize_of_an_input",
       [](const Inputs& in) {
         append_backward(layers::data("given", {1}, DType::kFloat32, {.append_batch_size = false}));
         layers::relu(in.x);
       },
       kProgram,
       {"nothing computes the loss", "loss 'given'",
        "expected: a variable that an op of the program makes", "got: a variable without an op",
        "fix: pass what a layer such as mean returned"}});
  all.push_back({"minimize_without_parameters",
                 [](const Inputs& in) {
                   optimizer::SGD(optimizer::SGDOptions{}).minimize(layers::mean(in.x));
                 },
                 kProgram,
                 {"optimizer 'sgd', loss 'mean_0.tmp_0'",
                  "expected: a trainable parameter that the loss depends on", "got: 0 parameters",
                  "fix: check trainable"}});
  all.push_back({"minimize_of_a_parameter_that_is_not_there",
                 [](const Inputs& in) {
                   optimizer::SGD(optimizer::SGDOptions{})
                       .minimize(loss_of(in), {.parameter_list = {{"fc_0.w_1"}}});
                 },
                 ErrorCode::kUnknownName,
                 {"'fc_0.w_1'", "did you mean 'fc_0.w_0'"}});
  all.push_back({"gradients_of_other_counts",
                 [](const Inputs& in) {
                   const Variable loss = loss_of(in);
                   gradients({loss}, {in.x}, {.target_gradients = {loss, loss}});
                 },
                 kProgram,
                 {"target_gradients", "1", "2"}});
  all.push_back({"error_clip_of_a_parameter",
                 [](const Inputs& in) {
                   loss_of(in);
                   const Block& block = in.main.global_block();
                   clip::set_error_clip(Variable(in.main.global_block(), *block.parameters()[0]),
                                        1);
                 },
                 kArgument,
                 {"set_error_clip", "expected: a variable that a layer returned",
                  "got: parameter 'fc_0.w_0'", "fix: give the optimizer a grad_clip"}});
  all.push_back({"recomputation_from_a_variable_off_the_way",
                 [](const Inputs& in) {
                   const Variable aside = layers::relu(in.y);
                   append_backward(loss_of(in), {.checkpoints = {aside.name()}});
                 },
                 kProgram,
                 {"checkpoint", "relu_0.tmp_0", "way to the loss"}});
}

void add_optimizer_mistakes(std::vector<Mistake>& all) {
  all.push_back(
      {"regularizer_that_is_not_known",
       [](const Inputs& in) {
         optimizer::SGD({.regularization = Penalty{.kind = "L3Decay"}}).minimize(loss_of(in));
       },
       ErrorCode::kUnknownName,
       {"'fc_0.b_0'", "L1Decay or L2Decay", "L3Decay"}});
  all.push_back(
      {"clip_that_is_not_known",
       [](const Inputs& in) {
         optimizer::SGD({.grad_clip = Penalty{.kind = "GradientClipByNrm"}}).minimize(loss_of(in));
       },
       ErrorCode::kUnknownName,
       {"append_gradient_clip", "expected: ClipByValue, ClipByNorm or ClipByGlobalNorm",
        "got: GradientClipByNrm", "fix: use clip::GradientClipByValue"}});
  all.push_back(
      {"clips_of_different_global_norms",
       [](const Inputs& in) {
         const Variable h = layers::fc(
             in.x, 3,
             {.param_attr = {.name = "a", .gradient_clip = clip::GradientClipByGlobalNorm(1)},
              .bias_attr = {.name = "b", .gradient_clip = clip::GradientClipByGlobalNorm(2)}});
         optimizer::SGD(optimizer::SGDOptions{}).minimize(layers::mean(h));
       },
       kArgument,
       {"global norm", "'b'", "1", "2"}});
  all.push_back({"rate_of_another_program",
                 [](const Inputs& in) {
                   Program other;
                   Program start;
                   Variable rate;
                   {
                     const ProgramGuard programs(other, start);
                     rate = layers::exponential_decay(0.1, 10, 0.5);
                   }
                   optimizer::SGD({.learning_rate = rate}).minimize(loss_of(in));
                 },
                 kArgument,
                 {"the learning rate belongs to another program", "optimizer 'sgd'",
                  "expected: a variable of the loss's program", "got: '",
                  "fix: make it under the same ProgramGuard"}});
  all.push_back({"piecewise_rate_of_too_few_values",
                 [](const Inputs&) {
                   layers::piecewise_decay({10, 20}, {0.1, 0.01});
                 },
                 kArgument,
                 {"piecewise_decay", "3", "2"}});
  all.push_back({"average_of_an_endless_decay",
                 [](const Inputs& in) {
                   optimizer::SGD(optimizer::SGDOptions{}).minimize(loss_of(in));
                   optimizer::ExponentialMovingAverage average({.decay = 1.5});
                 },
                 kArgument,
                 {"decay", "1.5"}});
  all.push_back(
      {"average_of_no_parameters",
       [](const Inputs&) { optimizer::ModelAverage average; },
       ErrorCode::kPrecondition,
       {"no parameter to average", "default main program",
        "expected: parameters with do_model_average", "got: none", "fix: build the net first"}});
  all.push_back({"lookahead_of_no_steps",
                 [](const Inputs&) {
                   optimizer::SGD inner(optimizer::SGDOptions{});
                   const optimizer::Lookahead ahead(inner, {.k = 0});
                 },
                 kArgument,
                 {"Lookahead, k", "expected: k >= 1", "got: 0", "fix: choose another value"}});
}

void add_parameter_mistakes(std::vector<Mistake>& all) {
  all.push_back({"fc_of_no_width",
                 [](const Inputs& in) { layers::fc(in.x, 0); },
                 kArgument,
                 {"fc", "size", ">= 1", "0"}});
  all.push_back({"fc_of_too_few_attributes",
                 [](const Inputs& in) {
                   layers::fc({in.x, in.y}, 3, {.param_attrs = {ParamAttr{}}});
                 },
                 kArgument,
                 {"fc", "param_attrs", "2", "1"}});
  all.push_back({"fc_of_no_inputs",
                 [](const Inputs&) { layers::fc(std::vector<Variable>{}, 3); },
                 kArgument,
                 {"layer 'fc'", "argument 'input'", "expected: at least one", "got: none",
                  "fix: pass what other layers returned"}});
  all.push_back({"parameter_of_an_open_shape",
                 [](const Inputs&) {
                   layers::create_parameter({-1, 3}, DType::kFloat32);
                 },
                 kArgument,
                 {"create_parameter", "positive dimensions", "[-1, 3]"}});
  all.push_back({"parameter_of_other_values",
                 [](const Inputs& in) {
                   const Tensor values = Tensor::from(std::vector<float>{1, 2}, {2});
                   layers::fc(in.x, 3,
                              {.param_attr = {.initializer = initializer::Assign{values}}});
                 },
                 kArgument,
                 {"fc_0.w_0", "[4, 3]", "[2]"}});
  all.push_back({"bilinear_matrix",
                 [](const Inputs& in) {
                   layers::fc(in.x, 3, {.param_attr = {.initializer = initializer::Bilinear{}}});
                 },
                 kArgument,
                 {"fc_0.w_0", "[out, in, k, k]", "[4, 3]"}});
  all.push_back({"input_without_a_name",
                 [](const Inputs&) { layers::data("", {4}); },
                 kArgument,
                 {"data", "a name"}});
  all.push_back({"shared_parameter_of_another_type",
                 [](const Inputs& in) {
                   layers::fc(in.x, 3, {.param_attr = {.name = "w"}});
                   layers::create_parameter({4, 3}, DType::kFloat64, {.name = "w"});
                 },
                 kShape,
                 {"'w'", "float32", "float64"}});
}

void add_program_mistakes(std::vector<Mistake>& all) {
  const auto append = [](const Inputs& in, AttributeMap attrs, const std::string& type = "scale",
                         const std::string& slot = "X") {
    VarDesc out;
    out.name = "out";
    in.main.global_block().add_var(out);
    append_op(in.main.global_block(), {.type = type,
                                       .inputs = {{slot, {"x"}}},
                                       .outputs = {{"Out", {"out"}}},
                                       .attrs = std::move(attrs)});
  };
  all.push_back({"op_that_is_not_known",
                 [append](const Inputs& in) { append(in, {}, "scael"); },
                 ErrorCode::kUnknownName,
                 {"no op 'scael'; did you mean 'scale'", "expected: a type of the op table",
                  "got: scael", "fix: correct the type"}});
  all.push_back({"attribute_that_is_not_known",
                 [append](const Inputs& in) {
                   append(in, {{"scales", 2.0}});
                 },
                 kProgram,
                 {"scale", "'scales'", "did you mean 'scale'"}});
  all.push_back({"attribute_of_another_kind",
                 [append](const Inputs& in) {
                   append(in, {{"scale", std::string("two")}});
                 },
                 kProgram,
                 {"scale", "'scale'", "a number", "two"}});
  all.push_back({"slot_that_is_not_known",
                 [append](const Inputs& in) { append(in, {}, "scale", "Y"); },
                 kProgram,
                 {"op 'scale' has no input 'Y'", "expected: X, ScaleTensor", "got: Y",
                  "fix: use a slot of the op"}});
  all.push_back({"variable_that_is_not_there",
                 [](const Inputs& in) { (void)in.main.global_block().var("hidden"); },
                 ErrorCode::kUnknownName,
                 {"no variable 'hidden'", "block 0", "expected: a variable of the program",
                  "got: hidden", "Program::to_string() lists all variables"}});
  all.push_back(
      {"block_that_is_not_there",
       [](const Inputs& in) { (void)in.main.block(3); },
       kProgram,
       {"Program::block", "expected: 0 to 0", "got: 3", "fix: use an index that add_block gave"}});
  all.push_back(
      {"program_cut_to_a_target_that_is_not_there",
       [](const Inputs& in) { (void)in.main.prune(std::vector<std::string>{"prediction"}); },
       ErrorCode::kUnknownName,
       {"'prediction'"}});
}

}  // namespace

void add_training_mistakes(std::vector<Mistake>& all) {
  add_loss_mistakes(all);
  add_optimizer_mistakes(all);
  add_parameter_mistakes(all);
  add_program_mistakes(all);
}

}  // namespace fleet::fluid::mistakes
