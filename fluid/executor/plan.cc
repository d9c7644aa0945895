#include "fluid/executor/plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <span>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/kernels/image_layout.h"

namespace fleet::fluid {
namespace {

// Ops that look rows up in a table which the transpiler placed on servers.
bool fetches_table(const OpSchema& schema, const Operator& op) {
  const Attribute* attr = op.attr("table_names");
  const auto* names = attr == nullptr ? nullptr : std::get_if<std::vector<std::string>>(attr);
  return names != nullptr && !names->empty() && schema.run_by != RunBy::kRuntime;
}

bool calls_runtime(const OpSchema& schema, const Operator& op) {
  return schema.run_by == RunBy::kRuntime || fetches_table(schema, op) ||
         schema.leaves_values_to_servers;
}

// Only updates change it, also where a forward op names it among its outputs (W_Out of
// hierarchical_sigmoid).
bool is_trained(const PlanVar& var) {
  return var.desc != nullptr && var.desc->is_parameter && var.desc->trainable;
}

bool is_dense(const PlanVar& var) {
  return var.desc == nullptr || (var.desc->kind == VarKind::kLodTensor && var.desc->typed);
}

}  // namespace

int Plan::find_var(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? -1 : found->second;
}

bool Plan::is_current() const {
  const Program& program = *key_.program;
  if (program.id() != program_id_ || program.random_seed() != seed_) return false;
  if (program.op_library() != op_library_) return false;
  // A program that another was assigned to has other blocks.
  if (key_.block >= program.block_count() || &program.block(key_.block) != block_) return false;
  const auto& ops = block_->ops();
  if (ops.size() != compiled_ops_.size()) return false;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ops[i].version() != compiled_ops_[i]) return false;
  }
  return std::all_of(ops_.begin(), ops_.end(), [](const PlanOp& op) {
    return op.block == nullptr || op.block->is_current();
  });
}

// Builds one plan.
class PlanCompiler {
 public:
  PlanCompiler(const PlanKey& key, const KernelTable& kernels, bool whole_step, bool inner = false)
      : kernels_(kernels), whole_step_(whole_step), inner_(inner), plan_(new Plan) {
    plan_->inner_ = inner;
    plan_->key_ = key;
    plan_->kernels_ = &kernels;
    plan_->op_library_ = key.program->op_library();
    plan_->whole_step_ = whole_step;
    plan_->block_ = &key.program->block(key.block);
    plan_->program_id_ = key.program->id();
    plan_->seed_ = key.program->random_seed();
  }

  std::shared_ptr<const Plan> compile() {
    order_ops();
    add_feeds();
    for (const Operator* op : order_) add_op(*op);
    find_per_shard();
    find_statistics();
    add_fetches();
    find_whether_shards_are_apart();
    find_waits();
    find_lod();
    if (whole_step_) {
      plan_buffers();
      find_images();
    }
    plan_->index_ = std::move(index_);
    return plan_;
  }

 private:
  const Block& block() const { return *plan_->block_; }

  const OpSchema& row(const Operator& op) const { return schema_of(*plan_->key_.program, op); }

  bool is_lr(const Operator& op) const { return has_role(op.role, OpRole::kLrSched); }

  bool in_shard(const Operator& op) const {
    if (is_lr(op)) return false;
    return row(op).once_a_shard || has_role(op.role, OpRole::kForward) ||
           has_role(op.role, OpRole::kBackward) || has_role(op.role, OpRole::kLoss);
  }

  // Learning-rate ops, then everything up to the last op of a shard, then the rest.
  void order_ops() {
    size_t end = 0;
    const auto& ops = block().ops();
    for (size_t i = 0; i < ops.size(); ++i) {
      plan_->compiled_ops_.push_back(ops[i].version());
      if (in_shard(*ops[i])) end = i + 1;
      const bool trains = has_role(ops[i]->role, OpRole::kBackward) && !is_lr(*ops[i]);
      if (whole_step_ && (trains || row(*ops[i]).once_a_shard)) plan_->sharded_ = true;
      if (calls_runtime(row(*ops[i]), *ops[i])) plan_->communicates_ = true;
    }
    for (const auto& op : ops) {
      if (is_lr(*op)) order_.push_back(op.get());
    }
    plan_->head_ = static_cast<int>(order_.size());
    for (size_t i = 0; i < end; ++i) {
      if (!is_lr(*ops[i])) order_.push_back(ops[i].get());
    }
    plan_->tail_ = static_cast<int>(order_.size());
    for (size_t i = end; i < ops.size(); ++i) {
      if (!is_lr(*ops[i])) order_.push_back(ops[i].get());
    }
  }

