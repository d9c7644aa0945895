#include <algorithm>
#include <vector>

#include "base/strings.h"
#include "fluid/kernels/cpu/each_alone.h"
#include "fluid/kernels/cpu/sequence/rnn_steps.h"
#include "fluid/ops/sequence/rnn.h"

namespace fleet::fluid::cpu {
namespace {

// What forward and backward have in common. A row of gates is candidate, input, forget, output.
template <class T>
struct LstmCommon {
  SequenceInput input;
  int64_t rows = 0;
  int64_t d = 0;
  int h0, c0, weight, bias;
  RnnActivation gate, cell, candidate;
  bool peepholes = false;
  bool reverse = false;
  std::string where;

  explicit LstmCommon(const PrepareContext& context) : input(context, "Input") {
    const auto attrs = context.attrs<LstmAttrs>();
    const Shape& x = context.in("Input").shape;
    const Shape& w = context.in("Weight").shape;
    rows = x[0];
    d = w[0];
    context.require(w == Shape({d, 4 * d}) && x == Shape({rows, 4 * d}), "Weight",
                    "[d, 4 d] with Input [rows, 4 d]", str_cat(w, " and ", x));
    const int64_t columns = (attrs.use_peepholes ? 7 : 4) * d;
    context.require(context.in("Bias").shape.numel() == columns, "Bias",
                    str_cat("[1, ", columns, "]"), context.in("Bias").shape.to_string());
    h0 = context.input("H0");
    c0 = context.input("C0");
    weight = context.input("Weight");
    bias = context.input("Bias");
    gate = rnn_activation(context, attrs.gate_activation);
    cell = rnn_activation(context, attrs.cell_activation);
    candidate = rnn_activation(context, attrs.candidate_activation);
    peepholes = attrs.use_peepholes;
    reverse = attrs.is_reverse;
  }

  // A peephole of one gate (0 input, 1 forget, 2 output); null without them.
  const T* peephole(const KernelContext& c, int64_t which) const {
    return peepholes ? c.in<T>(bias) + (4 + which) * d : nullptr;
  }

  // H0 or C0 in the order of steps; zeros without.
  void first_state(const KernelContext& c, const RnnSteps& steps, int from, T* to) const {
    for (int64_t j = 0; j < steps.sequences(); ++j) {
      if (from < 0) {
        std::fill_n(to + j * d, d, T{});
      } else {
        std::copy_n(c.in<T>(from) + steps.sequence(j) * d, d, to + j * d);
      }
    }
  }

  void check_states(const KernelContext& c, const RnnSteps& steps) const {
    for (const int state : {h0, c0}) {
      if (state < 0 || c.input(state).numel() == steps.sequences() * d) continue;
      throw_error(ErrorCode::kShapeMismatch,
                  {.what = "a first state does not fit the sequences",
                   .where = input.where,
                   .expected = str_cat("H0 and C0 [", steps.sequences(), ", ", d, "]"),
                   .got = c.input(state).shape().to_string(),
                   .fix = "give one row per sequence"});
    }
  }
};

// Of a number of a state, all but the products: in elements of a simple loop.
constexpr int64_t kGateCost = 28;

template <class T>
class Lstm {
 public:
  explicit Lstm(PrepareContext& context) : s_(context), product_(4 * s_.d, s_.d, false) {
    hidden_ = context.set_output("Hidden", Shape{s_.rows, s_.d}, dtype_of<T>());
    cell_ = context.set_output("Cell", Shape{s_.rows, s_.d}, dtype_of<T>());
    gates_ = context.set_output("BatchGate", Shape{s_.rows, 4 * s_.d}, dtype_of<T>());
    active_ = context.set_output("BatchCellPreAct", Shape{s_.rows, s_.d}, dtype_of<T>());
  }

