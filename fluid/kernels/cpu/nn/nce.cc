#include <cmath>

#include "base/philox.h"
#include "base/strings.h"
#include "fluid/kernels/cpu/nn/class_rows.h"
#include "fluid/kernels/cpu/nn/register_nn.h"
#include "fluid/ops/nn/sampled.h"

namespace fleet::fluid::cpu {
namespace {

// The distribution of the noise classes, and draws from it.
class Sampler {
 public:
  Sampler(const PrepareContext& context, const NceAttrs& attrs)
      : kind_(static_cast<NceSampler>(attrs.sampler)),
        classes_(attrs.num_total_classes),
        probabilities_(context.input("CustomDistProbs")),
        alias_(context.input("CustomDistAlias")),
        alias_probabilities_(context.input("CustomDistAliasProbs")) {
    const auto& labels = context.op().output("SampleLabels");
    const uint64_t program = context.block().program().random_seed();
    const uint64_t seed = attrs.seed != 0 ? static_cast<uint64_t>(attrs.seed) : program;
    if (!labels.empty()) key_ = RandomKey::of(seed, labels.front());
    if (kind_ != NceSampler::kCustom) return;
    for (const char* slot : {"CustomDistProbs", "CustomDistAlias", "CustomDistAliasProbs"}) {
      const DType wanted =
          slot == std::string_view("CustomDistAlias") ? DType::kInt32 : DType::kFloat32;
      const ValueSpec& spec = context.in(slot);
      context.require(spec.dtype == wanted && spec.shape.numel() == classes_, slot,
                      str_cat(dtype_name(wanted), "[", classes_, "]"),
                      str_cat(dtype_name(spec.dtype), spec.shape));
    }
  }

  double probability(const KernelContext& c, int64_t index) const {
    const auto value = static_cast<double>(index);
    const auto count = static_cast<double>(classes_);
    if (kind_ == NceSampler::kUniform) return 1.0 / count;
    if (kind_ == NceSampler::kLogUniform) {
      return std::log((value + 2.0) / (value + 1.0)) / std::log(count);
    }
    return static_cast<double>(c.in<float>(probabilities_)[index]);
  }

  // Draw `position` of this step.
  int64_t draw(const KernelContext& c, uint64_t position) const {
    const uint64_t word =
        (c.step() + 1) << 16 | static_cast<uint64_t>(c.shard() < 0 ? 0 : c.shard());
    const double u = uniform_double(key_, 2 * position, word);
    const auto count = static_cast<double>(classes_);
    if (kind_ == NceSampler::kLogUniform) {
      return std::min(static_cast<int64_t>(std::exp(u * std::log(count))), classes_) - 1;
    }
    const int64_t index = std::min(static_cast<int64_t>(u * count), classes_ - 1);
    if (kind_ == NceSampler::kUniform) return index;
    const double p = uniform_double(key_, 2 * position + 1, word);
    if (p <= static_cast<double>(c.in<float>(alias_probabilities_)[index])) return index;
    const int32_t alias = c.in<int32_t>(alias_)[index];
    return alias < 0 ? index : alias;
  }

 private:
  NceSampler kind_;
  int64_t classes_;
  int probabilities_;
  int alias_;
  int alias_probabilities_;
  RandomKey key_;
};

struct NceShape {
  int64_t rows = 0;
  int64_t width = 0;
  int64_t labels = 0;   // per row
  int64_t samples = 0;  // per row: labels and noise
  int64_t classes = 0;
};

NceShape shape_of(const PrepareContext& context, const NceAttrs& attrs) {
  const Shape& input = context.in("Input").shape;
  const ValueSpec& label = context.in("Label");
  context.require(input.rank() == 2, "Input", "[rows, width]", input.to_string());
  context.require(
      label.dtype == DType::kInt64 && label.shape.rank() >= 1 && label.shape[0] == input[0],
      "Label", str_cat("int64[", input[0], ", labels]"),
      str_cat(dtype_name(label.dtype), label.shape));
  const int64_t labels = label.shape.rank() == 2 ? label.shape[1] : 1;
  return {.rows = input[0],
          .width = input[1],
          .labels = labels,
          .samples = labels + attrs.num_neg_samples,
          .classes = attrs.num_total_classes};
}

template <class T>
void check_weight(const PrepareContext& context, const NceShape& s) {
  const ValueSpec& weight = context.in("Weight");
  const Shape wanted{s.classes, s.width};
  context.require(weight.shape == wanted && weight.dtype == dtype_of<T>(), "Weight",
                  str_cat(dtype_name(dtype_of<T>()), wanted),
                  str_cat(dtype_name(weight.dtype), weight.shape));
}

// What the forward op looks at.
class Samples {
 public:
  Samples(const PrepareContext& context, const NceAttrs& attrs, const NceShape& shape)
      : sampler_(context, attrs),
        shape_(shape),
        label_(context.input("Label")),
        custom_(attrs.custom_neg_classes),
        where_(str_cat("op 'nce', labels '", context.op().input("Label").front(), "'")) {}

  const Sampler& sampler() const { return sampler_; }

