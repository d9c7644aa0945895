// One op of one workspace: its values, and its kernels prepared for the input shapes seen lately.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "fluid/executor/plan/plan_impl.h"
#include "fluid/kernels/kernel.h"

namespace fleet::fluid {

// Used by one thread at a time. The plan, the values, the buffers and the scratch must outlive it.
class OpRunner {
 public:
  OpRunner(const Plan& plan, const PlanOp& op, std::vector<Value*> inputs,
           std::vector<Value*> outputs, std::span<Buffer> buffers, Scratch& scratch, void* stream);
  OpRunner(const OpRunner&) = delete;
  OpRunner& operator=(const OpRunner&) = delete;

  // `together`: the next op of the plan runs right after this one. `nonfinite_word`: as
  // KernelContext has it.
  void run(uint64_t step, int shard, bool together, Tiles tiles, uint32_t* nonfinite_word) {
    if (current_ == nullptr || !fits(*current_)) bind();
    for (Reordered& image : current_->reordered) reorder(image);
    context_.set_step(step, shard);
    context_.set_tiles(tiles);
    context_.set_nonfinite_word(nonfinite_word);
    context_.set_more_follow(together && op_.with_next);
    current_->prepared->run(context_);
    if (op_.lod_from >= 0 && !current_->sets_lod) pass_on_lod();
  }

  std::span<Value* const> inputs() const { return inputs_; }
  std::span<Value* const> outputs() const { return outputs_; }
  // Of the last run: finite, unless an update wrote something that is not.
  double written() const { return context_.written(); }

 private:
  static constexpr size_t kMaxEntries = 8;

  // An input that the kernel wants in the other order of images.
  struct Reordered {
    size_t input = 0;
    Value value;
  };
  struct Entry {
    std::vector<ValueSpec> inputs;
    std::vector<PrepareContext::OutputSpec> outputs;
    std::vector<Reordered> reordered;
    std::unique_ptr<Prepared> prepared;
    bool sets_lod = false;
  };

  bool inputs_fit(const Entry& entry) const;
  bool fits(const Entry& entry) const;
  void bind();
  std::unique_ptr<Entry> prepare() const;
  bool prepare_with(const Kernel& kernel, Entry& entry) const;
  std::vector<ValueSpec> wanted_by(const Kernel& kernel, const Entry& entry) const;
  bool takes_blocks(const Kernel& kernel, const Entry& entry, const Shape& image) const;
  void reorder(Reordered& image);
  void give_memory(const PrepareContext::OutputSpec& spec, size_t i);
  void pass_on_lod();

  const Plan& plan_;
  const PlanOp& op_;
  std::vector<Value*> inputs_;
  std::vector<Value*> seen_;  // inputs as the kernel takes them
  std::vector<Value*> outputs_;
  std::vector<Value> unwanted_;  // stand in for outputs that nobody wants
  std::span<Buffer> buffers_;
  KernelContext context_;
  Entry* current_ = nullptr;
  std::vector<std::unique_ptr<Entry>> entries_;  // most recent first
};

}  // namespace fleet::fluid
