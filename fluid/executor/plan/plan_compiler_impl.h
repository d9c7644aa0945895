// Makes a plan of a block: its ops in the order in which they run, and what passes find out about
// them (plan_shards_impl.h, plan_buffers_impl.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fluid/executor/plan/plan_impl.h"
#include "fluid/executor/plan/plan_places_impl.h"

namespace fleet::fluid {

// For one plan; PlanKey and KernelTable as for Plan::compile.
class PlanCompiler {
 public:
  PlanCompiler(const PlanKey& key, const KernelTable& kernels, bool whole_step);

  std::shared_ptr<const Plan> compile();

 private:
  // For the block of an op of a plan whose places are given.
  PlanCompiler(const PlanKey& key, const KernelTable& kernels,
               std::shared_ptr<const OpPlaces> places);

  const Block& block() const { return *plan_.block; }
  const OpSchema& row(const Operator& op) const { return schema_of(*plan_.key.program, op); }
  PlanVar& var(int i) { return plan_.vars[static_cast<size_t>(i)]; }

  // Whether an op runs once for each shard.
  bool in_shard(const Operator& op) const;
  // Learning-rate ops, then everything up to the last op of a shard, then the rest.
  void order_ops();

  std::vector<std::string> known_names() const;
  // The position of a variable, which is new at its first mention.
  int index_of(const std::string& name);
  void add_feeds();
  void add_fetches();
  bool is_loss(int i);

  // Copies between places, too.
  void add_ops();
  void add_op(const Operator& op);
  // Throws where the shards of a step cannot meet.
  void require_shards(const Operator& op) const;
  void add_inputs(const Operator& op, PlanOp& planned);
  void add_outputs(const Operator& op, PlanOp& planned);
  // The plan of the op's block, and what it touches of this one.
  void add_block(const Operator& op, PlanOp& planned);

  // The inputs of an op, and what they are views of.
  std::vector<int> memory_read(const PlanOp& op) const;
  // Fills PlanOp::waits.
  void find_waits();
  // Fills PlanOp::lod_from.
  void find_lod();

  PlanData plan_;
  std::shared_ptr<const OpPlaces> places_;
  PlacePlanner copies_;
  std::vector<const Operator*> order_;
  bool in_shards_ = false;  // of the ops that are being added
};

}  // namespace fleet::fluid