  std::vector<std::string> known_names() const {
    std::vector<std::string> names;
    for (const VarDesc* var : block().vars()) names.push_back(var->name);
    return names;
  }

  int index_of(const std::string& name) {
    const auto [found, added] = index_.emplace(name, static_cast<int>(plan_->vars_.size()));
    if (added) {
      PlanVar var;
      var.name = name;
      var.desc = block().find_var_recursive(name);
      var.in_scope = var.desc != nullptr && var.desc->persistable;
      var.outer = inner_ && !var.in_scope && block().find_var(name) == nullptr;
      plan_->vars_.push_back(std::move(var));
    }
    return found->second;
  }
  PlanVar& var(int i) { return plan_->vars_[static_cast<size_t>(i)]; }

  void add_feeds() {
    const auto& feeds = plan_->key_.feeds;
    for (size_t i = 0; i < feeds.size(); ++i) {
      const bool twice = std::find(feeds.begin(), feeds.begin() + static_cast<long>(i), feeds[i]) !=
                         feeds.begin() + static_cast<long>(i);
      if (twice || block().find_var_recursive(feeds[i]) == nullptr) {
        throw_error(ErrorCode::kFeed, {.what = twice ? "a variable is fed twice"
                                                     : "the program has no such variable" +
                                                           did_you_mean(feeds[i], known_names()),
                                       .where = "feed '" + feeds[i] + "'",
                                       .expected = "each data variable of the program once",
                                       .got = feeds[i],
                                       .fix = "correct the name in the feed"});
      }
      PlanVar& fed = var(index_of(feeds[i]));
      fed.feed = static_cast<int>(i);
      fed.in_scope = false;
    }
  }

  [[noreturn]] void throw_never_written(const Operator& op, const PlanVar& missing) const {
    const bool data = missing.desc != nullptr && missing.desc->is_data;
    throw_error(data ? ErrorCode::kFeed : ErrorCode::kInvalidProgram,
                {.what = data ? "a data variable is not fed"
                              : "a variable is read before anything writes it",
                 .where = str_cat("variable '", missing.name, "', read by op '", op.type, "'"),
                 .expected = data ? str_cat(dtype_name(missing.desc->dtype), missing.desc->shape)
                                  : "an earlier op that writes it, or a persistable variable",
                 .got = "nothing",
                 .fix = data ? "add it to the feed"
                             : "check the order of the ops, or that the program was cut rightly"});
  }

  void add_op(const Operator& op) {
    PlanOp planned;
    planned.op = &op;
    planned.schema = &row(op);
    planned.communication = planned.schema->run_by == RunBy::kRuntime;
    planned.fetches_table = fetches_table(*planned.schema, op);
    if (planned.schema->run_by == RunBy::kExecutor) add_block(op, planned);
    const bool computed = !planned.communication && planned.block == nullptr;
    if (computed && !kernels_.knows(op.type, plan_->key_.place.kind)) {
      throw_error(ErrorCode::kNotSupported,
                  {.what = "no kernel computes this op" +
                           did_you_mean(op.type, kernels_.ops(plan_->key_.place.kind)),
                   .where = "op '" + op.type + "'",
                   .expected = "an op that has a kernel on " + plan_->key_.place.to_string(),
                   .got = op.type,
                   .fix = "give the program the library that has the op and its kernels "
                          "(Program::set_op_library); files do not hold it"});
    }
    const std::string_view table = planned.fetches_table ? "" : planned.schema->table_slot;
    for (const auto& [slot, names] : op.inputs) {
      for (const std::string& name : names) {
        const int i = index_of(name);
        if (slot == table) planned.table = static_cast<int>(planned.inputs.size());
        planned.inputs.push_back(i);
        PlanVar& read = var(i);
        if (read.in_scope || read.feed >= 0 || read.written || planned.communication || inner_) {
          continue;
        }
        if (whole_step_) throw_never_written(op, read);
        read.in_scope = true;
      }
    }
    for (const auto& [slot, names] : op.outputs) {
      for (const std::string& name : names) {
        planned.outputs.push_back(name.empty() ? -1 : index_of(name));
        if (name.empty()) continue;
        PlanVar& out = var(planned.outputs.back());
        out.written = true;
        out.fed_and_written = out.feed >= 0;
      }
    }
    plan_->ops_.push_back(std::move(planned));
  }

