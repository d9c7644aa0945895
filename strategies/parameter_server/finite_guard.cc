#include "strategies/parameter_server/finite_guard.h"

#include <cmath>
#include <utility>

#include "base/strings.h"

namespace fleet::strategies {
namespace {

constexpr const char* kAdvice =
    "lower the learning rate, or clip the gradients; FLAGS_check_nan_inf=1 finds the op, and "
    "FLEET_ON_NONFINITE=warn (--on_nonfinite of the launchers) goes on";

std::string value_text(double value) {
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

struct Words {
  const char* key;
  const char* subject;
};

Words words_of(fluid::Nonfinite::What what) {
  switch (what) {
    case fluid::Nonfinite::What::kLoss:
      return {"loss", "the loss"};
    case fluid::Nonfinite::What::kParameter:
      return {"parameter", "parameter"};
    case fluid::Nonfinite::What::kGradients:
      return {"gradients", "with a loss scaling of 1, the sum of all gradients"};
  }
  return {"", ""};
}

}  // namespace

FiniteGuard::FiniteGuard(OnNonfinite policy, std::string who, std::shared_ptr<JobObserver> observer,
                         Logger logger)
    : policy_(policy),
      who_(std::move(who)),
      observer_(std::move(observer)),
      logger_(std::move(logger)) {}

Status FiniteGuard::report(const fluid::Nonfinite& found, std::optional<uint32_t> sender) {
  const std::string value = value_text(found.value);
  std::string what = str_cat(words_of(found.what).subject, " '", found.variable, "' is ", value);
  if (sender) what += str_cat(" after a gradient of worker ", *sender);
  if (!told_.exchange(true)) tell(found, what, value, sender);
  if (policy_ == OnNonfinite::kWarn) return {};
  return {ErrorCode::kNumerics,
          {.what = std::move(what),
           .where = str_cat(who_, ", step ", found.step),
           .expected = "finite values",
           .got = value,
           .fix = kAdvice}};
}

void FiniteGuard::tell(const fluid::Nonfinite& found, const std::string& what,
                       const std::string& value, std::optional<uint32_t> sender) const {
  const LogLevel level = policy_ == OnNonfinite::kStop ? LogLevel::kError : LogLevel::kWarning;
  logger_.write(level, "nonfinite", what, {{"step", found.step}, {"fix", kAdvice}});
  if (observer_ == nullptr) return;
  std::string keys =
      str_cat("nonfinite=", words_of(found.what).key, " nonfinite_variable=", found.variable,
              " nonfinite_value=", value, " nonfinite_step=", found.step);
  if (sender) keys += str_cat(" nonfinite_sender=", *sender);
  observer_->tell_nonfinite(std::move(keys));
}

}  // namespace fleet::strategies
