#include "tests/fluid/mistakes/mistakes.h"

#include <set>

#include "tests/fluid/net_fixture.h"

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

class Mistakes : public testing::TestWithParam<Mistake> {
 protected:
  Program main_;
  Program startup_;
  ProgramGuard programs_{main_, startup_};
  unique_name::Guard names_;
};

TEST_P(Mistakes, AreRefusedWithTheirFix) {
  const Inputs inputs{main_, startup_};
  expect_error([&] { GetParam().make(inputs); }, GetParam().code, GetParam().texts);
}

INSTANTIATE_TEST_SUITE_P(Table, Mistakes, testing::ValuesIn(all_mistakes()),
                         [](const auto& row) { return row.param.name; });

TEST(MistakeTables, HoldTwoHundredDifferentOnes) {
  std::set<std::string> names;
  for (const Mistake& mistake : all_mistakes()) names.insert(mistake.name);
  EXPECT_GE(names.size(), 200U);
}

}  // namespace
}  // namespace fleet::fluid::mistakes
