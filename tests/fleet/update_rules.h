// Every optimizer and schedule, by name, for tests that hold each of them under each mode.
#pragma once

#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/fleet/random_program.h"

namespace fleet::testing {

struct UpdateRule {
  std::string name;
  Minimize minimize;
};

// Learning rates that ops compute, from the one they begin with.
struct Schedule {
  std::string name;
  std::function<fluid::optimizer::LearningRate(double rate)> rate;
};
std::vector<Schedule> schedules();

std::vector<UpdateRule> optimizer_rules();
// Clips whose norms are small enough to be reached in every step.
std::vector<UpdateRule> clip_rules();
// SGD by every schedule.
std::vector<UpdateRule> schedule_rules();
// An optimizer with a mean of the parameters over the steps.
std::vector<UpdateRule> average_rules();
// Optimizers whose steps are partly taken back.
std::vector<UpdateRule> lookahead_rules();

// For INSTANTIATE_TEST_SUITE_P.
std::string name_of(const ::testing::TestParamInfo<UpdateRule>& info);

}  // namespace fleet::testing
