#include "fluid/ops/loss/metric.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "fluid/kernels/cpu/math/sums.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tensor_attributes.h"
#include "fluid/kernels/cpu/tile_scratch.h"
#include "fluid/kernels/loss/metrics.h"

namespace fleet::fluid::cpu {
namespace {

// Falling order; equal values in the order of their indices; not-a-number last.
template <class T>
std::unique_ptr<Prepared> prepare_top_k(PrepareContext& context) {
  const TopK t = top_k_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    constexpr int64_t kCost = 8;  // of an element in the sort
    c.tiles().split(t.rows, kCost * t.n, [&](int64_t begin, int64_t end) {
      int64_t* order = tile_scratch<int64_t>(t.n);
      for (int64_t i = begin; i < end; ++i) {
        const T* xs = c.in<T>(t.x) + i * t.n;
        std::iota(order, order + t.n, 0);
        std::partial_sort(order, order + t.k, order + t.n, [xs](int64_t a, int64_t b) {
          const bool a_nan = xs[a] != xs[a];
          const bool b_nan = xs[b] != xs[b];
          if (a_nan != b_nan) return b_nan;
          return a_nan || xs[a] == xs[b] ? a < b : xs[a] > xs[b];
        });
        for (int64_t j = 0; j < t.k; ++j) {
          if (t.out >= 0) c.out<T>(t.out)[i * t.k + j] = xs[order[j]];
          if (t.indices >= 0) c.out<int64_t>(t.indices)[i * t.k + j] = order[j];
        }
      }
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_top_k_grad(PrepareContext& context) {
  const TopK t = top_k_back_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    T* outs = c.out<T>(t.out);
    c.tiles().split(t.rows, t.n, [&](int64_t begin, int64_t end) {
      std::fill(outs + begin * t.n, outs + end * t.n, T{});
      for (int64_t i = begin * t.k; i < end * t.k; ++i) {
        outs[i / t.k * t.n + c.in<int64_t>(t.indices)[i]] = c.in<T>(t.grad)[i];
      }
    });
  });
}

// A row is right when its label is among the row's indices.
std::unique_ptr<Prepared> prepare_accuracy(PrepareContext& context) {
  const Accuracy a = accuracy_of(context);
  return make_prepared([=](const KernelContext& c) {
    const auto* found = c.in<int64_t>(a.indices);
    const auto* wanted = c.in<int64_t>(a.label);
    const auto right =
        sum_of_parts<int32_t>(c.tiles(), a.rows, 4 + a.k, [=](int64_t i, int64_t end) {
          int32_t count = 0;
          for (const int64_t* row = found + i * a.k; i < end; ++i, row += a.k) {
            count += std::find(row, row + a.k, wanted[i]) != row + a.k ? 1 : 0;
          }
          return count;
        });
    const auto all = static_cast<float>(a.rows);
    if (a.share >= 0) *c.out<float>(a.share) = a.rows == 0 ? 0.0f : static_cast<float>(right) / all;
    if (a.correct >= 0) *c.out<int32_t>(a.correct) = right;
    if (a.total >= 0) *c.out<int32_t>(a.total) = static_cast<int32_t>(a.rows);
  });
}

// Which numbers of the states are those that AUC is of, after this batch is counted.
struct AucStates {
  int64_t buckets = 0;
  int64_t slide_steps = 0;

  int64_t size() const { return slide_steps == 0 ? buckets : (slide_steps + 1) * buckets + 1; }
  // Where this batch is counted: the oldest batch of the window is forgotten first.
  int64_t make_room(int64_t* states) const {
    if (slide_steps == 0) return 0;
    int64_t* sums = states + slide_steps * buckets;
    const int64_t at = states[size() - 1] % slide_steps * buckets;
    for (int64_t i = 0; i < buckets; ++i) sums[i] -= states[at + i];
    std::fill(states + at, states + at + buckets, 0);
    return at;
  }
  // The counts over the window.
  const int64_t* sums_with(int64_t* states, int64_t at) const {
    if (slide_steps == 0) return states;
    int64_t* sums = states + slide_steps * buckets;
    for (int64_t i = 0; i < buckets; ++i) sums[i] += states[at + i];
    ++states[size() - 1];
    return sums;
  }
};

// The area under precision over recall; precision begins with that of the highest predictions.
double precision_area(std::span<const int64_t> positives, std::span<const int64_t> negatives) {
  double all = 0;
  for (const int64_t count : positives) all += static_cast<double>(count);
  if (all == 0) return 0;
  double area = 0;
  double p = 0;
  double n = 0;
  double before = -1;
  for (size_t i = positives.size(); i-- > 0;) {
    const auto more = static_cast<double>(positives[i]);
    p += more;
    n += static_cast<double>(negatives[i]);
    if (p + n == 0) continue;
    const double precision = p / (p + n);
    area += more / all * (before < 0 ? precision : (precision + before) / 2);
    before = precision;
  }
  return area;
}

template <class T>
int64_t bucket_of(T probability, int64_t buckets) {
  if (!(probability >= T{0} && probability <= T{1})) {
    throw_error(ErrorCode::kFeed, {.what = "a prediction is not a probability",
                                   .where = "op auc, slot 'Predict'",
                                   .expected = "0 to 1",
                                   .got = str_cat(static_cast<double>(probability)),
                                   .fix = "predict with softmax or sigmoid"});
  }
  return static_cast<int64_t>(probability * static_cast<T>(buckets - 1));
}

template <class T>
void count_batch(const T* predictions, const int64_t* labels, int64_t rows, int64_t width,
                 int64_t buckets, int64_t* positives, int64_t* negatives) {
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t bucket = bucket_of(predictions[i * width + width - 1], buckets);
    if (labels[i] > 0) ++positives[bucket];
    if (labels[i] == 0) ++negatives[bucket];
  }
}

std::unique_ptr<Prepared> prepare_auc(PrepareContext& context) {
  const auto attrs = context.attrs<AucAttrs>();
  const ValueSpec& predict = context.in("Predict");
  const AucStates states = {.buckets = int64_t{attrs.num_thresholds} + 1,
                            .slide_steps = attrs.slide_steps};
  context.require(predict.shape.rank() == 2, "Predict", "[n, classes]", predict.shape.to_string());
  const int64_t rows = predict.shape[0];
  const int64_t width = predict.shape[1];
  const ValueSpec& label = context.in("Label");
  context.require(label.dtype == DType::kInt64 && label.shape.numel() == rows, "Label",
                  str_cat("int64 [", rows, ", 1]"), str_cat(dtype_name(label.dtype), label.shape));
  for (const char* slot : {"StatPos", "StatNeg"}) {
    const int64_t given = context.in(slot).shape.numel();
    const bool spare = attrs.slide_steps == 0 && given == states.buckets + 1;
    context.require(given == states.size() || spare, slot, str_cat(states.size(), " numbers"),
                    context.in(slot).shape.to_string());
  }
  const int predictions = context.input("Predict");
  const int labels = context.input("Label");
  const int pos = context.input("StatPos");
  const int neg = context.input("StatNeg");
  const int area = context.set_output("AUC", Shape{1}, DType::kFloat64);
  const int pos_out = context.set_output("StatPosOut", context.in("StatPos").shape, DType::kInt64);
  const int neg_out = context.set_output("StatNegOut", context.in("StatNeg").shape, DType::kInt64);
  const auto area_of = attrs.curve == "PR" && !attrs.paddle_form ? precision_area : roc_area;
  return make_prepared([=, is_float = predict.dtype == DType::kFloat32](const KernelContext& c) {
    for (const auto& [from, to] : {std::pair(pos, pos_out), std::pair(neg, neg_out)}) {
      if (c.input(from).raw() != c.output(to).raw()) c.output(to).copy_from(c.input(from));
    }
    auto* positives = c.out<int64_t>(pos_out);
    auto* negatives = c.out<int64_t>(neg_out);
    const int64_t at = states.make_room(positives);
    states.make_room(negatives);
    const auto* wanted = c.in<int64_t>(labels);
    if (is_float) {
      count_batch(c.in<float>(predictions), wanted, rows, width, states.buckets, positives + at,
                  negatives + at);
    } else {
      count_batch(c.in<double>(predictions), wanted, rows, width, states.buckets, positives + at,
                  negatives + at);
    }
    const auto buckets = static_cast<size_t>(states.buckets);
    const std::span positive_sums(states.sums_with(positives, at), buckets);
    const std::span negative_sums(states.sums_with(negatives, at), buckets);
    if (area >= 0) *c.out<double>(area) = area_of(positive_sums, negative_sums);
  });
}

// The states of one class.
enum State : size_t { kTruePositive, kFalsePositive, kTrueNegative, kFalseNegative, kStates };

// Precision, recall, F1 averaged over classes, then of all classes together.
template <class T>
void write_metrics(const std::vector<T>& states, size_t classes, double* out) {
  const auto share = [](double right, double wrong) {
    return right > 0 || wrong > 0 ? right / (right + wrong) : 1.0;
  };
  const auto f1 = [](double precision, double recall) {
    return precision > 0 || recall > 0 ? 2 * precision * recall / (precision + recall) : 0.0;
  };
  double precision = 0;
  double recall = 0;
  double sums[kStates] = {};
  for (size_t k = 0; k < classes; ++k) {
    const T* of = states.data() + k * kStates;
    for (size_t s = 0; s < kStates; ++s) sums[s] += static_cast<double>(of[s]);
    const auto right = static_cast<double>(of[kTruePositive]);
    precision += share(right, static_cast<double>(of[kFalsePositive]));
    recall += share(right, static_cast<double>(of[kFalseNegative]));
  }
  out[0] = precision / static_cast<double>(classes);
  out[1] = recall / static_cast<double>(classes);
  out[2] = f1(out[0], out[1]);
  out[3] = share(sums[kTruePositive], sums[kFalsePositive]);
  out[4] = share(sums[kTruePositive], sums[kFalseNegative]);
  out[5] = f1(out[3], out[4]);
}

size_t checked_class(int32_t index, size_t classes, const char* slot) {
  if (index >= 0 && static_cast<size_t>(index) < classes) return static_cast<size_t>(index);
  throw_error(ErrorCode::kFeed, {.what = "an index is not that of a class",
                                 .where = str_cat("op precision_recall, slot '", slot, "'"),
                                 .expected = str_cat("0 to ", classes - 1),
                                 .got = str_cat(index),
                                 .fix = "correct it, or raise class_number"});
}

template <class T>
std::unique_ptr<Prepared> prepare_precision_recall(PrepareContext& context) {
  const int64_t class_number = context.attrs<PrecisionRecallAttrs>().class_number;
  const int64_t rows = context.in("Indices").shape.numel();
  const auto classes = static_cast<size_t>(class_number);
  for (const char* slot : {"Indices", "Labels"}) {
    const ValueSpec& spec = context.in(slot);
    context.require(spec.dtype == DType::kInt32 && spec.shape.numel() == rows, slot,
                    str_cat("int32, ", rows, " elements"),
                    str_cat(dtype_name(spec.dtype), spec.shape));
  }
  const int indices = context.input("Indices");
  const int labels = context.input("Labels");
  const int weights = context.input("Weights");
  const int before = context.input("StatesInfo");
  const int batch = context.set_output("BatchMetrics", Shape{6}, DType::kFloat64);
  const int all = context.set_output("AccumMetrics", Shape{6}, DType::kFloat64);
  const int states_out =
      context.set_output("AccumStatesInfo", Shape{class_number, 4}, dtype_of<T>());
  std::vector<T> states(classes * kStates);
  return make_prepared([=](const KernelContext& c) mutable {
    std::fill(states.begin(), states.end(), T{});
    for (int64_t i = 0; i < rows; ++i) {
      const size_t guess = checked_class(c.in<int32_t>(indices)[i], classes, "Indices");
      const size_t truth = checked_class(c.in<int32_t>(labels)[i], classes, "Labels");
      const T w = weights >= 0 ? c.in<T>(weights)[i] : T{1};
      states[guess * kStates + (guess == truth ? kTruePositive : kFalsePositive)] += w;
      if (guess != truth) states[truth * kStates + kFalseNegative] += w;
    }
    c.tiles().split(class_number, 2 * rows, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < rows; ++i) {
        const int32_t guess = c.in<int32_t>(indices)[i];
        const int32_t truth = c.in<int32_t>(labels)[i];
        const T w = weights >= 0 ? c.in<T>(weights)[i] : T{1};
        for (int64_t k = begin; k < end; ++k) {
          if (k != guess && k != truth)
            states[static_cast<size_t>(k) * kStates + kTrueNegative] += w;
        }
      }
    });
    if (batch >= 0) write_metrics(states, classes, c.out<double>(batch));
    for (size_t i = 0; before >= 0 && i < states.size(); ++i) states[i] += c.in<T>(before)[i];
    if (all >= 0) write_metrics(states, classes, c.out<double>(all));
    if (states_out >= 0) std::copy(states.begin(), states.end(), c.out<T>(states_out));
  });
}

}  // namespace

void register_metric(KernelTable& table) {
  table.add_last("accuracy", DeviceKind::kCpu, DType::kFloat32, {"loop", prepare_accuracy});
  // Listed under the types of their first outputs: they have no input X.
  table.add_last("auc", DeviceKind::kCpu, DType::kFloat64, {"loop", prepare_auc});
  table.add_last("precision_recall", DeviceKind::kCpu, DType::kFloat64,
                 {"loop", [](PrepareContext& context) {
                    return context.in("MaxProbs").dtype == DType::kFloat32
                               ? prepare_precision_recall<float>(context)
                               : prepare_precision_recall<double>(context);
                  }});
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    table.add_last("top_k_grad", DeviceKind::kCpu, dtype_of<T>(), {"loop", prepare_top_k_grad<T>});
  });
  const TensorAttribute k{.name = "k", .whole = "K", .scalar = true};
  for_types<float, double, int32_t, int64_t>([&]<class T>(std::type_identity<T>) {
    table.add_last("top_k", DeviceKind::kCpu, dtype_of<T>(),
                   {"loop", with_tensor_attributes(prepare_top_k<T>, {k})});
  });
}

}  // namespace fleet::fluid::cpu
