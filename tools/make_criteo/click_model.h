// Made-up clicks whose probabilities are known: a logistic model over hidden weights of categories
// and of 13 numbers, in the shape of Criteo's click logs.
//
// A record is a function of the options and its number alone, so that any number of threads and
// files make the same set.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/philox.h"

namespace fleet::tools {

inline constexpr int kClickNumbers = 13;
inline constexpr int kClickCategories = 26;

struct ClickOptions {
  uint64_t seed = 1;
  // Values of all categories together; the larger ones have about 700 times as many as the smaller.
  int64_t ids = 26000;
  // The k-th most frequent value of a category is drawn with a probability of about k^-zipf.
  double zipf = 1.1;
  // Standard deviation of the log odds, about. 0: labels that nothing tells.
  double strength = 2.0;
  double click_rate = 0.25;  // the mean of the probabilities, about
  // Share of the cells that are empty, about; each column has its own, from 0 to twice as much.
  double missing = 0.1;
};

struct ClickRecord {
  bool click = false;
  double probability = 0;  // of a click
  std::array<std::optional<int64_t>, kClickNumbers> numbers;
  std::array<std::optional<uint32_t>, kClickCategories> categories;
};

// Any thread. Takes 16 bytes for each id.
class ClickModel {
 public:
  // UsageError for options that cannot be.
  explicit ClickModel(const ClickOptions& options);

  ClickRecord record(uint64_t number) const;
  // Of the category, from 0 to 25.
  int64_t values(int category) const {
    return static_cast<int64_t>(categories_[static_cast<size_t>(category)].weights.size());
  }

 private:
  struct Number {
    double mean = 0;  // of ln(1 + x)
    double deviation = 1;
    double missing = 0;
    double weight = 0;
    double weight_missing = 0;
  };
  struct Category {
    double missing = 0;
    double weight_missing = 0;
    std::vector<double> up_to;    // probability of this value and those before it
    std::vector<double> weights;  // of the log odds
  };

  double draw(uint64_t number, uint64_t what) const { return uniform_double(draws_, what, number); }
  double draw_numbers(uint64_t number, ClickRecord& record) const;
  double draw_categories(uint64_t number, ClickRecord& record) const;
  void find_base();

  ClickOptions options_;
  RandomKey draws_;
  std::array<Number, kClickNumbers> numbers_;
  std::array<Category, kClickCategories> categories_;
  double base_ = 0;  // log odds of a record with no weights
};

}  // namespace fleet::tools
