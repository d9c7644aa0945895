#include "strategies/collective/local_sgd_schedule.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::strategies {
namespace {

void check(bool fine, const char* field, const std::string& expected, const std::string& got) {
  if (fine) return;
  throw_error(ErrorCode::kInvalidArgument, {.what = "LocalSGD cannot work with this value",
                                            .where = str_cat("LocalSgdOptions.", field),
                                            .expected = expected,
                                            .got = got,
                                            .fix = "docs/collectives.md explains the options"});
}

}  // namespace

void validate(const LocalSgdOptions& options) {
  check(options.interval >= 1, "interval", "1 or more", str_cat(options.interval));
  check(options.start_step >= 0, "start_step", "0 or more", str_cat(options.start_step));
  check(options.adapt_every >= 1, "adapt_every", "1 or more", str_cat(options.adapt_every));
  check(options.shrink > 0 && options.shrink <= 1, "shrink", "above 0, at most 1",
        str_cat(options.shrink));
  check(options.min_interval >= 1, "min_interval", "1 or more", str_cat(options.min_interval));
  check(options.max_interval >= options.min_interval, "max_interval",
        str_cat("at least min_interval, ", options.min_interval), str_cat(options.max_interval));
  const bool adapts = options.rule != LocalSgdRule::kConstant;
  check(!adapts ||
            (options.interval >= options.min_interval && options.interval <= options.max_interval),
        "interval", str_cat("between ", options.min_interval, " and ", options.max_interval),
        str_cat(options.interval));
}

std::string to_string(LocalSgdRule rule) {
  switch (rule) {
    case LocalSgdRule::kConstant:
      return "constant";
    case LocalSgdRule::kAdaComm:
      return "adacomm";
    case LocalSgdRule::kAdaCommPaddle:
      return "adacomm_paddle";
  }
  return "?";
}

LocalSgdSchedule::LocalSgdSchedule(LocalSgdOptions options)
    : options_(options), interval_(options.interval) {
  validate(options_);
}

int LocalSgdSchedule::interval() const {
  return steps_ < options_.start_step ? 1 : interval_;
}

bool LocalSgdSchedule::step(double loss) {
  const bool every = steps_ < options_.start_step;
  ++steps_;
  ++since_average_;
  ++observed_;
  loss_sum_ += loss;
  last_loss_ = loss;
  return every || since_average_ >= interval_;
}

double LocalSgdSchedule::local_loss() const {
  if (options_.rule == LocalSgdRule::kAdaCommPaddle || observed_ == 0) return last_loss_;
  return loss_sum_ / static_cast<double>(observed_);
}

void LocalSgdSchedule::averaged(double loss, double learning_rate) {
  ++averages_;
  since_average_ = 0;
  if (!adapts()) return;
  const bool decides =
      !begun_ || options_.rule == LocalSgdRule::kAdaCommPaddle || observed_ >= options_.adapt_every;
  if (!decides) return;
  const bool first = !begun_;
  if (first) {
    begun_ = true;
    first_loss_ = loss;
    first_learning_rate_ = learning_rate;
  }
  if (!first || options_.rule == LocalSgdRule::kAdaCommPaddle) adapt(loss, learning_rate);
  observed_ = 0;
  loss_sum_ = 0;
}

std::vector<double> LocalSgdSchedule::counts() const {
  return {static_cast<double>(interval_),
          static_cast<double>(steps_),
          static_cast<double>(since_average_),
          static_cast<double>(averages_),
          static_cast<double>(observed_),
          loss_sum_,
          last_loss_,
          begun_ ? 1.0 : 0.0,
          first_loss_,
          first_learning_rate_};
}

void LocalSgdSchedule::set_counts(std::span<const double> counts) {
  if (counts.size() != this->counts().size()) return;
  interval_ = adapts() ? static_cast<int>(counts[0]) : options_.interval;
  steps_ = static_cast<int64_t>(counts[1]);
  since_average_ = static_cast<int64_t>(counts[2]);
  averages_ = static_cast<int64_t>(counts[3]);
  observed_ = static_cast<int64_t>(counts[4]);
  loss_sum_ = counts[5];
  last_loss_ = counts[6];
  begun_ = counts[7] != 0;
  first_loss_ = counts[8];
  first_learning_rate_ = counts[9];
}

void LocalSgdSchedule::adapt(double loss, double learning_rate) {
  const bool paddle = options_.rule == LocalSgdRule::kAdaCommPaddle;
  const bool rates = (paddle || options_.with_learning_rate) && learning_rate > 0;
  const double ratio = loss / first_loss_ * (rates ? first_learning_rate_ / learning_rate : 1.0);
  // A loss that is no number, or below zero, says nothing.
  if (!std::isfinite(ratio) || ratio < 0) return;
  const double wanted =
      paddle ? std::sqrt(ratio * options_.interval) : options_.interval * std::sqrt(ratio);
  double next = std::ceil(std::min(wanted, 1e9));
  if (!paddle && options_.shrink < 1 && next >= interval_) {
    next = std::ceil(options_.shrink * interval_);
  }
  interval_ = static_cast<int>(std::clamp(next, static_cast<double>(options_.min_interval),
                                          static_cast<double>(options_.max_interval)));
}

}  // namespace fleet::strategies
