// The peer of the engine's rows: whole SGD steps of the nets of benchmarks/nets.h in LibTorch, and
// its embedding_bag.
// Prints steps per second, and per second of processor time; or the kilobytes that the first five
// steps take at most, beside what was there before. A program of its own, so that its thread pools
// and ours never share a process.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <torch/torch.h>
#include <torch/version.h>
#include <vector>

#include "benchmarks/engine/net_sizes.h"
#include "benchmarks/engine/own_memory.h"

namespace fleet::benchmarks {
namespace {

namespace nn = torch::nn;
using torch::Tensor;

nn::Sequential mlp(const std::vector<int64_t>& widths, bool tanh) {
  nn::Sequential net;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    net->push_back(nn::Linear(widths[i], widths[i + 1]));
    if (i + 2 == widths.size()) break;
    if (tanh) {
      net->push_back(nn::Tanh());
    } else {
      net->push_back(nn::ReLU());
    }
  }
  return net;
}

nn::Sequential lenet() {
  return nn::Sequential(nn::Conv2d(1, 20, 5), nn::ReLU(), nn::MaxPool2d(2), nn::Conv2d(20, 50, 5),
                        nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(800, 500),
                        nn::ReLU(), nn::Linear(500, 10));
}

struct ConvNormImpl : nn::Module {
  ConvNormImpl(int64_t in, int64_t out, int64_t size, int64_t stride)
      : conv(register_module(
            "conv",
            nn::Conv2d(
                nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false)))),
        norm(register_module("norm", nn::BatchNorm2d(out))) {}
  Tensor forward(const Tensor& x) { return norm->forward(conv->forward(x)); }
  nn::Conv2d conv;
  nn::BatchNorm2d norm;
};
TORCH_MODULE(ConvNorm);

struct BlockImpl : nn::Module {
  BlockImpl(int64_t in, int64_t out, int64_t stride)
      : first(register_module("first", ConvNorm(in, out, 3, stride))),
        second(register_module("second", ConvNorm(out, out, 3, 1))) {
    if (stride != 1 || in != out) {
      around = register_module("around", ConvNorm(in, out, 1, stride));
    }
  }
  Tensor forward(const Tensor& x) {
    const Tensor out = second->forward(torch::relu(first->forward(x)));
    return torch::relu(out + (around.is_empty() ? x : around->forward(x)));
  }
  ConvNorm first, second;
  ConvNorm around{nullptr};
};
TORCH_MODULE(Block);

nn::Sequential resnet20() {
  nn::Sequential net(ConvNorm(3, 16, 3, 1), nn::ReLU());
  int64_t in = 16;
  for (const int64_t out : {16, 32, 64}) {
    for (int i = 0; i < 3; ++i) {
      net->push_back(Block(in, out, i == 0 && out > 16 ? 2 : 1));
      in = out;
    }
  }
  net->push_back(nn::AdaptiveAvgPool2d(1));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(64, 10));
  return net;
}

// The state after the last step of each sequence.
struct LstmImpl : nn::Module {
  LstmImpl()
      : lstm(register_module("lstm", nn::LSTM(128, 128))),
        out(register_module("out", nn::Linear(128, 10))) {}
  Tensor forward(const Tensor& x) { return of_state(lstm->forward(x)); }
  Tensor packed(const Tensor& x, const Tensor& lengths) {
    const auto sequences = nn::utils::rnn::pack_padded_sequence(x, lengths, false, false);
    return of_state(lstm->forward_with_packed_input(sequences));
  }
  // Runs over the padding, too, and picks the last states.
  Tensor padded(const Tensor& x, const Tensor& lengths) {
    const Tensor states = std::get<0>(lstm->forward(x));
    return out->forward(states.index({lengths - 1, torch::arange(lengths.size(0))}));
  }
  nn::LSTM lstm;
  nn::Linear out;

 private:
  template <class States>
  Tensor of_state(const States& states) {
    return out->forward(std::get<0>(std::get<1>(states)).squeeze(0));
  }
};
TORCH_MODULE(Lstm);

// The next word at each.
struct LanguageModelImpl : nn::Module {
  explicit LanguageModelImpl(bool sparse)
      : table(register_module(
            "table", nn::Embedding(nn::EmbeddingOptions(kVocabulary, 128).sparse(sparse)))),
        lstm(register_module("lstm", nn::LSTM(128, 128))),
        out(register_module("out", nn::Linear(128, kVocabulary))) {}
  Tensor forward(const Tensor& words) {
    const Tensor states = std::get<0>(lstm->forward(table->forward(words)));
    return out->forward(states.flatten(0, 1));
  }
  nn::Embedding table;
  nn::LSTM lstm;
  nn::Linear out;
};
TORCH_MODULE(LanguageModel);

