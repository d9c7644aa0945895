// Is a text kind or unkind? The texts are made up: neutral words of random number, with one kind
// or unkind word among them, which "not" right before it turns round. Sequences keep their own
// lengths (LoD).
#include <vector>

#include "base/philox.h"
#include "examples/quick_start/fleet_job.h"
#include "examples/quick_start/report.h"
#include "fluid/fluid.h"

namespace {

namespace layers = fluid::layers;

constexpr int64_t kWords = 200;
constexpr int64_t kNot = 0;
constexpr int64_t kKind = 1;     // words 1 to 10
constexpr int64_t kUnkind = 11;  // words 11 to 20
constexpr int64_t kSuchWords = 10;
constexpr int64_t kNeutral = 21;
constexpr int64_t kTrainTexts = 4000;
constexpr int64_t kTestTexts = 1000;
constexpr int64_t kWidth = 32;

// Draws numbers one after the other from a stream of its own for each text.
class Dice {
 public:
  explicit Dice(int64_t text) : text_(static_cast<uint64_t>(text)) {}
  int64_t below(int64_t n) {
    return static_cast<int64_t>(fleet::uniform_double(key_, drawn_++, text_) *
                                static_cast<double>(n));
  }

 private:
  const fleet::RandomKey key_ = fleet::RandomKey::of(7, "sentiment");
  const uint64_t text_;
  uint64_t drawn_ = 0;
};

// Appends a text's words; returns whether it is kind.
bool write_text(int64_t text, std::vector<int64_t>& words) {
  Dice dice(text);
  const int64_t length = 3 + dice.below(20);
  const int64_t place = dice.below(length);
  const bool kind_word = dice.below(2) == 0;
  const bool turned = dice.below(2) == 0;
  for (int64_t i = 0; i < length; ++i) {
    if (i == place) {
      if (turned) words.push_back(kNot);
      words.push_back((kind_word ? kKind : kUnkind) + dice.below(kSuchWords));
    } else {
      words.push_back(kNeutral + dice.below(kWords - kNeutral));
      // A "not" that means nothing, elsewhere.
      if (i + 1 != place && dice.below(10) == 0) {
        words.push_back(kNot);
        words.push_back(kNeutral + dice.below(kWords - kNeutral));
      }
    }
  }
  return kind_word != turned;
}

// Texts [begin, end): words with LoD [words, 1] and label [texts, 1], both int64.
fluid::Feed texts(int64_t begin, int64_t end) {
  std::vector<int64_t> words;
  std::vector<int64_t> labels;
  std::vector<int64_t> offsets{0};
  for (int64_t text = begin; text < end; ++text) {
    labels.push_back(write_text(text, words) ? 1 : 0);
    offsets.push_back(static_cast<int64_t>(words.size()));
  }
  auto sequence = fluid::Tensor::from(words, {static_cast<int64_t>(words.size()), 1});
  sequence.set_lod({offsets});
  return {{"words", sequence}, {"label", fluid::Tensor::from(labels, {end - begin, 1})}};
}

double accuracy(const fluid::Tensor& prediction, const fluid::Tensor& label) {
  int64_t right = 0;
  for (int64_t i = 0; i < label.numel(); ++i) {
    const float* row = prediction.data<float>() + 2 * i;
    right += (row[1] > row[0] ? 1 : 0) == label.data<int64_t>()[i];
  }
  return static_cast<double>(right) / static_cast<double>(label.numel());
}

int train(const quick_start::Options& options) {
  fluid::default_startup_program().set_random_seed(options.seed);
  auto words = layers::data("words", {1}, fluid::DType::kInt64, {.lod_level = 1});
  auto label = layers::data("label", {1}, fluid::DType::kInt64);
  auto embedded = layers::embedding(words, {kWords, kWidth}, {.is_sparse = options.sparse});
  auto features = layers::sequence_conv(embedded, kWidth, {.filter_size = 3, .act = "tanh"});
  auto prediction = layers::fc(layers::sequence_pool(features, "max"), 2, {.act = "softmax"});
  auto cost = layers::mean(layers::cross_entropy(prediction, label));
  auto test_program = fluid::default_main_program().clone(/*for_test=*/true);
  fluid::optimizer::Adagrad adagrad({.learning_rate = options.learning_rate});

  fleet::init(quick_start::make_role_maker(options));
  auto optimizer = fleet::distributed_optimizer(adagrad, quick_start::make_strategy(options));
  optimizer.minimize(cost);
  if (fleet::is_server()) return fleet::run_server();
  fleet::init_worker();

  fluid::Executor exe(fluid::place_named(options.place), {.logical_shards = options.shards});
  exe.run(fluid::default_startup_program());
  if (!options.init_from.empty()) fluid::io::load_persistables(exe, options.init_from);
  fluid::data::DataLoader loader(
      std::make_shared<fluid::data::TensorDataset>(texts(0, kTrainTexts)),
      {.batch_size = options.batch_size,
       .seed = options.seed,
       .worker = fleet::worker_index(),
       .workers = fleet::worker_num(),
       .shards = options.shards});
  quick_start::Report report(options, quick_start::fleet_job());
  for (int step = 0; step < options.steps; ++step) {
    auto result = exe.run(fluid::default_main_program(), loader.next(), {cost});
    report.step(step, result[0].item<float>());
  }
  // Saving gathers what only servers have.
  if (!options.model_dir.empty()) fluid::io::save_persistables(exe, options.model_dir);
  const auto test = texts(kTrainTexts, kTrainTexts + kTestTexts);
  auto predictions = exe.run(test_program, test, {prediction});
  report.finish(accuracy(predictions[0], test[1].second));
  fleet::stop_worker();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return quick_start::run_trainer(train, argc, argv, "Learns whether made-up texts are kind.",
                                  {.steps = 600,
                                   .batch_size = 64,
                                   .learning_rate = 0.1,
                                   .input = quick_start::Input::kMadeUp,
                                   .has_embedding = true});
}
