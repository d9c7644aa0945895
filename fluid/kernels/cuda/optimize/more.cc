// Update ops of other optimizers than sgd, momentum and adam; clip_by_norm.
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/optimize/update_inputs_impl.h"
#include "fluid/kernels/optimize/dpsgd_noise.h"
#include "fluid/ops/math/scale.h"
#include "fluid/ops/optimize/optimize.h"

namespace fleet::fluid::cuda {
namespace {

template <class T>
std::unique_ptr<Prepared> prepare_square_mean(PrepareContext& context, T keep, T add, T epsilon) {
  Update<T> update(context);
  const State<T> moment = state_of<T>(context, "Moment", "MomentOut");
  const bool stays = keep == T{1};  // without a gradient nothing moves
  return make_prepared([=](const KernelContext& c) mutable {
    const UpdateArgs<T> args = update.at(c, stays);
    const StateArrays<T> moments = moment.at(c);
    if (stays && update.gradient.sparse()) {
      keep_rest(c, args.param, args.n);
      keep_rest(c, moments, args.n);
    }
    square_mean<T>(target_of(c), args,
                   {.moment = moments, .keep = keep, .add = add, .epsilon = epsilon});
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_adagrad(PrepareContext& context) {
  const T epsilon = static_cast<T>(context.attrs<AdagradAttrs>().epsilon);
  return prepare_square_mean<T>(context, T{1}, T{1}, epsilon);
}

template <class T>
std::unique_ptr<Prepared> prepare_decayed_adagrad(PrepareContext& context) {
  const auto attrs = context.attrs<DecayedAdagradAttrs>();
  const T decay = static_cast<T>(attrs.decay);
  return prepare_square_mean<T>(context, decay, T{1} - decay, static_cast<T>(attrs.epsilon));
}

template <class T>
std::unique_ptr<Prepared> prepare_adadelta(PrepareContext& context) {
  const auto attrs = context.attrs<AdadeltaAttrs>();
  Update<T> update(context);
  const State<T> squares = state_of<T>(context, "AvgSquaredGrad", "AvgSquaredGradOut");
  const State<T> updates = state_of<T>(context, "AvgSquaredUpdate", "AvgSquaredUpdateOut");
  return make_prepared([=](const KernelContext& c) mutable {
    adadelta<T>(target_of(c), update.at(c),
                {.squares = squares.at(c),
                 .updates = updates.at(c),
                 .rho = static_cast<T>(attrs.rho),
                 .epsilon = static_cast<T>(attrs.epsilon),
                 .with_new = attrs.paddle_form});
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_adamax(PrepareContext& context) {
  const auto attrs = context.attrs<AdamaxAttrs>();
  Update<T> update(context);
  const int power = scalar_input<T>(context, "Beta1Pow");
  const State<T> moment = state_of<T>(context, "Moment", "MomentOut");
  const State<T> norm = state_of<T>(context, "InfNorm", "InfNormOut");
  return make_prepared([=](const KernelContext& c) mutable {
    adamax<T>(target_of(c), update.at(c),
              {.moment = moment.at(c),
               .norm = norm.at(c),
               .power = c.in<T>(power),
               .beta1 = static_cast<T>(attrs.beta1),
               .beta2 = static_cast<T>(attrs.beta2),
               .epsilon = static_cast<T>(attrs.epsilon)});
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_rmsprop(PrepareContext& context) {
  const auto attrs = context.attrs<RmspropAttrs>();
  Update<T> update(context);
  const State<T> square = state_of<T>(context, "MeanSquare", "MeanSquareOut");
  const State<T> mean = state_of<T>(context, "MeanGrad", "MeanGradOut");
  const State<T> moment = state_of<T>(context, "Moment", "MomentOut");
  return make_prepared([=](const KernelContext& c) mutable {
    rmsprop<T>(target_of(c), update.at(c),
               {.square = square.at(c),
                .mean = mean.at(c),
                .moment = moment.at(c),
                .rho = static_cast<T>(attrs.decay),
                .epsilon = static_cast<T>(attrs.epsilon),
                .mu = static_cast<T>(attrs.momentum),
                .centered = attrs.centered});
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_ftrl(PrepareContext& context) {
  const auto attrs = context.attrs<FtrlAttrs>();
  Update<T> update(context);
  const State<T> squares = state_of<T>(context, "SquaredAccumulator", "SquaredAccumOut");
  const State<T> linear = state_of<T>(context, "LinearAccumulator", "LinearAccumOut");
  return make_prepared([=](const KernelContext& c) mutable {
    ftrl<T>(target_of(c), update.at(c),
            {.squares = squares.at(c),
             .linear = linear.at(c),
             .l1 = static_cast<T>(attrs.l1) + static_cast<T>(1e-10),
             .l2 = static_cast<T>(attrs.l2) + static_cast<T>(1e-10),
             .power = static_cast<T>(attrs.lr_power)});
  });
}

// The sum of the squares of an array, or of sums over its rows that are given.
struct Squares {
  int rows = -1;
  int64_t count = 0;

  int64_t room(int64_t n) const { return 1 + squares_partials(rows >= 0 ? count : n); }
  // Into the first element of `memory`, which has room(n).
  template <class T>
  void sum(const KernelContext& c, const GradientArrays<T>& x, int64_t n, double* memory) const {
    const RawStream stream = stream_of(c).raw();
    if (rows >= 0) {
      sum_doubles(stream, c.in<double>(rows), count, memory + 1, memory);
    } else {
      sum_squares<T>(stream, x, n, memory + 1, memory);
    }
  }
  template <class T>
  void sum(const KernelContext& c, const T* x, int64_t n, double* memory) const {
    sum(c, GradientArrays<T>{.values = x}, n, memory);
  }
};

Squares squares_of(const PrepareContext& context, const char* slot) {
  const int rows = context.input(slot);
  return {.rows = rows, .count = rows >= 0 ? context.in(slot).shape.numel() : 0};
}

template <class T>
std::unique_ptr<Prepared> prepare_lars_momentum(PrepareContext& context) {
  const auto attrs = context.attrs<LarsMomentumAttrs>();
  Update<T> update(context);
  const State<T> velocity = state_of<T>(context, "Velocity", "VelocityOut");
  const Squares of_param = squares_of(context, "ParamSquaredRowSums");
  const Squares of_grad = squares_of(context, "GradSquaredRowSums");
  return make_prepared([=](const KernelContext& c) mutable {
    const int64_t n = update.gradient.numel();
    const int64_t room = of_param.room(n);
    const auto all = static_cast<size_t>(room + of_grad.room(n));
    const UpdateArgs<T> args = update.at(c, false, all * sizeof(double));
    auto* memory = reinterpret_cast<double*>(update.gradient.more());
    of_param.sum(c, args.param.from, args.n, memory);
    of_grad.sum(c, args.grad, args.n, memory + room);
    lars_momentum<T>(target_at_once(c), args,
                     {.velocity = velocity.at(c),
                      .param_squares = memory,
                      .grad_squares = memory + room,
                      .mu = static_cast<T>(attrs.mu),
                      .coeff = static_cast<T>(attrs.lars_coeff),
                      .decay = static_cast<T>(attrs.lars_weight_decay)});
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_dpsgd(PrepareContext& context) {
  const auto attrs = context.attrs<DpsgdAttrs>();
  Update<T> update(context);
  const DpsgdNoise noise = dpsgd_noise_of(context);
  return make_prepared([=](const KernelContext& c) mutable {
    const Squares squares;
    const auto room = static_cast<size_t>(squares.room(update.gradient.numel()));
    const UpdateArgs<T> args = update.at(c, false, room * sizeof(double));
    auto* memory = reinterpret_cast<double*>(update.gradient.more());
    squares.sum(c, args.grad, args.n, memory);
    dpsgd<T>(target_at_once(c), args,
             {.grad_squares = memory,
              .clip = static_cast<T>(attrs.clip),
              .noise = noise.factor,
              .random = {.key = noise.key, .first = noise.first, .word = noise.word(c)}});
  });
}

// Advances moments and powers, and gives the direction.
template <class T>
struct LambMoments {
  explicit LambMoments(PrepareContext& context)
      : attrs(context.attrs<LambAttrs>()),
        param(context.input("Param")),
        gradient(context),
        power1(scalar_input<T>(context, "Beta1Pow")),
        power2(scalar_input<T>(context, "Beta2Pow")),
        next1(context.set_output("Beta1PowOut", context.in("Beta1Pow").shape, dtype_of<T>())),
        next2(context.set_output("Beta2PowOut", context.in("Beta2Pow").shape, dtype_of<T>())),
        moment1(state_of<T>(context, "Moment1", "Moment1Out")),
        moment2(state_of<T>(context, "Moment2", "Moment2Out")) {}

  // `grad` is what gradient.at(c) gave.
  void run(const KernelContext& c, const GradientArrays<T>& grad, T* direction) const {
    const UpdateArgs<T> args{
        .param = {.from = c.in<T>(param), .to = nullptr}, .grad = grad, .n = gradient.numel()};
    lamb_direction<T>(stream_of(c).raw(), args,
                      {.moment1 = moment1.at(c),
                       .moment2 = moment2.at(c),
                       .power1 = c.in<T>(power1),
                       .power2 = c.in<T>(power2),
                       .power1_out = out_or_null<T>(c, next1),
                       .power2_out = out_or_null<T>(c, next2),
                       .direction = direction,
                       .beta1 = static_cast<T>(attrs.beta1),
                       .beta2 = static_cast<T>(attrs.beta2),
                       .epsilon = static_cast<T>(attrs.epsilon),
                       .decay = static_cast<T>(attrs.weight_decay),
                       .corrects = !attrs.paddle_form});
  }

  LambAttrs attrs;
  int param;
  Gradient<T> gradient;
  int power1;
  int power2;
  int next1;
  int next2;
  State<T> moment1;
  State<T> moment2;
};

template <class T>
std::unique_ptr<Prepared> prepare_lamb(PrepareContext& context) {
  LambMoments<T> moments(context);
  const State<T> param = state_of<T>(context, "Param", "ParamOut");
  const int rate = scalar_input<T>(context, "LearningRate");
  return make_prepared([=](const KernelContext& c) mutable {
    const int64_t n = moments.gradient.numel();
    const Squares squares;
    const int64_t room = squares.room(n);
    const size_t sums = static_cast<size_t>(2 * room) * sizeof(double);
    const auto grad = moments.gradient.at(c, false, sums + static_cast<size_t>(n) * sizeof(T));
    auto* memory = reinterpret_cast<double*>(moments.gradient.more());
    T* direction = reinterpret_cast<T*>(memory + 2 * room);
    moments.run(c, grad, direction);
    squares.sum(c, c.in<T>(param.in), n, memory);
    squares.sum(c, static_cast<const T*>(direction), n, memory + room);
    const UpdateArgs<T> args{
        .param = param.at(c), .grad = {.values = direction}, .rate = c.in<T>(rate), .n = n};
    lamb_apply<T>(target_at_once(c), args, memory, memory + room);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_lamb_direction(PrepareContext& context) {
  LambMoments<T> moments(context);
  const int out = context.set_output("Direction", context.in("Param").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) mutable {
    moments.run(c, moments.gradient.at(c), c.out<T>(out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_lamb_apply(PrepareContext& context) {
  const State<T> param = state_of<T>(context, "Param", "ParamOut");
  const int direction = context.input("Direction");
  const int rate = scalar_input<T>(context, "LearningRate");
  const Squares of_param = squares_of(context, "ParamSquaredRowSums");
  const Squares of_direction = squares_of(context, "DirectionSquaredRowSums");
  const int64_t n = context.in("Param").shape.numel();
  return make_prepared([=](const KernelContext& c) {
    const UpdateArgs<T> args{.param = param.at(c),
                             .grad = {.values = c.in<T>(direction)},
                             .rate = c.in<T>(rate),
                             .n = n};
    const int64_t room = of_param.room(n);
    double* memory = stream_of(c).scratch<double>(room + of_direction.room(n));
    of_param.sum(c, args.param.from, n, memory);
    of_direction.sum(c, args.grad, n, memory + room);
    lamb_apply<T>(target_at_once(c), args, memory, memory + room);
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_clip_by_norm(PrepareContext& context) {
  const T max_norm = static_cast<T>(context.attrs<ClipByNormAttrs>().max_norm);
  const Squares squares = squares_of(context, "SquaredRowSums");
  const auto clip = [=](const KernelContext& c, const T* x, T* out, int64_t n) {
    double* memory = stream_of(c).scratch<double>(squares.room(n));
    squares.sum(c, x, n, memory);
    clip_by_norm<T>(stream_of(c).raw(), memory, max_norm, x, out, n);
  };
  if (takes_rows(context)) {
    return prepare_merged<T>(context, [clip](const KernelContext& c, T* values, int64_t n) {
      clip(c, values, values, n);
    });
  }
  const Shape shape = context.in("X").shape;
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared(
      [=, n = shape.numel()](const KernelContext& c) { clip(c, c.in<T>(x), c.out<T>(out), n); });
}

}  // namespace

void register_optimizer(KernelTable& table) {
  cpu::for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto list = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCuda, dtype_of<T>(),
                     {.name = "loop", .prepare = prepare, .takes_rows = true});
    };
    list("adagrad", prepare_adagrad<T>);
    list("decayed_adagrad", prepare_decayed_adagrad<T>);
    list("adadelta", prepare_adadelta<T>);
    list("adamax", prepare_adamax<T>);
    list("rmsprop", prepare_rmsprop<T>);
    list("ftrl", prepare_ftrl<T>);
    list("lars_momentum", prepare_lars_momentum<T>);
    list("dpsgd", prepare_dpsgd<T>);
    list("lamb", prepare_lamb<T>);
    list("lamb_direction", prepare_lamb_direction<T>);
    list("lamb_apply", prepare_lamb_apply<T>);
    list("clip_by_norm", prepare_clip_by_norm<T>);
  });
}

}  // namespace fleet::fluid::cuda
