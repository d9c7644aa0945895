// What is said of single ops: a short label, and why the op is there.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "fluid/program/operator.h"
#include "tools/explain/provenance.h"

namespace fleet::explain {

class Wording {
 public:
  // `endpoints` of the servers; empty in jobs without. `shards` contribute to a step of `ranks`
  // trainers.
  Wording(const std::vector<std::string>& endpoints, int shards, int ranks);

  // "send fc_w@GRAD.block0 → server 1", "sgd fc_w", "mul → fc_0.tmp_0".
  std::string label(const fluid::Operator& op) const;
  // Empty for an op that is as in the local program.
  std::string why(const fluid::Operator& op, const OpStory& story) const;

 private:
  std::string servers_of(const fluid::Operator& op) const;
  std::string filled(std::string_view pattern, const fluid::Operator& op) const;

  std::map<std::string, size_t> servers_;  // by endpoint
  int shards_;
  int ranks_;
};

}  // namespace fleet::explain
