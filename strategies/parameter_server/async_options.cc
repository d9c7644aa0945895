#include "strategies/parameter_server/async_options.h"

#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::strategies {
namespace {

constexpr std::array<std::pair<DelayCompensation, std::string_view>, 5> kForms = {{
    {DelayCompensation::kNone, "none"},
    {DelayCompensation::kPaddle, "paddle"},
    {DelayCompensation::kConstant, "constant"},
    {DelayCompensation::kAdaptive, "adaptive"},
    {DelayCompensation::kClipped, "clipped"},
}};

[[noreturn]] void refuse(std::string what, std::string where, std::string expected, std::string got,
                         std::string fix) {
  throw_error(ErrorCode::kInvalidArgument, {.what = std::move(what),
                                            .where = std::move(where),
                                            .expected = std::move(expected),
                                            .got = std::move(got),
                                            .fix = std::move(fix)});
}

void check_positive(std::string_view name, uint32_t value) {
  if (value > 0) return;
  refuse("an option of asynchronous training is out of range", std::string(name), "1 or more", "0",
         str_cat("set ", name, " to at least 1"));
}

void check_number(std::string_view name, double value, bool fits, std::string_view expected) {
  if (std::isfinite(value) && fits) return;
  refuse("an option of asynchronous training is out of range", std::string(name),
         std::string(expected), str_cat(value), str_cat("set ", name, " to ", expected));
}

void check_compensation(const AsyncOptions& options) {
  const DelayCompensationOptions& form = options.delay_compensation;
  if (form.form == DelayCompensation::kNone) return;
  check_number("delay_compensation.lambda", form.lambda, form.lambda >= 0, "0 or more");
  check_number("delay_compensation.mean_square_decay", form.mean_square_decay,
               form.mean_square_decay >= 0 && form.mean_square_decay < 1, "in [0, 1)");
  check_number("delay_compensation.epsilon", form.epsilon, form.epsilon > 0, "above 0");
  if (sends_differences(options.mode)) {
    refuse("delay compensation is for gradients, and this mode sends differences of parameters",
           "delay_compensation.form and mode", "mode async or half_async",
           str_cat("form ", to_string(form.form), " with mode ", to_string(options.mode)),
           "switch delay compensation off, or train with AsyncStrategy");
  }
}

void check_staleness(const AsyncOptions& options) {
  if (!options.staleness_bound) return;
  if (options.mode != ServerMode::kAsync) {
    refuse("a staleness bound is for asynchronous training", "staleness_bound and mode",
           "mode async",
           str_cat("staleness_bound ", *options.staleness_bound, " with mode ",
                   to_string(options.mode)),
           "leave staleness_bound unset, or train with AsyncStrategy");
  }
  if (options.trainer_threads > 1 || options.max_merge_var_num > 1) {
    refuse("a staleness bound counts the steps of one trainer thread, none of them merged",
           "staleness_bound, trainer_threads and max_merge_var_num",
           "trainer_threads 1 and max_merge_var_num 1",
           str_cat("trainer_threads ", options.trainer_threads, ", max_merge_var_num ",
                   options.max_merge_var_num),
           "leave staleness_bound unset, or use one thread and no merging");
  }
}

}  // namespace

DelayCompensationOptions DelayCompensationOptions::preset(DelayCompensation form) {
  DelayCompensationOptions options;
  options.form = form;
  if (form == DelayCompensation::kConstant) options.lambda = 0.04;
  if (form == DelayCompensation::kAdaptive) options.lambda = 2.0;
  if (form == DelayCompensation::kClipped) options.lambda = 4.0;
  return options;
}

std::string_view to_string(DelayCompensation form) {
  for (const auto& [value, name] : kForms) {
    if (value == form) return name;
  }
  return "unknown";
}

std::optional<DelayCompensation> parse_delay_compensation(std::string_view text) {
  for (const auto& [value, name] : kForms) {
    if (name == text) return value;
  }
  return std::nullopt;
}

void validate(const AsyncOptions& options) {
  if (is_synchronous(options.mode)) {
    refuse("synchronous training has no options of asynchronous training", "AsyncOptions.mode",
           "async, half_async, geo or easgd", std::string(to_string(options.mode)),
           "train with SyncStrategy, or attach without options");
  }
  check_positive("trainer_threads", options.trainer_threads);
  check_positive("max_merge_var_num", options.max_merge_var_num);
  check_positive("send_queue_size", options.send_queue_size);
  check_positive("min_send_grad_num_before_recv", options.min_send_grad_num_before_recv);
  check_positive("geo_update_frequency", options.geo_update_frequency);
  check_positive("easgd_tau", options.easgd_tau);
  check_positive("thread_pool_size", options.thread_pool_size);
  check_number("easgd_alpha", options.easgd_alpha,
               options.easgd_alpha >= 0 && options.easgd_alpha <= 1, "in [0, 1]");
  check_compensation(options);
  check_staleness(options);
}

std::map<std::string, std::string> async_facts(const AsyncOptions& options) {
  std::map<std::string, std::string> facts;
  facts["mode"] = to_string(options.mode);
  facts["trainer_threads"] = str_cat(options.trainer_threads);
  facts["staleness_bound"] =
      options.staleness_bound ? str_cat(*options.staleness_bound) : std::string("none");
  const DelayCompensationOptions& form = options.delay_compensation;
  facts["delay_compensation"] = form.form == DelayCompensation::kNone
                                    ? std::string("none")
                                    : str_cat(to_string(form.form), " lambda ", form.lambda, " m ",
                                              form.mean_square_decay, " epsilon ", form.epsilon);
  if (options.mode == ServerMode::kGeo) {
    facts["geo_update_frequency"] = str_cat(options.geo_update_frequency);
  }
  if (options.mode == ServerMode::kEasgd) {
    facts["easgd"] = str_cat("tau ", options.easgd_tau, " alpha ", options.easgd_alpha);
  }
  return facts;
}

}  // namespace fleet::strategies
