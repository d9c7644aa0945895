#include "tests/testing/nets/sparse_net.h"

#include <vector>

#include "base/hash.h"
#include "fluid/program/default_programs.h"

namespace fleet::testing {
namespace {

namespace layers = fluid::layers;

constexpr int kRows = 24;
constexpr int kWords = 4;
constexpr int64_t kHeight = 2000;
constexpr int kWidth = 16;
constexpr int64_t kClasses = 1500;

uint64_t mix(uint64_t a, uint64_t b) {
  return mix64(a * 1000003 + b);
}

fluid::Variable look_up(const SparseNetOptions& options) {
  const auto ids = layers::data("ids", {kWords, 1}, fluid::DType::kInt64);
  fluid::EmbeddingOptions sparse{
      .is_sparse = true, .is_distributed = options.is_distributed, .padding_idx = options.padding};
  const fluid::Shape size{kHeight, kWidth};
  switch (options.kind) {
    case RowKind::kLookup:
      return layers::embedding(ids, size, sparse);
    case RowKind::kLookupV2:
      return fluid::embedding(layers::reshape(ids, {-1, kWords}), size, sparse);
    case RowKind::kTwoLookups: {
      sparse.param_attr = {.name = "table"};
      const auto first = layers::embedding(ids, size, sparse);
      return layers::elementwise_add(first, layers::embedding(ids, size, sparse));
    }
    case RowKind::kTwoVersions: {
      sparse.param_attr = {.name = "table"};
      const auto first = layers::embedding(ids, size, sparse);
      const auto flat = layers::reshape(ids, {-1, kWords});
      return layers::elementwise_add(first, fluid::embedding(flat, size, sparse));
    }
    case RowKind::kTwoPaddings: {
      sparse.param_attr = {.name = "table"};
      const auto first = layers::embedding(ids, size, sparse);
      sparse.padding_idx = 1;
      return layers::elementwise_add(first, layers::embedding(ids, size, sparse));
    }
    case RowKind::kTwoTables: {
      sparse.param_attr = {.name = "table"};
      const auto first = layers::embedding(ids, size, sparse);
      sparse.param_attr = {.name = "other_table"};
      return layers::elementwise_add(first, layers::embedding(ids, {kHeight + 1, kWidth}, sparse));
    }
    case RowKind::kNce:
    case RowKind::kHsigmoid:
      return layers::embedding(ids, size);
  }
  return {};
}

fluid::Variable build(const SparseNetOptions& options) {
  const auto label = layers::data("label", {1}, fluid::DType::kInt64);
  const auto hidden = layers::fc(look_up(options), 12, {.act = "tanh"});
  if (options.kind == RowKind::kNce) {
    return layers::mean(
        layers::nce(hidden, label, kClasses, {.num_neg_samples = 5, .seed = 3, .is_sparse = true}));
  }
  if (options.kind == RowKind::kHsigmoid) {
    return layers::mean(
        layers::hsigmoid(hidden, label, kClasses, {.is_sparse = true, .rows_without_paths = true}));
  }
  const auto prediction = layers::fc(hidden, 10, {.act = "softmax"});
  return layers::mean(layers::cross_entropy(prediction, label));
}

fluid::Feed feed(int step, int begin, int end, bool learnable) {
  std::vector<int64_t> ids;
  std::vector<int64_t> label;
  for (int row = begin; row < end; ++row) {
    const uint64_t id = mix(static_cast<uint64_t>(step), static_cast<uint64_t>(row));
    for (uint64_t i = 0; i < kWords; ++i) {
      const uint64_t draw = mix(id, i);
      const bool often = learnable || draw % 3 == 0;
      ids.push_back(static_cast<int64_t>(often ? draw % 7 : draw % kHeight));
    }
    label.push_back(learnable ? ids[ids.size() - kWords] : static_cast<int64_t>(id % 10));
  }
  const int64_t rows = end - begin;
  return {{"ids", fluid::Tensor::from(ids, {rows, kWords, 1})},
          {"label", fluid::Tensor::from(label, {rows, 1})}};
}

}  // namespace

SparseNet::SparseNet(const SparseNetOptions& options) : learnable_(options.learnable) {
  const fluid::ProgramGuard programs(main_, startup_);
  const fluid::unique_name::Guard names;
  const auto loss = build(options);
  loss_ = loss.name();
  options.minimize(loss);
}

TrainingTask SparseNet::task(int steps) const {
  TrainingTask task;
  task.main = &main_;
  task.startup = &startup_;
  task.loss = loss_;
  task.steps = steps;
  task.feed = [learnable = learnable_](int step, int begin, int end, int parts) {
    return feed(step, kRows / parts * begin, kRows / parts * end, learnable);
  };
  return task;
}

}  // namespace fleet::testing
