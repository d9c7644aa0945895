#include "benchmarks/nets.h"

#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "base/philox.h"
#include "base/strings.h"
#include "benchmarks/engine/net_sizes.h"
#include "fluid/backward/backward.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"

namespace fleet::benchmarks {
namespace {

namespace layers = fluid::layers;
using fluid::Variable;

using Lengths = int64_t (*)(int64_t batch, int64_t row);

// What the builders below share: the input is "x", the probabilities of the classes come back.
struct Model {
  fluid::Shape input;  // of one row
  int64_t classes = 10;
  Variable (*build)(const Variable& x, int64_t classes);
  Lengths lengths = nullptr;  // of sequences: rows of x that belong together
  int64_t batches = 1;
  bool words = false;  // x is words, each of which has a label; logits come back
  // Of nets that look ids up: adds them to what is fed.
  void (*add_ids)(int64_t batch, int64_t rows, fluid::Feed& feed) = nullptr;
};

template <int kHidden>
Variable mlp(const Variable& x, int64_t classes) {
  const auto first = layers::fc(x, kHidden, {.act = "tanh"});
  return layers::fc(layers::fc(first, kHidden, {.act = "tanh"}), classes, {.act = "softmax"});
}

Variable ctr_dense(const Variable& x, int64_t classes) {
  Variable last = x;
  for (int i = 0; i < 3; ++i) last = layers::fc(last, 400, {.act = "relu"});
  return layers::fc(last, classes, {.act = "softmax"});
}

// All slots are looked up at once, by `look_up`.
template <class LookUp>
Variable ctr_dnn_of(const Variable& dense, int64_t classes, const LookUp& look_up) {
  const auto ids = layers::data("ids", {kCtrSlots, 1}, fluid::DType::kInt64);
  const auto joined = layers::reshape(look_up(ids), {-1, kCtrSlots * kCtrWidth});
  return ctr_dense(layers::concat({dense, joined}, 1), classes);
}

Variable ctr_dnn_one_table(const Variable& dense, int64_t classes) {
  return ctr_dnn_of(dense, classes, [](const Variable& ids) {
    return layers::embedding(ids, {kCtrSlots * kCtrSlotIds, kCtrWidth}, {.is_sparse = true});
  });
}

Variable ctr_dnn_growing(const Variable& dense, int64_t classes) {
  return ctr_dnn_of(dense, classes,
                    [](const Variable& ids) { return layers::sparse_embedding(ids, kCtrWidth); });
}

// How many ids, by the net's name.
const std::map<std::string, int64_t, std::less<>> kIdNets = {{"ids_1e7", 10'000'000},
                                                             {"ids_1e8", 100'000'000}};

Variable growing_ids() {
  const auto ids = layers::data("ids", {1}, fluid::DType::kInt64);
  return layers::mean(layers::sparse_embedding(ids, 8));
}

std::vector<fluid::Feed> growing_batches(int64_t count, int64_t rows) {
  std::vector<fluid::Feed> feeds;
  for (int64_t first = 0; first < count; first += rows) {
    fluid::Tensor ids(fluid::DType::kInt64, {rows, 1});
    for (int64_t i = 0; i < rows; ++i) {
      ids.data<int64_t>()[i] = static_cast<int64_t>(mix64(static_cast<uint64_t>(first + i)));
    }
    feeds.push_back({{"ids", std::move(ids)}});
  }
  return feeds;
}

void add_ctr_ids(int64_t batch, int64_t rows, fluid::Feed& feed) {
  fluid::Tensor ids(fluid::DType::kInt64, {rows, kCtrSlots, 1});
  auto* next = ids.data<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t slot = 0; slot < kCtrSlots; ++slot) {
      *next++ = slot * kCtrSlotIds + ctr_id(batch, row, slot);
    }
  }
  feed.emplace_back("ids", ids);
}

std::string slot_name(int64_t slot) {
  return str_cat("C", slot + 1);
}

Variable ctr_dnn_26_tables(const Variable& dense, int64_t classes) {
  std::vector<Variable> joined = {dense};
  for (int64_t slot = 0; slot < kCtrSlots; ++slot) {
    const auto ids = layers::data(slot_name(slot), {1}, fluid::DType::kInt64);
    joined.push_back(layers::embedding(ids, {kCtrSlotIds, kCtrWidth}, {.is_sparse = true}));
  }
  return ctr_dense(layers::concat(joined, 1), classes);
}

void add_slot_ids(int64_t batch, int64_t rows, fluid::Feed& feed) {
  for (int64_t slot = 0; slot < kCtrSlots; ++slot) {
    fluid::Tensor ids(fluid::DType::kInt64, {rows, 1});
    for (int64_t row = 0; row < rows; ++row) ids.data<int64_t>()[row] = ctr_id(batch, row, slot);
    feed.emplace_back(slot_name(slot), ids);
  }
}

Variable lenet(const Variable& x, int64_t classes) {
  Variable last = x;
  for (const int filters : {20, 50}) {
    last = layers::conv2d(last, filters, 5, {.act = "relu"});
    last = layers::pool2d(last, {.pool_size = 2, .pool_type = "max", .pool_stride = 2});
  }
  return layers::fc(layers::fc(last, 500, {.act = "relu"}), classes, {.act = "softmax"});
}

