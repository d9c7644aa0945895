// The other examples, as their users run them: alone, with servers, and collectively. The modes
// train the same parameters, so each must reach what the example is known to reach.
#include <cmath>
#include <gtest/gtest.h>
#include <map>

#include "examples/word_lm/text.h"
#include "tests/examples/quick_start_fixture.h"

namespace fleet::testing {
namespace {

class Examples : public QuickStart {
 protected:
  struct Run {
    nlohmann::json losses;   // by step
    double score = 0;        // of the saved model
    std::string parameters;  // their file
  };

  // With the embedding's sparse gradients.
  Run run_sparse(const std::string& command, const std::string& score) const {
    const std::string model = path("model");
    const std::string metrics = path("metrics.json");
    std::filesystem::remove_all(model);
    const auto result = run_command(
        str_cat(command, " --sparse --model_dir ", model, " --metrics_file ", metrics), 120);
    EXPECT_EQ(result.code, 0) << command << "\n" << result.output << logs();
    if (result.code != 0) return {};
    const auto report = nlohmann::json::parse(read(metrics));
    return {report.at("loss"), report.at(score).get<double>(), read(model + "/params.safetensors")};
  }

  // Trains in each mode and gives what the metrics file holds under `score`.
  std::vector<double> scores(const std::string& program, const std::string& flags,
                             const std::string& score, int limit_s = 300) {
    const std::string launchers[] = {
        "", str_cat(kBin, "launch_ps --worker_num 2 --server_num 2 --log_dir ", path("logs"), " "),
        str_cat(kBin, "launch --nproc_per_node 2 --log_dir ", path("logs"), " ")};
    std::vector<double> found;
    for (const std::string& launcher : launchers) {
      const std::string metrics = path("metrics.json");
      const auto result = run_command(
          str_cat(launcher, kBin, program, " ", flags, " --metrics_file ", metrics), limit_s);
      EXPECT_EQ(result.code, 0) << launcher << program << "\n" << result.output << logs();
      if (result.code != 0) return {};
      found.push_back(nlohmann::json::parse(read(metrics)).at(score).get<double>());
      std::cout << (launcher.empty() ? "local" : launcher) << ": " << score << " " << found.back()
                << "\n";
    }
    return found;
  }

