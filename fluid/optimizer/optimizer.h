// Optimizers: they append the ops that update parameters.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fluid/backward/backward.h"
#include "fluid/backward/gradient_clip.h"
#include "fluid/backward/regularizer.h"
#include "fluid/layers/initializer.h"

namespace fleet::fluid::optimizer {

// A number, or a variable [1] that a schedule computes (fluid/layers/learning_rate_scheduler.h). A
// schedule of another element type than the parameters is cast.
using LearningRate = std::variant<double, Variable>;

struct MinimizeOptions {
  Program* startup_program = nullptr;  // the default startup program when null
  std::optional<std::vector<std::string>> parameter_list = {};
  std::set<std::string> no_grad_set = {};
};

struct MinimizeResult {
  std::vector<Operator*> optimize_ops;  // of the main program, which owns them
  std::vector<ParamGrad> params_grads;
};

// Base of all optimizers. One object serves one thread; it may minimize losses of several programs
// and keeps its state variables apart by program.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = default;
  Optimizer& operator=(const Optimizer&) = default;

  // The op type of the updates: "sgd", …
  const std::string& type() const { return type_; }

  // backward, then apply_gradients. The loss's program is the main program; throws ProgramError
  // when no parameter has a gradient.
  MinimizeResult minimize(const Variable& loss, const MinimizeOptions& options = {});

  // The gradients of the trainable parameters (of parameter_list when given); parameters that are
  // not trainable get none.
  std::vector<ParamGrad> backward(const Variable& loss, const MinimizeOptions& options = {});

  // Appends, in the order of the parameters' names, the clipping (the optimizer's grad_clip, or
  // else what was noted on the parameters), the decay and the update of each parameter, and returns
  // the update ops (with those that scale a rate or advance a state).
  std::vector<Operator*> apply_gradients(std::vector<ParamGrad> pairs,
                                         Program* startup_program = nullptr);

 protected:
  struct Common {
    LearningRate learning_rate = 0.001;
    std::optional<Penalty> regularization = {};
    std::optional<Penalty> grad_clip = {};
    std::string name = {};
  };
  Optimizer(std::string type, Common common) : type_(std::move(type)), common_(std::move(common)) {}

  // Where the ops and state variables of one program go.
  struct Context {
    Program& main;
    Program& startup;
    DType dtype;  // of the parameters, and so of the rate
  };

  // Makes the state variables of a parameter, by add_accumulator.
  virtual void create_accumulators(const Context& context, const Variable& param) = 0;
  // Appends the update op.
  virtual void append_update(const Context& context, const ParamGrad& pair) = 0;
  // Appends what follows all updates.
  virtual void finish_update(const Context&, const std::vector<ParamGrad>&) {}

  struct AccumulatorOptions {
    double fill_value = 0.0;
    std::optional<Shape> shape = {};  // the parameter's when absent
    bool on_host = false;
  };
  // The state variable "<param>_<name>_0"; made once per program.
  Variable add_accumulator(const Context& context, const std::string& name, const Variable& param,
                           const AccumulatorOptions& options);
  Variable add_accumulator(const Context& context, const std::string& name, const Variable& param) {
    return add_accumulator(context, name, param, AccumulatorOptions());
  }
  Variable accumulator(const Context& context, const std::string& name,
                       const Variable& param) const;

  // The rate of a parameter: the common one, scaled by the parameter's factor.
  Variable rate_of(const Context& context, const Variable& param);

  void append(const Context& context, SlotMap inputs, SlotMap outputs, AttributeMap attrs = {});

 private:
  Variable global_rate(const Context& context);
  Variable make_rate(const Context& context) const;

  std::string type_;
  Common common_;
  // By program id, state name and parameter.
  using AccumulatorKey = std::tuple<uint64_t, std::string, std::string>;
  std::map<AccumulatorKey, std::string> accumulators_;
  std::map<uint64_t, std::string> rates_;
};

struct SGDOptions {
  LearningRate learning_rate = 0.001;
  std::optional<Penalty> regularization = {};
  std::optional<Penalty> grad_clip = {};
  std::string name = {};
};
// p -= lr g
class SGD : public Optimizer {
 public:
  explicit SGD(SGDOptions options = {});

 protected:
  void create_accumulators(const Context&, const Variable&) override {}
  void append_update(const Context& context, const ParamGrad& pair) override;
};

struct MomentumOptions {
  LearningRate learning_rate = 0.001;
  double momentum = 0.9;
  bool use_nesterov = false;
  std::optional<Penalty> regularization = {};
  std::optional<Penalty> grad_clip = {};
  std::string name = {};
};
// v = mu v + g; p -= lr v, or with Nesterov p -= lr (g + mu v)
class Momentum : public Optimizer {
 public:
  explicit Momentum(MomentumOptions options = {});

 protected:
  void create_accumulators(const Context& context, const Variable& param) override;
  void append_update(const Context& context, const ParamGrad& pair) override;

 private:
  double momentum_;
  bool use_nesterov_;
};

struct AdamOptions {
  LearningRate learning_rate = 0.001;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool lazy_mode = false;
  std::optional<Penalty> regularization = {};
  std::optional<Penalty> grad_clip = {};
  std::string name = {};
};
// Kingma and Ba 2015, algorithm 1 in the form of section 2 (the step size carries the bias
// corrections); the formula is in fluid/ops/optimize.h.
class Adam : public Optimizer {
 public:
  explicit Adam(AdamOptions options = {});

 protected:
  void create_accumulators(const Context& context, const Variable& param) override;
  void append_update(const Context& context, const ParamGrad& pair) override;

 private:
  AdamOptions options_;
};

}  // namespace fleet::fluid::optimizer
