#include "transpiler/config.h"

#include <gmock/gmock.h>
#include <string>
#include <utility>
#include <vector>

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
  expect_contradiction({.sync_mode = false,
                        .runtime_split_send_recv = true,
                        .completely_not_async = true,
                        .geo_sgd_mode = true},
                       "completely_not_async", "geo_sgd_mode");
  expect_contradiction({.paddle_schedules = true}, "paddle_schedules", "sync_mode");
  expect_contradiction({.paddle_schedules = true, .sync_mode = false, .geo_sgd_mode = true},
                       "paddle_schedules", "geo_sgd_mode");
  expect_contradiction({.whole_norms = false, .mode = "nccl2"}, "whole_norms", "mode");
  expect_contradiction({.whole_norms = false, .sync_mode = false, .geo_sgd_mode = true},
                       "whole_norms", "geo_sgd_mode");
  expect_contradiction({.prefetch_trees = false, .mode = "nccl2"}, "prefetch_trees", "mode");
  expect_contradiction({.prefetch_trees = false, .sync_mode = false, .geo_sgd_mode = true},
                       "prefetch_trees", "geo_sgd_mode");
  expect_contradiction({.initialise_frozen_tables = false, .mode = "nccl2"},
                       "initialise_frozen_tables", "mode");
  expect_contradiction(
      {.initialise_frozen_tables = false, .sync_mode = false, .geo_sgd_mode = true},
      "initialise_frozen_tables", "geo_sgd_mode");
  expect_contradiction({.server_statistics = false, .mode = "nccl2"}, "server_statistics", "mode");
  expect_contradiction({.server_statistics = false, .sync_mode = false}, "server_statistics",
                       "sync_mode");
  EXPECT_NO_THROW(validate({.whole_norms = false, .sync_mode = false}));
  EXPECT_NO_THROW(validate({.server_statistics = false,
                            .sync_mode = false,
                            .runtime_split_send_recv = true,
                            .completely_not_async = true}));
  expect_contradiction({.mode = "collective"}, "collective_mode", "mode");
  expect_contradiction({.collective_mode = "grad_allreduce"}, "collective_mode", "mode");
  expect_contradiction({.mode = "nccl2", .sync_mode = false, .half_async = true}, "half_async",
                       "mode");
  expect_contradiction({.mode = "nccl2", .use_hierarchical_allreduce = true},
                       "use_hierarchical_allreduce", "hierarchical_allreduce_inter_nranks");
}

TEST(TranspilerConfig, WhoSaysSyncModeLaterHearsOfOtherContradictionsAtOnce) {
  const std::vector<DistributeTranspilerConfig> open = {
      {.runtime_split_send_recv = true},
      {.enable_dc_asgd = true},
      {.half_async = true},
      {.geo_sgd_mode = true},
      {.paddle_schedules = true},
      {.server_statistics = false, .sync_mode = false}};
  for (const auto& config : open) {
    EXPECT_NO_THROW(validate_but_sync_mode(config));
    EXPECT_THAT(refusal(config, ErrorCode::kInvalidArgument), HasSubstr("sync_mode contradict"));
  }
  EXPECT_THROW(validate_but_sync_mode({.enable_dc_asgd = true, .geo_sgd_mode = true}), UsageError);
  EXPECT_THROW(validate_but_sync_mode({.dc_asgd_form = "adaptive"}), UsageError);
}

TEST(TranspilerConfig, FieldsOfServersHaveNoMeaningWithoutThem) {
  for (const char* mode : {"nccl2", "collective"}) {
    SCOPED_TRACE(mode);
    const DistributeTranspilerConfig other{
        .mode = mode, .collective_mode = mode == std::string("collective") ? "grad_allreduce" : ""};
    for (const auto& [field, set] :
         std::vector<std::pair<std::string, bool DistributeTranspilerConfig::*>>{
             {"runtime_split_send_recv", &DistributeTranspilerConfig::runtime_split_send_recv},
             {"enable_dc_asgd", &DistributeTranspilerConfig::enable_dc_asgd},
             {"paddle_schedules", &DistributeTranspilerConfig::paddle_schedules},
             {"half_async", &DistributeTranspilerConfig::half_async},
             {"geo_sgd_mode", &DistributeTranspilerConfig::geo_sgd_mode}}) {
      DistributeTranspilerConfig config = other;
      config.sync_mode = false;
      config.*set = true;
      expect_contradiction(config, field, "mode");
    }
    DistributeTranspilerConfig placed = other;
    placed.slice_var_up = placed.sync_mode = false;
    placed.split_method = "HashName";
    placed.min_block_size = 10'000;
    EXPECT_NO_THROW(validate(placed));
  }
  expect_contradiction({.sync_mode = false, .half_async = true, .geo_sgd_mode = true}, "half_async",
                       "geo_sgd_mode");
  expect_contradiction({.enable_dc_asgd = true,
                        .sync_mode = false,
                        .runtime_split_send_recv = true,
                        .completely_not_async = true},
                       "completely_not_async", "enable_dc_asgd");
  expect_contradiction({.mode = "collective",
                        .use_hierarchical_allreduce = true,
                        .hierarchical_allreduce_inter_nranks = 2,
                        .collective_mode = "grad_allreduce"},
                       "use_hierarchical_allreduce", "mode");
}

