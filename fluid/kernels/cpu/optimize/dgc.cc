#include "fluid/ops/optimize/dgc.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "fluid/kernels/cpu/each_alone.h"
#include "fluid/kernels/cpu/math/row_sums.h"
#include "fluid/kernels/cpu/math/sums.h"
#include "fluid/kernels/cpu/optimize/each_adding_impl.h"
#include "fluid/kernels/cpu/optimize/update.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tile_copy.h"

namespace fleet::fluid::cpu {
namespace {

// The order of the magnitudes of floats, NaN being the largest.
uint32_t magnitude(float value) {
  return std::bit_cast<uint32_t>(value) & 0x7fffffffu;
}

// The k elements of the largest magnitudes: all above `least`, and the first `equal` of those that
// have it.
struct Largest {
  uint32_t least = 0;
  int64_t equal = 0;
};

using DigitCounts = std::array<int64_t, 2048>;

// Counts values by the digit of their magnitudes in `mask` << shift, of those that begin as `known`
// above bit `below`.
DigitCounts count_digits(const Tiles& tiles, const float* values, int64_t n, int below,
                         uint32_t known, int shift, uint32_t mask) {
  constexpr int64_t kMostParts = 32;  // each has counts of its own
  const int64_t size = std::max(Tiles::items(2), pieces_of(n, kMostParts));
  const int64_t parts = pieces_of(n, size);
  auto* counts = tile_scratch<DigitCounts>(parts);
  tiles.ranges(n, size, [&](int64_t begin, int64_t end) {
    DigitCounts& of_part = counts[begin / size];
    of_part.fill(0);
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t bits = magnitude(values[i]);
      of_part[(bits >> shift) & mask] += static_cast<int64_t>((bits >> below) == known);
    }
  });
  DigitCounts sums{};
  for (int64_t part = 0; part < parts; ++part) {
    add_row(sums.data(), counts[part].data(), static_cast<int64_t>(sums.size()));
  }
  return sums;
}

// Finds the bits of `least` from the top, 11, 10 and 10 at a time.
Largest find_largest(const Tiles& tiles, const float* values, int64_t n, int64_t k) {
  constexpr std::array<int, 3> kWidths = {11, 10, 10};
  Largest found{.equal = k};
  int below = 31;  // bits of `least` that are not known yet
  for (const int width : kWidths) {
    const uint32_t known = below == 31 ? 0 : found.least >> below;
    const int shift = below - width;
    const uint32_t mask = (1u << width) - 1;
    const DigitCounts counts = count_digits(tiles, values, n, below, known, shift, mask);
    uint32_t digit = mask;
    for (; digit > 0 && counts[digit] < found.equal; --digit) found.equal -= counts[digit];
    found.least |= digit << shift;
    below = shift;
  }
  return found;
}

// What a shard has kept back, and its momentum.
struct Kept {
  float* u;
  float* v;
};

Kept kept_of(const KernelContext& c, int u, int v, const Tensor& velocity, bool begins) {
  const auto shard = static_cast<size_t>(std::max(c.shard(), 0));
  const auto tensor = [&](int position) -> std::pair<Tensor&, bool> {
    Value& value = c.output_value(position);
    if (!std::holds_alternative<TensorArray>(value)) value = TensorArray();
    auto& array = std::get<TensorArray>(value);
    if (array.size() <= shard) array.resize(shard + 1);
    Tensor& found = array[shard];
    const bool is_new = !found.initialized() || !(found.shape() == velocity.shape());
    if (is_new) {
      found.reset(velocity.dtype(), velocity.shape());
      std::memset(found.raw(), 0, found.bytes());
    }
    return {found, is_new};
  };
  auto [momentum, is_new] = tensor(u);
  if (is_new && begins) momentum.copy_from(velocity);
  return {momentum.data<float>(), tensor(v).first.data<float>()};
}

class Dgc final : public Prepared {
 public:
  explicit Dgc(PrepareContext& context)
      : attrs_(context.attrs<DgcAttrs>()),
        grad_(context.input("Grad")),
        param_(context.input("Param")),
        velocity_(context.input("Velocity")),
        step_(context.input("current_step")),
        out_(context.own_output("Grad_out")),
        u_(context.own_output("U_out")),
        v_(context.own_output("V_out")),
        n_(context.in("Grad").shape.numel()) {
    context.require(context.in("Grad").kind == ValueKind::kTensor, "Grad", "a dense tensor",
                    "selected rows");
  }