  void operator()(const KernelContext& c) {
    steps_.reset(s_.input.offsets(c), s_.reverse);
    s_.check_states(c, steps_);
    const auto states = static_cast<size_t>(steps_.sequences() * s_.d);
    h_.resize(states);
    c_.resize(states);
    from_h_.resize(4 * states);
    s_.first_state(c, steps_, s_.h0, h_.data());
    s_.first_state(c, steps_, s_.c0, c_.data());
    product_.pack(c.in<T>(s_.weight), c.tiles());
    for (int64_t t = 0; t < steps_.count(); ++t) step(c, t);
    for (const int out : {hidden_, cell_}) {
      if (out >= 0) c.output(out).share_lod(s_.input.tensor(c));
    }
  }

 private:
  void step(const KernelContext& c, int64_t t) {
    const int64_t n = steps_.active(t);
    const int64_t start = steps_.start(t);
    const bool empty = t == 0 && s_.h0 < 0;
    if (!empty) product_.run(n, h_.data(), from_h_.data(), c.tiles());
    c.tiles().split(n, s_.d * kGateCost, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; ++j) row(c, start + j, j, empty);
    });
  }

  void row(const KernelContext& c, int64_t batch_row, int64_t j, bool empty) {
    const int64_t d = s_.d;
    const int64_t source = steps_.source(batch_row);
    const T* x = c.in<T>(s_.input.position) + source * 4 * d;
    const T* bias = c.in<T>(s_.bias);
    const T* product = from_h_.data() + j * 4 * d;
    T* g = c.out<T>(gates_) + batch_row * 4 * d;
    T* state = c_.data() + j * d;
    if (empty) {
      FLEET_EACH_ALONE
      for (int64_t k = 0; k < 4 * d; ++k) g[k] = x[k] + bias[k];
    } else {
      FLEET_EACH_ALONE
      for (int64_t k = 0; k < 4 * d; ++k) g[k] = x[k] + bias[k] + product[k];
    }
    if (s_.peepholes) {
      add_product(state, s_.peephole(c, 0), g + d);
      add_product(state, s_.peephole(c, 1), g + 2 * d);
    }
    activate(s_.candidate, g, d);
    activate(s_.gate, g + d, s_.peepholes ? 2 * d : 3 * d);
    T* cell = c.out<T>(cell_) + source * d;
    T* active = c.out<T>(active_) + batch_row * d;
    FLEET_EACH_ALONE
    for (int64_t k = 0; k < d; ++k) {
      state[k] = g[2 * d + k] * state[k] + g[d + k] * g[k];
      cell[k] = state[k];
      active[k] = state[k];
    }
    if (s_.peepholes) {
      add_product(state, s_.peephole(c, 2), g + 3 * d);
      activate(s_.gate, g + 3 * d, d);
    }
    activate(s_.cell, active, d);
    T* h = h_.data() + j * d;
    T* hidden = c.out<T>(hidden_) + source * d;
    FLEET_EACH_ALONE
    for (int64_t k = 0; k < d; ++k) {
      h[k] = g[3 * d + k] * active[k];
      hidden[k] = h[k];
    }
  }

  void add_product(const T* state, const T* weights, T* to) const {
    FLEET_EACH_ALONE
    for (int64_t k = 0; k < s_.d; ++k) to[k] += state[k] * weights[k];
  }

  LstmCommon<T> s_;
  StepGemm<T> product_;
  RnnSteps steps_;
  std::vector<T> h_, c_, from_h_;
  int hidden_, cell_, gates_, active_;
};

