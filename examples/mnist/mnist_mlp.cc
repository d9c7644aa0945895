#include "examples/mnist/mnist.h"
#include "examples/quick_start/report.h"

namespace {

namespace layers = fluid::layers;

fluid::Variable hidden_layer(const fluid::Variable& input) {
  return layers::dropout(layers::fc(input, 400, {.act = "relu"}), 0.3,
                         {.dropout_implementation = "upscale_in_train"});
}

mnist::Net mlp(const fluid::Variable& image, const fluid::Variable& label) {
  const auto prediction = layers::fc(hidden_layer(hidden_layer(image)), 10, {.act = "softmax"});
  return {layers::mean(layers::cross_entropy(prediction, label)), prediction};
}

int train(const quick_start::Options& options) {
  return mnist::train(options, mlp);
}

}  // namespace

int main(int argc, char** argv) {
  return quick_start::run_trainer(train, argc, argv, "Trains a multi-layer perceptron on MNIST.",
                                  {.steps = 1000,
                                   .batch_size = 128,
                                   .learning_rate = 0.001,
                                   .input = quick_start::Input::kFiles,
                                   .has_amp = true});
}
