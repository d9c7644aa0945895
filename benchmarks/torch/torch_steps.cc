// The peer of the engine's rows: whole SGD steps of the nets of benchmarks/nets.h in LibTorch.
// Prints steps per second, and per second of processor time. A program of its own, so that its
// thread pools and ours never share a process.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <torch/torch.h>
#include <vector>

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

// The state after the last of 32 steps.
struct LstmImpl : nn::Module {
  LstmImpl()
      : lstm(register_module("lstm", nn::LSTM(128, 128))),
        out(register_module("out", nn::Linear(128, 10))) {}
  Tensor forward(const Tensor& x) {
    return out->forward(std::get<0>(std::get<1>(lstm->forward(x))).squeeze(0));
  }
  nn::LSTM lstm;
  nn::Linear out;
};
TORCH_MODULE(Lstm);

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

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// How images and the weights of convolutions lie in memory.
enum class Layout { kPlain, kChannelsLast };

struct Run {
  int64_t rows = 0;
  double seconds = 0;
  Layout layout = Layout::kPlain;
};

Tensor laid_out(const Tensor& tensor, Layout layout) {
  const bool channels_last = layout == Layout::kChannelsLast && tensor.dim() == 4;
  return channels_last ? tensor.contiguous(torch::MemoryFormat::ChannelsLast) : tensor;
}

template <class Net>
void run(Net net, const Tensor& plain, int64_t classes, const Run& how) {
  for (Tensor& parameter : net->parameters()) {
    parameter.set_data(laid_out(parameter.data(), how.layout));
  }
  const std::vector<Tensor> parameters = net->parameters();
  const Tensor x = laid_out(plain, how.layout);
  torch::optim::SGD sgd(parameters, torch::optim::SGDOptions(0.01));
  const auto y = torch::arange(how.rows) % classes;
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  auto start = Clock::now();
  double cpu_start = 0;
  double elapsed = 0;
  int64_t steps = -50;  // the warm-up does not count
  while (elapsed < how.seconds) {
    // Without a gradient backward stores its own; one of zeros it would add to.
    for (const Tensor& parameter : parameters) parameter.mutable_grad().reset();
    const auto loss = nn::functional::cross_entropy(net->forward(x), y);
    loss.backward();
    sgd.step();
    if (++steps < 0 && since(start) > how.seconds / 2) steps = 0;
    if (steps == 0) {
      start = Clock::now();
      cpu_start = processor_seconds();
    }
    if (steps > 0) elapsed = since(start);
  }
  const auto done = static_cast<double>(steps);
  std::printf("%.3f %.3f\n", done / elapsed, done / (processor_seconds() - cpu_start));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: torch_steps NET ROWS THREADS SECONDS plain|channels_last\n");
    return 2;
  }
  const std::string net = argv[1];
  const int64_t rows = std::atoll(argv[2]);
  torch::set_num_threads(std::atoi(argv[3]));
  Run how = {rows, std::atof(argv[4]), Layout::kPlain};
  if (std::string(argv[5]) == "channels_last") how.layout = Layout::kChannelsLast;
  const auto flat = [&](int64_t columns) { return torch::rand({rows, columns}); };
  if (net == "mlp") {
    run(mlp({32, 128, 128, 2}, true), flat(32), 2, how);
  } else if (net == "ctr_dense") {
    run(mlp({273, 400, 400, 400, 2}, false), flat(273), 2, how);
  } else if (net == "lenet") {
    run(lenet(), torch::rand({rows, 1, 28, 28}), 10, how);
  } else if (net == "resnet20") {
    run(resnet20(), torch::rand({rows, 3, 32, 32}), 10, how);
  } else if (net == "lstm") {
    run(Lstm(), torch::rand({32, rows, 128}), 10, how);
  } else if (net == "transformer") {
    run(Transformer(), torch::rand({64, rows, 128}), 10, how);
  } else {
    std::fprintf(stderr, "torch_steps knows no net '%s'\n", net.c_str());
    return 2;
  }
  return 0;
}
