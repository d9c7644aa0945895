// What all optimizers have in common; optimizer.h has the optimizers.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fluid/backward/backward.h"
#include "fluid/backward/gradient_clip.h"
#include "fluid/backward/regularizer.h"
#include "fluid/layers/numbers.h"
#include "fluid/layers/parameters/initializer.h"

namespace fleet::fluid::optimizer {

// Tells the parameters whose gradients are clipped; empty: all.
using ClipFilter = std::function<bool(const Variable& param)>;

// A number, or a variable [1] that a schedule computes (fluid/layers/learning_rate_scheduler.h). A
// schedule of another element type than the parameters is cast.
using LearningRate = layers::Real;

struct MinimizeOptions {
  Program* startup_program = nullptr;  // the default startup program when null
  std::optional<std::vector<std::string>> parameter_list = {};
  std::set<std::string> no_grad_set = {};
  // Variables that are kept for the backward part; see BackwardOptions.
  std::vector<std::string> checkpoints = {};
};

struct MinimizeResult {
  std::vector<const Operator*> optimize_ops;  // of the main program, which owns them
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
  const std::string& type() const { return rule_.type; }

  // backward, then apply_gradients. The loss's program is the main program; throws ProgramError
  // when no parameter has a gradient.
  MinimizeResult minimize(const Variable& loss, const MinimizeOptions& options = {});

  // The gradients of the trainable parameters (of parameter_list when given); parameters that are
  // not trainable get none.
  virtual std::vector<ParamGrad> backward(const Variable& loss,
                                          const MinimizeOptions& options = {});

  // Appends, in the order of the parameters' names, the clipping (the optimizer's grad_clip on
  // those that need_clip names, or else what was noted on the parameters), the decay and the update
  // of each parameter, and returns the update ops (with those that scale a rate or advance a
  // state).
  virtual std::vector<const Operator*> apply_gradients(std::vector<ParamGrad> pairs,
                                                       Program* startup_program = nullptr);

 protected:
  struct Common {
    LearningRate learning_rate = 0.001;
    std::optional<Penalty> regularization = {};
    std::optional<Penalty> grad_clip = {};
    ClipFilter need_clip = {};
    std::string name = {};
  };
  // Common's fields of an options struct.
  template <class Options>
  static Common common_of(const Options& options) {
    return {.learning_rate = options.learning_rate,
            .regularization = options.regularization,
            .grad_clip = options.grad_clip,
            .need_clip = options.need_clip,
            .name = options.name};
  }

  // A state variable of each parameter, "<param>_<name>_0", in slot `in` of the update op and, if
  // the op writes it, in slot `out`.
  struct State {
    std::string in;
    std::string out;
    std::string name;
    double fill_value = 0.0;
    bool one_element = false;  // else the parameter's shape
    bool on_host = false;
  };
  // What is particular to a kind of optimizer: the op, its states in the order in which they are
  // made, its attributes.
  struct Rule {
    std::string type;
    std::vector<State> states = {};
    AttributeMap attrs = {};
    std::map<std::string, Variable> inputs = {};  // by slot, the same in every update
    bool takes_rate = true;
  };
  Optimizer(Rule rule, Common common) : rule_(std::move(rule)), common_(std::move(common)) {}

  // Where the ops and state variables of one program go.
  struct Context {
    Program& main;
    Program& startup;
    DType dtype;  // of the parameters, and so of the rate
  };

  // What an optimizer does to gradients in the backward part, once for each logical shard.
  virtual void change_gradients(const Context&, std::vector<ParamGrad>&) {}
  // True for a gradient that was clipped and decayed there.
  virtual bool is_finished(const ParamGrad&) const { return false; }
  // Makes the state variables of a parameter; those of the rule by default. What they have of each
  // row of a growing table is part of its rows.
  virtual void create_accumulators(const Context& context, const Variable& param);
  // Appends the update op; that of the rule by default. Of a growing table it is applied to the
  // rows of a step.
  virtual void append_update(const Context& context, const ParamGrad& pair);
  // The attributes of one parameter's update; those of the rule by default.
  virtual AttributeMap attributes_of(const Variable&) const { return rule_.attrs; }
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
  void create_row_states(const Context& context, const Variable& table);
  void append_row_update(const Context& context, const ParamGrad& pair);
  void add_common_inputs(const Context& context, const Variable& param, SlotMap& inputs);
  std::vector<ParamGrad> clipped_and_decayed(const std::vector<ParamGrad>& pairs) const;
  void check_program(const Context& context, const Variable& given, const char* what) const;
  Variable global_rate(const Context& context);
  Variable make_rate(const Context& context) const;

  Rule rule_;
  Common common_;
  // By program id, state name and parameter.
  using AccumulatorKey = std::tuple<uint64_t, std::string, std::string>;
  std::map<AccumulatorKey, std::string> accumulators_;
  std::map<uint64_t, std::string> rates_;
};

}  // namespace fleet::fluid::optimizer