  // The plan of the op's block, and what it touches of this one.
  void add_block(const Operator& op, PlanOp& planned) {
    const Attribute* attr = op.attr("sub_block");
    const auto* block = attr == nullptr ? nullptr : std::get_if<BlockRef>(attr);
    if (block == nullptr || block->index <= 0 ||
        block->index >= plan_->key_.program->block_count()) {
      throw_error(ErrorCode::kInvalidProgram,
                  {.what = "an op names no block of the program",
                   .where = op.to_string(),
                   .expected = "attribute sub_block: an inner block",
                   .got = attr == nullptr ? "nothing" : to_string(*attr),
                   .fix = "build the op with its layer"});
    }
    const PlanKey key = {.program = plan_->key_.program,
                         .block = block->index,
                         .feeds = {},
                         .fetches = {},
                         .place = plan_->key_.place};
    planned.block = PlanCompiler(key, kernels_, false, true).compile();
    for (const PlanVar& inside : planned.block->vars()) {
      if (!inside.outer || this->block().find_var_recursive(inside.name) == nullptr) continue;
      const int i = index_of(inside.name);
      planned.block_vars.push_back(i);
      if (inside.written) var(i).written = true;
    }
  }

  bool written_in_shard(int i) const {
    for (int k = plan_->head_; k < plan_->tail_; ++k) {
      const auto& outputs = plan_->ops_[static_cast<size_t>(k)].outputs;
      if (std::find(outputs.begin(), outputs.end(), i) != outputs.end()) return true;
    }
    return false;
  }

  void find_per_shard() {
    std::set<int> seen;
    for (size_t k = static_cast<size_t>(plan_->tail_); k < plan_->ops_.size(); ++k) {
      if (plan_->ops_[k].communication) continue;
      for (const int i : plan_->ops_[k].inputs) {
        const PlanVar& read = var(i);
        const bool floating = read.desc == nullptr || is_floating(read.desc->dtype);
        const bool rows = read.desc != nullptr && read.desc->kind == VarKind::kSelectedRows;
        if (read.in_scope || read.feed >= 0 || !floating || (!is_dense(read) && !rows)) continue;
        if (seen.insert(i).second && written_in_shard(i)) plan_->per_shard_.push_back(i);
      }
    }
  }

  void find_statistics() {
    if (!plan_->sharded_) return;
    std::set<int> seen;
    for (int k = plan_->head_; k < plan_->tail_; ++k) {
      const PlanOp& op = plan_->ops_[static_cast<size_t>(k)];
      if (op.communication || !has_role(op.op->role, OpRole::kForward)) continue;
      for (const int i : op.outputs) {
        if (i < 0 || !var(i).in_scope || var(i).desc == nullptr) continue;
        const bool averaged =
            is_floating(var(i).desc->dtype) && is_dense(var(i)) && !is_trained(var(i));
        if (averaged && seen.insert(i).second) plan_->statistics_.push_back(i);
      }
    }
  }

  // What the ops [begin, end) write, or read.
  std::set<int> touched(int begin, int end, std::vector<int> PlanOp::*list) const {
    std::set<int> all;
    for (int k = begin; k < end; ++k) {
      const auto& vars = plan_->ops_[static_cast<size_t>(k)].*list;
      all.insert(vars.begin(), vars.end());
    }
    all.erase(-1);
    return all;
  }