Variable conv_norm(const Variable& x, int filters, int size, int stride, const std::string& act) {
  const auto conv = layers::conv2d(
      x, filters, size, {.stride = stride, .padding = size / 2, .bias_attr = {.omit = true}});
  return layers::batch_norm(conv, {.act = act});
}

Variable block(const Variable& x, int filters, int stride) {
  const auto first = conv_norm(x, filters, 3, stride, "relu");
  const auto second = conv_norm(first, filters, 3, 1, "");
  const bool same = stride == 1 && x.shape()[1] == filters;
  const auto around = same ? x : conv_norm(x, filters, 1, stride, "");
  return layers::relu(layers::elementwise_add(second, around));
}

Variable resnet20(const Variable& x, int64_t classes) {
  Variable last = conv_norm(x, 16, 3, 1, "relu");
  for (const int filters : {16, 32, 64}) {
    for (int i = 0; i < 3; ++i) last = block(last, filters, i == 0 && filters > 16 ? 2 : 1);
  }
  const auto pooled = layers::pool2d(last, {.pool_type = "avg", .global_pooling = true});
  return layers::fc(pooled, classes, {.act = "softmax"});
}

Variable lstm_states(const Variable& x) {
  constexpr int64_t kUnits = 128;
  const auto gates = layers::fc(x, 4 * kUnits, {.bias_attr = {.omit = true}});
  return layers::dynamic_lstm(gates, 4 * kUnits, {.use_peepholes = false}).hidden;
}

Variable lstm(const Variable& x, int64_t classes) {
  return layers::fc(layers::sequence_last_step(lstm_states(x)), classes, {.act = "softmax"});
}

Variable language_model(const Variable& words, int64_t classes) {
  const auto embedded = layers::embedding(words, {classes, 128}, {.is_sparse = true});
  return layers::fc(lstm_states(embedded), classes);
}

Variable heads_of(const Variable& x, int width) {
  const auto projected = layers::fc(x, width, {.num_flatten_dims = 2});
  return layers::transpose(layers::reshape(projected, {0, 0, 4, width / 4}), {0, 2, 1, 3});
}

Variable encoder(const Variable& x, int width) {
  const auto keys = heads_of(x, width);
  const auto scores =
      layers::matmul(heads_of(x, width), keys, {.transpose_y = true, .alpha = 0.17677669529663687});
  const auto mixed = layers::matmul(layers::softmax(scores), heads_of(x, width));
  const auto joined = layers::reshape(layers::transpose(mixed, {0, 2, 1, 3}), {0, 0, width});
  const auto attention = layers::fc(joined, width, {.num_flatten_dims = 2});
  const auto middle =
      layers::layer_norm(layers::elementwise_add(x, attention), {.begin_norm_axis = 2});
  const auto inner = layers::fc(middle, 512, {.num_flatten_dims = 2, .act = "relu"});
  const auto out = layers::fc(inner, width, {.num_flatten_dims = 2});
  return layers::layer_norm(layers::elementwise_add(middle, out), {.begin_norm_axis = 2});
}

Variable transformer(const Variable& x, int64_t classes) {
  const auto encoded = encoder(encoder(x, 128), 128);
  return layers::fc(layers::reduce_mean(encoded, {.dim = {1}}), classes, {.act = "softmax"});
}

template <int64_t kLength>
int64_t always(int64_t, int64_t) {
  return kLength;
}

const std::map<std::string, Model>& models() {
  static const std::map<std::string, Model> kModels = {
      {"mlp", {.input = {32}, .classes = 2, .build = mlp<128>}},
      {"quick_start", {.input = {64}, .build = mlp<128>}},
      {"mlp_2048", {.input = {784}, .build = mlp<2048>}},
      {"lenet", {.input = {1, 28, 28}, .build = lenet}},
      {"resnet20", {.input = {3, 32, 32}, .build = resnet20}},
      {"ctr_dense", {.input = {273}, .classes = 2, .build = ctr_dense}},
      {"ctr_dnn_one_table",
       {.input = {kCtrDense},
        .classes = 2,
        .build = ctr_dnn_one_table,
        .batches = kCtrBatches,
        .add_ids = add_ctr_ids}},
      {"ctr_dnn_growing",
       {.input = {kCtrDense},
        .classes = 2,
        .build = ctr_dnn_growing,
        .batches = kCtrBatches,
        .add_ids = add_ctr_ids}},
      {"ctr_dnn_26_tables",
       {.input = {kCtrDense},
        .classes = 2,
        .build = ctr_dnn_26_tables,
        .batches = kCtrBatches,
        .add_ids = add_slot_ids}},
      {"lstm", {.input = {128}, .build = lstm, .lengths = always<32>}},
      {"lstm_ragged",
       {.input = {128}, .build = lstm, .lengths = ragged_length, .batches = kRaggedBatches}},
      {"lm_vocab30k",
       {.input = {1},
        .classes = kVocabulary,
        .build = language_model,
        .lengths = always<kSentence>,
        .words = true}},
      {"transformer", {.input = {64, 128}, .build = transformer}}};
  return kModels;
}

