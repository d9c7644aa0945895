// Predicts the next word of "Alice's Adventures in Wonderland" with an LSTM, and tells the
// perplexity on the part of the book that it never saw.
#include <cmath>

#include "examples/quick_start/fleet_job.h"
#include "examples/quick_start/report.h"
#include "examples/word_lm/text.h"
#include "fluid/fluid.h"

namespace {

namespace layers = fluid::layers;

constexpr int kLeast = 2;        // rarer words are one word
constexpr int64_t kLength = 20;  // words of a training sequence
constexpr int64_t kEmbedding = 96;
constexpr int64_t kHidden = 96;
constexpr double kDropout = 0.5;

struct Net {
  fluid::Variable cost;  // mean cross entropy a word, [1]
};

Net lstm(const fluid::Variable& words, const fluid::Variable& next, int64_t vocabulary,
         bool sparse) {
  const layers::DropoutOptions scaled{.dropout_implementation = "upscale_in_train"};
  auto top = layers::embedding(words, {vocabulary, kEmbedding}, {.is_sparse = sparse});
  top = layers::dropout(top, kDropout, scaled);
  const auto gates = layers::fc(top, 4 * kHidden);
  top = layers::dynamic_lstm(gates, 4 * kHidden, {.use_peepholes = false}).hidden;
  top = layers::dropout(top, kDropout, scaled);
  const auto logits = layers::fc(top, vocabulary);
  return {layers::mean(layers::softmax_with_cross_entropy(logits, next))};
}

// Sequences of `length` words and the words that follow each, with LoD.
fluid::Feed sequences(const std::vector<int64_t>& text, int64_t length) {
  const int64_t count = (static_cast<int64_t>(text.size()) - 1) / length;
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i <= count; ++i) offsets.push_back(i * length);
  const auto cut = [&](int64_t shift) {
    const auto first = text.begin() + shift;
    auto words = fluid::Tensor::from(std::vector<int64_t>(first, first + count * length),
                                     {count * length, 1});
    words.set_lod({offsets});
    return words;
  };
  return {{"words", cut(0)}, {"next", cut(1)}};
}

int train(const quick_start::Options& options) {
  const auto text = word_lm::load_text(options.data_dir + "/alice29.txt.gz", kLeast);
  fluid::default_startup_program().set_random_seed(options.seed);
  auto words = layers::data("words", {1}, fluid::DType::kInt64, {.lod_level = 1});
  auto next = layers::data("next", {1}, fluid::DType::kInt64, {.lod_level = 1});
  auto [cost] = lstm(words, next, text.words, options.sparse);
  auto test_program = fluid::default_main_program().clone(/*for_test=*/true);
  fluid::optimizer::Adam adam({.learning_rate = options.learning_rate});

  fleet::init(quick_start::make_role_maker(options));
  auto optimizer = fleet::distributed_optimizer(adam, quick_start::make_strategy(options));
  optimizer.minimize(cost);
  if (fleet::is_server()) return fleet::run_server();
  fleet::init_worker();

  fluid::Executor exe(fluid::place_named(options.place), {.logical_shards = options.shards});
  exe.run(fluid::default_startup_program());
  if (!options.init_from.empty()) fluid::io::load_persistables(exe, options.init_from);
  fluid::data::DataLoader loader(
      std::make_shared<fluid::data::TensorDataset>(sequences(text.train, kLength)),
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
  const auto test = sequences(text.test, static_cast<int64_t>(text.test.size()) - 1);
  auto loss = exe.run(test_program, test, {cost});
  report.finish({"perplexity", std::exp(loss[0].item<double>())});
  fleet::stop_worker();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return quick_start::run_trainer(
      train, argc, argv, "Trains a language model on \"Alice's Adventures in Wonderland\".",
      {.steps = 2000,
       .batch_size = 16,
       .learning_rate = 0.002,
       .data_dir = FLEET_WORD_LM_TEXT,
       .input = quick_start::Input::kFiles,
       .has_embedding = true});
}
