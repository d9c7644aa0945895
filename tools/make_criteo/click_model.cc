#include "tools/make_criteo/click_model.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::tools {
namespace {

constexpr double kGrowth = 1.3;          // of the number of values, from category to category
constexpr double kShareOfNumbers = 0.2;  // of the variance of the log odds
constexpr uint64_t kFirstOfSample = uint64_t{1} << 62;  // records that no file has
constexpr uint64_t kSample = 20000;
// What a record draws.
constexpr uint64_t kClick = 0;
constexpr uint64_t kNumbers = 1000;
constexpr uint64_t kCategories = 2000;
constexpr uint64_t kEmpty = 500;  // behind kNumbers or kCategories

void require(bool holds, const char* field, const char* expected, double got) {
  if (holds) return;
  throw_error(ErrorCode::kInvalidArgument, {.what = "such clicks cannot be made",
                                            .where = str_cat("--", field),
                                            .expected = expected,
                                            .got = str_cat(got),
                                            .fix = "see --help"});
}

double probability_of(double log_odds) {
  return 1 / (1 + std::exp(-log_odds));
}

// The finaliser of MurmurHash3 (Appleby): a bijection, so that values of a category differ.
uint32_t mix32(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x85ebca6bU;
  x = (x ^ (x >> 13)) * 0xc2b2ae35U;
  return x ^ (x >> 16);
}

}  // namespace

ClickModel::ClickModel(const ClickOptions& options)
    : options_(options), draws_(RandomKey::of(options.seed, "records")) {
  require(options.ids >= kClickCategories && options.ids < int64_t{1} << 32, "ids",
          "26 to 4294967295", static_cast<double>(options.ids));
  require(options.zipf >= 0 && options.zipf <= 10, "zipf", "0 to 10", options.zipf);
  require(options.strength >= 0 && options.strength <= 100, "strength", "0 to 100",
          options.strength);
  require(options.click_rate > 0 && options.click_rate < 1, "click_rate", "between 0 and 1",
          options.click_rate);
  require(options.missing >= 0 && options.missing <= 0.5, "missing", "0 to 0.5", options.missing);

  const RandomKey shape = RandomKey::of(options.seed, "columns");
  const double of_number = options.strength * std::sqrt(kShareOfNumbers / kClickNumbers);
  for (size_t i = 0; i < kClickNumbers; ++i) {
    numbers_[i] = {.mean = 1 + 4 * uniform_double(shape, i, 0),
                   .deviation = 0.5 + uniform_double(shape, i, 1),
                   .missing = 2 * options.missing * uniform_double(shape, i, 2),
                   .weight = of_number * normal_double(shape, i, 3),
                   .weight_missing = of_number * normal_double(shape, i, 4)};
  }
  const double of_category = options.strength * std::sqrt((1 - kShareOfNumbers) / kClickCategories);
  const double all = (std::pow(kGrowth, kClickCategories) - 1) / (kGrowth - 1);
  for (size_t i = 0; i < kClickCategories; ++i) {
    Category& category = categories_[i];
    category.missing = 2 * options.missing * uniform_double(shape, i, 5);
    category.weight_missing = of_category * normal_double(shape, i, 6);
    const double share = std::pow(kGrowth, static_cast<double>(i)) / all;
    const auto values =
        std::max<int64_t>(1, std::llround(share * static_cast<double>(options.ids)));
    const RandomKey weights = RandomKey::of(options.seed, str_cat("category ", i));
    double sum = 0;
    for (int64_t k = 0; k < values; ++k) {
      sum += std::pow(static_cast<double>(k + 1), -options.zipf);
      category.up_to.push_back(sum);
      category.weights.push_back(of_category * normal_double(weights, static_cast<uint64_t>(k)));
    }
    for (double& up_to : category.up_to) up_to /= sum;
  }
  find_base();
}

// By halving: the mean of the probabilities rises with it.
void ClickModel::find_base() {
  std::vector<double> log_odds;
  for (uint64_t i = 0; i < kSample; ++i) {
    ClickRecord record;
    log_odds.push_back(draw_numbers(kFirstOfSample + i, record) +
                       draw_categories(kFirstOfSample + i, record));
  }
  double low = -500;
  double high = 500;
  for (int i = 0; i < 60; ++i) {
    base_ = (low + high) / 2;
    double mean = 0;
    for (const double odds : log_odds) mean += probability_of(base_ + odds) / kSample;
    (mean < options_.click_rate ? low : high) = base_;
  }
}

// What the numbers add to the log odds.
double ClickModel::draw_numbers(uint64_t number, ClickRecord& record) const {
  double log_odds = 0;
  for (size_t i = 0; i < kClickNumbers; ++i) {
    const Number& of = numbers_[i];
    if (draw(number, kNumbers + kEmpty + i) < of.missing) {
      record.numbers[i].reset();
      log_odds += of.weight_missing;
      continue;
    }
    const double normal = normal_double(draws_, kNumbers + i, number);
    const double size = std::min(of.mean + of.deviation * normal, 40.0);
    const auto value = std::max<int64_t>(0, std::llround(std::exp(size) - 1));
    record.numbers[i] = value;
    log_odds += of.weight * (std::log1p(static_cast<double>(value)) - of.mean) / of.deviation;
  }
  return log_odds;
}

double ClickModel::draw_categories(uint64_t number, ClickRecord& record) const {
  double log_odds = 0;
  for (size_t i = 0; i < kClickCategories; ++i) {
    const Category& of = categories_[i];
    if (draw(number, kCategories + kEmpty + i) < of.missing) {
      record.categories[i].reset();
      log_odds += of.weight_missing;
      continue;
    }
    const double drawn = draw(number, kCategories + i);
    const auto found = std::upper_bound(of.up_to.begin(), of.up_to.end() - 1, drawn);
    const auto k = static_cast<size_t>(found - of.up_to.begin());
    const auto begin = static_cast<uint32_t>(i) * 0x9e3779b9U;
    record.categories[i] = mix32(begin + static_cast<uint32_t>(k));
    log_odds += of.weights[k];
  }
  return log_odds;
}

ClickRecord ClickModel::record(uint64_t number) const {
  ClickRecord record;
  const double log_odds = draw_numbers(number, record) + draw_categories(number, record);
  record.probability = probability_of(base_ + log_odds);
  record.click = draw(number, kClick) < record.probability;
  return record;
}

}  // namespace fleet::tools
