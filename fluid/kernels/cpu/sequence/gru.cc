#include <algorithm>
#include <vector>

#include "base/strings.h"
#include "fluid/kernels/cpu/sequence/rnn_steps.h"
#include "fluid/ops/sequence/rnn.h"

namespace fleet::fluid::cpu {
namespace {

// What forward and backward have in common. A row of gates is update, reset, candidate; the weight
// is [d, 2 d] for the first two and then [d, d] for the candidate.
template <class T>
struct GruCommon {
  SequenceInput input;
  int64_t rows = 0;
  int64_t d = 0;
  int h0, weight, bias;
  RnnActivation gate, candidate;
  bool reverse = false;
  bool origin_mode = false;

  explicit GruCommon(const PrepareContext& context) : input(context, "Input") {
    const auto attrs = context.attrs<GruAttrs>();
    const Shape& x = context.in("Input").shape;
    const Shape& w = context.in("Weight").shape;
    rows = x[0];
    d = w[0];
    context.require(w == Shape({d, 3 * d}) && x == Shape({rows, 3 * d}), "Weight",
                    "[d, 3 d] with Input [rows, 3 d]", str_cat(w, " and ", x));
    h0 = context.input("H0");
    weight = context.input("Weight");
    bias = context.input("Bias");
    if (bias >= 0) {
      context.require(context.in("Bias").shape.numel() == 3 * d, "Bias",
                      str_cat("[1, ", 3 * d, "]"), context.in("Bias").shape.to_string());
    }
    gate = rnn_activation(context, attrs.gate_activation);
    candidate = rnn_activation(context, attrs.activation);
    reverse = attrs.is_reverse;
    origin_mode = attrs.origin_mode;
  }

  const T* gate_weight(const KernelContext& c) const { return c.in<T>(weight); }
  const T* candidate_weight(const KernelContext& c) const { return c.in<T>(weight) + 2 * d * d; }

  void first_state(const KernelContext& c, const RnnSteps& steps, T* to) const {
    if (h0 >= 0 && c.input(h0).numel() != steps.sequences() * d) {
      throw_error(ErrorCode::kShapeMismatch,
                  {.what = "a first state does not fit the sequences",
                   .where = input.where,
                   .expected = str_cat("H0 [", steps.sequences(), ", ", d, "]"),
                   .got = c.input(h0).shape().to_string(),
                   .fix = "give one row per sequence"});
    }
    for (int64_t j = 0; j < steps.sequences(); ++j) {
      if (h0 < 0) {
        std::fill_n(to + j * d, d, T{});
      } else {
        std::copy_n(c.in<T>(h0) + steps.sequence(j) * d, d, to + j * d);
      }
    }
  }
};

template <class T>
class Gru {
 public:
  explicit Gru(PrepareContext& context)
      : s_(context), to_gates_(2 * s_.d, s_.d, false), to_candidate_(s_.d, s_.d, false) {
    const Shape states{s_.rows, s_.d};
    hidden_ = context.set_output("Hidden", states, dtype_of<T>());
    gates_ = context.set_output("BatchGate", Shape{s_.rows, 3 * s_.d}, dtype_of<T>());
    reset_ = context.set_output("BatchResetHiddenPrev", states, dtype_of<T>());
    batch_hidden_ = context.set_output("BatchHidden", states, dtype_of<T>());
  }

  void operator()(const KernelContext& c) {
    steps_.reset(s_.input.offsets(c), s_.reverse);
    const auto states = static_cast<size_t>(steps_.sequences() * s_.d);
    h_.resize(states);
    product_.resize(2 * states);
    s_.first_state(c, steps_, h_.data());
    to_gates_.pack(s_.gate_weight(c));
    to_candidate_.pack(s_.candidate_weight(c));
    for (int64_t t = 0; t < steps_.count(); ++t) step(c, t);
    c.output(hidden_).share_lod(s_.input.tensor(c));
  }