template <class T>
class LstmGrad {
 public:
  explicit LstmGrad(PrepareContext& context)
      : s_(context),
        to_h_(s_.d, 4 * s_.d, true),
        hidden_(context.input("Hidden")),
        cell_(context.input("Cell")),
        gates_(context.input("BatchGate")),
        active_(context.input("BatchCellPreAct")),
        hidden_grad_(context.input("Hidden@GRAD")),
        cell_grad_(context.attrs<LstmAttrs>().paddle_form ? -1 : context.input("Cell@GRAD")) {
    const Shape states{s_.rows, s_.d};
    for (const char* slot : {"Hidden@GRAD", "Cell@GRAD"}) {
      if (!context.has_input(slot)) continue;
      context.require(context.in(slot).shape == states, slot, states.to_string(),
                      context.in(slot).shape.to_string());
    }
    input_grad_ = context.set_output("Input@GRAD", Shape{s_.rows, 4 * s_.d}, dtype_of<T>());
    weight_grad_ = context.set_output("Weight@GRAD", Shape{s_.d, 4 * s_.d}, dtype_of<T>());
    bias_grad_ = context.set_output("Bias@GRAD", context.in("Bias").shape, dtype_of<T>());
    if (s_.h0 >= 0) {
      h0_grad_ = context.set_output("H0@GRAD", context.in("H0").shape, dtype_of<T>());
    }
    if (s_.c0 >= 0) {
      c0_grad_ = context.set_output("C0@GRAD", context.in("C0").shape, dtype_of<T>());
    }
    weight_product_ =
        fastest_gemm<T>({.m = s_.d, .n = 4 * s_.d, .k = s_.rows, .transpose_a = true});
  }

  void operator()(const KernelContext& c) {
    steps_.reset(s_.input.offsets(c), s_.reverse);
    const int64_t d = s_.d;
    const auto states = static_cast<size_t>(steps_.sequences() * d);
    dh_.assign(states, T{});
    dc_.assign(states, T{});
    zeros_.assign(static_cast<size_t>(d), T{});
    first_c_.resize(states);
    first_h_.resize(states);
    gate_grads_.resize(static_cast<size_t>(s_.rows * 4 * d));
    previous_h_.resize(static_cast<size_t>(s_.rows * d));
    const int64_t tile = Tiles::items(d * kGateCost);
    const int64_t tiles = (steps_.sequences() + tile - 1) / tile;
    sums_.assign(static_cast<size_t>(tiles * sum_count()), T{});
    s_.first_state(c, steps_, s_.h0, first_h_.data());
    s_.first_state(c, steps_, s_.c0, first_c_.data());
    to_h_.pack(c.in<T>(s_.weight), c.tiles());
    with_slopes(s_.gate, s_.candidate, s_.cell, [&](auto... slopes) {
      for (int64_t t = steps_.count() - 1; t >= 0; --t) step(c, t, tile, slopes...);
    });
    finish(c);
  }

 private:
  // Of the bias and the peepholes.
  int64_t sum_count() const { return (s_.peepholes ? 7 : 4) * s_.d; }

  template <class... Slopes>
  void step(const KernelContext& c, int64_t t, int64_t tile, Slopes... slopes) {
    const int64_t d = s_.d;
    const int64_t n = steps_.active(t);
    c.tiles().ranges(n, tile, [&](int64_t begin, int64_t end) {
      T* sums = sums_.data() + begin / tile * sum_count();
      for (int64_t j = begin; j < end; ++j) row(c, t, j, sums, slopes...);
    });
    if (t == 0 && h0_grad_ < 0) return;
    to_h_.run(n, gate_grads_.data() + steps_.start(t) * 4 * d, dh_.data(), c.tiles());
  }

