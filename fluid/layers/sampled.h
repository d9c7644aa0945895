// Losses over many classes that look at a few of them. See nn.h for what all layers have in common.
#pragma once

#include <string>
#include <vector>

#include "fluid/layers/parameters/param_attr.h"
#include "fluid/program/variable.h"

namespace fleet::fluid::layers {

struct NceOptions {
  Variable sample_weight = {};  // [n, 1]: factor on the cost of each row
  ParamAttr param_attr = {};
  ParamAttr bias_attr = {};
  int num_neg_samples = 10;
  std::string name = {};
  std::string sampler = "uniform";  // or "log_uniform", "custom_dist"
  // Probabilities of the classes, for "custom_dist". A startup program that has run holds the
  // tables for drawing from it in constant time (Walker 1977).
  std::vector<double> custom_dist = {};
  int seed = 0;  // of the noise; 0: the program's
  bool is_sparse = false;
};
// Noise-contrastive estimation, divided by num_neg_samples + 1: [n, 1]. input [n, d], label [n, t].
Variable nce(const Variable& input, const Variable& label, int num_total_classes,
             const NceOptions& options = {});

struct HsigmoidOptions {
  ParamAttr param_attr = {};
  ParamAttr bias_attr = {};
  std::string name = {};
  // A tree of one's own: for each row the nodes from the root to the label's leaf (negative once
  // the path has ended), and the bits chosen there; num_classes counts its inner nodes then.
  Variable path_table = {};
  Variable path_code = {};
  bool is_custom = false;
  // A sparse gradient (SelectedRows), and a weight of which only rows are fetched from servers. As
  // in Paddle, only with a tree of one's own: without one it is dense, unless rows_without_paths is
  // set.
  bool is_sparse = false;
  bool rows_without_paths = false;
};
// Hierarchical sigmoid: [n, 1]. input [n, d], label [n, 1].
Variable hsigmoid(const Variable& input, const Variable& label, int num_classes,
                  const HsigmoidOptions& options = {});

}  // namespace fleet::fluid::layers