  // Empty when the files are not there.
  static std::string mnist_folder() {
    const std::string folder = data_path("mnist");
    return std::filesystem::exists(folder + "/t10k-images-idx3-ubyte.gz") ? folder : "";
  }
};

TEST_F(Examples, TablesOfRowsTrainWithServersAsAlone) {
  const std::pair<std::string, std::string> programs[] = {
      {"sentiment --steps 40", "accuracy"}, {"word_lm --steps 8 --batch_size 8", "perplexity"}};
  for (const auto& [program, score] : programs) {
    SCOPED_TRACE(program);
    const Run alone = run_sparse(str_cat(kBin, program, " --shards 2"), score);
    const Run servers =
        run_sparse(str_cat(kBin, "launch_ps --worker_num 2 --server_num 2 --log_dir ", path("logs"),
                           " ", kBin, program),
                   score);
    EXPECT_EQ(servers.losses, alone.losses);
    EXPECT_EQ(servers.score, alone.score);
    EXPECT_FALSE(alone.parameters.empty());
    EXPECT_TRUE(servers.parameters == alone.parameters);
  }
}

TEST_F(Examples, RowsAreEvaluatedFromWhatIsSaved) {
  const auto result = run_command(kBin + "sentiment --sparse --steps 1", 60);
  EXPECT_EQ(result.code, 2);
  EXPECT_NE(result.output.find("--model_dir"), std::string::npos) << result.output;
}

TEST_F(Examples, FitALineFindsTheLine) {
  for (const double error : scores("fit_a_line", "", "squared error")) {
    EXPECT_LT(error, 0.02);  // the noise alone is 0.01
  }
}

TEST_F(Examples, GoOnFromASavedModel) {
  for (const std::string program : {"fit_a_line", "sentiment", "word_lm"}) {
    SCOPED_TRACE(program);
    const auto nowhere = run_command(str_cat(kBin, program, " --steps 1 --init_from ", path("no")));
    EXPECT_EQ(nowhere.code, 1);
    EXPECT_NE(nowhere.output.find(path("no")), std::string::npos) << nowhere.output;
  }
  const std::string fit = str_cat(kBin, "fit_a_line --metrics_file ", path("metrics.json"));
  const auto error_of = [&](const std::string& flags) {
    EXPECT_EQ(run_command(str_cat(fit, " ", flags)).code, 0) << flags;
    return nlohmann::json::parse(read(path("metrics.json"))).at("squared error").get<double>();
  };
  EXPECT_GT(error_of("--steps 1"), 1);
  EXPECT_LT(error_of("--steps 400 --model_dir " + path("model")), 0.02);
  EXPECT_LT(error_of("--steps 1 --init_from " + path("model")), 0.02);
}

TEST_F(Examples, TakeTheStrategy) {
  const std::string servers =
      str_cat(kBin, "launch_ps --worker_num 2 --server_num 1 --log_dir ", path("logs"), " ", kBin);
  const auto right = run_command(servers + "fit_a_line --steps 20 --strategy geo", 60);
  EXPECT_EQ(right.code, 0) << right.output << logs();
  const auto wrong = run_command(servers + "fit_a_line --steps 20 --strategy all_reduce", 60);
  EXPECT_NE(wrong.code, 0) << wrong.output;
}

TEST_F(Examples, SentimentReadsNegations) {
  for (const double accuracy : scores("sentiment", "", "accuracy")) EXPECT_GT(accuracy, 0.97);
}

TEST_F(Examples, MnistMlpReaches95Percent) {
  const std::string folder = mnist_folder();
  if (folder.empty()) GTEST_SKIP() << "no MNIST in " << data_path("mnist");
  for (const double accuracy : scores("mnist_mlp", "--data_dir " + folder, "accuracy")) {
    EXPECT_GE(accuracy, 0.95);
  }
}

TEST_F(Examples, MnistLenetReaches98Percent) {
  const std::string folder = mnist_folder();
  if (folder.empty()) GTEST_SKIP() << "no MNIST in " << data_path("mnist");
  for (const double accuracy : scores("mnist_lenet", "--data_dir " + folder, "accuracy", 600)) {
    EXPECT_GE(accuracy, 0.98);
  }
}

// As servers, which look at no gradients, take it; float16 has its ranks decide together.
TEST_F(Examples, MnistTrainsInMixedPrecision) {
  const std::string folder = mnist_folder();
  if (folder.empty()) GTEST_SKIP() << "no MNIST in " << data_path("mnist");
  const std::string flags = "--steps 400 --data_dir " + folder;
  for (const double accuracy : scores("mnist_mlp", flags + " --amp bfloat16", "accuracy")) {
    EXPECT_GE(accuracy, 0.90);
  }
  std::string models[2];
  for (const int ranks : {1, 2}) {
    const std::string model = path("model");
    std::filesystem::remove_all(model);
    const auto result = run_command(
        str_cat(kBin, "launch --nproc_per_node ", ranks, " --log_dir ", path("logs"), " ", kBin,
                "mnist_mlp ", flags, " --amp float16 --shards 2 --model_dir ", model),
        300);
    ASSERT_EQ(result.code, 0) << result.output << logs();
    models[ranks - 1] = read(model + "/params.safetensors");
  }
  EXPECT_FALSE(models[0].empty());
  EXPECT_TRUE(models[0] == models[1]) << "one rank and two give other parameters";
  const auto servers =
      run_command(str_cat(kBin, "launch_ps --worker_num 1 --server_num 1 --log_dir ", path("logs"),
                          " ", kBin, "mnist_mlp ", flags, " --amp float16"),
                  60);
  EXPECT_EQ(servers.code, 1);
  EXPECT_NE((servers.output + logs()).find("dynamic loss scaling"), std::string::npos)
      << servers.output;
}

// Jelinek and Mercer's interpolation of 1-, 2- and 3-grams, with weights by deleted interpolation
// (Brants, "TnT", ANLP 2000, figure 1).
class TrigramModel {
 public:
  explicit TrigramModel(const std::vector<int64_t>& text) : size_(text.size()) {
    for (size_t i = 0; i < text.size(); ++i) {
      ++one_[text[i]];
      if (i >= 1) ++two_[{text[i - 1], text[i]}];
      if (i >= 2) ++three_[{text[i - 2], text[i - 1], text[i]}];
    }
    for (const auto& [words, count] : three_) {
      const auto [a, b, c] = words;
      const double estimates[] = {less_one(one_[c], static_cast<double>(size_)),
                                  less_one(two_[{b, c}], one_[b]), less_one(count, two_[{a, b}])};
      *std::max_element(weights_, weights_ + 3, [&](const double& left, const double& right) {
        return estimates[&left - weights_] < estimates[&right - weights_];
      }) += count;
    }
    const double sum = weights_[0] + weights_[1] + weights_[2];
    for (double& weight : weights_) weight /= sum;
  }

  double perplexity(const std::vector<int64_t>& text) {
    double nats = 0;
    for (size_t i = 2; i < text.size(); ++i) {
      nats -= std::log(probability(text[i - 2], text[i - 1], text[i]));
    }
    return std::exp(nats / static_cast<double>(text.size() - 2));
  }

 private:
  static double less_one(double count, double total) {
    return total > 1 ? (count - 1) / (total - 1) : 0;
  }

  // A history that was never seen leaves its weight to the shorter ones.
  double probability(int64_t a, int64_t b, int64_t c) {
    const double known = two_[{a, b}];
    const double seen = one_[b];
    const double total = weights_[0] + (seen > 0 ? weights_[1] : 0) + (known > 0 ? weights_[2] : 0);
    double p = weights_[0] * one_[c] / static_cast<double>(size_);
    if (seen > 0) p += weights_[1] * two_[{b, c}] / seen;
    if (known > 0) p += weights_[2] * three_[{a, b, c}] / known;
    return p / total;
  }

  size_t size_;
  double weights_[3] = {};
  std::map<int64_t, double> one_;
  std::map<std::pair<int64_t, int64_t>, double> two_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, double> three_;
};

TEST_F(Examples, WordLmBeatsTrigrams) {
  const auto text =
      word_lm::load_text(source_path("examples/data/text/alice29.txt.gz"), /*least=*/2);
  TrigramModel trigrams(text.train);
  const double bound = trigrams.perplexity(text.test);
  std::cout << text.words << " words, 3-grams: perplexity " << bound << "\n";
  for (const double perplexity : scores("word_lm", "", "perplexity", 600)) {
    EXPECT_LT(perplexity, bound);
  }
}

}  // namespace
}  // namespace fleet::testing