  template <class Gate, class Candidate, class Cell>
  void row(const KernelContext& c, int64_t t, int64_t j, T* sums, Gate gate, Candidate candidate,
           Cell cell) {
    const int64_t d = s_.d;
    const int64_t batch_row = steps_.start(t) + j;
    const int64_t source = steps_.source(batch_row);
    const T* g = c.in<T>(gates_) + batch_row * 4 * d;
    const T* active = c.in<T>(active_) + batch_row * d;
    const int64_t previous = t == 0 ? 0 : steps_.source(steps_.start(t - 1) + j);
    const T* before = t == 0 ? first_c_.data() + j * d : c.in<T>(cell_) + previous * d;
    const T* before_h = t == 0 ? first_h_.data() + j * d : c.in<T>(hidden_) + previous * d;
    const T* from_above = hidden_grad_ >= 0 ? c.in<T>(hidden_grad_) + source * d : zeros_.data();
    const T* from_cell = cell_grad_ >= 0 ? c.in<T>(cell_grad_) + source * d : zeros_.data();
    const T* po = s_.peepholes ? s_.peephole(c, 2) : zeros_.data();
    const T* dh = dh_.data() + j * d;
    T* dg = gate_grads_.data() + batch_row * 4 * d;
    T* dc = dc_.data() + j * d;
    FLEET_EACH_ALONE
    for (int64_t k = 0; k < d; ++k) {
      const T a = g[k], i = g[d + k], f = g[2 * d + k], o = g[3 * d + k];
      const T h_grad = dh[k] + from_above[k];
      const T o_grad = h_grad * active[k] * gate(o);
      const T c_grad = dc[k] + h_grad * o * cell(active[k]) + from_cell[k] + o_grad * po[k];
      dg[k] = c_grad * i * candidate(a);
      dg[d + k] = c_grad * a * gate(i);
      dg[2 * d + k] = c_grad * before[k] * gate(f);
      dg[3 * d + k] = o_grad;
      dc[k] = c_grad * f;
    }
    std::copy_n(before_h, d, previous_h_.data() + batch_row * d);
    if (input_grad_ >= 0) std::copy_n(dg, 4 * d, c.out<T>(input_grad_) + source * 4 * d);
    FLEET_EACH_ALONE
    for (int64_t k = 0; k < 4 * d; ++k) sums[k] += dg[k];
    if (s_.peepholes) add_peepholes(c, dg, before, c.in<T>(cell_) + source * d, dc, sums + 4 * d);
  }

  // What the peepholes of a row hand to the state before it, and their own gradients.
  void add_peepholes(const KernelContext& c, const T* dg, const T* before, const T* state, T* dc,
                     T* sums) const {
    const int64_t d = s_.d;
    const T* pi = s_.peephole(c, 0);
    const T* pf = s_.peephole(c, 1);
    FLEET_EACH_ALONE
    for (int64_t k = 0; k < d; ++k) {
      dc[k] += dg[d + k] * pi[k] + dg[2 * d + k] * pf[k];
      sums[k] += dg[d + k] * before[k];
      sums[d + k] += dg[2 * d + k] * before[k];
      sums[2 * d + k] += dg[3 * d + k] * state[k];
    }
  }

  void finish(const KernelContext& c) {
    const int64_t d = s_.d;
    if (bias_grad_ >= 0) {
      const auto tiles = static_cast<int64_t>(sums_.size()) / sum_count();
      T* to = c.out<T>(bias_grad_);
      std::fill_n(to, sum_count(), T{});
      add_column_sums(c.tiles(), sums_.data(), tiles, sum_count(), to);
    }
    if (weight_grad_ >= 0) {
      weight_product_->run(previous_h_.data(), gate_grads_.data(), c.out<T>(weight_grad_),
                           c.scratch(), c.tiles());
    }
    for (int64_t j = 0; j < steps_.sequences(); ++j) {
      if (h0_grad_ >= 0) {
        std::copy_n(dh_.data() + j * d, d, c.out<T>(h0_grad_) + steps_.sequence(j) * d);
      }
      if (c0_grad_ >= 0) {
        std::copy_n(dc_.data() + j * d, d, c.out<T>(c0_grad_) + steps_.sequence(j) * d);
      }
    }
  }

  LstmCommon<T> s_;
  StepGemm<T> to_h_;
  std::unique_ptr<Gemm<T>> weight_product_;
  RnnSteps steps_;
  std::vector<T> dh_, dc_, first_h_, first_c_, zeros_, gate_grads_, previous_h_;
  std::vector<T> sums_;  // gradient of the bias, by tiles
  int hidden_, cell_, gates_, active_, hidden_grad_, cell_grad_;
  int input_grad_ = -1, weight_grad_ = -1, bias_grad_ = -1, h0_grad_ = -1, c0_grad_ = -1;
};

}  // namespace

void register_lstm(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    table.add_last("lstm", DeviceKind::kCpu, dtype_of<T>(), {"steps", prepare_body<Lstm<T>>});
    table.add_last("lstm_grad", DeviceKind::kCpu, dtype_of<T>(),
                   {"steps", prepare_body<LstmGrad<T>>});
  });
}

}  // namespace fleet::fluid::cpu
