// Optimizers: they append the ops that update parameters. The formulas are in
// fluid/ops/optimize/optimize.h; "paddle_form" chooses what Paddle computes where it
// departs from its source.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fluid/optimizer/optimizer_base.h"

namespace fleet::fluid::optimizer {

struct SGDOptions {
  LearningRate learning_rate = 0.001;
  std::optional<Penalty> regularization = {};
  std::optional<Penalty> grad_clip = {};
  ClipFilter need_clip = {};
  std::string name = {};
};
class SGD : public Optimizer {
 public:
  explicit SGD(const SGDOptions& options = {});
};

struct MomentumOptions {
  LearningRate learning_rate = 0.001;
  double momentum = 0.9;
  bool use_nesterov = false;
  std::optional<Penalty> regularization = {};
  std::optional<Penalty> grad_clip = {};
  ClipFilter need_clip = {};
  std::string name = {};
};
class Momentum : public Optimizer {
 public:
  explicit Momentum(const MomentumOptions& options = {});
};

// Momentum whose workers send only the largest elements of their gradients (DGCMomentumOptimizer of
// Paddle; fluid/ops/optimize/dgc.h has the rule). Clip and decay are part of what each logical
// shard sends. Tensors of fewer than min_numel elements, those that are not float32 and gradients
// of selected rows are left to Momentum. For one process, and for collective jobs that add up
// gradients. What shards keep back is not in checkpoints: a job that goes on from one begins with
// nothing kept.
struct DGCMomentumOptions {
  LearningRate learning_rate = 0.001;
  double momentum = 0.9;
  // Steps of plain momentum before the first that compresses.
  int64_t rampup_begin_step = 0;
  // The steps in which the shares of `sparsity` follow each other; the last stays.
  int64_t rampup_step = 1;
  // The shares of elements that are kept back, from 0 to below 1.
  std::vector<double> sparsity = {0.999};
  bool use_nesterov = false;
  std::optional<Penalty> regularization = {};  // L1Decay or L2Decay
  // GradientClipByNorm only: each shard's gradient, divided by their number, is clipped to
  // clip_norm / sqrt(num_trainers), so that the sum of independent ones has clip_norm.
  std::optional<Penalty> grad_clip = {};
  // The logical shards of a step; needed with grad_clip.
  int num_trainers = 0;
  int64_t min_numel = 16384;
  bool paddle_form = false;  // see DgcAttrs
  std::string name = {};
};
class DGCMomentum : public Optimizer {
 public:
  // Throws UsageError for options outside of what is said above.
  explicit DGCMomentum(const DGCMomentumOptions& options);

 protected:
  void change_gradients(const Context& context, std::vector<ParamGrad>& pairs) override;
  bool is_finished(const ParamGrad& pair) const override;
  void append_update(const Context& context, const ParamGrad& pair) override;

 private:
  bool compresses(const ParamGrad& pair) const;
  Variable compress(const Context& context, const ParamGrad& pair, const Variable& step);

