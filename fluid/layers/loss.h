// Losses that compare values, and what judges predictions. See nn.h for what all layers have in
// common, fluid/ops/loss/regression_loss.h and fluid/ops/loss/metric.h for the formulas.
#pragma once

#include <array>
#include <string>

#include "fluid/program/variable.h"

namespace fleet::fluid::layers {

struct SigmoidCrossEntropyOptions {
  int ignore_index = -100;
  std::string name = {};
  bool normalize = false;  // by the number of elements that are not ignored
};
Variable sigmoid_cross_entropy_with_logits(const Variable& x, const Variable& label,
                                           const SigmoidCrossEntropyOptions& options = {});
Variable log_loss(const Variable& input, const Variable& label, double epsilon = 1e-4,
                  const std::string& name = {});
Variable huber_loss(const Variable& input, const Variable& label, double delta);
Variable hinge_loss(const Variable& input, const Variable& label, const std::string& name = {});
Variable bpr_loss(const Variable& input, const Variable& label, const std::string& name = {});
Variable rank_loss(const Variable& label, const Variable& left, const Variable& right,
                   const std::string& name = {});
Variable margin_rank_loss(const Variable& label, const Variable& left, const Variable& right,
                          double margin = 0.1, const std::string& name = {});
// `reduction`: "none", "sum", "mean" or "batchmean".
Variable kldiv_loss(const Variable& x, const Variable& target,
                    const std::string& reduction = "mean", const std::string& name = {});
// The mean of (input - label)^2.
Variable mse_loss(const Variable& input, const Variable& label);

struct SmoothL1Options {
  Variable inside_weight = {};
  Variable outside_weight = {};
  double sigma = 1.0;
};
// [n, 1]: one loss a row.
Variable smooth_l1(const Variable& x, const Variable& y, const SmoothL1Options& options = {});

struct LabelSmoothOptions {
  Variable prior_dist = {};  // without it every class is as likely
  double epsilon = 0.1;
  std::string name = {};
};
// Stops gradients at the label.
Variable label_smooth(const Variable& label, const LabelSmoothOptions& options = {});

struct AucOptions {
  std::string curve = "ROC";  // or "PR"
  int num_thresholds = 4095;
  int topk = 1;         // without meaning, as in Paddle
  int slide_steps = 1;  // batches that batch_auc looks back
};
struct Auc {
  Variable auc;                    // [1] (float64), over everything since the states were made
  Variable batch_auc;              // over the last slide_steps batches
  std::array<Variable, 4> states;  // batch positives, batch negatives, positives, negatives
};
Auc auc(const Variable& input, const Variable& label, const AucOptions& options = {});

struct PrecisionRecall {
  Variable batch_metrics;  // [6] (float64): precision, recall, F1 as class means, then overall
  Variable accumulated_metrics;
  Variable states;  // [classes, 4]
};
// Of the indices of the best class (int32); `states` carries on from earlier batches when given.
PrecisionRecall precision_recall(const Variable& max_probs, const Variable& indices,
                                 const Variable& labels, int class_number,
                                 const Variable& states = {});

}  // namespace fleet::fluid::layers
