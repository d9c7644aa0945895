// Losses over many classes that look at a few of them.
//
//   nce       Input [n, d], Label [n, t] (int64), Weight [c, d], Bias? [c, 1], SampleWeight? [n],
//             CustomDistProbs?, CustomDistAlias?, CustomDistAliasProbs? [c] -> Cost [n, 1],
//             SampleLogits, SampleLabels [n, t + s]: noise-contrastive estimation (Gutmann and
//             Hyvärinen 2010; Mnih and Teh 2012) with s = num_neg_samples classes drawn once per
//             row. With o the sigmoid of a logit and b = P(class) s:
//             cost = -sum over labels log(o / (o + b)) - sum over samples log(b / (o + b)).
//   nce_grad  the same, SampleLogits, SampleLabels, Cost@GRAD -> Input@GRAD, Weight@GRAD,
//             Bias@GRAD (each optional)
//   hierarchical_sigmoid  X [n, d], W [c - 1, d], Label [n, 1], PathTable?, PathCode? [n, l], Bias?
//             -> Out [n, 1], PreOut [n, l], W_Out?: the binary logistic losses along the path from
//             the root to the label (Morin and Bengio 2005). Without PathTable the tree is the
//             complete one: node (label + c) >> (j + 1), minus 1, at depth j, with the bit
//             ((label + c) >> j) & 1. With it, a row of PathTable names the nodes (negative: the
//             path has ended) and PathCode the bits.
//   hierarchical_sigmoid_grad  the same, PreOut, Out@GRAD -> X@GRAD, W@GRAD, Bias@GRAD
// With is_sparse Weight@GRAD (W@GRAD) is selected rows: each class that was looked at once.
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

// What a transpiler makes of a table that lives on servers.
struct RemoteTableAttrs {
  bool is_sparse = false;
  bool remote_prefetch = false;
  int32_t trainer_id = 0;
  std::vector<int64_t> height_sections;
  std::vector<std::string> epmap;
  std::vector<std::string> table_names;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(is_sparse), CEREAL_NVP(remote_prefetch), CEREAL_NVP(trainer_id),
       CEREAL_NVP(height_sections), CEREAL_NVP(epmap), CEREAL_NVP(table_names));
  }
};

// Which distribution the noise classes come from.
enum class NceSampler : int32_t { kUniform = 0, kLogUniform = 1, kCustom = 2 };

struct NceAttrs : RemoteTableAttrs {
  int32_t num_total_classes = 0;
  int32_t num_neg_samples = 10;
  int32_t sampler = static_cast<int32_t>(NceSampler::kUniform);
  // The classes are drawn by counter (base/philox.h), keyed by this, or by the program's seed when
  // it is 0; by the name of SampleLabels' variable, the row, the step and the shard.
  int32_t seed = 0;
  std::vector<int32_t> custom_neg_classes;  // these instead of drawn ones, for every row
  template <class Archive>
  void serialize(Archive& ar) {
    RemoteTableAttrs::serialize(ar);
    ar(CEREAL_NVP(num_total_classes), CEREAL_NVP(num_neg_samples), CEREAL_NVP(sampler),
       CEREAL_NVP(seed), CEREAL_NVP(custom_neg_classes));
  }
};

struct HierarchicalSigmoidAttrs : RemoteTableAttrs {
  int32_t num_classes = 2;
  // Adds log 2 to Out for each position of PreOut behind the end of a row's path.
  bool paddle_form = false;
  template <class Archive>
  void serialize(Archive& ar) {
    RemoteTableAttrs::serialize(ar);
    ar(CEREAL_NVP(num_classes), CEREAL_NVP(paddle_form));
  }
};

void add_sampled_ops(OpTable& table);

}  // namespace fleet::fluid
