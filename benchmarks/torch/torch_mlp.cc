// The peer of the engine's rows: whole SGD steps of the quick start's net in LibTorch, on one
// thread. Prints steps per second. A program of its own, so that its thread pools and ours never
// share a process.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <torch/torch.h>

namespace {

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(32, 128))),
        second(register_module("second", torch::nn::Linear(128, 128))),
        third(register_module("third", torch::nn::Linear(128, 2))) {}
  torch::Tensor forward(const torch::Tensor& x) {
    return third->forward(torch::tanh(second->forward(torch::tanh(first->forward(x)))));
  }
  torch::nn::Linear first;
  torch::nn::Linear second;
  torch::nn::Linear third;
};
TORCH_MODULE(Net);

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: torch_mlp ROWS SECONDS\n");
    return 2;
  }
  const int64_t rows = std::atoll(argv[1]);
  const double seconds = std::atof(argv[2]);
  torch::set_num_threads(1);
  Net net;
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.01));
  const auto x = torch::rand({rows, 32});
  const auto y = torch::randint(0, 2, {rows}, torch::kLong);
  using Clock = std::chrono::steady_clock;
  auto start = Clock::now();
  double elapsed = 0;
  int64_t steps = -50;  // the warm-up does not count
  while (elapsed < seconds) {
    sgd.zero_grad();
    const auto loss = torch::nn::functional::cross_entropy(net->forward(x), y);
    loss.backward();
    sgd.step();
    if (++steps == 0) start = Clock::now();
    if (steps > 0) elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  }
  std::printf("%.3f\n", static_cast<double>(steps) / elapsed);
  return 0;
}
