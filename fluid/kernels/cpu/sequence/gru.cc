#include <algorithm>
#include <vector>

#include "base/strings.h"
#include "fluid/kernels/cpu/each_alone.h"
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

// Of a number of a state in half a step, all but the products: in elements of a simple loop.
constexpr int64_t kCostOfGate = 12;

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
    first_.resize(states);
    product_.resize(2 * states);
    s_.first_state(c, steps_, first_.data());
    to_gates_.pack(s_.gate_weight(c), c.tiles());
    to_candidate_.pack(s_.candidate_weight(c), c.tiles());
    for (int64_t t = 0; t < steps_.count(); ++t) step(c, t);
    c.output(hidden_).share_lod(s_.input.tensor(c));
  }

 private:
  void step(const KernelContext& c, int64_t t) {
    const int64_t d = s_.d;
    const int64_t n = steps_.active(t);
    const int64_t start = steps_.start(t);
    const T* before = t == 0 ? first_.data() : c.out<T>(batch_hidden_) + steps_.start(t - 1) * d;
    T* product = product_.data();
    to_gates_.run(n, before, product, c.tiles());
    c.tiles().split(n, d * kCostOfGate, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        open_gates(c, start + j, before + j * d, product + j * 2 * d);
      }
    });
    to_candidate_.run(n, c.out<T>(reset_) + start * d, product, c.tiles());
    c.tiles().split(n, d * kCostOfGate, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) {
        move_on(c, start + j, before + j * d, product + j * d);
      }
    });
  }

  // The update and the reset gate, and what the latter lets through of the state before.
  void open_gates(const KernelContext& c, int64_t batch_row, const T* before,
                  const T* product) const {
    const int64_t d = s_.d;
    const T* x = c.in<T>(s_.input.position) + steps_.source(batch_row) * 3 * d;
    T* g = c.out<T>(gates_) + batch_row * 3 * d;
    add(product, x, bias(c, 0), 2 * d, g);
    activate(s_.gate, g, 2 * d);
    T* passed = c.out<T>(reset_) + batch_row * d;
    FLEET_EACH_ALONE
    for (int64_t k = 0; k < d; ++k) passed[k] = g[d + k] * before[k];
  }

  // The candidate and the new state.
  void move_on(const KernelContext& c, int64_t batch_row, const T* before, const T* product) const {
    const int64_t d = s_.d;
    const int64_t source = steps_.source(batch_row);
    const T* x = c.in<T>(s_.input.position) + source * 3 * d + 2 * d;
    T* g = c.out<T>(gates_) + batch_row * 3 * d;
    add(product, x, bias(c, 2 * d), d, g + 2 * d);
    activate(s_.candidate, g + 2 * d, d);
    T* h = c.out<T>(batch_hidden_) + batch_row * d;
    T* hidden = c.out<T>(hidden_) + source * d;
    const bool origin_mode = s_.origin_mode;
    FLEET_EACH_ALONE
    for (int64_t k = 0; k < d; ++k) {
      const T u = g[k];
      const T share = origin_mode ? T{1} - u : u;  // of the candidate
      const T kept = origin_mode ? u : T{1} - u;
      h[k] = kept * before[k] + share * g[2 * d + k];
      hidden[k] = h[k];
    }
  }

  const T* bias(const KernelContext& c, int64_t first) const {
    return s_.bias >= 0 ? c.in<T>(s_.bias) + first : nullptr;
  }

  static void add(const T* product, const T* x, const T* bias, int64_t n, T* to) {
    if (bias == nullptr) {
      FLEET_EACH_ALONE
      for (int64_t k = 0; k < n; ++k) to[k] = x[k] + product[k];
    } else {
      FLEET_EACH_ALONE
      for (int64_t k = 0; k < n; ++k) to[k] = x[k] + bias[k] + product[k];
    }
  }

  GruCommon<T> s_;
  StepGemm<T> to_gates_, to_candidate_;
  RnnSteps steps_;
  std::vector<T> first_, product_;
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
    from_gates_.pack(s_.gate_weight(c), c.tiles());
    from_candidate_.pack(s_.candidate_weight(c), c.tiles());
    with_slopes(s_.gate, s_.candidate, s_.candidate, [&](auto gate, auto candidate, auto) {
      for (int64_t t = steps_.count() - 1; t >= 0; --t) step(c, t, gate, candidate);
    });
    finish(c);
  }

 private:
  template <class Gate, class Candidate>
  void step(const KernelContext& c, int64_t t, Gate gate, Candidate candidate) {
    const int64_t d = s_.d;
    const int64_t n = steps_.active(t);
    const int64_t start = steps_.start(t);
    const T* before = t == 0 ? first_.data() : c.in<T>(batch_hidden_) + steps_.start(t - 1) * d;
    c.tiles().split(n, d * kCostOfGate, [&](int64_t begin, int64_t end) {
      std::copy(before + begin * d, before + end * d, previous_.data() + (start + begin) * d);
      for (int64_t j = begin; j < end; ++j) through_state(c, start + j, j, gate, candidate);
    });
    from_candidate_.run(n, candidate_grads_.data() + start * d, product_.data(), c.tiles());
    c.tiles().split(n, d * kCostOfGate, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) through_reset(c, start + j, j, gate);
    });
    if (t == 0 && h0_grad_ < 0) return;
    from_gates_.run(n, gate_grads_.data() + start * 2 * d, product_.data(), c.tiles());
    c.tiles().split(n * d, 1, [&](int64_t begin, int64_t end) {
      FLEET_EACH_ALONE
      for (int64_t k = begin; k < end; ++k) {
        dh_[static_cast<size_t>(k)] += product_[static_cast<size_t>(k)];
      }
    });
  }

  // From the new state to update gate, candidate and the state before.
  template <class Gate, class Candidate>
  void through_state(const KernelContext& c, int64_t batch_row, int64_t j, Gate gate,
                     Candidate candidate) {
    const int64_t d = s_.d;
    const T* g = c.in<T>(gates_) + batch_row * 3 * d;
    const T* above = c.in<T>(grad_) + steps_.source(batch_row) * d;
    const T* before = previous_.data() + batch_row * d;
    T* dh = dh_.data() + j * d;
    T* gate_grads = gate_grads_.data() + batch_row * 2 * d;
    T* candidate_grads = candidate_grads_.data() + batch_row * d;
    const bool origin_mode = s_.origin_mode;
    FLEET_EACH_ALONE
    for (int64_t k = 0; k < d; ++k) {
      const T u = g[k];
      const T made = g[2 * d + k];
      const T h_grad = dh[k] + above[k];
      const T toward = made - before[k];
      const T share = origin_mode ? T{1} - u : u;  // of the candidate
      const T u_grad = h_grad * (origin_mode ? -toward : toward);
      gate_grads[k] = u_grad * gate(u);
      candidate_grads[k] = h_grad * share * candidate(made);
      dh[k] = h_grad * (T{1} - share);
    }
  }

  // From the candidate to reset gate and the state before.
  template <class Gate>
  void through_reset(const KernelContext& c, int64_t batch_row, int64_t j, Gate gate) {
    const int64_t d = s_.d;
    const T* reset = c.in<T>(gates_) + batch_row * 3 * d + d;
    const T* reset_grad = product_.data() + j * d;
    T* dh = dh_.data() + j * d;
    const T* before = previous_.data() + batch_row * d;
    T* gate_grads = gate_grads_.data() + batch_row * 2 * d;
    FLEET_EACH_ALONE
    for (int64_t k = 0; k < d; ++k) {
      gate_grads[d + k] = reset_grad[k] * before[k] * gate(reset[k]);
      dh[k] += reset_grad[k] * reset[k];
    }
    if (input_grad_ < 0) return;
    T* to = c.out<T>(input_grad_) + steps_.source(batch_row) * 3 * d;
    std::copy_n(gate_grads, 2 * d, to);
    std::copy_n(candidate_grads_.data() + batch_row * d, d, to + 2 * d);
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
      add_column_sums(c.tiles(), gate_grads_.data(), s_.rows, 2 * d, to);
      add_column_sums(c.tiles(), candidate_grads_.data(), s_.rows, d, to + 2 * d);
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
