// Random numbers and the updates of optimizers.
#include "fluid/kernels/cuda/optimize/update_impl.h"
#include "fluid/kernels/cuda/random_impl.h"

namespace fleet::fluid::cuda {
namespace {

template <class T>
__device__ T unit(RandomKey key, uint64_t index, uint64_t word);
template <>
__device__ float unit<float>(RandomKey key, uint64_t index, uint64_t word) {
  return static_cast<float>(philox_block(key, index / 4, word).x[index % 4] >> 8) * 0x1p-24f;
}
template <>
__device__ double unit<double>(RandomKey key, uint64_t index, uint64_t word) {
  return uniform_number(key, index, word);
}

template <class T>
struct UniformLoop {
  RandomStream random;
  T low;
  T width;
  T* out;
  __device__ void operator()(int64_t i) const {
    const uint64_t index = random.first + static_cast<uint64_t>(i);
    out[i] = low + width * unit<T>(random.key, index, random.word);
  }
};

template <class T>
struct GaussianLoop {
  RandomStream random;
  double mean;
  double std;
  T* out;
  __device__ void operator()(int64_t i) const {
    const uint64_t index = random.first + static_cast<uint64_t>(i);
    out[i] = static_cast<T>(mean + std * normal_number(random.key, index, random.word));
  }
};

template <class T>
struct SgdLoop {
  SgdArgs<T> args;
  __device__ T operator()(int64_t i, T g) const {
    const T written = args.param[i] - *args.rate * g;
    args.param_out[i] = written;
    return written;
  }
};

template <class T>
struct MomentumLoop {
  MomentumArgs<T> args;
  __device__ T operator()(int64_t i, T g) const {
    const T v = args.mu * args.velocity[i] + g;
    const T step = args.nesterov ? g + args.mu * v : v;
    const T written = args.param[i] - *args.rate * step;
    args.velocity_out[i] = v;
    args.param_out[i] = written;
    return written;
  }
};

template <class T>
struct AdamLoop {
  AdamArgs<T> args;
  T rate{};
  __device__ void begin() {
    const T power1 = args.ahead ? *args.power1 * args.beta1 : *args.power1;
    const T power2 = args.ahead ? *args.power2 * args.beta2 : *args.power2;
    rate = *args.rate * sqrt(T{1} - power2) / (T{1} - power1);
  }
  __device__ T operator()(int64_t i, T g) const {
    const T m = args.beta1 * args.moment1[i] + (T{1} - args.beta1) * g;
    const T v = args.beta2 * args.moment2[i] + (T{1} - args.beta2) * g * g;
    const T written = args.param[i] - rate * (m / (sqrt(v) + args.epsilon));
    args.moment1_out[i] = m;
    args.moment2_out[i] = v;
    args.param_out[i] = written;
    return written;
  }
  // The powers are read for every element.
  __device__ void finish() const {
    if (args.power1_out != nullptr) *args.power1_out = *args.power1 * args.beta1;
    if (args.power2_out != nullptr) *args.power2_out = *args.power2 * args.beta2;
  }
};

}  // namespace

template <class T>
void uniform(RawStream stream, const RandomStream& random, T low, T width, T* out, int64_t n) {
  launch_each(stream, "uniform_random", n, UniformLoop<T>{random, low, width, out});
}

template <class T>
void gaussian(RawStream stream, const RandomStream& random, double mean, double std, T* out,
              int64_t n) {
  launch_each(stream, "gaussian_random", n, GaussianLoop<T>{random, mean, std, out});
}

template <class T>
void sgd(const UpdateTarget& target, const SgdArgs<T>& args, int64_t n) {
  launch_update(target, "sgd", args.grad, n, SgdLoop<T>{args});
}

template <class T>
void momentum(const UpdateTarget& target, const MomentumArgs<T>& args, int64_t n) {
  launch_update(target, "momentum", args.grad, n, MomentumLoop<T>{args});
}

template <class T>
void adam(const UpdateTarget& target, const AdamArgs<T>& args, int64_t n) {
  launch_update(target, "adam", args.grad, n, AdamLoop<T>{args});
}

#define FLEET_INSTANTIATE(T)                                                           \
  template void uniform(RawStream, const RandomStream&, T, T, T*, int64_t);            \
  template void gaussian(RawStream, const RandomStream&, double, double, T*, int64_t); \
  template void sgd(const UpdateTarget&, const SgdArgs<T>&, int64_t);                  \
  template void momentum(const UpdateTarget&, const MomentumArgs<T>&, int64_t);        \
  template void adam(const UpdateTarget&, const AdamArgs<T>&, int64_t);
FLEET_INSTANTIATE(float)
FLEET_INSTANTIATE(double)
#undef FLEET_INSTANTIATE

}  // namespace fleet::fluid::cuda