  void run(const KernelContext& c) override {
    const int64_t step = *c.in<int64_t>(step_);
    const float* grad = c.in<float>(grad_);
    const float* param = c.in<float>(param_);
    const auto per_scale = static_cast<float>(1.0 / attrs_.grad_scale);
    const float factor = per_scale * clip_factor(c.tiles(), grad, per_scale);
    const float decay = attrs_.regular_coeff;
    if (attrs_.regular_type == 1) {
      const auto sign = [](float p) { return static_cast<float>((p > 0.0f) - (p < 0.0f)); };
      return send(c, step, [=](int64_t i) { return factor * grad[i] + decay * sign(param[i]); });
    }
    if (attrs_.regular_type == 2) {
      return send(c, step, [=](int64_t i) { return factor * grad[i] + decay * param[i]; });
    }
    send(c, step, [=](int64_t i) { return factor * grad[i]; });
  }

 private:
  float clip_factor(const Tiles& tiles, const float* grad, float per_scale) const {
    if (attrs_.clip_norm <= 0.0f) return 1.0f;
    const double squares = sum_of_parts<double>(tiles, n_, 4, [=](int64_t begin, int64_t end) {
      return squared_row_sum(grad + begin, end - begin);
    });
    const double norm = std::sqrt(squares) * per_scale;
    return norm > attrs_.clip_norm ? static_cast<float>(attrs_.clip_norm / norm) : 1.0f;
  }

  // `local(i)` is element i of the shard's gradient.
  template <class Local>
  void send(const KernelContext& c, int64_t step, const Local& local) const {
    const auto scale = static_cast<float>(attrs_.grad_scale);
    if (step < attrs_.rampup_begin_step) {
      float* out = c.make_dense(out_, DType::kFloat32, Shape{n_, 1}).data<float>();
      c.tiles().split(n_, 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) out[i] = scale * local(i);
      });
      return;
    }
    const bool begins = step == attrs_.rampup_begin_step;
    const Kept kept = kept_of(c, u_, v_, c.input(velocity_), begins);
    add(c.tiles(), kept, c.in<float>(grad_), local);
    const DgcSent sent = dgc_sent(attrs_, step, n_);
    const Largest largest = find_largest(c.tiles(), kept.v, n_, sent.elements);
    if (sent.as_rows) {
      send_rows(c, kept, largest, sent.elements);
    } else {
      float* out = c.make_dense(out_, DType::kFloat32, Shape{n_, 1}).data<float>();
      fill_in_tiles(c.tiles(), out, n_, 0.0f);
      take(c, kept, largest, [=](size_t, int64_t i, float value) { out[i] = scale * value; });
    }
  }

  template <class Local>
  void add(const Tiles& tiles, const Kept& kept, const float* grad, const Local& local) const {
    const float mu = attrs_.m;
    float* const u = kept.u;
    float* const v = kept.v;
    if (!attrs_.use_nesterov) {
      return tiles.split(n_, 3, [=](int64_t begin, int64_t end) {
        FLEET_EACH_ALONE
        for (int64_t i = begin; i < end; ++i) {
          u[i] = mu * u[i] + local(i);
          v[i] += u[i];
        }
      });
    }
    const bool raw = attrs_.paddle_form;
    tiles.split(n_, 3, [=](int64_t begin, int64_t end) {
      FLEET_EACH_ALONE
      for (int64_t i = begin; i < end; ++i) {
        const float g = local(i);
        u[i] = mu * (u[i] + g);
        v[i] += u[i] + (raw ? grad[i] : g);
      }
    });
  }

  void send_rows(const KernelContext& c, const Kept& kept, const Largest& largest,
                 int64_t count) const {
    const auto scale = static_cast<float>(attrs_.grad_scale);
    SelectedRows& out = c.make_rows(out_, DType::kFloat32, Shape{count, 1});
    out.height = n_;
    out.rows.resize(static_cast<size_t>(count));
    auto* values = out.value.data<float>();
    take(c, kept, largest, [&](size_t at, int64_t i, float value) {
      out.rows[at] = i;
      values[at] = scale * value;
    });
  }

  // Gives the largest to sent(how many are before it, i, value), and sets them to zero.
  template <class Sent>
  void take(const KernelContext& c, const Kept& kept, Largest largest, const Sent& sent) const {
    const int64_t size = Tiles::items(2);
    const int64_t parts = pieces_of(n_, size);
    auto* above = reinterpret_cast<int64_t*>(
        c.scratch().get(2 * static_cast<size_t>(parts) * sizeof(int64_t)));
    int64_t* const equal = above + parts;
    c.tiles().ranges(n_, size, [=](int64_t begin, int64_t end) {
      int64_t counts[2] = {};
      for (int64_t i = begin; i < end; ++i) {
        const uint32_t bits = magnitude(kept.v[i]);
        counts[0] += static_cast<int64_t>(bits > largest.least);
        counts[1] += static_cast<int64_t>(bits == largest.least);
      }
      above[begin / size] = counts[0];
      equal[begin / size] = counts[1];
    });
    to_offsets(above, parts);
    to_offsets(equal, parts);
    c.tiles().ranges(n_, size, [=, &sent](int64_t begin, int64_t end) {
      int64_t left = std::max<int64_t>(0, largest.equal - equal[begin / size]);
      auto at = static_cast<size_t>(above[begin / size] + largest.equal - left);
      for (int64_t i = begin; i < end; ++i) {
        const uint32_t bits = magnitude(kept.v[i]);
        if (bits < largest.least || (bits == largest.least && left-- <= 0)) continue;
        sent(at++, i, kept.v[i]);
        kept.u[i] = kept.v[i] = 0.0f;
      }
    });
  }

  DgcAttrs attrs_;
  int grad_, param_, velocity_, step_, out_, u_, v_;
  int64_t n_;
};