  // Sample j of row i: its labels come first.
  int64_t pick(const KernelContext& c, int64_t i, int64_t j) const {
    const auto noise = static_cast<size_t>(j - shape_.labels);
    const int64_t index = j < shape_.labels ? c.in<int64_t>(label_)[i * shape_.labels + j]
                          : !custom_.empty()
                              ? custom_[noise]
                              : sampler_.draw(c, static_cast<uint64_t>(i * shape_.samples + j));
    if (index >= 0 && index < shape_.classes) return index;
    throw_error(ErrorCode::kInvalidArgument, {.what = "a class is outside of the known ones",
                                              .where = where_,
                                              .expected = str_cat("[0, ", shape_.classes, ")"),
                                              .got = str_cat(index),
                                              .fix = "check the labels, or raise the class count"});
  }

 private:
  Sampler sampler_;
  NceShape shape_;
  int label_;
  std::vector<int32_t> custom_;
  std::string where_;
};

template <class T>
std::unique_ptr<Prepared> prepare_nce(PrepareContext& context) {
  const auto attrs = context.attrs<NceAttrs>();
  const NceShape s = shape_of(context, attrs);
  check_weight<T>(context, s);
  const Samples all(context, attrs, s);
  const int input = context.input("Input");
  const int weight = context.input("Weight");
  const int bias = context.input("Bias");
  const int row_weight = context.input("SampleWeight");
  const int cost = context.set_output("Cost", Shape{s.rows, 1}, dtype_of<T>());
  const Shape samples{s.rows, s.samples};
  const int logits = context.set_output("SampleLogits", samples, dtype_of<T>());
  const int picked = context.set_output("SampleLabels", samples, DType::kInt64);
  return make_prepared([=](const KernelContext& c) {
    auto* classes = c.out<int64_t>(picked);
    T* outs = c.out<T>(logits);
    const double noise = static_cast<double>(s.samples - s.labels);
    for (int64_t i = 0; i < s.rows; ++i) {
      double total = 0;
      for (int64_t j = 0; j < s.samples; ++j) {
        const int64_t at = i * s.samples + j;
        classes[at] = all.pick(c, i, j);
        const T raw =
            (bias >= 0 ? c.in<T>(bias)[classes[at]] : T{}) +
            dot(c.in<T>(input) + i * s.width, c.in<T>(weight) + classes[at] * s.width, s.width);
        outs[at] = T{1} / (T{1} + std::exp(-raw));
        const auto o = static_cast<double>(outs[at]);
        const double b = all.sampler().probability(c, classes[at]) * noise;
        total -= std::log((j < s.labels ? o : b) / (o + b));
      }
      const T factor = row_weight >= 0 ? c.in<T>(row_weight)[i] : T{1};
      c.out<T>(cost)[i] = static_cast<T>(total) * factor;
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_nce_grad(PrepareContext& context) {
  const auto attrs = context.attrs<NceAttrs>();
  const NceShape s = shape_of(context, attrs);
  check_weight<T>(context, s);
  const Sampler sampler(context, attrs);
  const int input = context.input("Input");
  const int weight = context.input("Weight");
  const int row_weight = context.input("SampleWeight");
  const int logits = context.input("SampleLogits");
  const int picked = context.input("SampleLabels");
  const int grad = context.input("Cost@GRAD");
  ClassGradients at{.x = context.own_output("Input@GRAD"),
                    .weight = context.own_output("Weight@GRAD"),
                    .bias = -1,
                    .sparse = attrs.is_sparse,
                    .rows = s.rows,
                    .classes = s.classes,
                    .width = s.width};
  if (context.has_input("Bias")) {
    at.bias = context.set_output("Bias@GRAD", context.in("Bias").shape, dtype_of<T>());
  }
  return make_prepared([=](const KernelContext& c) {
    const auto* classes = c.in<int64_t>(picked);
    const int64_t total = s.rows * s.samples;
    std::vector<int64_t> looked_at;
    if (at.sparse) looked_at.assign(classes, classes + total);
    ClassGradientSum<T> sum(c, at, c.in<T>(input), c.in<T>(weight), looked_at);
    for (int64_t i = 0; i < total; ++i) {
      const int64_t row = i / s.samples;
      const T o = c.in<T>(logits)[i];
      const T b = static_cast<T>(sampler.probability(c, classes[i]) *
                                 static_cast<double>(s.samples - s.labels));
      const bool is_label = i % s.samples < s.labels;
      T slope = is_label ? b / (o + b) * (o - T{1}) : o * (T{1} - o) / (o + b);
      if (row_weight >= 0) slope *= c.in<T>(row_weight)[row];
      sum.add(row, classes[i], slope * c.in<T>(grad)[row]);
    }
  });
}

// Kernel::table_rows.
std::vector<int64_t> classes_of_nce(const PrepareContext& context, const KernelContext& values) {
  const auto attrs = context.attrs<NceAttrs>();
  const NceShape s = shape_of(context, attrs);
  const Samples all(context, attrs, s);
  std::vector<int64_t> classes;
  for (int64_t i = 0; i < s.rows; ++i) {
    for (int64_t j = 0; j < s.samples; ++j) classes.push_back(all.pick(values, i, j));
  }
  return classes;
}

}  // namespace

void register_nce(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    table.add_last("nce", DeviceKind::kCpu, dtype_of<T>(),
                   {.name = "loop", .prepare = prepare_nce<T>, .table_rows = classes_of_nce});
    table.add_last("nce_grad", DeviceKind::kCpu, dtype_of<T>(), {"loop", prepare_nce_grad<T>});
  });
}

}  // namespace fleet::fluid::cpu
