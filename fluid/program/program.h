// Programs: blocks of variables and operators, as data. Building, copying, pruning, printing,
// saving. What an op means is the business of fluid/ops.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fluid/program/operator.h"
#include "fluid/program/program_ops.h"
#include "fluid/program/runtime.h"
#include "fluid/program/server_mode.h"
#include "fluid/program/shared.h"
#include "fluid/program/var_desc.h"
#include "fluid/program/var_table.h"

namespace fleet::fluid {

class Program;

// Operators in order. Copies of the list share them until one is edited.
using OpList = std::vector<Shared<Operator>>;

// Variables by name and operators in order. A copy of a program shares both with it until one of
// the two changes its own; neither ever sees a change of the other. Addresses of variables and
// operators are valid until they are removed; what was taken from a const block shows a variable or
// operator as it was before its first change behind a copy.
class Block {
 public:
  Block(Program* program, int32_t index, int32_t parent) noexcept;
  // Of another program.
  Block(Program* program, const Block& other);
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  Program& program() const { return *program_; }
  int32_t index() const { return index_; }
  int32_t parent() const { return parent_; }  // -1 for block 0
  int32_t forward_block() const { return forward_block_; }
  void set_forward_block(int32_t index) { forward_block_ = index; }

  // Adds a variable; one of the same name in this block is replaced in place.
  const VarDesc& add_var(VarDesc var);
  bool has_var(std::string_view name) const { return find_var(name) != nullptr; }
  VarDesc* find_var(std::string_view name);
  const VarDesc* find_var(std::string_view name) const;
  // Here or in an enclosing block; null when there is none.
  VarDesc* find_var_recursive(std::string_view name);
  const VarDesc* find_var_recursive(std::string_view name) const;
  // As find_var_recursive; throws ProgramError that names the variable and the nearest known one.
  VarDesc& var(std::string_view name);
  const VarDesc& var(std::string_view name) const;
  // As var, for one change at once. The reference must not be used once the program was copied: a
  // copy may share this variable, and a later write would change both. A variable whose reference
  // `var` gave out is never shared; every copy gets its own.
  VarDesc& edit_var(std::string_view name);
  void remove_var(std::string_view name);
  void rename_var(std::string_view from, std::string_view to);  // the variable only, not its uses

  size_t var_count() const { return vars_.count(); }
  // Sorted by name.
  std::vector<const VarDesc*> vars() const;
  // In order of creation.
  std::vector<const VarDesc*> vars_in_order() const { return vars_.in_order(); }
  std::vector<const VarDesc*> parameters() const;

  // Variables by a number that names them for as long as they are here; for Variable.
  size_t position_of(std::string_view name) const { return vars_.find(name); }
  const VarDesc& var_at(size_t position) const { return vars_.at(position); }
  VarDesc& var_at(size_t position);

  // A number that no other block has; another one as soon as a name has gone.
  uint64_t vocabulary() const { return vars_.vocabulary(); }

  size_t op_count() const { return ops_.size(); }
  Operator& op(size_t i);
  const Operator& op(size_t i) const { return *ops_[i]; }
  const OpList& ops() const { return ops_; }
  // As op, for a change at once, as edit_var.
  Operator& edit_op(size_t i);

  // No checks: fluid/ops/append.h has the checked form that layers use.
  const Operator& append_op(Operator op);
  const Operator& insert_op(size_t position, Operator op);
  void remove_op(size_t position) { remove_ops(position, position + 1); }
  void remove_ops(size_t begin, size_t end);
  // Gives all operators away, to be put back, with others, by append_op or set_ops in one pass.
  OpList take_ops();
  void set_ops(OpList ops);

  std::string to_string() const;

 private:
  friend class Program;

  Program* program_;
  int32_t index_;
  int32_t parent_;
  int32_t forward_block_ = -1;
  VarTable vars_;
  OpList ops_;
  // What this block shared before it got its own: addresses of it may be in use.
  std::vector<Shared<VarDesc>> former_vars_;
  OpList former_ops_;
};

// One row of the overview of a transpiled program: which part of which variable is where.
struct DistributedVar {
  std::string origin;
  std::vector<int64_t> origin_shape;
  std::string slice;
  std::vector<int64_t> slice_shape;
  bool is_slice = false;
  int32_t block_id = 0;
  int64_t offset = 0;  // in elements
  std::string vtype;   // "Param", "Optimizer", "RemotePrefetch"
  std::string endpoint;