  DGCMomentumOptions options_;
  std::set<std::pair<uint64_t, std::string>> sent_;  // what is sent, by program
};

struct LarsMomentumOptions {
  LearningRate learning_rate = 0.001;
  double momentum = 0.9;
  double lars_coeff = 0.001;
  double lars_weight_decay = 0.0005;
  std::optional<Penalty> regularization = {};
  std::optional<Penalty> grad_clip = {};
  ClipFilter need_clip = {};
  std::string name = {};
};
class LarsMomentum : public Optimizer {
 public:
  explicit LarsMomentum(const LarsMomentumOptions& options = {});
};

struct AdagradOptions {
  LearningRate learning_rate = 0.001;
  double epsilon = 1e-6;
  double initial_accumulator_value = 0.0;
  std::optional<Penalty> regularization = {};
  std::optional<Penalty> grad_clip = {};
  ClipFilter need_clip = {};
  std::string name = {};
};
class Adagrad : public Optimizer {
 public:
  explicit Adagrad(const AdagradOptions& options = {});
};

struct DecayedAdagradOptions {
  LearningRate learning_rate = 0.001;
  double decay = 0.95;
  double epsilon = 1e-6;
  std::optional<Penalty> regularization = {};
  std::optional<Penalty> grad_clip = {};
  ClipFilter need_clip = {};
  std::string name = {};
};
class DecayedAdagrad : public Optimizer {
 public:
  explicit DecayedAdagrad(const DecayedAdagradOptions& options = {});
};

// The rate is there as with all optimizers, and without effect: Zeiler's rule has none.
struct AdadeltaOptions {
  LearningRate learning_rate = 0.001;
  double epsilon = 1e-6;
  double rho = 0.95;
  bool paddle_form = false;  // the step is taken with the new mean of squared updates
  std::optional<Penalty> regularization = {};
  std::optional<Penalty> grad_clip = {};
  ClipFilter need_clip = {};
  std::string name = {};
};
class Adadelta : public Optimizer {
 public:
  explicit Adadelta(const AdadeltaOptions& options = {});
};

struct AdamOptions {
  LearningRate learning_rate = 0.001;
  // A variable is [1], float32. Its powers begin with 0.9 and 0.999.
  layers::Real beta1 = 0.9;
  layers::Real beta2 = 0.999;
  double epsilon = 1e-8;
  bool lazy_mode = false;    // selected rows: only the rows named move
  bool paddle_form = false;  // selected rows: bias corrections one step ahead
  std::optional<Penalty> regularization = {};
  std::optional<Penalty> grad_clip = {};
  ClipFilter need_clip = {};
  std::string name = {};
};
class Adam : public Optimizer {
 public:
  explicit Adam(const AdamOptions& options = {});
};

struct AdamaxOptions {
  LearningRate learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  std::optional<Penalty> regularization = {};
  std::optional<Penalty> grad_clip = {};
  ClipFilter need_clip = {};
  std::string name = {};
};
class Adamax : public Optimizer {
 public:
  explicit Adamax(const AdamaxOptions& options = {});

 protected:
  void finish_update(const Context& context, const std::vector<ParamGrad>& pairs) override;

 private:
  double beta1_;
};

struct RMSPropOptions {
  LearningRate learning_rate = 0.001;
  double rho = 0.95;
  double epsilon = 1e-6;
  double momentum = 0.0;
  bool centered = false;
  std::optional<Penalty> regularization = {};
  std::optional<Penalty> grad_clip = {};
  ClipFilter need_clip = {};
  std::string name = {};
};
class RMSProp : public Optimizer {
 public:
  explicit RMSProp(const RMSPropOptions& options = {});
};

struct FtrlOptions {
  LearningRate learning_rate = 0.001;
  double l1 = 0.0;
  double l2 = 0.0;
  double lr_power = -0.5;
  bool paddle_form = false;  // l2 is ignored, l1 taken in its place
  std::optional<Penalty> regularization = {};
  std::optional<Penalty> grad_clip = {};
  ClipFilter need_clip = {};
  std::string name = {};
};
class Ftrl : public Optimizer {
 public:
  explicit Ftrl(const FtrlOptions& options = {});
};

struct LambOptions {
  LearningRate learning_rate = 0.001;
  double lamb_weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  bool paddle_form = false;  // no bias correction; the powers stay what they were
  // Parameters without weight decay.
  std::function<bool(const Variable& param)> exclude_from_weight_decay = {};
  std::optional<Penalty> regularization = {};
  std::optional<Penalty> grad_clip = {};
  ClipFilter need_clip = {};
  std::string name = {};
};
class Lamb : public Optimizer {
 public:
  explicit Lamb(const LambOptions& options = {});

 protected:
  AttributeMap attributes_of(const Variable& param) const override;

 private:
  LambOptions options_;
};

// Differentially private SGD. The noise is drawn by the program's seed (or `seed`), the parameter,
// the element, step and shard: Paddle draws one number for all elements, by the clock.
struct DpsgdOptions {
  LearningRate learning_rate = 0.001;
  double clip = 0.9;
  double batch_size = 0.999;
  double sigma = 1e-8;
  int32_t seed = 0;
  std::optional<Penalty> regularization = {};
  std::optional<Penalty> grad_clip = {};
  ClipFilter need_clip = {};
  std::string name = {};
};
class Dpsgd : public Optimizer {
 public:
  explicit Dpsgd(const DpsgdOptions& options = {});
};

}  // namespace fleet::fluid::optimizer
