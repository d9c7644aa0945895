#include "fluid/backward/grad_ops.h"

#include <algorithm>
#include <map>

#include "base/strings.h"
#include "fluid/backward/block_grads.h"
#include "fluid/ops/control/control_flow.h"

namespace fleet::fluid::internal {
namespace {

bool any_in(const std::vector<std::string>& names, const NameSet& set) {
  return std::any_of(names.begin(), names.end(),
                     [&](const auto& name) { return set.contains(name); });
}

bool all_in(const std::vector<std::string>& names, const NameSet& set) {
  return !names.empty() && std::all_of(names.begin(), names.end(),
                                       [&](const auto& name) { return set.contains(name); });
}

std::vector<std::string> grad_names(std::vector<std::string> names) {
  std::erase_if(names, [](const std::string& name) { return !is_grad_name(name); });
  return names;
}

// Renames and sums gradients that several ops make, one op after the other.
class RepeatedOutputs {
 public:
  RepeatedOutputs(std::vector<Operator>& ops, int32_t block_index)
      : ops_(ops), block_index_(block_index) {}

  void run() {
    for (size_t i = 0; i < ops_.size(); ++i) {
      for (const std::string& name : grad_names(ops_[i].input_names())) sum_parts(name, i);
      add_outputs(i);
    }
    for (const std::string& name : order_) sum_parts(name, ops_.size());
    insert_sums();
  }

 private:
  struct Parts {
    std::vector<std::string> names;  // the variables that add up to the gradient
    size_t first_op = 0;
    int renamed = 0;
  };

  Parts& parts_of(const std::string& name) {
    const auto [found, made] = parts_.try_emplace(name);
    if (made) order_.push_back(name);
    return found->second;
  }

  void sum_parts(const std::string& name, size_t position) {
    Parts& parts = parts_of(name);
    if (parts.names.size() <= 1) return;
    Operator sum;
    sum.type = "sum";
    sum.inputs["X"] = parts.names;
    sum.outputs["Out"] = {name};
    sums_.emplace_back(position, std::move(sum));
    parts.names = {name};
  }

  void add_outputs(size_t position) {
    Operator& op = ops_[position];
    const auto inputs = op.input_names();
    for (auto& [slot, names] : op.outputs) {
      // By index: renaming the first part may change this very slot.
      for (size_t k = 0; k < names.size(); ++k) {
        const std::string name = names[k];
        const bool in_place = std::find(inputs.begin(), inputs.end(), name) != inputs.end();
        if (!is_grad_name(name) || in_place) continue;
        Parts& parts = parts_of(name);
        if (parts.names.empty()) {
          parts = {.names = {name}, .first_op = position};
          continue;
        }
        if (parts.names.size() == 1) rename_first(name, parts, position, slot, k);
        names[k] = next_name(name, parts);
        parts.names.push_back(names[k]);
      }
    }
  }

  std::string next_name(const std::string& name, Parts& parts) const {
    return str_cat(name, "@RENAME@block", block_index_, "@", parts.renamed++);
  }

  // So far there was one part, under the gradient's own name: from its op up to output k of
  // `slot` of the op at `position` it gets a name of its own.
  void rename_first(const std::string& name, Parts& parts, size_t position, const std::string& slot,
                    size_t k) {
    const std::string fresh = next_name(name, parts);
    parts.names[0] = fresh;
    for (size_t i = parts.first_op; i < position; ++i) {
      ops_[i].rename_input(name, fresh);
      ops_[i].rename_output(name, fresh);
    }
    for (auto& [at, sum] : sums_) {
      sum.rename_input(name, fresh);
      sum.rename_output(name, fresh);
    }
    for (auto& [other, names] : ops_[position].outputs) {
      if (other > slot) break;
      const size_t end = other == slot ? k : names.size();
      std::replace(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(end), name, fresh);
    }
  }

  void insert_sums() {
    std::vector<Operator> merged;
    auto sum = sums_.begin();
    for (size_t i = 0; i <= ops_.size(); ++i) {
      for (; sum != sums_.end() && sum->first == i; ++sum) {
        merged.push_back(std::move(sum->second));
      }
      if (i < ops_.size()) merged.push_back(std::move(ops_[i]));
    }
    ops_ = std::move(merged);
  }