  void find_whether_shards_are_apart() {
    const int head = plan_->head_;
    const int tail = plan_->tail_;
    const auto& ops = plan_->ops_;
    const bool plain = std::none_of(ops.begin() + head, ops.begin() + tail,
                                    [](const PlanOp& op) { return op.block != nullptr; });
    if (!plan_->sharded_ || plan_->communicates_ || !plain) return;
    const auto contains = [](const std::vector<int>& list, int i) {
      return std::find(list.begin(), list.end(), i) != list.end();
    };
    std::set<int> later = touched(tail, static_cast<int>(ops.size()), &PlanOp::inputs);
    for (const PlanFetch& fetch : plan_->fetches_) {
      if (fetch.kind == PlanFetch::Kind::kAtEnd) later.insert(fetch.var);
    }
    for (const int i : touched(head, tail, &PlanOp::outputs)) {
      const bool joined = contains(plan_->statistics_, i) || contains(plan_->per_shard_, i);
      if (!joined && !is_trained(var(i)) && (var(i).in_scope || later.contains(i))) return;
    }
    const std::set<int> before = touched(0, head, &PlanOp::outputs);
    const std::set<int> read = touched(head, tail, &PlanOp::inputs);
    plan_->shards_are_apart_ = std::none_of(
        read.begin(), read.end(), [&](int i) { return before.contains(i) && !var(i).in_scope; });
  }

  bool is_loss(int i) const {
    for (const PlanOp& op : plan_->ops_) {
      if (!has_role(op.op->role, OpRole::kLoss) || has_role(op.op->role, OpRole::kBackward))
        continue;
      if (std::find(op.outputs.begin(), op.outputs.end(), i) != op.outputs.end()) return true;
    }
    return false;
  }

  [[noreturn]] void throw_unknown_fetch(const std::string& name) const {
    const bool cut = block().program().was_pruned(name);
    throw_error(ErrorCode::kInvalidProgram,
                {.what = "the program has no such variable" +
                         (cut ? ": prune cut it away" : did_you_mean(name, known_names())),
                 .where = "fetch '" + name + "'",
                 .expected = "a variable of the program that runs",
                 .got = cut ? "a variable of the program before prune" : name,
                 .fix = cut ? "name it among the targets of prune (save_inference_model)"
                            : "correct the name in the fetch list, or name it among the targets of "
                              "the save_inference_model that left it out"});
  }

  void add_fetches() {
    for (const std::string& name : plan_->key_.fetches) {
      if (block().find_var_recursive(name) == nullptr) {
        throw_unknown_fetch(name);
      }
      PlanFetch fetch;
      fetch.var = index_of(name);
      const PlanVar& wanted = var(fetch.var);
      if (!wanted.in_scope && wanted.feed < 0 && !wanted.written) {
        const bool data = wanted.desc != nullptr && wanted.desc->is_data;
        throw_error(ErrorCode::kInvalidProgram,
                    {.what = "nothing feeds or writes this variable",
                     .where = "fetch '" + name + "'",
                     .expected = "a variable that is fed, that an op writes, or a persistable one",
                     .got = name,
                     .fix = data ? "add it to the feed, or leave it out of the fetch list"
                                 : "fetch it from the program that computes it"});
      }
      const auto& sums = plan_->per_shard_;
      const bool summed = std::find(sums.begin(), sums.end(), fetch.var) != sums.end();
      if (wanted.feed >= 0 && !wanted.written) {
        fetch.kind = PlanFetch::Kind::kFeed;
      } else if (!wanted.in_scope && !summed && written_in_shard(fetch.var)) {
        fetch.kind = is_loss(fetch.var) ? PlanFetch::Kind::kMean : PlanFetch::Kind::kRows;
      }
      plan_->fetches_.push_back(fetch);
    }
  }

  // The inputs of an op, and what they are views of.
  std::vector<int> memory_read(const PlanOp& op) const {
    std::vector<int> read = op.inputs;
    for (const PlanOp& other : plan_->ops_) {
      const bool viewed =
          other.schema->makes_views && std::any_of(op.inputs.begin(), op.inputs.end(), [&](int i) {
            return std::find(other.outputs.begin(), other.outputs.end(), i) != other.outputs.end();
          });
      if (viewed) read.push_back(other.inputs.front());
    }
    return read;
  }