std::unique_ptr<Prepared> prepare_dgc(PrepareContext& context) {
  return std::make_unique<Dgc>(context);
}

std::unique_ptr<Prepared> prepare_dgc_momentum(PrepareContext& context) {
  const auto attrs = context.attrs<DgcMomentumAttrs>();
  const int rate = scalar_input<float>(context, "LearningRate");
  const int step = context.input("current_step");
  const int grad = context.input("Grad");
  const StatePositions param = state<float>(context, "Param", "ParamOut");
  const StatePositions velocity = state<float>(context, "Velocity", "VelocityOut");
  const bool sparse = context.in("Grad").kind == ValueKind::kSelectedRows;
  const auto n = static_cast<size_t>(context.in("Param").shape.numel());
  context.require(sparse || context.in("Grad").shape.numel() == static_cast<int64_t>(n), "Grad",
                  str_cat(n, " elements, as Param has"), context.in("Grad").shape.to_string());
  return make_prepared([=](const KernelContext& c) {
    const float lr = *c.in<float>(rate);
    const StateArrays<float> p(c, param);
    const StateArrays<float> v(c, velocity);
    if (p.to != p.from) copy_in_tiles(c.tiles(), p.from, p.to, n * sizeof(float));
    if (sparse) {
      const SelectedRows& rows = c.rows_input(grad);
      const auto* values = rows.value.data<float>();
      double written = 0;
      for (size_t i = 0; i < rows.rows.size(); ++i) {
        float& element = p.to[rows.rows[i]];
        element -= lr * values[i];
        written += element;
      }
      return c.add_written(written);
    }
    const float* g = c.in<float>(grad);
    const auto each = [&c, n](const auto& element) {
      c.tiles().split(static_cast<int64_t>(n), 3, [&](int64_t begin, int64_t end) {
        const auto count = static_cast<size_t>(end - begin);
        c.add_written(each_adding<float>(count, [element, first = static_cast<size_t>(begin)](
                                                    size_t i) { return element(first + i); }));
      });
    };
    if (*c.in<int64_t>(step) >= attrs.rampup_begin_step) {
      return each([=](size_t i) { return p.to[i] -= lr * g[i]; });
    }
    const float mu = attrs.mu;
    const bool nesterov = attrs.use_nesterov;
    each([=](size_t i) {
      v.to[i] = mu * v.from[i] + g[i];
      p.to[i] -= lr * (nesterov ? g[i] + mu * v.to[i] : v.to[i]);
      return p.to[i];
    });
  });
}

}  // namespace

void register_dgc(KernelTable& table) {
  add_update<float>(table, kCompress, prepare_dgc);
  add_update<float>(table, "dgc_momentum", prepare_dgc_momentum);
}

}  // namespace fleet::fluid::cpu