  bool operator==(const DistributedVar&) const = default;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(origin), CEREAL_NVP(origin_shape), CEREAL_NVP(slice), CEREAL_NVP(slice_shape),
       CEREAL_NVP(is_slice), CEREAL_NVP(block_id), CEREAL_NVP(offset), CEREAL_NVP(vtype),
       CEREAL_NVP(endpoint));
  }
};

// The overview of a program. Copies share it.
class DistributedVars {
 public:
  DistributedVars() = default;
  DistributedVars(std::vector<DistributedVar> rows);

  auto begin() const { return rows_->begin(); }
  auto end() const { return rows_->end(); }
  size_t size() const { return rows_->size(); }
  bool empty() const { return rows_->empty(); }
  void push_back(DistributedVar row);
  const std::vector<DistributedVar>& rows() const { return *rows_; }
  bool operator==(const DistributedVars& other) const;

 private:
  Shared<std::vector<DistributedVar>> rows_{std::vector<DistributedVar>()};
};

// How servers correct gradients of older parameters (transpiler/config.h, dc_asgd_form), with the
// numbers that they take.
struct DelayCompensationInfo {
  std::string form;  // empty: they do not
  double lambda = 0;
  double m = 0;
  double epsilon = 0;

  bool operator==(const DelayCompensationInfo&) const = default;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(form), CEREAL_NVP(lambda), CEREAL_NVP(m), CEREAL_NVP(epsilon));
  }
};

// What a transpiler records in a program; travels with it.
struct DistributionInfo {
  bool is_distributed = false;
  bool is_chief = false;
  int32_t trainer_id = 0;
  int32_t trainers = 0;  // logical shards of a step
  std::vector<std::string> endpoints;
  std::string ps_endpoint;
  std::vector<std::string> trainers_endpoints;
  int32_t nccl_comm_num = 1;
  bool use_hierarchical_allreduce = false;
  int32_t hierarchical_allreduce_inter_nranks = 0;
  bool wait_port = true;
  // None without servers. Saved as its word, "" for none.
  std::optional<ServerMode> server_mode;
  DelayCompensationInfo delay_compensation;
  // Steps of a trainer between two pushes of what it changed; 0 in programs that are not GEO's.
  int32_t geo_sgd_need_push_nums = 0;
  // What the counter of a schedule begins with on servers of programs without sync_mode.
  int64_t lr_first_count = 0;
  DistributedVars vars;

  bool operator==(const DistributionInfo&) const = default;
  template <class Archive>
  void serialize(Archive& ar) {
    std::string mode(server_mode ? to_string(*server_mode) : std::string_view());
    ar(CEREAL_NVP(is_distributed), CEREAL_NVP(is_chief), CEREAL_NVP(trainer_id),
       CEREAL_NVP(trainers), CEREAL_NVP(endpoints), CEREAL_NVP(ps_endpoint),
       CEREAL_NVP(trainers_endpoints), CEREAL_NVP(nccl_comm_num),
       CEREAL_NVP(use_hierarchical_allreduce), CEREAL_NVP(hierarchical_allreduce_inter_nranks),
       CEREAL_NVP(wait_port), cereal::make_nvp("server_mode", mode), CEREAL_NVP(delay_compensation),
       CEREAL_NVP(geo_sgd_need_push_nums), CEREAL_NVP(lr_first_count));
    std::vector<DistributedVar> rows = vars.rows();
    ar(cereal::make_nvp("vars", rows));
    vars = std::move(rows);
    server_mode.reset();
    if (!mode.empty()) server_mode = parse_server_mode(mode);
  }
};

// Owns its blocks; block 0 is the outermost. Not thread-safe while it is being built; a program
// that nobody changes may be read from any thread.
class Program {
 public:
  Program();
  Program(const Program& other);
  Program& operator=(const Program& other);
  Program(Program&& other) noexcept;
  Program& operator=(Program&& other) noexcept;
  ~Program();