const Model& model_of(const std::string& name) {
  const auto found = models().find(name);
  if (found != models().end()) return found->second;
  throw_error(ErrorCode::kInput, {.what = "no such net", .where = "make_net", .got = name});
}

fluid::Tensor numbers(const fluid::Shape& shape) {
  fluid::Tensor x(fluid::DType::kFloat32, shape);
  const RandomKey key = RandomKey::of(1, "batch");
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] = uniform_float(key, static_cast<uint64_t>(i));
  }
  return x;
}

fluid::Tensor words_below(int64_t count, const fluid::Shape& shape) {
  fluid::Tensor x(fluid::DType::kInt64, shape);
  const RandomKey key = RandomKey::of(1, "batch");
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float place = uniform_float(key, static_cast<uint64_t>(i));
    x.data<int64_t>()[i] = static_cast<int64_t>(place * static_cast<float>(count));
  }
  return x;
}

// Where sequences begin, and the end of the last one.
std::vector<int64_t> offsets_of(Lengths lengths, int64_t batch, int64_t rows) {
  std::vector<int64_t> offsets = {0};
  for (int64_t i = 0; i < rows; ++i) offsets.push_back(offsets.back() + lengths(batch, i));
  return offsets;
}

fluid::Feed batch_of(const Model& model, int64_t batch, int64_t rows) {
  std::vector<int64_t> offsets;
  if (model.lengths != nullptr) offsets = offsets_of(model.lengths, batch, rows);
  fluid::Shape shape{offsets.empty() ? rows : offsets.back()};
  for (const int64_t dim : model.input) shape.push_back(dim);
  fluid::Tensor x = model.words ? words_below(model.classes, shape) : numbers(shape);
  fluid::Tensor y(fluid::DType::kInt64, {model.words ? shape[0] : rows, 1});
  for (int64_t i = 0; i < y.numel(); ++i) y.data<int64_t>()[i] = i % model.classes;
  if (!offsets.empty()) x.set_lod({offsets});
  if (model.words) y.set_lod({offsets});
  fluid::Feed feed = {{"x", x}, {"y", y}};
  if (model.add_ids != nullptr) model.add_ids(batch, rows, feed);
  return feed;
}

}  // namespace

fluid::Variable append_net(const std::string& name) {
  if (kIdNets.contains(name)) return growing_ids();
  const Model& model = model_of(name);
  const auto x =
      layers::data("x", model.input, model.words ? fluid::DType::kInt64 : fluid::DType::kFloat32,
                   {.lod_level = model.lengths != nullptr ? 1 : 0});
  const auto y = layers::data("y", {1}, fluid::DType::kInt64, {.lod_level = model.words ? 1 : 0});
  const auto out = model.build(x, model.classes);
  return layers::mean(model.words ? layers::softmax_with_cross_entropy(out, y)
                                  : layers::cross_entropy(out, y));
}

std::vector<fluid::Feed> make_batches(const std::string& name, int64_t rows) {
  const auto ids = kIdNets.find(name);
  if (ids != kIdNets.end()) return growing_batches(ids->second, rows);
  const Model& model = model_of(name);
  std::vector<fluid::Feed> feeds;
  for (int64_t i = 0; i < model.batches; ++i) feeds.push_back(batch_of(model, i, rows));
  return feeds;
}

Net make_net(const std::string& name, int64_t rows) {
  Net net;
  const fluid::ProgramGuard programs(net.main, net.startup);
  const fluid::unique_name::Guard names;
  const auto loss = append_net(name);
  fluid::optimizer::SGD({.learning_rate = 0.01}).minimize(loss);
  net.cost = loss.name();
  net.feeds = make_batches(name, rows);
  return net;
}

Net make_bags(int64_t width, int64_t bags, bool backward) {
  Net net;
  const fluid::ProgramGuard programs(net.main, net.startup);
  const fluid::unique_name::Guard names;
  const auto ids = layers::data("ids", {1}, fluid::DType::kInt64, {.lod_level = 1});
  const auto sums = fluid::contrib::layers::fused_embedding_seq_pool(
      ids, {kBagIds, width}, {.is_sparse = true, .param_attr = {.name = "table"}});
  net.cost = sums.name();
  if (backward) {
    const auto upstream = layers::data("upstream", {width});
    const Variable table(net.main.global_block(), "table");
    fluid::gradients({sums}, {table}, {.target_gradients = {upstream}});
  }
  for (int64_t batch = 0; batch < kBagBatches; ++batch) {
    const std::vector<int64_t> offsets = offsets_of(bag_length, batch, bags);
    fluid::Tensor drawn(fluid::DType::kInt64, {offsets.back(), 1});
    for (int64_t i = 0; i < drawn.numel(); ++i) {
      drawn.data<int64_t>()[i] = skewed_id(batch, i, kBagIds);
    }
    drawn.set_lod({offsets});
    net.feeds.push_back({{"ids", drawn}});
    if (backward) net.feeds.back().emplace_back("upstream", numbers({bags, width}));
  }
  return net;
}

}  // namespace fleet::benchmarks