  void find_waits() {
    std::vector<std::vector<int>> read(plan_->ops_.size());
    for (size_t k = 0; k < read.size(); ++k) {
      if (plan_->ops_[k].communication) read[k] = memory_read(plan_->ops_[k]);
    }
    for (PlanOp& op : plan_->ops_) {
      if (op.communication) continue;
      for (size_t k = 0; k < plan_->ops_.size(); ++k) {
        const PlanOp& other = plan_->ops_[k];
        if (!other.communication) continue;
        const auto shares = [](const std::vector<int>& a, const std::vector<int>& b) {
          return std::any_of(a.begin(), a.end(), [&b](int i) {
            return i >= 0 && std::find(b.begin(), b.end(), i) != b.end();
          });
        };
        if (shares(op.outputs, read[k]) || shares(op.outputs, other.outputs) ||
            shares(op.inputs, other.outputs)) {
          op.waits.push_back(static_cast<int>(k));
        }
      }
    }
  }

  void find_lod() {
    const auto has_lod = [this](int i) {
      return i >= 0 && var(i).desc != nullptr && var(i).desc->lod_level > 0;
    };
    for (PlanOp& op : plan_->ops_) {
      if (std::none_of(op.outputs.begin(), op.outputs.end(), has_lod)) continue;
      const auto from = std::find_if(op.inputs.begin(), op.inputs.end(), has_lod);
      if (from != op.inputs.end()) op.lod_from = static_cast<int>(from - op.inputs.begin());
    }
  }

  // From the first op that writes a variable to the last that reads it.
  struct Life {
    int begin = std::numeric_limits<int>::max();
    int end = -1;
    bool pinned = false;
  };

  std::vector<Life> lives() const {
    std::vector<Life> lives(plan_->vars_.size());
    for (int k = 0; k < static_cast<int>(plan_->ops_.size()); ++k) {
      const PlanOp& op = plan_->ops_[static_cast<size_t>(k)];
      const auto touch = [&](int i) {
        if (i < 0) return;
        Life& life = lives[static_cast<size_t>(i)];
        life.begin = std::min(life.begin, k);
        life.end = std::max(life.end, k);
        life.pinned =
            life.pinned || op.communication || op.block != nullptr || op.schema->makes_views;
      };
      for (const int i : op.inputs) touch(i);
      for (const int i : op.outputs) touch(i);
      for (const int i : op.block_vars) touch(i);
    }
    for (Life& life : lives) {
      // What is made before the shards begin must outlive all of them.
      if (life.begin < plan_->head_ && life.end >= plan_->head_) {
        life.end = std::max(life.end, plan_->tail_);
      }
    }
    for (const PlanFetch& fetch : plan_->fetches_)
      lives[static_cast<size_t>(fetch.var)].pinned = true;
    return lives;
  }

