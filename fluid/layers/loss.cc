#include "fluid/layers/loss.h"

#include "base/strings.h"
#include "fluid/layers/nn.h"
#include "fluid/layers/ops.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/layers/tensor.h"
#include "fluid/ops/loss/metric.h"
#include "fluid/ops/loss/regression_loss.h"
#include "fluid/ops/shape/fill.h"

namespace fleet::fluid::layers {
namespace {

// A layer of two inputs and one output.
Variable of_two(const char* layer, const std::string& name, SlotMap inputs, const Variable& like,
                const char* output, AttributeMap attrs = {}) {
  const LayerHelper helper(layer, name);
  const Variable out = helper.temp(like.dtype());
  helper.append(layer, std::move(inputs), {{output, {out.name()}}}, std::move(attrs));
  return out;
}

void check(const char* layer, const Variable& first, const Variable& second, const char* first_name,
           const char* second_name) {
  // Without a name of its own, which would count.
  const LayerHelper helper(layer, layer);
  helper.check_input(first, first_name);
  helper.check_input(second, second_name);
}

Variable state(const Shape& shape) {
  const Variable made = create_global_var(shape, 0.0, DType::kInt64, {.persistable = true});
  made.set_stop_gradient(false);
  return made;
}

}  // namespace

Variable sigmoid_cross_entropy_with_logits(const Variable& x, const Variable& label,
                                           const SigmoidCrossEntropyOptions& options) {
  const char* layer = "sigmoid_cross_entropy_with_logits";
  check(layer, x, label, "x", "label");
  const SigmoidCrossEntropyAttrs attrs{.normalize = options.normalize,
                                       .ignore_index = options.ignore_index};
  return of_two(layer, options.name, {{"X", {x.name()}}, {"Label", {label.name()}}}, x, "Out",
                to_attributes(attrs));
}

Variable log_loss(const Variable& input, const Variable& label, double epsilon,
                  const std::string& name) {
  check("log_loss", input, label, "input", "label");
  return of_two("log_loss", name, {{"Predicted", {input.name()}}, {"Labels", {label.name()}}},
                input, "Loss", to_attributes(LogLossAttrs{.epsilon = static_cast<float>(epsilon)}));
}

Variable huber_loss(const Variable& input, const Variable& label, double delta) {
  const LayerHelper helper("huber_loss");
  helper.check_input(input, "input");
  helper.check_input(label, "label");
  const Variable residual = helper.temp(input.dtype());
  const Variable out = helper.temp(input.dtype());
  helper.append("huber_loss", {{"X", {input.name()}}, {"Y", {label.name()}}},
                {{"Out", {out.name()}}, {"Residual", {residual.name()}}},
                to_attributes(HuberLossAttrs{.delta = static_cast<float>(delta)}));
  return out;
}

Variable hinge_loss(const Variable& input, const Variable& label, const std::string& name) {
  check("hinge_loss", input, label, "input", "label");
  return of_two("hinge_loss", name, {{"Logits", {input.name()}}, {"Labels", {label.name()}}}, input,
                "Loss");
}

Variable bpr_loss(const Variable& input, const Variable& label, const std::string& name) {
  check("bpr_loss", input, label, "input", "label");
  return of_two("bpr_loss", name, {{"X", {input.name()}}, {"Label", {label.name()}}}, input, "Y");
}

Variable rank_loss(const Variable& label, const Variable& left, const Variable& right,
                   const std::string& name) {
  check("rank_loss", left, right, "left", "right");
  check("rank_loss", label, left, "label", "left");
  return of_two("rank_loss", name,
                {{"Label", {label.name()}}, {"Left", {left.name()}}, {"Right", {right.name()}}},
                left, "Out");
}

Variable margin_rank_loss(const Variable& label, const Variable& left, const Variable& right,
                          double margin, const std::string& name) {
  const LayerHelper helper("margin_rank_loss", name);
  helper.check_inputs({label, left, right}, "label, left, right");
  const Variable out = helper.temp(left.dtype());
  const Variable activated = helper.temp(left.dtype());
  helper.append("margin_rank_loss",
                {{"Label", {label.name()}}, {"X1", {left.name()}}, {"X2", {right.name()}}},
                {{"Out", {out.name()}}, {"Activated", {activated.name()}}},
                to_attributes(MarginRankLossAttrs{.margin = static_cast<float>(margin)}));
  return out;
}

Variable kldiv_loss(const Variable& x, const Variable& target, const std::string& reduction,
                    const std::string& name) {
  check("kldiv_loss", x, target, "x", "target");
  return of_two("kldiv_loss", name, {{"X", {x.name()}}, {"Target", {target.name()}}}, x, "Loss",
                to_attributes(KldivLossAttrs{.reduction = reduction}));
}

Variable mse_loss(const Variable& input, const Variable& label) {
  return reduce_mean(square_error_cost(input, label));
}

Variable smooth_l1(const Variable& x, const Variable& y, const SmoothL1Options& options) {
  const LayerHelper helper("smooth_l1_loss");
  helper.check_input(x, "x");
  helper.check_input(y, "y");
  SlotMap inputs = {{"X", {x.name()}}, {"Y", {y.name()}}};
  if (options.inside_weight) inputs["InsideWeight"] = {options.inside_weight.name()};
  if (options.outside_weight) inputs["OutsideWeight"] = {options.outside_weight.name()};
  const Variable difference = helper.temp(x.dtype());
  const Variable loss = helper.temp(x.dtype());
  helper.append("smooth_l1_loss", std::move(inputs),
                {{"Diff", {difference.name()}}, {"Out", {loss.name()}}},
                to_attributes(SmoothL1LossAttrs{.sigma = static_cast<float>(options.sigma)}));
  return loss;
}

Variable label_smooth(const Variable& label, const LabelSmoothOptions& options) {
  const LayerHelper helper("label_smooth", options.name);
  helper.check_input(label, "label");
  if (options.epsilon < 0.0 || options.epsilon > 1.0) {
    helper.fail("epsilon is not between 0 and 1", "0 to 1", float_text(options.epsilon),
                "give the part of each label that goes to all classes, 0.1 for instance");
  }
  label.set_stop_gradient(true);
  SlotMap inputs = {{"X", {label.name()}}};
  if (options.prior_dist) inputs["PriorDist"] = {options.prior_dist.name()};
  const Variable out = helper.temp(label.dtype());
  helper.append("label_smooth", std::move(inputs), {{"Out", {out.name()}}},
                to_attributes(LabelSmoothAttrs{.epsilon = static_cast<float>(options.epsilon)}));
  return out;
}

Auc auc(const Variable& input, const Variable& label, const AucOptions& options) {
  const LayerHelper helper("auc");
  helper.check_input(input, "input");
  helper.check_input(label, "label");
  if (options.num_thresholds < 1 || options.slide_steps < 0) {
    helper.fail("an AUC needs thresholds", "num_thresholds >= 1 and slide_steps >= 0",
                str_cat(options.num_thresholds, " and ", options.slide_steps), "correct them");
  }
  Auc result;
  result.auc = helper.temp(DType::kFloat64);
  result.batch_auc = helper.temp(DType::kFloat64);
  const int64_t buckets = int64_t{options.num_thresholds} + 1;
  const int64_t steps = options.slide_steps;
  const Shape whole{1, buckets};
  const Shape window{(1 + steps) * buckets + 1};
  result.states = {state(window), state(window), state(whole), state(whole)};
  const auto append = [&](size_t first, const Variable& out, int slide_steps) {
    const std::string& positive = result.states[first].name();
    const std::string& negative = result.states[first + 1].name();
    helper.append("auc",
                  {{"Predict", {input.name()}},
                   {"Label", {label.name()}},
                   {"StatPos", {positive}},
                   {"StatNeg", {negative}}},
                  {{"AUC", {out.name()}}, {"StatPosOut", {positive}}, {"StatNegOut", {negative}}},
                  to_attributes(AucAttrs{.curve = options.curve,
                                         .num_thresholds = options.num_thresholds,
                                         .slide_steps = slide_steps}));
  };
  append(0, result.batch_auc, options.slide_steps);
  append(2, result.auc, 0);
  return result;
}

PrecisionRecall precision_recall(const Variable& max_probs, const Variable& indices,
                                 const Variable& labels, int class_number, const Variable& states) {
  const LayerHelper helper("precision_recall");
  helper.check_inputs({max_probs, indices, labels}, "max_probs, indices, labels");
  SlotMap inputs = {
      {"MaxProbs", {max_probs.name()}}, {"Indices", {indices.name()}}, {"Labels", {labels.name()}}};
  if (states) inputs["StatesInfo"] = {states.name()};
  const PrecisionRecall result = {.batch_metrics = helper.temp(DType::kFloat64, true),
                                  .accumulated_metrics = helper.temp(DType::kFloat64, true),
                                  .states = states ? states : helper.temp(max_probs.dtype(), true)};
  helper.append("precision_recall", std::move(inputs),
                {{"BatchMetrics", {result.batch_metrics.name()}},
                 {"AccumMetrics", {result.accumulated_metrics.name()}},
                 {"AccumStatesInfo", {result.states.name()}}},
                to_attributes(PrecisionRecallAttrs{.class_number = class_number}));
  return result;
}

}  // namespace fleet::fluid::layers
