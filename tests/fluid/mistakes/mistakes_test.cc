#include "tests/fluid/mistakes/mistakes.h"

#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "base/strings.h"
#include "tests/fluid/net_fixture.h"
#include "tests/testing/paths.h"

namespace fleet::fluid::mistakes {

void PrintTo(const Mistake& mistake, std::ostream* out) {
  *out << mistake.name;
}

namespace {

std::vector<Mistake> all_mistakes() {
  std::vector<Mistake> all;
  add_dense_mistakes(all);
  add_network_mistakes(all);
  add_training_mistakes(all);
  add_running_mistakes(all);
  return all;
}

// The whole text of each mistake's error, by name, as texts.txt has them: a line "[name]" and the
// lines of the error, up to an empty one.
using Texts = std::map<std::string, std::string>;

Texts golden_texts() {
  std::ifstream file(fleet::testing::source_path("tests/fluid/mistakes/texts.txt"));
  Texts texts;
  std::string* text = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (text == nullptr) {
      text = &texts[line.substr(1, line.size() - 2)];
    } else if (line.empty()) {
      text = nullptr;
    } else {
      *text += line + "\n";
    }
  }
  return texts;
}

// Where texts.txt is to be written anew; null: nowhere.
const char* rewritten_texts() {
  return std::getenv("FLEET_WRITE_MISTAKE_TEXTS");
}

class Mistakes : public ::testing::TestWithParam<Mistake> {
 protected:
  Program main_;
  Program startup_;
  ProgramGuard programs_{main_, startup_};
  unique_name::Guard names_;
};

TEST_P(Mistakes, AreRefusedWithTheirFix) {
  const Inputs inputs{main_, startup_};
  std::string text;
  const auto make = [&] {
    try {
      GetParam().make(inputs);
    } catch (const Error& error) {
      text = str_cat(error.what(), "\n");
      throw;
    }
  };
  expect_error(make, GetParam().code, GetParam().texts);
  if (const char* path = rewritten_texts()) {
    std::ofstream(path, std::ios::app) << "[" << GetParam().name << "]\n" << text << "\n";
    return;
  }
  static const Texts golden = golden_texts();
  const auto entry = golden.find(GetParam().name);
  ASSERT_NE(entry, golden.end()) << "texts.txt has no entry; the error is\n" << text;
  EXPECT_EQ(text, entry->second);
}

INSTANTIATE_TEST_SUITE_P(Table, Mistakes, ::testing::ValuesIn(all_mistakes()),
                         [](const auto& row) { return row.param.name; });

TEST(MistakeTables, HoldTwoHundredDifferentOnes) {
  std::set<std::string> names;
  for (const Mistake& mistake : all_mistakes()) names.insert(mistake.name);
  EXPECT_GE(names.size(), 200U);
}

TEST(MistakeTables, HaveAllThatTheTextsName) {
  std::set<std::string> names;
  for (const Mistake& mistake : all_mistakes()) names.insert(mistake.name);
  for (const auto& [name, text] : golden_texts()) {
    EXPECT_TRUE(names.contains(name)) << "texts.txt has " << name << ", which no table makes";
  }
}

}  // namespace
}  // namespace fleet::fluid::mistakes
