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

// A gradient that arrives at the cells.
bool trains_by_cells(const Json& json) {
  const Json cells = json.value("cotangents", Json::object()).value("Cell", Json::array());
  return json.value("op", "") == "lstm" && !cells.empty() && cells[0].is_string();
}

bool adaptive_maximum(const Json& json) {
  const Json attrs = json.value("attrs_effective", Json::object());
  return json.value("op", "") == "pool2d" && attrs.value("adaptive", false) &&
         attrs.value("pooling_type", "") == "max";
}

double attribute(const Json& json, const char* name, double otherwise) {
  return json.value("attrs_effective", Json::object()).value(name, otherwise);
}

bool scales_hard_swish(const Json& json) {
  return json.value("op", "") == "hard_swish" &&
         attribute(json, "scale", 6) != attribute(json, "threshold", 6);
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

bool whole_numbers(const Json& json) {
  const Json x = json.value("inputs", Json::object()).value("X", Json::array());
  return !x.empty() && x[0].value("dtype", "").starts_with("int");
}

bool divides_whole_numbers(const Json& json) {
  const std::string op = json.value("op", "");
  return (op == "elementwise_mod" || op == "elementwise_floordiv") && whole_numbers(json);
}

// Jobs name their net by a sentence (numeric_nets.h).
bool has_net(const Json& json, std::string_view sentence) {
  return json.value("net", "").starts_with(sentence);
}

bool has_mode(const Json& json, std::initializer_list<std::string_view> modes) {
  const std::string mode = json.value("mode", "");
  return std::find(modes.begin(), modes.end(), mode) != modes.end();
}

bool has_schedule(const Json& json) {
  return json.value("settings", Json::object()).contains("ds");
}

bool several_trainers(const Json& json) {
  return json.value("trainers", 1) > 1;
}

bool counts_on_servers(const Json& json) {
  return has_mode(json, {"async", "dc"}) && has_schedule(json);
}

bool counts_nowhere(const Json& json) {
  return has_mode(json, {"fleet_half", "fleet_sync"}) && has_schedule(json);
}

bool keeps_statistics(const Json& json) {
  return has_mode(json, {"sync", "fleet_sync"}) && several_trainers(json) &&
         has_net(json, "fc without bias, batch_norm");
}

bool compensates(const Json& json) {
  return json.value("mode", "") == "dc" && several_trainers(json);
}

bool job_in_stairs(const Json& json) {
  return has_schedule(json) && json["settings"].value("stair", false);
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

bool is_op(const Json& json, std::initializer_list<std::string_view> ops) {
  const std::string op = json.value("op", "");
  return std::find(ops.begin(), ops.end(), op) != ops.end();
}

template <class... Names>
std::function<bool(const Json&)> of_op(Names... names) {
  return [=](const Json& json) { return is_op(json, {names...}); };
}

template <class... Names>
std::function<bool(const Json&)> of_optimizer(Names... names) {
  return [=](const Json& json) { return (is_optimizer(json, names) || ...); };
}

std::function<bool(const Json&)> of_schedule(const char* kind) {
  return [kind](const Json& json) {
    const Json schedule = json.value("schedule", Json::object());
    return schedule.is_object() && schedule.value("kind", "") == kind;
  };
}

using Departures = std::vector<NumericDeparture>;
using KeptForms = std::vector<KeptForm>;

template <class Rule>
void append(std::vector<Rule>& all, const std::vector<Rule>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

Departures departures_of_ops() {
  return {
      {"ops", "lookup_table, lookup_table_v2 with is_sparse and padding_idx",
       "rows of padding_idx have their full gradient", "they have none, as in the dense form",
       "padding is no input, and both forms should train the same table", "paddle_form",
       sparse_padding, looks_up_padding},
      {"ops", "hierarchical_sigmoid", "each position behind the end of a path adds log 2 to Out",
       "they add nothing", "a loss should not grow with the longest path of others", "paddle_form",
       of_op("hierarchical_sigmoid"), has_short_path},
      {"ops", "pool2d, max, adaptive",
       "ordinary windows of ksize from the first corner on, as many as ksize says",
       "windows that divide the image, as for averages", "windows should cover the image",
       "paddle_form", adaptive_maximum},
      {"ops", "lstm with a gradient at Cell", "it is ignored", "it counts",
       "a loss may use the cells", "paddle_form", trains_by_cells, always,
       "tests/fluid/layers/sequence_test.cc: PassGradientsBackThroughTime"},
      {"ops", "group_norm with a Scale of 0",
       "the gradient finds the normalised x in Y: it is lost", "in X: it is there",
       "a scale of 0 should be able to leave", "paddle_form", of_op("group_norm"), nullptr,
       "tests/fluid/layers/gradients_test.cc: TrainsAScaleOfZeroButInPaddlesForm"},
      {"ops", "softmax_with_cross_entropy with ignore_index",
       "rows that are ignored cost 0 and have an ordinary gradient", "they have none",
       "the gradient of 0 is 0", "paddle_form", ignores_labels, has_ignored_label},
      {"ops", "elu",
       "the gradient at x where e^x overflows is not a number, in what a vector loop leaves over",
       "it is that of x", "elu is x there", "paddle_form", of_op("elu"), has_no_number},
      {"ops", "soft_relu",
       "the gradient is that of the end below -threshold, and 0 where Out reaches the threshold",
       "0 below -threshold and above the threshold", "it is the gradient", "paddle_form",
       of_op("soft_relu"), nullptr,
       "tests/fluid/kernels/dense_ops_test.cc: SoftReluHasNoGradientBeyondItsThreshold"},
      {"ops", "scatter", "rows of X that are replaced have Out's gradient too, and every update",
       "none, and of updates to one row the last", "what is replaced has no effect", "paddle_form",
       of_op("scatter"), nullptr,
       "tests/fluid/kernels/dense_ops_test.cc: RowsThatAreScatteredOverHaveNoGradient"},
      {"ops", "hard_swish", "the gradient above the threshold is 1, whatever the scale",
       "threshold / scale", "it is the gradient", "paddle_form", scales_hard_swish, nullptr,
       "tests/fluid/kernels/dense_ops_test.cc: HardSwishRisesByThresholdOverScale"},
      {"ops", "auc with curve PR", "the area under the ROC curve",
       "the area under precision over recall", "it is what was asked for", "paddle_form",
       curve_of_precision},
      {"ops", "elementwise_floordiv, elementwise_mod of whole numbers",
       "the quotient is cut towards 0, the rest has the dividend's sign (of floats, the divisor's)",
       "the quotient is rounded down, the rest has the divisor's sign",
       "floordiv says so, and whole numbers should not differ from floats", "paddle_form",
       divides_whole_numbers, divides_unlike_signs},
  };
}

// Where Paddle reads or writes beyond what it owns, or stops.
Departures departures_without_a_form() {
  return {
      {"ops", "pad",
       "for some shapes elements of the gradient are wrong (of 3 x 5 in 6 x 9, three)",
       "the part of Out's gradient that X fills", "it is the gradient", "", nullptr, always,
       "tests/fluid/kernels/dense_ops_test.cc: PadsOfAnyWidthPassBackTheirInside"},
      {"ops", "reduce_sum of everything with keep_dim",
       "all but the first element's gradient is read behind the end of Out's",
       "each element has Out's gradient", "it is the gradient", "", nullptr, always,
       "tests/fluid/kernels/dense_ops_test.cc: SumsOfEverythingPassTheirGradientToEveryElement"},
      {"ops", "split along a negative axis", "the op corrupts memory", "counts from the last one",
       "layers give such axes", "", nullptr, always,
       "tests/fluid/kernels/dense_ops_test.cc: SplitsAlongANegativeAxis"},
      {"ops", "sequence_concat of one input", "it is refused", "the input",
       "a list of one is a list", "", nullptr, always,
       "tests/fluid/kernels/dense_ops_test.cc: OneSequenceConcatenatedIsItself"},
      {"optimizers, clip_regularizer", "Adam, selected rows, without lazy_mode",
       "rows behind the largest that came get a stray gradient now and then", "a gradient of 0",
       "their gradient is 0", "", nullptr, always,
       "tests/fluid/optimizer/sparse_forms_test.cc: RowsUpdateAsTheDenseGradientDoes"},
      {"optimizers, clip_regularizer",
       "LarsMomentum, DecayedAdagrad, Adadelta, Adamax, Ftrl, selected rows",
       "they stop at the first step", "as with the dense gradient",
       "a sparse gradient is a gradient", "", nullptr, always,
       "tests/fluid/optimizer/sparse_forms_test.cc: RowsUpdateAsTheDenseGradientDoes"},
  };
}

Departures departures_of_training() {
  const std::string optimizers = "optimizers, clip_regularizer";
  return {
      {optimizers, "Adadelta", "the step is taken with the new mean of squared updates",
       "with the old one, as Zeiler has it", "the new mean holds the step that it scales",
       "paddle_form", of_optimizer("Adadelta"), has_gradient},
      {optimizers, "Adam, selected rows", "bias corrections are one step ahead",
       "those of this step, as with dense gradients",
       "rows and their dense form should train the same table", "paddle_form", sparse_adam,
       has_gradient},
      {optimizers, "Ftrl", "l2 is ignored, l1 taken in its place", "l2 is l2",
       "it is what was asked for", "paddle_form", ignores_l2, leaves_zero},
      {optimizers, "Lamb", "no bias correction, the powers of beta stay",
       "moments are corrected and the powers advance, as You et al. have it",
       "the first steps would be too long or too short", "paddle_form", of_optimizer("Lamb")},
      {"training", "adam, selected rows", "bias corrections are one step ahead",
       "those of this step, as with dense gradients",
       "rows and their dense form should train the same table", "paddle_form", trains_sparse_adam},
      {"lr_schedules", "polynomial_decay with cycle, staircases, cosine_decay",
       "periods are counted with the float32 nearest to 1/n: for some n one begins a step late, or "
       "a cycle a step early",
       "a multiple of n counts as one", "a period has n steps", "DecayForm::kPaddle",
       rounds_periods, /*differs=*/nullptr},
  };
}

Departures departures_of_initialisers() {
  return {
      {"initialisers", "Bilinear",
       "under Python 3 a row's number grows along the row, in steps of 1 / k",
       "whole numbers: each filter interpolates linearly in both directions",
       "a filter that enlarges an image should not shear it", "paddle_form", nullptr, always,
       "tests/fluid/layers/layers_test.cc: BilinearFiltersInPaddlesForm"},
  };
}

Departures departures_of_jobs() {
  return {
      {"distributed", "adam, selected rows", "bias corrections are one step ahead",
       "those of this step, as with dense gradients",
       "rows and their dense form should train the same table", "paddle_form",
       [](const Json& json) { return has_net(json, "click-through net"); }},
      {"distributed", "schedules of asynchronous jobs",
       "servers count the first gradient of N trainers as step N",
       "the first N as step 0: one worker has the rates of a local run",
       "a schedule should begin at its beginning", "paddle_schedules", counts_on_servers,
       /*differs=*/nullptr},
      {"distributed", "schedules of jobs with a communicator (half-async, Fleet's synchronous)",
       "servers are never told of a step: the rate of N trainers stays that of step N",
       "synchronous: the rates of a local run; half-async: as in asynchronous jobs",
       "a schedule that stands still is none", "paddle_schedules", counts_nowhere,
       /*differs=*/nullptr},
      {"distributed", "staircases", "periods are counted with the float32 nearest to 1/n",
       "a multiple of n counts as one", "a period has n steps", "DecayForm::kPaddle", job_in_stairs,
       /*differs=*/nullptr},
      {"distributed", "batch_norm in synchronous jobs",
       "each trainer keeps moving statistics of its own", "servers average them",
       "a job has one model, which can be saved and tested", "server_statistics = false",
       keeps_statistics},
      {"distributed", "delay compensation",
       "g + g g (w - w_bak): lambda is 1, and nothing else can be asked for",
       "the adaptive form of the paper; a component never changes its sign",
       "with lambda 1 training diverges where the paper's rule does not", "dc_asgd_form = paddle",
       compensates},
  };
}

KeptForms kept_by_ops() {
  return {
      {"ops", "clip, relu, relu6, abs", "the gradient at the kink is 0 (of leaky_relu, the slope)",
       "any number between the sides is one", of_op("clip", "relu", "relu6", "abs", "leaky_relu")},
      {"ops", "elementwise_max, elementwise_min", "a tie gives the gradient to Y",
       "one of them must have it", of_op("elementwise_max", "elementwise_min")},
      {"ops", "reduce_max, reduce_min", "every tied element has the whole gradient",
       "programs are trained with it", of_op("reduce_max", "reduce_min")},
      {"ops", "cross_entropy, cross_entropy2",
       "a probability of 0 costs 1e20 and has an infinite gradient",
       "a loss that is a number can be watched", of_op("cross_entropy", "cross_entropy2")},
      {"ops", "softmax_with_cross_entropy",
       "logits, less their largest, are cut at -64: an impossible label costs 64",
       "the loss stays finite", of_op("softmax_with_cross_entropy")},
      {"ops", "sigmoid_cross_entropy_with_logits",
       "labels are cut to whole numbers before they are compared with ignore_index",
       "it names a class", of_op("sigmoid_cross_entropy_with_logits"),
       "tests/fluid/kernels/dense_ops_test.cc: SigmoidLossIgnoresLabelsByTheirWholePart"},
      {"ops", "fill_constant", "the value is a float32, widened afterwards",
       "the op's attribute has that type", of_op("fill_constant")},
      {"ops", "scale of whole numbers", "scale and bias are cut to whole numbers first",
       "the result has the type of X",
       [](const Json& json) { return is_op(json, {"scale"}) && whole_numbers(json); }},
      {"ops", "softplus", "no threshold: the exact value for large x", "it is exact",
       of_op("softplus")},
      {"ops", "gather",
       "`overwrite`, on by default in the op: of a row that is taken several times "
       "the last taking's gradient counts; layers::gather has it off",
       "an option of the op", of_op("gather")},
      {"ops", "batch_norm",
       "moving and saved statistics have the biased variance, SavedVariance is 1 / sqrt(var + "
       "eps); "
       "with one value a channel Y is X and the statistics stay",
       "saved models hold them", of_op("batch_norm")},
      {"ops", "pool2d",
       "of several maxima the first has the gradient; with exclusive off an average divides by the "
       "whole window, outside the image too",
       "one of them must have it; an option of the op", of_op("pool2d")},
      {"ops", "nce with the log-uniform sampler", "P(c) = log((c + 2) / (c + 1)) / log(classes)",
       "labels sorted by frequency follow it", of_op("nce")},
      {"ops", "lstm, gru",
       "gates stand as candidate, input, forget, output, peepholes behind the bias; gru's weight "
       "is "
       "[d, 2d] followed by [d, d]",
       "saved models hold them", of_op("lstm", "gru")},
      {"ops", "round", "halves go away from zero", "as in C", nullptr,
       "tests/fluid/kernels/dense_ops_test.cc: HalvesAreRoundedAwayFromZero"},
  };
}

KeptForms kept_by_training() {
  const std::string optimizers = "optimizers, clip_regularizer";
  return {
      {optimizers, "Adadelta", "the learning rate is not used", "Zeiler's rule has none",
       of_optimizer("Adadelta")},
      {optimizers, "Adam, Adamax, RMSProp",
       "epsilon stands beside sqrt(v) before its correction; inside max(); under the root",
       "results of trained models depend on it", of_optimizer("Adam", "Adamax", "RMSProp")},
      {optimizers, "Ftrl", "1e-10 is added to l1 and l2", "nothing is divided by 0",
       of_optimizer("Ftrl")},
      {optimizers, "LarsMomentum, Lamb", "where a norm is 0 the plain rate is taken",
       "a parameter of zeros must be able to leave", of_optimizer("LarsMomentum", "Lamb")},
      {optimizers, "clip and decay",
       "clip comes first, decay is added unclipped; decay makes a sparse gradient dense: all rows "
       "decay",
       "decay is part of the rule, not of the gradient",
       [](const Json& json) { return decays(json); }},
      {"lr_schedules", "noam_decay", "steps count from 1, of a warm-up around it too",
       "a program has one counter", of_schedule("noam_decay")},
      {"lr_schedules", "linear_lr_warmup", "holds while step < warmup_steps", "a choice",
       of_schedule("linear_lr_warmup")},
  };
}

}  // namespace

const std::vector<NumericDeparture>& numeric_departures() {
  static const Departures kRules = [] {
    Departures all = departures_of_ops();
    append(all, departures_of_training());
    append(all, departures_of_jobs());
    append(all, departures_of_initialisers());
    append(all, departures_without_a_form());
    return all;
  }();
  return kRules;
}

const std::vector<KeptForm>& kept_forms() {
  static const KeptForms kRules = [] {
    KeptForms all = kept_by_ops();
    append(all, kept_by_training());
    return all;
  }();
  return kRules;
}

bool has_family(const std::string& families, std::string_view family) {
  const auto parts = split(families, ',');
  return std::any_of(parts.begin(), parts.end(),
                     [family](std::string_view part) { return trim(part) == family; });
}

std::vector<const NumericDeparture*> find_departures(std::string_view family, const Json& json) {
  std::vector<const NumericDeparture*> found;
  for (const NumericDeparture& rule : numeric_departures()) {
    if (rule.applies && has_family(rule.family, family) && rule.applies(json)) {
      found.push_back(&rule);
    }
  }
  return found;
}

bool asks(const std::vector<const NumericDeparture*>& departures, std::string_view option) {
  return std::any_of(departures.begin(), departures.end(),
                     [option](const auto* departure) { return departure->option == option; });
}

}  // namespace fleet::fluid::golden
