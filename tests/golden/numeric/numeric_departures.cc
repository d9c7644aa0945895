#include "tests/golden/numeric/numeric_departures.h"

#include <algorithm>

#include "base/strings.h"

namespace fleet::fluid::golden {
namespace {

bool is_optimizer(const Json& json, const char* name) {
  return json.value("optimizer", "") == name;
}

double argument(const Json& json, const char* name, double otherwise) {
  return json.value("arguments", Json::object()).value(name, otherwise);
}

bool decays(const Json& json) {
  return json.contains("regularizer") && !json["regularizer"].is_null();
}

// Selected rows reach the update op of a parameter: a decay, its own or that of all, makes the
// gradient dense.
bool updates_by_rows(const Json& json) {
  const Json parameters = json.value("parameters", Json::object());
  return !decays(json) &&
         std::any_of(parameters.begin(), parameters.end(), [](const Json& parameter) {
           return parameter.is_object() && parameter.value("gradient", "") == "selected_rows" &&
                  !decays(parameter);
         });
}

bool sparse_adam(const Json& json) {
  return is_optimizer(json, "Adam") && updates_by_rows(json);
}

// Nets train with ops only: an adam whose gradient comes from a sparse lookup.
bool trains_sparse_adam(const Json& json) {
  const Json ops = json.value("ops", Json::array());
  const auto has = [&](auto condition) { return std::any_of(ops.begin(), ops.end(), condition); };
  return has([](const Json& op) { return op["type"] == "adam"; }) && has([](const Json& op) {
           return op["type"].get<std::string>().starts_with("lookup_table") &&
                  op["attrs"].value("is_sparse", false);
         });
}

bool sparse_padding(const Json& json) {
  const Json attrs = json.value("attrs_effective", Json::object());
  return json.value("op", "").starts_with("lookup_table") && attrs.value("is_sparse", false) &&
         attrs.value("padding_idx", -1) >= 0;
}

bool adaptive_maximum(const Json& json) {
  const Json attrs = json.value("attrs_effective", Json::object());
  return json.value("op", "") == "pool2d" && attrs.value("adaptive", false) &&
         attrs.value("pooling_type", "") == "max";
}

double attribute(const Json& json, const char* name, double otherwise) {
  return json.value("attrs_effective", Json::object()).value(name, otherwise);
}

bool ignores_labels(const Json& json) {
  return json.value("op", "") == "softmax_with_cross_entropy" &&
         attribute(json, "ignore_index", -100) != -100;
}

bool curve_of_precision(const Json& json) {
  const Json attrs = json.value("attrs_effective", Json::object());
  return json.value("op", "") == "auc" && attrs.value("curve", "") == "PR";
}

bool ignores_l2(const Json& json) {
  return is_optimizer(json, "Ftrl") && argument(json, "l1", 0.0) != argument(json, "l2", 0.0);
}

// The job's servers count gradients as they come.
bool counts_on_servers(const Json& json) {
  const std::string mode = json.value("mode", "");
  const Json settings = json.value("settings", Json::object());
  return (mode == "async" || mode == "dc" || mode == "fleet_half") && settings.contains("ds");
}

// The schedule, or the one inside a warm-up, rounds step / n to whole periods.
bool rounds_periods(const Json& json) {
  Json schedule = json.value("schedule", Json::object());
  if (schedule.contains("inner") && schedule["inner"].is_object()) {
    schedule = Json(schedule["inner"]);
  }
  return schedule.value("cycle", false) || schedule.value("staircase", false) ||
         schedule.value("kind", "") == "cosine_decay";
}

}  // namespace

const std::vector<NumericDeparture>& numeric_departures() {
  static const std::vector<NumericDeparture> kRules = {
      {"ops", "lookup_table, lookup_table_v2 with is_sparse and padding_idx",
       "rows of padding_idx have their full gradient", "they have none, as in the dense form",
       "original_form", sparse_padding},
      {"ops", "hierarchical_sigmoid", "each position behind the end of a path adds log 2 to Out",
       "they add nothing", "original_form",
       [](const Json& json) { return json.value("op", "") == "hierarchical_sigmoid"; }},
      {"ops", "pool2d, max, adaptive", "`adaptive` is ignored: ordinary windows",
       "windows that divide the image, as for averages", "original_form", adaptive_maximum},
      {"ops", "lstm with a gradient at Cell", "it is ignored", "it counts", "original_form",
       [](const Json& json) { return json.value("op", "") == "lstm"; }},
      {"ops", "softmax_with_cross_entropy with ignore_index",
       "rows that are ignored cost 0 and have an ordinary gradient", "they have none",
       "original_form", ignores_labels},
      {"ops", "elu", "the gradient at x where e^x overflows is not a number", "it is that of x",
       "original_form", [](const Json& json) { return json.value("op", "") == "elu"; }},
      {"ops", "auc with curve PR", "the area under the ROC curve",
       "the area under precision over recall", "original_form", curve_of_precision},
      {"optimizers, clip_regularizer", "Adadelta",
       "the step is taken with the new mean of squared updates",
       "with the old one, as Zeiler has it", "original_form",
       [](const Json& json) { return is_optimizer(json, "Adadelta"); }},
      {"optimizers, clip_regularizer", "Adam, selected rows", "bias corrections are one step ahead",
       "those of this step, as with dense gradients", "original_form", sparse_adam},
      {"optimizers, clip_regularizer", "Ftrl", "l2 is ignored, l1 taken in its place", "l2 is l2",
       "original_form", ignores_l2},
      {"optimizers, clip_regularizer", "Lamb", "no bias correction, the powers of beta stay",
       "moments are corrected and the powers advance, as You et al. have it", "original_form",
       [](const Json& json) { return is_optimizer(json, "Lamb"); }},
      {"training", "adam, selected rows", "bias corrections are one step ahead",
       "those of this step, as with dense gradients", "original_form", trains_sparse_adam},
      {"distributed", "schedules of asynchronous jobs",
       "servers count the first gradient as step 1",
       "as step 0: one worker has the rates of a local run", "original_schedules",
       counts_on_servers},
      {"lr_schedules", "polynomial_decay with cycle, staircases, cosine_decay",
       "periods are counted with the float32 nearest to 1/n: for some n one begins a step late, or "
       "a cycle a step early",
       "a multiple of n counts as one", "DecayForm::kOriginal", rounds_periods},
  };
  return kRules;
}

const NumericDeparture* find_departure(const std::string& family, const Json& json) {
  for (const NumericDeparture& rule : numeric_departures()) {
    std::vector<std::string> families;
    for (const std::string& part : split(rule.family, ',')) families.emplace_back(trim(part));
    const bool concerned = std::find(families.begin(), families.end(), family) != families.end();
    if (concerned && rule.applies(json)) return &rule;
  }
  return nullptr;
}

}  // namespace fleet::fluid::golden