  Block& block(int32_t index);
  const Block& block(int32_t index) const;
  Block& global_block() { return block(0); }
  const Block& global_block() const { return block(0); }
  int32_t block_count() const { return static_cast<int32_t>(blocks_.size()); }
  // A new block inside `parent`; it does not become the current one.
  Block& add_block(int32_t parent);

  // The block that layers append to.
  Block& current_block() { return block(current_block_); }
  void set_current_block(int32_t index) { current_block_ = index; }

  uint64_t random_seed() const { return random_seed_; }
  void set_random_seed(uint64_t seed) { random_seed_ = seed; }

  // Role, role variables and name scope that appended ops get; see the guards below.
  OpRole current_role() const { return current_role_; }
  const std::vector<std::string>& current_role_var() const { return current_role_var_; }
  const std::string& current_name_scope() const { return current_name_scope_; }

  DistributionInfo& distribution() { return distribution_; }
  const DistributionInfo& distribution() const { return distribution_; }

  // Shared with copies of this program; null for a program that needs none.
  const std::shared_ptr<ProgramRuntime>& runtime() const { return runtime_; }
  void set_runtime(std::shared_ptr<ProgramRuntime> runtime) { runtime_ = std::move(runtime); }

  // The ops that this program may use (fluid/kernels/op_library.h), for as long as it lives; null:
  // those of this library. Shared with copies and with programs that a transpiler makes of this
  // one; not saved with it, so a program that was read from a file is given it again.
  const std::shared_ptr<const ProgramOps>& op_library() const { return op_library_; }
  void set_op_library(std::shared_ptr<const ProgramOps> library) {
    op_library_ = std::move(library);
  }

  // A copy. For a test: the forward part only, with attribute is_test set where it exists; without
  // the runtime where that refuses the program itself.
  Program clone(bool for_test = false) const;
  // The ops of block 0 that the targets need, and the variables that those ops name; what makes
  // `feeds` is cut away. Throws UsageError for a target that the program does not have.
  Program prune(std::span<const std::string> targets,
                std::span<const std::string> feeds = {}) const;
  // Whether prune cut a variable of this name out of this program or one that it is a copy of. Not
  // saved with the program.
  bool was_pruned(std::string_view name) const { return pruned_ && pruned_->contains(name); }

  // Structure only: every name that an op uses exists, blocks and parents fit. What each op wants
  // is checked by fluid/ops/append.h. The first problem is named.
  Status verify() const;

  // Stable and made for diffs: equal programs give equal texts.
  std::string to_string() const;
  std::vector<std::byte> to_bytes() const;
  static Result<Program> from_bytes(std::span<const std::byte> bytes);
  std::string to_json() const;
  static Result<Program> from_json(std::string_view text);
  // Of everything that to_bytes holds.
  uint64_t hash() const;

  // Unique among all programs and copies of the process; changes with nothing.
  uint64_t id() const { return id_; }

 private:
  friend class RoleGuard;
  friend class NameScopeGuard;

  std::vector<std::unique_ptr<Block>> blocks_;
  int32_t current_block_ = 0;
  uint64_t random_seed_ = 0;
  OpRole current_role_ = OpRole::kForward;
  std::vector<std::string> current_role_var_;
  std::string current_name_scope_;
  DistributionInfo distribution_;
  std::shared_ptr<ProgramRuntime> runtime_;
  std::shared_ptr<const ProgramOps> op_library_;
  Shared<std::set<std::string, std::less<>>> pruned_;
  uint64_t id_;
};

// Ops appended while the guard lives get this role and these role variables.
class RoleGuard {
 public:
  RoleGuard(Program& program, OpRole role, std::vector<std::string> role_var = {});
  ~RoleGuard();
  RoleGuard(const RoleGuard&) = delete;
  RoleGuard& operator=(const RoleGuard&) = delete;

 private:
  Program& program_;
  OpRole saved_role_;
  std::vector<std::string> saved_role_var_;
};

// Ops appended while the guard lives get the scope's name, nested with '/'.
class NameScopeGuard {
 public:
  NameScopeGuard(Program& program, std::string_view name);
  ~NameScopeGuard();
  NameScopeGuard(const NameScopeGuard&) = delete;
  NameScopeGuard& operator=(const NameScopeGuard&) = delete;

 private:
  Program& program_;
  std::string saved_;
};

}  // namespace fleet::fluid
