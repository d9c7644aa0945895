#include "examples/mnist/mnist.h"
#include "examples/quick_start/report.h"

namespace {

mnist::Net mlp(const fluid::Variable& image, const fluid::Variable& label) {
  namespace layers = fluid::layers;
  const auto hidden = layers::fc(layers::fc(image, 200, {.act = "relu"}), 200, {.act = "relu"});
  const auto prediction = layers::fc(hidden, 10, {.act = "softmax"});
  return {layers::mean(layers::cross_entropy(prediction, label)), prediction};
}

int train(const quick_start::Options& options) {
  return mnist::train(options, mlp);
}

}  // namespace

int main(int argc, char** argv) {
  return quick_start::run_trainer(train, argc, argv, "Trains a multi-layer perceptron on MNIST.",
                                  {.steps = 700, .batch_size = 128, .learning_rate = 0.001});
}