TEST(TranspilerConfig, SlicesOfAServerNeedSlices) {
  expect_contradiction({.slice_var_up = false, .slices_per_server = 2}, "slices_per_server",
                       "slice_var_up");
  expect_contradiction({.slices_per_server = 2, .mode = "nccl2"}, "slices_per_server", "mode");
}

TEST(TranspilerConfig, ValuesOutOfRangeNameTheField) {
  EXPECT_THAT(refusal({.min_block_size = 4096}, ErrorCode::kInvalidArgument),
              HasSubstr("min_block_size"));
  EXPECT_THAT(refusal({.slices_per_server = 0}, ErrorCode::kInvalidArgument),
              HasSubstr("slices_per_server"));
  EXPECT_THAT(refusal({.nccl_comm_num = 0}, ErrorCode::kInvalidArgument),
              HasSubstr("nccl_comm_num"));
  EXPECT_THAT(refusal({.split_method = "RoundRobbin"}, ErrorCode::kInvalidArgument),
              HasSubstr("did you mean 'RoundRobin'"));
}

TEST(TranspilerConfig, EveryModeIsThere) {
  EXPECT_NO_THROW(validate({.sync_mode = false, .geo_sgd_mode = true}));
  EXPECT_NO_THROW(validate({.enable_dc_asgd = true, .sync_mode = false}));
  EXPECT_NO_THROW(validate({.mode = "collective", .collective_mode = "local_sgd"}));
  EXPECT_NO_THROW(
      validate({.mode = "collective", .collective_mode = "single_process_multi_thread"}));
}

TEST(TranspilerConfig, DetailsBelongToTheirMode) {
  expect_contradiction({.dc_asgd_form = "adaptive"}, "dc_asgd_form", "enable_dc_asgd");
  expect_contradiction({.dc_asgd_lambda = 2}, "dc_asgd_lambda", "enable_dc_asgd");
  expect_contradiction({.dc_asgd_m = 0.9}, "dc_asgd_m", "enable_dc_asgd");
  expect_contradiction({.dc_asgd_epsilon = 1e-6}, "dc_asgd_epsilon", "enable_dc_asgd");
  expect_contradiction(
      {.enable_dc_asgd = true, .dc_asgd_form = "constant", .dc_asgd_m = 0.9, .sync_mode = false},
      "dc_asgd_m", "dc_asgd_form");
  expect_contradiction({.enable_dc_asgd = true,
                        .dc_asgd_form = "paddle",
                        .dc_asgd_epsilon = 1e-6,
                        .sync_mode = false},
                       "dc_asgd_epsilon", "dc_asgd_form");
  expect_contradiction(
      {.enable_dc_asgd = true, .dc_asgd_form = "paddle", .dc_asgd_lambda = 2, .sync_mode = false},
      "dc_asgd_form", "dc_asgd_lambda");
  expect_contradiction({.local_sgd_scheduled = true}, "local_sgd_scheduled", "collective_mode");
  expect_contradiction({.fuse_all_reduce_bytes = 1}, "fuse_all_reduce_bytes", "collective_mode");
  expect_contradiction({.geo_sgd_need_push_nums = 5}, "geo_sgd_need_push_nums", "geo_sgd_mode");
  expect_contradiction({.nccl_comm_num = 2}, "nccl_comm_num", "mode");
  expect_contradiction(
      {.mode = "collective", .nccl_comm_num = 2, .collective_mode = "single_process_multi_thread"},
      "nccl_comm_num", "collective_mode");
  expect_contradiction({.mode = "nccl2", .hierarchical_allreduce_inter_nranks = 2},
                       "hierarchical_allreduce_inter_nranks", "use_hierarchical_allreduce");
  EXPECT_THAT(refusal({.enable_dc_asgd = true, .dc_asgd_form = "cliped", .sync_mode = false},
                      ErrorCode::kInvalidArgument),
              HasSubstr("did you mean 'clipped'"));
}

}  // namespace
}  // namespace fleet::transpiler
