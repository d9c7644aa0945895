#include "examples/mnist/mnist.h"
#include "examples/quick_start/report.h"

namespace {

namespace layers = fluid::layers;

fluid::Variable conv_pool(const fluid::Variable& input, int filters) {
  const auto conv = layers::conv2d(input, filters, 5, {.act = "relu"});
  return layers::pool2d(conv, {.pool_size = 2, .pool_type = "max", .pool_stride = 2});
}

mnist::Net lenet(const fluid::Variable& image, const fluid::Variable& label) {
  const auto features = conv_pool(conv_pool(image, 20), 50);
  const auto hidden = layers::fc(features, 500, {.act = "relu"});
  const auto prediction = layers::fc(hidden, 10, {.act = "softmax"});
  return {layers::mean(layers::cross_entropy(prediction, label)), prediction};
}

int train(const quick_start::Options& options) {
  return mnist::train(options, lenet);
}

}  // namespace

int main(int argc, char** argv) {
  return quick_start::run_trainer(train, argc, argv, "Trains LeNet on MNIST.",
                                  {.steps = 1400,
                                   .batch_size = 64,
                                   .learning_rate = 0.001,
                                   .input = quick_start::Input::kFiles,
                                   .has_amp = true});
}