  // Variables whose lives do not touch share a buffer, those of equal type and shape first.
  void plan_buffers() {
    const std::vector<Life> all = lives();
    std::vector<int> order;
    for (int i = 0; i < static_cast<int>(all.size()); ++i) {
      const PlanVar& candidate = var(i);
      const bool shares = !candidate.in_scope && candidate.feed < 0 && candidate.written &&
                          is_dense(candidate) && !all[static_cast<size_t>(i)].pinned;
      if (shares) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&all](int a, int b) {
      return std::pair(all[static_cast<size_t>(a)].begin, a) <
             std::pair(all[static_cast<size_t>(b)].begin, b);
    });
    std::vector<Shared> buffers;
    for (const int i : order) {
      const Life& life = all[static_cast<size_t>(i)];
      int chosen = buffer_of_input(i, life.begin, buffers);
      if (chosen < 0) chosen = free_buffer(i, life.begin, buffers);
      if (chosen < 0) {
        chosen = static_cast<int>(buffers.size());
        buffers.emplace_back();
      }
      buffers[static_cast<size_t>(chosen)] = {life.end, var(i).desc};
      var(i).buffer = chosen;
    }
    plan_->buffer_count_ = static_cast<int>(buffers.size());
  }

  struct Shared {
    int free_after = -1;
    const VarDesc* last = nullptr;

    bool suits(const VarDesc* desc) const {
      return desc != nullptr && last != nullptr && desc->shape == last->shape &&
             desc->dtype == last->dtype;
    }
  };

  // The buffer of an input that op k reads last and may write its output i over; or -1.
  int buffer_of_input(int i, int k, const std::vector<Shared>& buffers) const {
    const PlanOp& op = plan_->ops_[static_cast<size_t>(k)];
    const auto kernels = kernels_of(op, plan_->vars_[static_cast<size_t>(i)]);
    const bool in_place = std::all_of(kernels.begin(), kernels.end(), [&](const Kernel& kernel) {
      const bool numbers = kernel.images == ImageOrder::kChannels && var_desc(i)->shape.rank() < 2;
      return kernel.in_place && !numbers;
    });
    if (kernels.empty() || !in_place) return -1;
    for (const int input : op.inputs) {
      const int b = plan_->vars_[static_cast<size_t>(input)].buffer;
      if (b < 0) continue;
      const Shared& buffer = buffers[static_cast<size_t>(b)];
      const bool dies = buffer.free_after == k && buffer.last == var_desc(input);
      if (dies && buffer.suits(var_desc(i))) return b;
    }
    return -1;
  }

  // One of so many buffers that is free when op k runs, preferably of this type and shape; or -1.
  int free_buffer(int i, int k, const std::vector<Shared>& buffers) const {
    int chosen = -1;
    for (int b = 0; b < static_cast<int>(buffers.size()); ++b) {
      const Shared& buffer = buffers[static_cast<size_t>(b)];
      if (buffer.free_after >= k) continue;
      const bool same = buffer.suits(var_desc(i));
      if (chosen < 0 || same) chosen = b;
      if (same) break;
    }
    return chosen;
  }

  const VarDesc* var_desc(int i) const { return plan_->vars_[static_cast<size_t>(i)].desc; }

  // Kernels that may compute an op on tensors of the variable's type.
  std::span<const Kernel> kernels_of(const PlanOp& op, const PlanVar& var) const {
    if (var.desc == nullptr || op.communication || op.block != nullptr) return {};
    return kernels_.find(op.op->type, plan_->key_.place.kind, var.desc->dtype);
  }

  // Images that stay in blocks of channels between the ops that compute in them.
  void find_images() {
    if (!plan_->key_.place.is_cpu()) return;
    std::set<int> joined(plan_->per_shard_.begin(), plan_->per_shard_.end());
    joined.insert(plan_->statistics_.begin(), plan_->statistics_.end());
    for (const PlanOp& op : plan_->ops_) {
      for (const int i : op.inputs) {
        PlanVar& image = var(i);
        const bool own = image.buffer >= 0 && image.desc != nullptr && !joined.contains(i);
        const bool fits = own && can_be_blocked(image.desc->dtype, image.desc->shape);
        if (fits && !image.may_block) image.may_block = reads_blocks(op, image);
      }
    }
  }

  bool reads_blocks(const PlanOp& op, const PlanVar& image) const {
    const bool alike = std::all_of(op.inputs.begin(), op.inputs.end(), [&](int i) {
      return var_desc(i) != nullptr && var_desc(i)->shape == image.desc->shape;
    });
    const auto kernels = kernels_of(op, image);
    return std::any_of(kernels.begin(), kernels.end(), [&](const Kernel& kernel) {
      return kernel.images == ImageOrder::kElements ? alike : kernel.images != ImageOrder::kPlain;
    });
  }

  const KernelTable& kernels_;
  bool whole_step_;
  bool inner_;
  std::shared_ptr<Plan> plan_;
  std::vector<const Operator*> order_;
  std::map<std::string, int, std::less<>> index_;
};

std::shared_ptr<const Plan> Plan::compile(const PlanKey& key, const KernelTable& kernels,
                                          bool whole_step) {
  return PlanCompiler(key, kernels, whole_step).compile();
}

}  // namespace fleet::fluid