struct TransformerImpl : nn::Module {
  TransformerImpl()
      : encoder(register_module(
            "encoder",
            nn::TransformerEncoder(nn::TransformerEncoderOptions(
                nn::TransformerEncoderLayerOptions(128, 4).dim_feedforward(512).dropout(0.0), 2)))),
        out(register_module("out", nn::Linear(128, 10))) {}
  Tensor forward(const Tensor& x) { return out->forward(encoder->forward(x).mean(0)); }
  nn::TransformerEncoder encoder;
  nn::Linear out;
};
TORCH_MODULE(Transformer);

#if TORCH_VERSION_MAJOR >= 2
// As the encoder of PyTorch's Python package computes: one product for queries, keys and values,
// one op for the attention.
struct FusedLayerImpl : nn::Module {
  FusedLayerImpl()
      : all(register_module("all", nn::Linear(128, 3 * 128))),
        joined(register_module("joined", nn::Linear(128, 128))),
        inner(register_module("inner", nn::Linear(128, 512))),
        outer(register_module("outer", nn::Linear(512, 128))),
        norm1(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({128})))),
        norm2(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({128})))) {}
  Tensor forward(const Tensor& x) {
    const auto parts = all->forward(x).view({x.size(0), x.size(1), 3, 4, 32}).unbind(2);
    const auto heads = [&](int i) { return parts[i].transpose(1, 2); };
    const Tensor mixed = at::scaled_dot_product_attention(heads(0), heads(1), heads(2));
    const Tensor middle =
        norm1->forward(x + joined->forward(mixed.transpose(1, 2).reshape(x.sizes())));
    return norm2->forward(middle + outer->forward(torch::relu(inner->forward(middle))));
  }
  nn::Linear all, joined, inner, outer;
  nn::LayerNorm norm1, norm2;
};
TORCH_MODULE(FusedLayer);

struct FusedTransformerImpl : nn::Module {
  FusedTransformerImpl()
      : layers(register_module("layers", nn::Sequential(FusedLayer(), FusedLayer()))),
        out(register_module("out", nn::Linear(128, 10))) {}
  Tensor forward(const Tensor& x) { return out->forward(layers->forward(x).mean(1)); }
  nn::Sequential layers;
  nn::Linear out;
};
TORCH_MODULE(FusedTransformer);
#endif

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Batch {
  Tensor x;
  Tensor y;
  Tensor lengths = {};  // of padded sequences
  Tensor ids = {};
};

// Batches take turns.
struct Net {
  std::vector<Tensor> parameters;  // which SGD updates
  std::function<Tensor(const Batch&)> forward;
  std::vector<Batch> batches;
  std::function<void()> update_rows = [] {};  // what SGD does not
};

constexpr double kRate = 0.01;

Tensor labels(int64_t count, int64_t classes) {
  return torch::arange(count) % classes;
}

template <class Module>
Net net_of(Module module, const Tensor& x, const Tensor& y) {
  return {module->parameters(),
          [module](const Batch& batch) mutable { return module->forward(batch.x); },
          {{x, y, {}}}};
}

Net images(nn::Sequential module, Tensor x, const std::string& layout) {
  const auto laid_out = [&](const Tensor& tensor) {
    const bool last = layout == "channels_last" && tensor.dim() == 4;
    return last ? tensor.contiguous(torch::MemoryFormat::ChannelsLast) : tensor;
  };
  for (Tensor& parameter : module->parameters()) parameter.set_data(laid_out(parameter.data()));
  return net_of(module, laid_out(x), labels(x.size(0), 10));
}

Net lstm_ragged(int64_t rows, const std::string& layout) {
  Lstm module;
  Net net{module->parameters(), {}, {}};
  net.forward = [module, padded = layout == "padded"](const Batch& batch) mutable {
    return padded ? module->padded(batch.x, batch.lengths) : module->packed(batch.x, batch.lengths);
  };
  for (int64_t batch = 0; batch < kRaggedBatches; ++batch) {
    std::vector<int64_t> lengths;
    for (int64_t row = 0; row < rows; ++row) lengths.push_back(ragged_length(batch, row));
    Tensor x = torch::rand({*std::max_element(lengths.begin(), lengths.end()), rows, 128});
    for (int64_t row = 0; row < rows; ++row) x.select(1, row).slice(0, lengths[row]).zero_();
    net.batches.push_back({x, labels(rows, 10), torch::tensor(lengths)});
  }
  return net;
}

