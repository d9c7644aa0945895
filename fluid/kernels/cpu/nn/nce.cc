#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "base/strings.h"
#include "fluid/kernels/cpu/nn/class_rows.h"
#include "fluid/kernels/cpu/nn/register_nn.h"
#include "fluid/ops/nn/sampled.h"

namespace fleet::fluid::cpu {
namespace {

// Of a sample beside its dot product, in elements of a simple loop: a random number, an exponential
// and a logarithm or two.
constexpr int64_t kSampleWork = 200;

// What the forward op looks at.
class Samples {
 public:
  Samples(const PrepareContext& context, NceSlots nce)
      : nce_(std::move(nce)),
        where_(str_cat("op 'nce', labels '", context.op().input("Label").front(), "'")) {}

  // Sample j of row i: its labels come first.
  int64_t pick(const KernelContext& c, int64_t i, int64_t j) const {
    const int64_t index =
        j < nce_.labels ? c.in<int64_t>(nce_.label)[i * nce_.labels + j] : noise(c, i, j);
    if (index >= 0 && index < nce_.classes) return index;
    throw_error(ErrorCode::kInvalidArgument, {.what = "a class is outside of the known ones",
                                              .where = where_,
                                              .expected = str_cat("[0, ", nce_.classes, ")"),
                                              .got = str_cat(index),
                                              .fix = "check the labels, or raise the class count"});
  }

 private:
  int64_t noise(const KernelContext& c, int64_t i, int64_t j) const {
    if (!nce_.custom.empty()) return nce_.custom[static_cast<size_t>(j - nce_.labels)];
    const auto at = static_cast<uint64_t>(i * nce_.samples + j);
    const uint64_t word = nce_.word(c);
    const bool custom = nce_.kind == functions::NoiseClasses::kCustom;
    return nce_.noise(c).draw(uniform_double(nce_.key, 2 * at, word),
                              custom ? uniform_double(nce_.key, 2 * at + 1, word) : 0.0);
  }

  NceSlots nce_;
  std::string where_;
};

template <class T>
std::unique_ptr<Prepared> prepare_nce(PrepareContext& context) {
  const NceSlots nce = nce_of(context, dtype_of<T>());
  const Samples samples(context, nce);
  return make_prepared([=](const KernelContext& c) {
    auto* classes = c.out<int64_t>(nce.picked);
    T* outs = c.out<T>(nce.logits);
    const auto noise = static_cast<double>(nce.samples - nce.labels);
    const auto cost_of_row = [&](int64_t i) {
      double total = 0;
      for (int64_t j = 0; j < nce.samples; ++j) {
        const int64_t at = i * nce.samples + j;
        classes[at] = samples.pick(c, i, j);
        const T raw = (nce.bias >= 0 ? c.in<T>(nce.bias)[classes[at]] : T{}) +
                      dot(c.in<T>(nce.input) + i * nce.width,
                          c.in<T>(nce.weight) + classes[at] * nce.width, nce.width);
        outs[at] = T{1} / (T{1} + std::exp(-raw));
        const double expected = nce.noise(c).probability(classes[at]) * noise;
        total += functions::nce_cost(static_cast<double>(outs[at]), expected, j < nce.labels);
      }
      const T factor = nce.row_weight >= 0 ? c.in<T>(nce.row_weight)[i] : T{1};
      return static_cast<T>(total) * factor;
    };
    const int64_t work = nce.samples * (nce.width + kSampleWork);
    c.tiles().split(nce.rows, work, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) c.out<T>(nce.cost)[i] = cost_of_row(i);
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_nce_grad(PrepareContext& context) {
  const NceSlots nce = nce_back_of(context, dtype_of<T>());
  const bool sparse = context.attrs<NceAttrs>().is_sparse;
  const ClassGradients at = class_gradients_of(context, "Input", "Weight", sparse, dtype_of<T>());
  return make_prepared([=, logits = LogitGradients<T>(nce.rows, nce.samples),
                        sum = ClassGradientSum<T>()](const KernelContext& c) mutable {
    const auto* classes = c.in<int64_t>(nce.picked);
    const auto noise = static_cast<double>(nce.samples - nce.labels);
    const auto slope_of = [&](int64_t i) {
      const int64_t row = i / nce.samples;
      const T expected = static_cast<T>(nce.noise(c).probability(classes[i]) * noise);
      T slope =
          functions::nce_slope(c.in<T>(nce.logits)[i], expected, i % nce.samples < nce.labels);
      if (nce.row_weight >= 0) slope *= c.in<T>(nce.row_weight)[row];
      return slope * c.in<T>(nce.grad)[row];
    };
    c.tiles().split(nce.rows * nce.samples, kSampleWork, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) logits.set(i, classes[i], slope_of(i));
    });
    sum.run(c, at, c.in<T>(nce.input), c.in<T>(nce.weight), logits);
  });
}

// Kernel::table_rows.
std::vector<int64_t> classes_of_nce(const PrepareContext& context, const KernelContext& values) {
  const NceSlots nce = nce_inputs_of(context);
  const Samples samples(context, nce);
  std::vector<int64_t> classes;
  for (int64_t i = 0; i < nce.rows; ++i) {
    for (int64_t j = 0; j < nce.samples; ++j) classes.push_back(samples.pick(values, i, j));
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
