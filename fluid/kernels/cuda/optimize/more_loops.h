// The updates of other optimizers than sgd, momentum and adam; conventions of
// fluid/kernels/cuda/loops.h. Formulas are those of fluid/kernels/cpu/optimize.
#pragma once

#include "fluid/kernels/cuda/loops.h"

namespace fleet::fluid::cuda {

// One of an update's states: element i of `to` depends on element i of `from`, which may be the
// same array.
template <class T>
struct StateArrays {
  const T* from = nullptr;
  T* to = nullptr;
};

// What every update has.
template <class T>
struct UpdateArgs {
  StateArrays<T> param;
  GradientArrays<T> grad;
  const T* rate = nullptr;  // one element; null: adadelta
  int64_t n = 0;
};

// adagrad: keep = add = 1; decayed_adagrad: keep = decay, add = 1 - decay.
template <class T>
struct SquareMean {
  StateArrays<T> moment;
  T keep{};
  T add{};
  T epsilon{};
};
template <class T>
void square_mean(const UpdateTarget& target, const UpdateArgs<T>& args, const SquareMean<T>& more);

template <class T>
struct Adadelta {
  StateArrays<T> squares;
  StateArrays<T> updates;
  T rho{};
  T epsilon{};
  bool with_new = false;
};
template <class T>
void adadelta(const UpdateTarget& target, const UpdateArgs<T>& args, const Adadelta<T>& more);

template <class T>
struct Adamax {
  StateArrays<T> moment;
  StateArrays<T> norm;
  const T* power = nullptr;
  T beta1{};
  T beta2{};
  T epsilon{};
};
template <class T>
void adamax(const UpdateTarget& target, const UpdateArgs<T>& args, const Adamax<T>& more);

template <class T>
struct Rmsprop {
  StateArrays<T> square;
  StateArrays<T> mean;
  StateArrays<T> moment;
  T rho{};
  T epsilon{};
  T mu{};
  bool centered = false;
};
template <class T>
void rmsprop(const UpdateTarget& target, const UpdateArgs<T>& args, const Rmsprop<T>& more);

template <class T>
struct Ftrl {
  StateArrays<T> squares;
  StateArrays<T> linear;
  T l1{};
  T l2{};
  T power{};  // of the learning rate, -0.5 as a rule
};
template <class T>
void ftrl(const UpdateTarget& target, const UpdateArgs<T>& args, const Ftrl<T>& more);

// *out = the sum of the squares of n elements, in double precision. `partial` has
// squares_partials(n) elements; x.place is set where x is rows.
int64_t squares_partials(int64_t n);
template <class T>
void sum_squares(RawStream stream, const GradientArrays<T>& x, int64_t n, double* partial,
                 double* out);
// *out = the sum of n elements; the same of `partial`.
void sum_doubles(RawStream stream, const double* x, int64_t n, double* partial, double* out);

// Norms by the sums of squares.
template <class T>
struct Lars {
  StateArrays<T> velocity;
  const double* param_squares = nullptr;
  const double* grad_squares = nullptr;
  T mu{};
  T coeff{};
  T decay{};
};
template <class T>
void lars_momentum(const UpdateTarget& target, const UpdateArgs<T>& args, const Lars<T>& more);

// The gradient is cut to `clip`, and `noise` times a normal number of the stream is added.
template <class T>
struct Dpsgd {
  const double* grad_squares = nullptr;
  T clip{};
  double noise = 0;
  RandomStream random;
};
template <class T>
void dpsgd(const UpdateTarget& target, const UpdateArgs<T>& args, const Dpsgd<T>& more);

// Advances moments and powers and writes the direction; args.param.to and rate are not used.
template <class T>
struct Lamb {
  StateArrays<T> moment1;
  StateArrays<T> moment2;
  const T* power1 = nullptr;
  const T* power2 = nullptr;
  T* power1_out = nullptr;  // may be null
  T* power2_out = nullptr;
  T* direction = nullptr;
  T beta1{};
  T beta2{};
  T epsilon{};
  T decay{};
  bool corrects = true;
};
template <class T>
void lamb_direction(RawStream stream, const UpdateArgs<T>& args, const Lamb<T>& more);
// param -= rate * ratio of the norms * direction; args.grad is the direction.
template <class T>
void lamb_apply(const UpdateTarget& target, const UpdateArgs<T>& args, const double* param_squares,
                const double* direction_squares);

// out = x * min(1, max_norm / norm).
template <class T>
void clip_by_norm(RawStream stream, const double* squares, T max_norm, const T* x, T* out,
                  int64_t n);

}  // namespace fleet::fluid::cuda
