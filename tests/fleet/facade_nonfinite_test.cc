// What the facade does in a process alone when the loss is not finite.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "base/error.h"
#include "fleet/fleet.h"
#include "fluid/fluid.h"

namespace fleet {
namespace {

using ::testing::HasSubstr;

class NonfiniteLoss : public ::testing::Test {
 protected:
  void minimize(Fleet& fleet) {
    auto x = fluid::layers::data("x", {2}, fluid::DType::kFloat32);
    auto cost = fluid::layers::mean(fluid::layers::fc(x, 1));
    fluid::optimizer::SGD sgd({.learning_rate = 0.1});
    fleet.distributed_optimizer(sgd, strategies::LocalStrategy{}).minimize(cost);
    exe_.run(fleet.startup_program());
  }
  void train(const Fleet& fleet, float value) {
    fluid::Tensor rows(fluid::DType::kFloat32, {1, 2});
    rows.data<float>()[0] = value;
    rows.data<float>()[1] = 1;
    exe_.run(fleet.main_program(), {{"x", rows}});
  }

  static constexpr float kInf = std::numeric_limits<float>::infinity();
  fluid::Program main_;
  fluid::Program startup_;
  fluid::ProgramGuard programs_{main_, startup_};
  fluid::Executor exe_;
  role_maker::PaddleCloudRoleMaker maker_;
};

TEST_F(NonfiniteLoss, EndsTheStepWithWhatWhereAndWhatToDo) {
  Fleet fleet{Environment()};
  fleet.init(maker_);
  minimize(fleet);
  train(fleet, 1);
  try {
    train(fleet, kInf);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNumerics);
    EXPECT_THAT(error.text().what, HasSubstr("the loss 'mean"));
    EXPECT_THAT(error.text().where, HasSubstr("worker 0, step 1"));
    EXPECT_THAT(error.text().fix, HasSubstr("lower the learning rate"));
  }
}

TEST_F(NonfiniteLoss, IsAWarningWhereTheCodeSaysSoWhateverTheEnvironmentSays) {
  Environment environment;
  environment.set("FLEET_ON_NONFINITE", "stop");
  Fleet fleet(environment);
  fleet.init(maker_, {.on_nonfinite = strategies::OnNonfinite::kWarn});
  EXPECT_THAT(fleet.to_string(), HasSubstr("on_nonfinite = warn  (code)"));
  minimize(fleet);
  ::testing::internal::CaptureStderr();
  train(fleet, kInf);
  train(fleet, kInf);
  const std::string log = ::testing::internal::GetCapturedStderr();
  const size_t first = log.find("warning worker/0 nonfinite the loss");
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("warning worker/0", first + 1), std::string::npos) << "once: " << log;
}

}  // namespace
}  // namespace fleet