 private:
  void step(const KernelContext& c, int64_t t) {
    const int64_t d = s_.d;
    const int64_t n = steps_.active(t);
    const int64_t start = steps_.start(t);
    T* gates = c.out<T>(gates_) + start * 3 * d;
    T* reset = c.out<T>(reset_) + start * d;
    to_gates_.run(n, h_.data(), product_.data());
    for (int64_t j = 0; j < n; ++j) {
      const T* x = c.in<T>(s_.input.position) + steps_.source(start + j) * 3 * d;
      T* g = gates + j * 3 * d;
      std::copy_n(x, 3 * d, g);
      if (s_.bias >= 0) {
        for (int64_t k = 0; k < 3 * d; ++k) g[k] += c.in<T>(s_.bias)[k];
      }
      for (int64_t k = 0; k < 2 * d; ++k) g[k] += product_[static_cast<size_t>(j * 2 * d + k)];
      activate(s_.gate, g, 2 * d);
      for (int64_t k = 0; k < d; ++k)
        reset[j * d + k] = g[d + k] * h_[static_cast<size_t>(j * d + k)];
    }
    to_candidate_.run(n, reset, product_.data());
    for (int64_t j = 0; j < n; ++j) {
      T* g = gates + j * 3 * d;
      T* h = h_.data() + j * d;
      for (int64_t k = 0; k < d; ++k) g[2 * d + k] += product_[static_cast<size_t>(j * d + k)];
      activate(s_.candidate, g + 2 * d, d);
      for (int64_t k = 0; k < d; ++k) {
        const T u = g[k];
        const T made = g[2 * d + k];
        h[k] = s_.origin_mode ? u * h[k] + (T{1} - u) * made : (T{1} - u) * h[k] + u * made;
      }
      std::copy_n(h, d, c.out<T>(hidden_) + steps_.source(start + j) * d);
      std::copy_n(h, d, c.out<T>(batch_hidden_) + (start + j) * d);
    }
  }

  GruCommon<T> s_;
  StepGemm<T> to_gates_, to_candidate_;
  RnnSteps steps_;
  std::vector<T> h_, product_;
  int hidden_, gates_, reset_, batch_hidden_;
};

template <class T>
class GruGrad {
 public:
  explicit GruGrad(PrepareContext& context)
      : s_(context),
        from_gates_(s_.d, 2 * s_.d, true),
        from_candidate_(s_.d, s_.d, true),
        gates_(context.input("BatchGate")),
        reset_(context.input("BatchResetHiddenPrev")),
        batch_hidden_(context.input("BatchHidden")),
        grad_(context.input("Hidden@GRAD")) {
    const Shape states{s_.rows, s_.d};
    context.require(context.in("Hidden@GRAD").shape == states, "Hidden@GRAD", states.to_string(),
                    context.in("Hidden@GRAD").shape.to_string());
    input_grad_ = context.set_output("Input@GRAD", Shape{s_.rows, 3 * s_.d}, dtype_of<T>());
    weight_grad_ = context.set_output("Weight@GRAD", Shape{s_.d, 3 * s_.d}, dtype_of<T>());
    if (s_.bias >= 0) {
      bias_grad_ = context.set_output("Bias@GRAD", context.in("Bias").shape, dtype_of<T>());
    }
    if (s_.h0 >= 0) {
      h0_grad_ = context.set_output("H0@GRAD", context.in("H0").shape, dtype_of<T>());
    }
    gate_product_ = fastest_gemm<T>({.m = s_.d, .n = 2 * s_.d, .k = s_.rows, .transpose_a = true});
    candidate_product_ = fastest_gemm<T>({.m = s_.d, .n = s_.d, .k = s_.rows, .transpose_a = true});
  }

  void operator()(const KernelContext& c) {
    steps_.reset(s_.input.offsets(c), s_.reverse);
    const int64_t d = s_.d;
    const auto states = static_cast<size_t>(steps_.sequences() * d);
    const auto all = static_cast<size_t>(s_.rows * d);
    dh_.assign(states, T{});
    product_.resize(states);
    first_.resize(states);
    gate_grads_.resize(2 * all);
    candidate_grads_.resize(all);
    previous_.resize(all);
    s_.first_state(c, steps_, first_.data());
    for (int64_t t = 0; t < steps_.count(); ++t) {
      const T* before = t == 0 ? first_.data() : c.in<T>(batch_hidden_) + steps_.start(t - 1) * d;
      std::copy_n(before, steps_.active(t) * d, previous_.data() + steps_.start(t) * d);
    }
    from_gates_.pack(s_.gate_weight(c));
    from_candidate_.pack(s_.candidate_weight(c));
    for (int64_t t = steps_.count() - 1; t >= 0; --t) step(c, t);
    finish(c);
  }