  std::vector<Operator>& ops_;
  int32_t block_index_;
  std::map<std::string, Parts, std::less<>> parts_;
  std::vector<std::string> order_;                 // keys of parts_ as they came up
  std::vector<std::pair<size_t, Operator>> sums_;  // before which op, ascending
};

// Whether every gradient that the op reads is of a variable that none comes in for, such as a label
// that the net computes.
bool reads_nothing(const Operator& op, const NameSet& produced, const NameSet& no_grad) {
  const auto reads = grad_names(op.input_names());
  return !reads.empty() && std::none_of(reads.begin(), reads.end(), [&](const auto& name) {
    return produced.contains(name) || no_grad.contains(strip_grad_suffix(name));
  });
}

bool removable(const Operator& op, NameSet& no_grad) {
  const auto outputs = op.output_names();
  if (outputs.empty() || all_in(outputs, no_grad)) return true;
  if (!all_in(grad_names(op.input_names()), no_grad)) return false;
  no_grad.insert(outputs.begin(), outputs.end());
  return true;
}

void leave_out_optional(Operator& op, const NameSet& no_grad, const OpTable& table) {
  const OpSchema* schema = table.find(op.type);
  if (schema == nullptr) return;
  for (const SlotSpec& slot : schema->inputs) {
    const auto filled = op.inputs.find(slot.name);
    if (!slot.optional || filled == op.inputs.end()) continue;
    if (all_in(grad_names(filled->second), no_grad)) op.inputs.erase(filled);
  }
}

}  // namespace

std::vector<size_t> find_op_path(const Block& block, const std::string& target,
                                 const NameSet& no_grad) {
  NameSet needed = {target};
  std::vector<size_t> path;
  for (size_t i = block.op_count(); i-- > 0;) {
    if (!any_in(block.op(i).output_names(), needed)) continue;
    for (const std::string& name : block.op(i).input_names()) {
      if (!no_grad.contains(name)) needed.insert(name);
    }
    path.push_back(i);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

NameSet find_unused_outputs(const Block& block, const std::vector<size_t>& path,
                            const std::string& target, const NameSet& no_grad) {
  NameSet used = {target};
  NameSet unused;
  for (auto i = path.rbegin(); i != path.rend(); ++i) {
    const Operator& op = block.op(*i);
    const auto inputs = op.input_names();
    for (const std::string& name : op.output_names()) {
      const bool in_place = std::find(inputs.begin(), inputs.end(), name) != inputs.end();
      if (!used.contains(name) && !in_place) unused.insert(name);
    }
    for (const std::string& name : inputs) {
      if (!no_grad.contains(name)) used.insert(name);
    }
  }
  return unused;
}

std::vector<Operator> make_grad_ops(const Block& block, const std::vector<size_t>& path,
                                    const NameSet& no_grad, const OpTable& table,
                                    NameSet produced) {
  const auto wanted = [&](const std::string& name) {
    return no_grad.contains(name) ? std::string() : grad_name(name);
  };
  NameSet before;
  std::vector<Operator> ops;
  for (auto i = path.rbegin(); i != path.rend(); ++i) {
    const Operator& forward = block.op(*i);
    const OpSchema& schema = table.at(forward.type);
    std::vector<Operator> made;
    if (schema.block_gradient.kind != BlockGradient::Kind::kNone) {
      Block& owner = block.program().block(block.index());
      made = make_block_gradient(owner, forward, no_grad, produced, table);
    } else if (schema.gradient) {
      made = schema.gradient(GradContext(forward, block, wanted));
    }
    for (Operator& op : made) {
      if (reads_nothing(op, produced, no_grad)) continue;
      for (const std::string& name : op.output_names()) produced.insert(name);
      if (op.attr("sub_block") == nullptr) {
        for (const std::string& name : before) {
          op.rename_input(name.substr(0, name.size() - kLoopIn.size()), name);
        }
      }
      // What a loop rewrites had another value before it.
      const auto& earlier = op.output("Before");
      before.insert(earlier.begin(), earlier.end());
      ops.push_back(std::move(op));
    }
  }
  return ops;
}

void sum_repeated_outputs(std::vector<Operator>& ops, int32_t block_index) {
  RepeatedOutputs(ops, block_index).run();
}

void remove_no_grad_branches(std::vector<Operator>& ops, NameSet& no_grad, const OpTable& table) {
  std::vector<Operator> kept;
  for (Operator& op : ops) {
    if (!removable(op, no_grad)) kept.push_back(std::move(op));
  }
  ops.clear();
  for (Operator& op : kept) {
    leave_out_optional(op, no_grad, table);
    for (const std::string& name : op.input_names()) {
      if (!is_grad_name(name) || !no_grad.contains(name)) continue;
      Operator zeros;
      zeros.type = "fill_zeros_like";
      zeros.inputs["X"] = {std::string(strip_grad_suffix(name))};
      zeros.outputs["Out"] = {name};
      ops.push_back(std::move(zeros));
    }
    ops.push_back(std::move(op));
  }
}

}  // namespace fleet::fluid::internal