Net transformer(int64_t rows, const std::string& layout) {
  const Tensor y = labels(rows, 10);
#if TORCH_VERSION_MAJOR >= 2
  if (layout == "fused") return net_of(FusedTransformer(), torch::rand({rows, 64, 128}), y);
#else
  static_cast<void>(layout);
#endif
  return net_of(Transformer(), torch::rand({64, rows, 128}), y);
}

Tensor ctr_ids(int64_t batch, int64_t rows, bool one_table) {
  std::vector<int64_t> ids;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t slot = 0; slot < kCtrSlots; ++slot) {
      ids.push_back((one_table ? slot * kCtrSlotIds : 0) + ctr_id(batch, row, slot));
    }
  }
  const Tensor all = torch::tensor(ids).view({rows, kCtrSlots});
  // A slot's ids lie side by side where it has a table of its own.
  return one_table ? all : all.t().contiguous();
}

// Tables and the rows of a step that are looked up in them.
struct CtrTables {
  std::vector<Tensor> tables;
  std::vector<Tensor> rows;
  std::vector<Tensor> ids;

  explicit CtrTables(bool one) {
    const int64_t count = one ? 1 : kCtrSlots;
    for (int64_t i = 0; i < count; ++i) {
      tables.push_back(torch::rand({kCtrSlots * kCtrSlotIds / count, kCtrWidth}) * 0.1);
    }
  }
  // Of the table alone: the optimizer adds the sparse gradient to it.
  Tensor embedded(size_t table, const Tensor& of_slots) {
    return torch::embedding(tables[table], of_slots, -1, false, /*sparse=*/true);
  }
  // Rows that no table is behind, so that their gradient is dense.
  Tensor apart(size_t table, const Tensor& of_slots) {
    ids.push_back(of_slots.flatten());
    rows.push_back(tables[table].index_select(0, ids.back()).requires_grad_());
    return rows.back();
  }
  void update() {
    const torch::NoGradGuard no_gradients;
    for (size_t i = 0; i < rows.size(); ++i) {
      tables[i].index_add_(0, ids[i], rows[i].grad(), -kRate);
    }
    rows.clear();
    ids.clear();
  }
};

Net ctr_dnn(int64_t samples, bool one_table, const std::string& form) {
  const bool sparse = form != "rows";
  auto tables = std::make_shared<CtrTables>(one_table);
  nn::Sequential dense = mlp({kCtrDense + kCtrSlots * kCtrWidth, 400, 400, 400, 2}, /*tanh=*/false);
  Net net{dense->parameters(), {}, {}};
  for (Tensor& table : tables->tables) {
    if (sparse) net.parameters.push_back(table.set_requires_grad(true));
  }
  net.forward = [=](const Batch& batch) mutable {
    std::vector<Tensor> joined = {batch.x};
    for (size_t i = 0; i < tables->tables.size(); ++i) {
      const Tensor ids = one_table ? batch.ids : batch.ids[static_cast<int64_t>(i)];
      const Tensor rows = sparse ? tables->embedded(i, ids) : tables->apart(i, ids);
      joined.push_back(rows.view({samples, -1}));
    }
    return dense->forward(torch::cat(joined, 1));
  };
  if (!sparse) net.update_rows = [tables] { tables->update(); };
  for (int64_t batch = 0; batch < kCtrBatches; ++batch) {
    net.batches.push_back({torch::rand({samples, kCtrDense}),
                           labels(samples, 2),
                           {},
                           ctr_ids(batch, samples, one_table)});
  }
  return net;
}

