// The steps between the gradient rules of single ops and the backward part of a program. Names of
// gradients here end in "@GRAD", or "@GRAD@RENAME@…" for one of several parts.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fluid/ops/grad_names.h"
#include "fluid/ops/op_schema.h"

namespace fleet::fluid::internal {

using NameSet = std::set<std::string, std::less<>>;

inline bool is_grad_name(std::string_view name) {
  return name.find(kGradSuffix) != std::string_view::npos;
}
// "x" for "x@GRAD" and for "x@GRAD@RENAME@block0@1".
inline std::string_view strip_grad_suffix(std::string_view name) {
  return name.substr(0, name.find(kGradSuffix));
}

// Positions of the ops of the block that `target` depends on through variables outside `no_grad`,
// ascending.
std::vector<size_t> find_op_path(const Block& block, const std::string& target,
                                 const NameSet& no_grad);

// Outputs on the path that nothing on it reads, so that no gradient comes in for them.
NameSet find_unused_outputs(const Block& block, const std::vector<size_t>& path,
                            const std::string& target, const NameSet& no_grad);

// The backward ops of the path, last op first. `no_grad` holds variables, `produced` gradients that
// are there from the beginning. Ops that run blocks get blocks of gradient ops in the program.
std::vector<Operator> make_grad_ops(const Block& block, const std::vector<size_t>& path,
                                    const NameSet& no_grad, const OpTable& table,
                                    NameSet produced = {});

// Where several ops make the same gradient: renames the parts and inserts their sums.
void sum_repeated_outputs(std::vector<Operator>& ops, int32_t block_index);

// Drops ops that make only unwanted gradients, or read only gradients that are not computed; of the
// uncomputed ones that are still read, leaves those in optional slots out and fills the others with
// zeros. `no_grad` holds gradient names and grows.
void remove_no_grad_branches(std::vector<Operator>& ops, NameSet& no_grad, const OpTable& table);

}  // namespace fleet::fluid::internal
