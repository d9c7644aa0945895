// The state of one slice behind one interface: how it is updated, read, saved and restored. Dense
// slices live here; sparse tables that grow are to follow the same contract.
//
// A shard belongs to the thread that applies its updates; versions that were read may be used and
// dropped by any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "fluid/core/scope.h"

namespace fleet::strategies {

// A value at a step. Holding it pins the memory: later updates write elsewhere.
struct Version {
  uint64_t step = 0;
  fluid::Tensor value;
};

struct StepUpdate {
  uint64_t step = 0;  // the step that the update makes, from 1 on
  int shards = 0;     // logical shards that contributed to the gradient
  int stage = 0;      // of an update that goes in several
};

// State as bytes, by variable name.
struct ShardSnapshot {
  uint64_t step = 0;
  std::vector<std::pair<std::string, std::vector<uint8_t>>> values;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(step, values);
  }
};

class StateShard {
 public:
  virtual ~StateShard() = default;

  // Where the reduced gradient is put before apply: a tensor, or selected rows.
  virtual fluid::Value& gradient() = 0;
  // An update of several stages waits for an exchange between servers after each but the last.
  virtual int stages() const { return 1; }
  // A stage before the last.
  virtual void prepare(const StepUpdate&) {}
  // Gives what an update changes memory that nobody else uses, so that the next apply() may run in
  // another thread.
  virtual void own() {}
  // The last stage.
  virtual void apply(const StepUpdate& update) = 0;
  // Says that the value after `step` is the one that is there: nobody contributed.
  virtual void keep(uint64_t step) = 0;
  virtual Version read() const = 0;
  virtual ShardSnapshot snapshot() const = 0;
  // Throws UsageError when the snapshot is of other variables or sizes.
  virtual void restore(const ShardSnapshot& snapshot) = 0;
};

struct DenseShardSpec {
  std::string value;     // the slice
  std::string gradient;  // its reduced gradient
  // Other variables that an update writes, such as moments and beta powers.
  std::vector<std::string> state;
};

// A dense slice whose variables live in a scope, under their program names. An update runs in
// place unless a reader has pinned what it would overwrite; then it goes on in a spare copy, which
// takes the variable's place in the scope.
class DenseShard final : public StateShard {
 public:
  // Runs the optimizer (the stage that the update says) on the scope's variables, in place.
  using Rule = std::function<void(const StepUpdate&)>;

  // The scope must outlive the shard, hold every variable of the spec, as a tensor but for the
  // gradient, and be changed by nobody else.
  DenseShard(DenseShardSpec spec, fluid::Scope& scope, Rule rule, int stages = 1);

  fluid::Value& gradient() override { return *gradient_; }
  int stages() const override { return stages_; }
  void prepare(const StepUpdate& update) override;
  void own() override;
  void apply(const StepUpdate& update) override;
  void keep(uint64_t step) override { step_ = step; }
  Version read() const override { return {step_, *slots_.front().tensor}; }
  ShardSnapshot snapshot() const override;
  void restore(const ShardSnapshot& snapshot) override;

 private:
  struct Slot {
    std::string name;
    fluid::Tensor* tensor;
    fluid::Tensor spare;
  };

  std::vector<Slot> slots_;  // the value first
  fluid::Value* gradient_;
  Rule rule_;
  int stages_;
  uint64_t step_ = 0;
};

// Makes `tensor` the only user of its memory, so that it can be changed while others read what it
// was; `spare` is where the copy goes and what was displaced stays. Nothing happens when nobody
// shares it.
void detach(fluid::Tensor& tensor, fluid::Tensor& spare);

}  // namespace fleet::strategies
