#include "fluid/kernels/cuda/math/reduce_impl.h"
#include "fluid/kernels/cuda/optimize/more_loops.h"
#include "fluid/kernels/cuda/optimize/update_impl.h"
#include "fluid/kernels/cuda/random_impl.h"

namespace fleet::fluid::cuda {
namespace {

template <class T>
struct SquareMeanLoop {
  UpdateArgs<T> args;
  SquareMean<T> more;
  __device__ T operator()(int64_t i, T g) const {
    const T moment = more.keep * more.moment.from[i] + more.add * g * g;
    const T written = args.param.from[i] - *args.rate * g / (sqrt(moment) + more.epsilon);
    more.moment.to[i] = moment;
    args.param.to[i] = written;
    return written;
  }
};

template <class T>
struct AdadeltaLoop {
  UpdateArgs<T> args;
  Adadelta<T> more;
  __device__ T operator()(int64_t i, T g) const {
    const T square = more.rho * more.squares.from[i] + (T{1} - more.rho) * g * g;
    const T old_mean = more.updates.from[i];
    const T step = sqrt((old_mean + more.epsilon) / (square + more.epsilon)) * g;
    const T mean = more.rho * old_mean + (T{1} - more.rho) * step * step;
    const T with_mean = sqrt((mean + more.epsilon) / (square + more.epsilon)) * g;
    const T written = args.param.from[i] - (more.with_new ? with_mean : step);
    more.squares.to[i] = square;
    more.updates.to[i] = mean;
    args.param.to[i] = written;
    return written;
  }
};

template <class T>
struct AdamaxLoop {
  UpdateArgs<T> args;
  Adamax<T> more;
  __device__ T operator()(int64_t i, T g) const {
    const T rate = *args.rate / (T{1} - *more.power);
    const T size = fabs(g);
    const T decayed = more.beta2 * more.norm.from[i] + more.epsilon;
    const T moment = more.beta1 * more.moment.from[i] + (T{1} - more.beta1) * g;
    const T norm = size > decayed ? size : decayed;
    const T written = args.param.from[i] - rate * (moment / norm);
    more.moment.to[i] = moment;
    more.norm.to[i] = norm;
    args.param.to[i] = written;
    return written;
  }
};

template <class T>
struct RmspropLoop {
  UpdateArgs<T> args;
  Rmsprop<T> more;
  __device__ T operator()(int64_t i, T g) const {
    const T square = more.rho * more.square.from[i] + (T{1} - more.rho) * g * g;
    T mean = more.mean.from[i];
    T spread = square + more.epsilon;
    if (more.centered) {
      mean = more.rho * mean + (T{1} - more.rho) * g;
      spread = square - mean * mean + more.epsilon;
    }
    const T moment = more.mu * more.moment.from[i] + *args.rate * g / sqrt(spread);
    const T written = args.param.from[i] - moment;
    more.square.to[i] = square;
    more.mean.to[i] = mean;
    more.moment.to[i] = moment;
    args.param.to[i] = written;
    return written;
  }
};

template <class T>
struct FtrlLoop {
  UpdateArgs<T> args;
  Ftrl<T> more;
  __device__ T root(T square) const {
    if (more.power == T(-0.5)) return sqrt(square);
    if (more.power == T(-1)) return square;
    return std::pow(square, -more.power);
  }
  __device__ T operator()(int64_t i, T g) const {
    const T per_rate = T{1} / *args.rate;
    const T square = more.squares.from[i] + g * g;
    const T new_root = root(square);
    const T pulled = (new_root - root(more.squares.from[i])) * per_rate * args.param.from[i];
    const T sum = more.linear.from[i] + (g - pulled);
    const T side = sum > T{} ? more.l1 : -more.l1;
    const T pull = (fabs(sum) > more.l1 ? side : sum) - sum;
    const T written = pull / (new_root * per_rate + T{2} * more.l2);
    more.squares.to[i] = square;
    more.linear.to[i] = sum;
    args.param.to[i] = written;
    return written;
  }
};

template <class T>
struct LarsLoop {
  UpdateArgs<T> args;
  Lars<T> more;
  __device__ T operator()(int64_t i, T g) const {
    const T p_norm = static_cast<T>(sqrt(*more.param_squares));
    const T g_norm = static_cast<T>(sqrt(*more.grad_squares));
    T rate = *args.rate;
    if (p_norm > T{} && g_norm > T{}) {
      rate = rate * more.coeff * p_norm / (g_norm + more.decay * p_norm);
    }
    const T velocity =
        more.mu * more.velocity.from[i] + rate * (g + more.decay * args.param.from[i]);
    const T written = args.param.from[i] - velocity;
    more.velocity.to[i] = velocity;
    args.param.to[i] = written;
    return written;
  }
};

template <class T>
struct DpsgdLoop {
  UpdateArgs<T> args;
  Dpsgd<T> more;
  __device__ T operator()(int64_t i, T g) const {
    const T norm = static_cast<T>(sqrt(*more.grad_squares));
    const T factor = norm > more.clip ? more.clip / norm : T{1};
    const uint64_t index = more.random.first + static_cast<uint64_t>(i);
    const T drawn =
        static_cast<T>(more.noise * normal_number(more.random.key, index, more.random.word));
    const T written = args.param.from[i] - *args.rate * (g * factor + drawn);
    args.param.to[i] = written;
    return written;
  }
};

template <class T>
struct LambLoop {
  UpdateArgs<T> args;
  Lamb<T> more;
  __device__ void operator()(int64_t i, T g) const {
    const T scale1 = more.corrects ? T{1} / (T{1} - *more.power1) : T{1};
    const T scale2 = more.corrects ? T{1} / (T{1} - *more.power2) : T{1};
    const T m = more.beta1 * more.moment1.from[i] + (T{1} - more.beta1) * g;
    const T v = more.beta2 * more.moment2.from[i] + (T{1} - more.beta2) * g * g;
    more.moment1.to[i] = m;
    more.moment2.to[i] = v;
    more.direction[i] =
        scale1 * m / (sqrt(scale2 * v) + more.epsilon) + more.decay * args.param.from[i];
  }
};
// After LambLoop, which reads the powers in all its blocks.
template <class T>
struct LambPowersLoop {
  Lamb<T> more;
  __device__ void operator()(int64_t) const {
    if (more.power1_out != nullptr) *more.power1_out = *more.power1 * more.beta1;
    if (more.power2_out != nullptr) *more.power2_out = *more.power2 * more.beta2;
  }
};

template <class T>
struct LambApplyLoop {
  UpdateArgs<T> args;
  const double* param_squares;
  const double* direction_squares;
  __device__ T operator()(int64_t i, T g) const {
    const T p_norm = static_cast<T>(sqrt(*param_squares));
    const T u_norm = static_cast<T>(sqrt(*direction_squares));
    const T ratio = p_norm > T{} && u_norm > T{} ? p_norm / u_norm : T{1};
    const T written = args.param.from[i] - *args.rate * ratio * g;
    args.param.to[i] = written;
    return written;
  }
};

template <class T>
struct ClipLoop {
  const double* squares;
  T max_norm;
  const T* x;
  T* out;
  __device__ void operator()(int64_t i) const {
    const T norm = static_cast<T>(sqrt(*squares));
    out[i] = x[i] * (norm > max_norm ? max_norm / norm : T{1});
  }
};

template <class T>
struct SquareLoop {
  __device__ double operator()(int64_t, T x) const { return static_cast<double>(x) * x; }
};

}  // namespace

template <class T>
void square_mean(const UpdateTarget& target, const UpdateArgs<T>& args, const SquareMean<T>& more) {
  launch_update(target, "square_mean", args.grad, args.n, SquareMeanLoop<T>{args, more});
}
template <class T>
void adadelta(const UpdateTarget& target, const UpdateArgs<T>& args, const Adadelta<T>& more) {
  launch_update(target, "adadelta", args.grad, args.n, AdadeltaLoop<T>{args, more});
}
template <class T>
void adamax(const UpdateTarget& target, const UpdateArgs<T>& args, const Adamax<T>& more) {
  launch_update(target, "adamax", args.grad, args.n, AdamaxLoop<T>{args, more});
}
template <class T>
void rmsprop(const UpdateTarget& target, const UpdateArgs<T>& args, const Rmsprop<T>& more) {
  launch_update(target, "rmsprop", args.grad, args.n, RmspropLoop<T>{args, more});
}
template <class T>
void ftrl(const UpdateTarget& target, const UpdateArgs<T>& args, const Ftrl<T>& more) {
  launch_update(target, "ftrl", args.grad, args.n, FtrlLoop<T>{args, more});
}

int64_t squares_partials(int64_t n) {
  return reduce_partials(sum_of_all(n));
}
template <class T>
void sum_squares(RawStream stream, const GradientArrays<T>& x, int64_t n, double* partial,
                 double* out) {
  with_gradient(x, n, SquareLoop<T>{}, [&](int64_t count, const auto& square) {
    launch_reduce<double, SumOf>(stream, "sum_squares", sum_of_all(count), square, 1.0, partial,
                                 out);
  });
}
void sum_doubles(RawStream stream, const double* x, int64_t n, double* partial, double* out) {
  launch_reduce<double, SumOf>(stream, "sum_doubles", sum_of_all(n), ArrayValue<double>{x}, 1.0,
                               partial, out);
}

template <class T>
void lars_momentum(const UpdateTarget& target, const UpdateArgs<T>& args, const Lars<T>& more) {
  launch_update(target, "lars_momentum", args.grad, args.n, LarsLoop<T>{args, more});
}
template <class T>
void dpsgd(const UpdateTarget& target, const UpdateArgs<T>& args, const Dpsgd<T>& more) {
  launch_update(target, "dpsgd", args.grad, args.n, DpsgdLoop<T>{args, more});
}
template <class T>
void lamb_direction(RawStream stream, const UpdateArgs<T>& args, const Lamb<T>& more) {
  with_gradient(args.grad, args.n, LambLoop<T>{args, more}, [&](int64_t n, const auto& each) {
    launch_each(stream, "lamb_direction", n, each);
  });
  launch_each(stream, "lamb powers", 1, LambPowersLoop<T>{more});
}
template <class T>
void lamb_apply(const UpdateTarget& target, const UpdateArgs<T>& args, const double* param_squares,
                const double* direction_squares) {
  launch_update(target, "lamb_apply", args.grad, args.n,
                LambApplyLoop<T>{args, param_squares, direction_squares});
}
template <class T>
void clip_by_norm(RawStream stream, const double* squares, T max_norm, const T* x, T* out,
                  int64_t n) {
  launch_each(stream, "clip_by_norm", n, ClipLoop<T>{squares, max_norm, x, out});
}

#define FLEET_INSTANTIATE(T)                                                                  \
  template void square_mean(const UpdateTarget&, const UpdateArgs<T>&, const SquareMean<T>&); \
  template void adadelta(const UpdateTarget&, const UpdateArgs<T>&, const Adadelta<T>&);      \
  template void adamax(const UpdateTarget&, const UpdateArgs<T>&, const Adamax<T>&);          \
  template void rmsprop(const UpdateTarget&, const UpdateArgs<T>&, const Rmsprop<T>&);        \
  template void ftrl(const UpdateTarget&, const UpdateArgs<T>&, const Ftrl<T>&);              \
  template void sum_squares(RawStream, const GradientArrays<T>&, int64_t, double*, double*);  \
  template void lars_momentum(const UpdateTarget&, const UpdateArgs<T>&, const Lars<T>&);     \
  template void dpsgd(const UpdateTarget&, const UpdateArgs<T>&, const Dpsgd<T>&);            \
  template void lamb_direction(RawStream, const UpdateArgs<T>&, const Lamb<T>&);              \
  template void lamb_apply(const UpdateTarget&, const UpdateArgs<T>&, const double*,          \
                           const double*);                                                    \
  template void clip_by_norm(RawStream, const double*, T, const T*, T*, int64_t)
FLEET_INSTANTIATE(float);
FLEET_INSTANTIATE(double);
#undef FLEET_INSTANTIATE

}  // namespace fleet::fluid::cuda
