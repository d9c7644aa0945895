// The rules about what differs from Paddle: docs/departures.md lists them, and each is shown
// by a file of the project's own set or by a test.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>

#include "base/strings.h"
#include "tests/golden/numeric/departing_data.h"
#include "tests/golden/numeric/numeric_departures.h"
#include "tests/testing/paths.h"

namespace fleet::fluid::golden {
namespace {

std::string text_of(const std::string& source) {
  std::ifstream file(fleet::testing::source_path(source));
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string option_text(const NumericDeparture& rule) {
  return rule.option.empty() ? "none" : rule.option;
}

std::string row(const std::vector<std::string>& cells) {
  return str_cat("| ", join(cells, " | "), " |");
}

std::string row_of(const NumericDeparture& rule) {
  return row({rule.family, rule.subject, rule.paddle, rule.here, rule.reason, option_text(rule)});
}
std::string row_of(const KeptForm& rule) {
  return row({rule.family, rule.subject, rule.paddle, rule.reason});
}

// The rows of all tables of a page, without their heads.
std::vector<std::string> rows_of_page(const std::string& text) {
  std::vector<std::string> rows;
  const auto lines = split(text, '\n');
  for (size_t i = 2; i < lines.size(); ++i) {
    const bool inside = lines[i].starts_with("| ") && lines[i - 1].starts_with("|");
    if (inside) rows.emplace_back(lines[i]);
  }
  return rows;
}

// Whether a file of the project's own set is of the rule, or the test that it names is there.
template <class Rule>
bool is_shown(const Rule& rule) {
  if (!rule.shown_by.empty()) {
    const size_t colon = rule.shown_by.find(": ");
    return text_of(rule.shown_by.substr(0, colon)).find(rule.shown_by.substr(colon + 2)) !=
           std::string::npos;
  }
  for (const std::string_view part : split(rule.family, ',')) {
    const auto files =
        cases_in(fleet::testing::source_path("tests/golden/numeric"), std::string(trim(part)));
    const bool found = std::any_of(files.begin(), files.end(), [&](const auto& path) {
      return rule.applies && rule.applies(load(path));
    });
    if (found) return true;
  }
  return false;
}

TEST(NumericRules, AreAllDocumentedAndNoOthers) {
  std::vector<std::string> rows;
  for (const NumericDeparture& rule : numeric_departures()) rows.push_back(row_of(rule));
  for (const KeptForm& rule : kept_forms()) rows.push_back(row_of(rule));
  EXPECT_THAT(rows_of_page(text_of("docs/departures.md")), ::testing::ElementsAreArray(rows));
}

TEST(NumericRules, AreAllShownByAFileOrATest) {
  for (const NumericDeparture& rule : numeric_departures()) {
    EXPECT_TRUE(is_shown(rule)) << rule.family << ": " << rule.subject;
  }
  for (const KeptForm& rule : kept_forms()) {
    EXPECT_TRUE(is_shown(rule)) << rule.family << ": " << rule.subject;
  }
}

TEST(NumericRules, TakeEitherGradientOfEluWhereItsExponentialOverflows) {
  const auto row = [](const std::vector<float>& values) { return Tensor::from(values, {4}); };
  const float nan = std::nanf("");
  const Tensor either =
      either_overflow(row({nan, nan, nan, 1}), row({nan, 3, 9, nan}), row({2, 3, 4, 5}));
  const auto got = either.values<float>();
  EXPECT_TRUE(std::isnan(got[0]));
  EXPECT_EQ(got[1], 3);
  EXPECT_EQ(got[2], 4);
  EXPECT_EQ(got[3], 1);
}

}  // namespace
}  // namespace fleet::fluid::golden