 private:
  void step(const KernelContext& c, int64_t t) {
    const int64_t d = s_.d;
    const int64_t n = steps_.active(t);
    const int64_t start = steps_.start(t);
    const T* gates = c.in<T>(gates_) + start * 3 * d;
    const T* before = previous_.data() + start * d;
    T* gate_grads = gate_grads_.data() + start * 2 * d;
    T* candidate_grads = candidate_grads_.data() + start * d;
    for (int64_t j = 0; j < n; ++j) {
      const T* g = gates + j * 3 * d;
      const T* above = c.in<T>(grad_) + steps_.source(start + j) * d;
      T* dh = dh_.data() + j * d;
      for (int64_t k = 0; k < d; ++k) {
        const T u = g[k];
        const T made = g[2 * d + k];
        const T h_grad = dh[k] + above[k];
        const T toward = made - before[j * d + k];
        const T share = s_.origin_mode ? T{1} - u : u;  // of the candidate
        const T u_grad = h_grad * (s_.origin_mode ? -toward : toward);
        gate_grads[j * 2 * d + k] = u_grad * activation_slope(s_.gate, u);
        candidate_grads[j * d + k] = h_grad * share * activation_slope(s_.candidate, made);
        dh[k] = h_grad * (T{1} - share);
      }
    }
    from_candidate_.run(n, candidate_grads, product_.data());
    for (int64_t j = 0; j < n; ++j) {
      const T* g = gates + j * 3 * d;
      for (int64_t k = 0; k < d; ++k) {
        const T reset_grad = product_[static_cast<size_t>(j * d + k)];
        const T r = g[d + k];
        gate_grads[j * 2 * d + d + k] =
            reset_grad * before[j * d + k] * activation_slope(s_.gate, r);
        dh_[static_cast<size_t>(j * d + k)] += reset_grad * r;
      }
    }
    from_gates_.run(n, gate_grads, product_.data());
    for (int64_t k = 0; k < n * d; ++k)
      dh_[static_cast<size_t>(k)] += product_[static_cast<size_t>(k)];
  }

  void finish(const KernelContext& c) {
    const int64_t d = s_.d;
    if (weight_grad_ >= 0) {
      T* to = c.out<T>(weight_grad_);
      gate_product_->run(previous_.data(), gate_grads_.data(), to, c.scratch(), c.tiles());
      candidate_product_->run(c.in<T>(reset_), candidate_grads_.data(), to + 2 * d * d, c.scratch(),
                              c.tiles());
    }
    if (bias_grad_ >= 0) {
      T* to = c.out<T>(bias_grad_);
      std::fill_n(to, 3 * d, T{});
      add_column_sums(gate_grads_.data(), s_.rows, 2 * d, to);
      add_column_sums(candidate_grads_.data(), s_.rows, d, to + 2 * d);
    }
    for (int64_t row = 0; input_grad_ >= 0 && row < s_.rows; ++row) {
      T* to = c.out<T>(input_grad_) + steps_.source(row) * 3 * d;
      std::copy_n(gate_grads_.data() + row * 2 * d, 2 * d, to);
      std::copy_n(candidate_grads_.data() + row * d, d, to + 2 * d);
    }
    for (int64_t j = 0; h0_grad_ >= 0 && j < steps_.sequences(); ++j) {
      std::copy_n(dh_.data() + j * d, d, c.out<T>(h0_grad_) + steps_.sequence(j) * d);
    }
  }

  GruCommon<T> s_;
  StepGemm<T> from_gates_, from_candidate_;
  std::unique_ptr<Gemm<T>> gate_product_, candidate_product_;
  RnnSteps steps_;
  std::vector<T> dh_, product_, first_, gate_grads_, candidate_grads_, previous_;
  int gates_, reset_, batch_hidden_, grad_;
  int input_grad_ = -1, weight_grad_ = -1, bias_grad_ = -1, h0_grad_ = -1;
};

}  // namespace

void register_gru(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    table.add_last("gru", DeviceKind::kCpu, dtype_of<T>(), {"steps", prepare_body<Gru<T>>});
    table.add_last("gru_grad", DeviceKind::kCpu, dtype_of<T>(),
                   {"steps", prepare_body<GruGrad<T>>});
  });
}

}  // namespace fleet::fluid::cpu