Net make_net(const std::string& net, int64_t rows, const std::string& layout) {
  const auto flat = [&](int64_t columns) { return torch::rand({rows, columns}); };
  if (net == "mlp") return net_of(mlp({32, 128, 128, 2}, true), flat(32), labels(rows, 2));
  if (net == "ctr_dense") {
    return net_of(mlp({273, 400, 400, 400, 2}, false), flat(273), labels(rows, 2));
  }
  if (net == "ctr_dnn_one_table" || net == "ctr_dnn_26_tables") {
    return ctr_dnn(rows, net == "ctr_dnn_one_table", layout);
  }
  if (net == "lenet") return images(lenet(), torch::rand({rows, 1, 28, 28}), layout);
  if (net == "resnet20") return images(resnet20(), torch::rand({rows, 3, 32, 32}), layout);
  if (net == "lstm") return net_of(Lstm(), torch::rand({32, rows, 128}), labels(rows, 10));
  if (net == "lstm_ragged") return lstm_ragged(rows, layout);
  if (net == "lm_vocab30k") {
    return net_of(LanguageModel(layout == "sparse"),
                  torch::randint(kVocabulary, {kSentence, rows}, torch::kInt64),
                  labels(kSentence * rows, kVocabulary));
  }
  if (net == "transformer") return transformer(rows, layout);
  throw std::invalid_argument("torch_steps knows no net '" + net + "'");
}

class Training {
 public:
  explicit Training(Net net)
      : net_(std::move(net)), sgd_(net_.parameters, torch::optim::SGDOptions(kRate)) {}

  void step() {
    // Without a gradient backward stores its own; one of zeros it would add to.
    for (const Tensor& parameter : net_.parameters) parameter.mutable_grad().reset();
    const Batch& batch = net_.batches[steps_++ % net_.batches.size()];
    nn::functional::cross_entropy(net_.forward(batch), batch.y).backward();
    sgd_.step();
    net_.update_rows();
  }

 private:
  Net net_;
  torch::optim::SGD sgd_;
  size_t steps_ = 0;
};

// Sums of bags, and the table's sparse gradient for a gradient of the sums.
class Bags {
 public:
  Bags(int64_t width, int64_t bags, bool backward)
      : table_(torch::rand({kBagIds, width})), backward_(backward) {
    table_.set_requires_grad(backward);
    upstream_ = torch::rand({bags, width});
    for (int64_t batch = 0; batch < kBagBatches; ++batch) {
      std::vector<int64_t> offsets = {0};
      for (int64_t bag = 0; bag < bags; ++bag) {
        offsets.push_back(offsets.back() + bag_length(batch, bag));
      }
      std::vector<int64_t> ids;
      for (int64_t i = 0; i < offsets.back(); ++i) ids.push_back(skewed_id(batch, i, kBagIds));
      batches_.push_back({torch::tensor(ids), torch::tensor(offsets)});
    }
  }

  void step() {
    table_.mutable_grad().reset();
    const auto& [ids, offsets] = batches_[steps_++ % batches_.size()];
    const Tensor sums = std::get<0>(torch::embedding_bag(table_, ids, offsets, false, 0, true, {},
                                                         /*include_last_offset=*/true));
    if (backward_) sums.backward(upstream_);
  }

 private:
  Tensor table_;
  const bool backward_;
  Tensor upstream_;
  std::vector<std::pair<Tensor, Tensor>> batches_;
  size_t steps_ = 0;
};

template <class Steps>
void print_rates(Steps& training, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  auto start = Clock::now();
  double cpu_start = 0;
  double elapsed = 0;
  int64_t steps = -50;  // the warm-up does not count
  while (elapsed < seconds) {
    training.step();
    if (++steps < 0 && since(start) > seconds / 2) steps = 0;
    if (steps == 0) {
      start = Clock::now();
      cpu_start = processor_seconds();
    }
    if (steps > 0) elapsed = since(start);
  }
  const auto done = static_cast<double>(steps);
  std::printf("%.3f %.3f\n", done / elapsed, done / (processor_seconds() - cpu_start));
}

void print_peak(Training& training) {
  const PeakMemory memory;
  for (int i = 0; i < 5; ++i) training.step();
  std::printf("%ld\n", memory.risen());
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  if (argc != 6) {
    std::fprintf(stderr,
                 "usage: torch_steps NET ROWS THREADS SECONDS|peak "
                 "plain|channels_last|sparse|padded|fused|rows\n");
    return 2;
  }
  try {
    torch::set_num_threads(std::atoi(argv[3]));
    const std::string net = argv[1];
    const std::string bag = "embedding_bag_";  // its width, and maybe _forward
    if (net.rfind(bag, 0) == 0) {
      Bags bags(std::stoll(net.substr(bag.size())), std::atoll(argv[2]),
                net.find("forward") == std::string::npos);
      print_rates(bags, std::atof(argv[4]));
      return 0;
    }
    Training training(make_net(net, std::atoll(argv[2]), argv[5]));
    if (std::string(argv[4]) == "peak") {
      print_peak(training);
    } else {
      print_rates(training, std::atof(argv[4]));
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
