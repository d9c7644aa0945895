#include "fluid/backward/recompute.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid::internal {
namespace {

// Ops that would give something else the second time, because they draw by the name of what they
// make, or change what they read.
bool runs_once(const Operator& op, const OpTable& table) {
  if (table.at(op.type).draws_numbers) return true;
  const auto inputs = op.input_names();
  const auto outputs = op.output_names();
  return std::any_of(outputs.begin(), outputs.end(), [&](const auto& name) {
    return std::find(inputs.begin(), inputs.end(), name) != inputs.end();
  });
}

// Positions within the path behind which each segment but the last ends.
std::vector<size_t> segment_ends(const Block& block, const std::vector<size_t>& path,
                                 const std::vector<std::string>& checkpoints) {
  std::set<size_t> ends;
  for (const std::string& name : checkpoints) {
    const auto made = std::find_if(path.rbegin(), path.rend(), [&](size_t i) {
      const auto outputs = block.op(i).output_names();
      return std::find(outputs.begin(), outputs.end(), name) != outputs.end();
    });
    if (made == path.rend()) {
      throw_error(ErrorCode::kInvalidProgram,
                  {.what = "a checkpoint is not on the way to the loss",
                   .where = "append_backward, checkpoint '" + name + "'",
                   .expected = "a variable that an op makes and the loss depends on",
                   .got = name,
                   .fix = "leave it out, or check its name"});
    }
    ends.insert(static_cast<size_t>(path.rend() - made));
  }
  return {ends.begin(), ends.end()};
}

using Renaming = std::map<std::string, std::string, std::less<>>;

void rename_inputs(Operator& op, const Renaming& names) {
  for (auto& [slot, list] : op.inputs) {
    for (std::string& name : list) {
      if (const auto found = names.find(name); found != names.end()) name = found->second;
    }
  }
}

// Appends to `ops` the segment's ops once more, and returns what its results are called now.
Renaming recompute(const Block& block, std::span<const size_t> segment, const NameSet& kept,
                   size_t number, const OpTable& table, std::vector<Operator>& ops) {
  Renaming names;
  for (const size_t i : segment) {
    const Operator& forward = block.op(i);
    if (runs_once(forward, table)) continue;
    const auto outputs = forward.output_names();
    const bool all_kept = std::all_of(outputs.begin(), outputs.end(),
                                      [&](const auto& name) { return kept.contains(name); });
    if (all_kept) continue;
    Operator again = forward;
    rename_inputs(again, names);
    for (auto& [slot, list] : again.outputs) {
      for (std::string& name : list) {
        if (name.empty()) continue;
        const std::string fresh = str_cat(name, kRecomputed, number);
        if (!kept.contains(name)) names[name] = fresh;
        name = fresh;
      }
    }
    ops.push_back(std::move(again));
  }
  return names;
}

// Drops recomputed ops that neither the gradients nor other recomputed ops read.
void keep_used(std::vector<Operator>& again, const std::vector<Operator>& grads) {
  NameSet used;
  const auto use = [&used](const Operator& op) {
    for (const std::string& name : op.input_names()) used.insert(name);
  };
  for (const Operator& op : grads) use(op);
  std::vector<Operator> kept;
  for (auto op = again.rbegin(); op != again.rend(); ++op) {
    const auto outputs = op->output_names();
    const bool read = std::any_of(outputs.begin(), outputs.end(),
                                  [&](const auto& name) { return used.contains(name); });
    if (!read) continue;
    use(*op);
    kept.push_back(std::move(*op));
  }
  std::reverse(kept.begin(), kept.end());
  again = std::move(kept);
}

}  // namespace

std::vector<Operator> make_recomputing_grad_ops(const Block& block, const std::vector<size_t>& path,
                                                const NameSet& no_grad,
                                                const std::vector<std::string>& checkpoints,
                                                const OpTable& table, NameSet produced) {
  std::vector<size_t> ends = segment_ends(block, path, checkpoints);
  const size_t recomputed = ends.size();
  if (ends.empty() || ends.back() < path.size()) ends.push_back(path.size());
  NameSet kept(checkpoints.begin(), checkpoints.end());
  for (const VarDesc* var : block.vars()) {
    if (var->persistable) kept.insert(var->name);
  }
  std::vector<Operator> ops;
  for (size_t k = ends.size(); k-- > 0;) {
    const size_t begin = k == 0 ? 0 : ends[k - 1];
    const std::vector<size_t> segment(path.begin() + static_cast<std::ptrdiff_t>(begin),
                                      path.begin() + static_cast<std::ptrdiff_t>(ends[k]));
    Renaming names;
    std::vector<Operator> again;
    if (k < recomputed) names = recompute(block, segment, kept, k, table, again);
    std::vector<Operator> grads = make_grad_ops(block, segment, no_grad, table, produced);
    for (Operator& op : grads) {
      rename_inputs(op, names);
      for (const std::string& name : op.output_names()) produced.insert(name);
    }
    keep_used(again, grads);
    for (auto* list : {&again, &grads}) {
      for (Operator& op : *list) ops.push_back(std::move(op));
    }
  }
  return ops;
}

}  // namespace fleet::fluid::internal
