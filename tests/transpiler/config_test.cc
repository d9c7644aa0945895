#include "transpiler/config.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace fleet::transpiler {
namespace {

using testing::HasSubstr;

// The error's text; fails when there is none or of another code.
std::string refusal(const DistributeTranspilerConfig& config, ErrorCode code) {
  try {
    validate(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "the configuration was accepted";
  return {};
}

void expect_contradiction(const DistributeTranspilerConfig& config, const std::string& a,
                          const std::string& b) {
  const std::string text = refusal(config, ErrorCode::kInvalidArgument);
  EXPECT_THAT(text, HasSubstr(a));
  EXPECT_THAT(text, HasSubstr(b));
}

TEST(TranspilerConfig, DefaultsAreValid) {
  EXPECT_NO_THROW(validate({}));
  EXPECT_NO_THROW(validate({.sync_mode = false}));
  EXPECT_NO_THROW(validate({.mode = "collective", .collective_mode = "grad_allreduce"}));
  EXPECT_NO_THROW(validate({.sync_mode = false,
                            .runtime_split_send_recv = true,
                            .half_async = true,
                            .completely_not_async = true}));
}

TEST(TranspilerConfig, ContradictionsNameBothFields) {
  expect_contradiction({.runtime_split_send_recv = true}, "runtime_split_send_recv", "sync_mode");
  expect_contradiction({.enable_dc_asgd = true}, "enable_dc_asgd", "sync_mode");
  expect_contradiction({.half_async = true}, "half_async", "sync_mode");
  expect_contradiction({.completely_not_async = true}, "completely_not_async", "sync_mode");
  expect_contradiction({.sync_mode = false, .completely_not_async = true}, "completely_not_async",
                       "runtime_split_send_recv");
  expect_contradiction({.geo_sgd_mode = true}, "geo_sgd_mode", "sync_mode");
  expect_contradiction({.enable_dc_asgd = true, .sync_mode = false, .geo_sgd_mode = true},
                       "geo_sgd_mode", "enable_dc_asgd");
  expect_contradiction({.mode = "collective"}, "collective_mode", "mode");
  expect_contradiction({.collective_mode = "grad_allreduce"}, "collective_mode", "mode");
  expect_contradiction({.mode = "nccl2", .sync_mode = false, .half_async = true}, "half_async",
                       "mode");
  expect_contradiction({.mode = "nccl2", .use_hierarchical_allreduce = true},
                       "use_hierarchical_allreduce", "hierarchical_allreduce_inter_nranks");
}

TEST(TranspilerConfig, ValuesOutOfRangeNameTheField) {
  EXPECT_THAT(refusal({.min_block_size = 4096}, ErrorCode::kInvalidArgument),
              HasSubstr("min_block_size"));
  EXPECT_THAT(refusal({.nccl_comm_num = 0}, ErrorCode::kInvalidArgument),
              HasSubstr("nccl_comm_num"));
  EXPECT_THAT(refusal({.split_method = "RoundRobbin"}, ErrorCode::kInvalidArgument),
              HasSubstr("did you mean 'RoundRobin'"));
}

TEST(TranspilerConfig, ModesThatDoNotExistYetAreRefusedByName) {
  EXPECT_THAT(refusal({.sync_mode = false, .geo_sgd_mode = true}, ErrorCode::kNotSupported),
              HasSubstr("geo_sgd_mode"));
  EXPECT_THAT(refusal({.enable_dc_asgd = true, .sync_mode = false}, ErrorCode::kNotSupported),
              HasSubstr("enable_dc_asgd"));
  EXPECT_THAT(
      refusal({.mode = "collective", .collective_mode = "local_sgd"}, ErrorCode::kNotSupported),
      HasSubstr("local_sgd"));
}

}  // namespace
}  // namespace fleet::transpiler
