// Layer, group and batch normalisation.
#include "fluid/kernels/cuda/math/reduce_impl.h"
#include "fluid/kernels/cuda/nn/nn_loops_impl.h"

namespace fleet::fluid::cuda {
namespace {

// An element of a row, and its element of Scale.
struct RowPlace {
  int64_t at;
  int64_t channel;
};
__device__ inline RowPlace place_in(const NormRows& r, int64_t row, int64_t e) {
  if (r.runs == 1 && !r.channel_per_run) return {r.start(row) + e, r.channel(row, 0) + e};
  const int64_t length = r.length_of(row);
  const int64_t run = e / length;
  const int64_t i = e % length;
  return {r.start(row) + run * r.run_stride + i, r.channel(row, run) + (r.channel_per_run ? 0 : i)};
}

template <class T>
struct RowNormLoop {
  RowNormArgs<T> args;
  const T* x;
  T* y;
  T* mean;
  T* variance;
  template <class Team>
  __device__ void row(int64_t row) const {
    const NormRows& r = args.rows;
    const int64_t size = r.size(row);
    T sum{};
#pragma unroll 4
    for (int64_t e = team_thread<Team>(); e < size; e += Team::kSize) {
      sum += x[place_in(r, row, e).at];
    }
    const T centre = sum_of_team<Team>(sum) / static_cast<T>(size);
    T squares{};
#pragma unroll 4
    for (int64_t e = team_thread<Team>(); e < size; e += Team::kSize) {
      const T apart = x[place_in(r, row, e).at] - centre;
      squares += apart * apart;
    }
    const T spread = sum_of_team<Team>(squares) / static_cast<T>(size);
    if (team_thread<Team>() == 0) {
      mean[row] = centre;
      variance[row] = spread;
    }
    const T inverse = T{1} / sqrt(spread + args.epsilon);
#pragma unroll 4
    for (int64_t e = team_thread<Team>(); e < size; e += Team::kSize) {
      const RowPlace p = place_in(r, row, e);
      T value = (x[p.at] - centre) * inverse;
      if (args.scale != nullptr) value *= args.scale[p.channel];
      if (args.bias != nullptr) value += args.bias[p.channel];
      y[p.at] = value;
    }
  }
};

// The normalised x, of x or of y.
template <class T>
struct Normal {
  RowNormArgs<T> args;
  RowNormBack<T> back;
  __device__ T inverse(int64_t row) const { return T{1} / sqrt(back.variance[row] + args.epsilon); }
  __device__ T operator()(int64_t row, const RowPlace& p) const {
    if (back.x != nullptr) return (back.x[p.at] - back.mean[row]) * inverse(row);
    const T scaled = args.bias != nullptr ? back.y[p.at] - args.bias[p.channel] : back.y[p.at];
    const bool divides = args.scale != nullptr && args.scale[p.channel] != T{};
    return divides ? scaled / args.scale[p.channel] : scaled;
  }
};

template <class T>
struct RowBackLoop {
  Normal<T> normal;
  __device__ T incoming(const RowPlace& p) const {
    const T g = normal.back.grad[p.at];
    return normal.args.scale != nullptr ? g * normal.args.scale[p.channel] : g;
  }
  template <class Team>
  __device__ void row(int64_t row) const {
    const NormRows& r = normal.args.rows;
    const int64_t size = r.size(row);
    Two<T> sums{0, 0};
#pragma unroll 4
    for (int64_t e = team_thread<Team>(); e < size; e += Team::kSize) {
      const RowPlace p = place_in(r, row, e);
      const T g = incoming(p);
      sums.a += g;
      sums.b += g * normal(row, p);
    }
    sums = Team::combine(sums, [](Two<T> a, Two<T> b) { return TwoSums::join(a, b); });
    const T mean_grad = sums.a / static_cast<T>(size);
    const T mean_product = sums.b / static_cast<T>(size);
    const T inverse = normal.inverse(row);
#pragma unroll 4
    for (int64_t e = team_thread<Team>(); e < size; e += Team::kSize) {
      const RowPlace p = place_in(r, row, e);
      normal.back.x_grad[p.at] =
          inverse * (incoming(p) - mean_grad - normal(row, p) * mean_product);
    }
  }
};

// Elements of a channel, over all images: [images, channels, inner] or [images, inner, channels].
SumDims channel_sums(const NormRows& r) {
  const int64_t images = r.groups == 0 ? 0 : r.count / r.groups;
  const int64_t inner = r.width == 0 ? 0 : r.image / r.width;
  SumDims dims;
  dims.kept_rank = 1;
  dims.results = dims.kept_size[0] = r.width;
  dims.kept_step[0] = r.channel_per_run ? inner : 1;
  dims.gone_rank = 2;
  dims.gone_size[0] = images;
  dims.gone_step[0] = r.image;
  dims.gone_size[1] = inner;
  dims.gone_step[1] = r.channel_per_run ? 1 : r.width;
  dims.terms = images * inner;
  return dims;
}

// g h and g for Scale and Bias, of a position in x.
template <class T>
struct ChannelTerms {
  explicit ChannelTerms(const Normal<T>& normal_) : normal(normal_) {
    const NormRows& r = normal.args.rows;
    const int64_t images = r.groups == 0 ? 0 : r.count / r.groups;
    const int64_t inner = r.width == 0 ? 0 : r.image / r.width;
    image = WideDivisor(r.image, images * r.image);
    lane = WideDivisor(r.channel_per_run ? inner : r.width, images * r.image);
  }

  Normal<T> normal;
  WideDivisor image;  // elements of one
  WideDivisor lane;   // elements of a channel, or of all channels at one place
  __device__ Two<T> operator()(int64_t at) const {
    const NormRows& r = normal.args.rows;
    int64_t number = at;
    int64_t run = image.split(number);
    const int64_t rest = lane.split(run);
    const int64_t channel = r.channel_per_run ? run : rest;
    const int64_t row = number * r.groups + (r.groups == 1 ? 0 : channel / r.channels);
    const T g = normal.back.grad[at];
    return {g * normal(row, {at, channel}), g};
  }
};

template <class T>
struct SplitLoop {
  const Two<T>* sums;
  T* first;
  T* second;
  __device__ void operator()(int64_t i) const {
    if (first != nullptr) first[i] = sums[i].a;
    if (second != nullptr) second[i] = sums[i].b;
  }
};

SumDims sums_of_channels(const Channels& d) {
  SumDims dims;
  dims.kept_rank = 1;
  dims.results = dims.kept_size[0] = d.count;
  dims.kept_step[0] = d.inner;
  dims.gone_rank = 2;
  dims.gone_size[0] = d.outer;
  dims.gone_step[0] = d.count * d.inner;
  dims.gone_size[1] = d.inner;
  dims.gone_step[1] = 1;
  dims.terms = d.each();
  if (d.inner == 1) {
    dims.gone_rank = 1;
  }
  return dims;
}

class ChannelPlaces {
 public:
  ChannelPlaces(const Channels& dims)
      : inner_(dims.inner, dims.numel()), count_(dims.count, dims.numel()) {}
  // The channel of element i.
  __device__ int64_t channel(int64_t i) const {
    int64_t run = inner_.quotient(i);
    return count_.split(run);
  }

 private:
  WideDivisor inner_;
  WideDivisor count_;
};

// How far elements are from the first of their channel, and the squares of that.
template <class X>
struct MomentTerms {
  Channels dims;
  const X* x;
  __device__ double at(int64_t i) const {
    return static_cast<double>(static_cast<Computed<X>>(x[i]));
  }
  __device__ Two<double> operator()(int64_t i, int64_t channel) const {
    const double apart = at(i) - at(channel * dims.inner);
    return {apart, apart * apart};
  }
};

template <class X, class T>
struct MomentsLoop {
  ChannelMoments<T> moments;
  MomentTerms<X> terms;
  const Two<double>* sums;
  __device__ void operator()(int64_t k) const {
    const double each = static_cast<double>(terms.dims.outer * terms.dims.inner);
    const double first = each > 0 ? terms.at(k * terms.dims.inner) : 0;  // none: NaN
    const double apart = sums[k].a / each;
    const double spread = sums[k].b / each - apart * apart;
    const T mean = static_cast<T>(first + apart);
    const T variance = static_cast<T>(spread > 0 || spread != spread ? spread : 0);
    moments.mean[k] = mean;
    moments.inverse[k] = T{1} / sqrt(variance + moments.epsilon);
    const T m = static_cast<T>(moments.momentum_tensor != nullptr ? *moments.momentum_tensor
                                                                  : moments.momentum);
    if (moments.mean_out != nullptr) {
      moments.mean_out[k] = m * moments.mean_before[k] + (T{1} - m) * mean;
    }
    if (moments.variance_out != nullptr) {
      moments.variance_out[k] = m * moments.variance_before[k] + (T{1} - m) * variance;
    }
  }
};

template <class X, class T>
struct ChannelNormLoop {
  ChannelPlaces places;
  ChannelNorm<T> norm;
  const X* x;
  X* out;
  __device__ X element(int64_t i) const {
    const int64_t k = places.channel(i);
    const T apart = static_cast<T>(x[i]) - norm.mean[k];
    return X(apart * (norm.inverse[k] * norm.scale[k]) + norm.bias[k]);
  }
};

template <class T>
struct InverseLoop {
  T epsilon;
  const T* variance;
  T* out;
  __device__ void operator()(int64_t i) const { out[i] = T{1} / sqrt(variance[i] + epsilon); }
};

template <class X, class T>
struct BackTerms {
  ChannelNormBack<X, T> back;
  __device__ T apart(int64_t i, int64_t k) const {
    return static_cast<T>(back.x[i]) - back.mean[k];
  }
  __device__ Two<T> operator()(int64_t i, int64_t k) const {
    const T g = static_cast<T>(back.grad[i]);
    return {g * (apart(i, k) * back.inverse[k]), g};
  }
};

template <class X, class T>
struct ChannelBackLoop {
  ChannelPlaces places;
  BackTerms<X, T> terms;
  const Two<T>* sums;
  T share;  // 1 over the elements of a channel, 0 where the statistics are fixed
  X* out;
  __device__ X element(int64_t i) const {
    const ChannelNormBack<X, T>& back = terms.back;
    const int64_t k = places.channel(i);
    const T all = back.scale[k] * back.inverse[k];
    const T slope = sums[k].a * (share * back.inverse[k]);
    const T g = static_cast<T>(back.grad[i]);
    return X(all * (g - sums[k].b * share - terms.apart(i, k) * slope));
  }
};

}  // namespace

template <class T>
void row_norm(RawStream stream, const RowNormArgs<T>& args, const T* x, T* y, T* mean,
              T* variance) {
  launch_rows(stream, "row_norm", args.rows.count, args.rows.size(0),
              RowNormLoop<T>{args, x, y, mean, variance});
}

int64_t row_norm_partials(const NormRows& rows) {
  return 2 * (reduce_partials(channel_sums(rows)) + rows.width);
}

template <class T>
void row_norm_back(RawStream stream, const RowNormArgs<T>& args, const RowNormBack<T>& back,
                   T* partial) {
  const Normal<T> normal{args, back};
  if (back.x_grad != nullptr) {
    launch_rows(stream, "row_norm_back", args.rows.count, args.rows.size(0),
                RowBackLoop<T>{normal});
  }
  if (back.scale_grad == nullptr && back.bias_grad == nullptr) return;
  auto* sums = reinterpret_cast<Two<T>*>(partial);
  const SumDims dims = channel_sums(args.rows);
  launch_reduce<Two<T>, TwoSums>(stream, "row_norm_back", dims, ChannelTerms<T>(normal),
                                 Two<T>{1, 1}, sums + args.rows.width, sums);
  launch_each(stream, "row_norm_back", args.rows.width,
              SplitLoop<T>{sums, back.scale_grad, back.bias_grad});
}

int64_t channel_partials(const Channels& dims) {
  return reduce_partials(sums_of_channels(dims));
}
int64_t moments_bytes(const Channels& dims) {
  return (channel_partials(dims) + dims.count) * static_cast<int64_t>(sizeof(Two<double>));
}

template <class X, class T>
void channel_moments(RawStream stream, const Channels& dims, const X* x,
                     const ChannelMoments<T>& moments, std::byte* memory) {
  const MomentTerms<X> terms{dims, x};
  auto* sums = reinterpret_cast<Two<double>*>(memory);
  launch_reduce<Two<double>, TwoSums>(stream, "channel_moments", sums_of_channels(dims), terms,
                                      Two<double>{1, 1}, sums + dims.count, sums);
  launch_each(stream, "channel_moments", dims.count, MomentsLoop<X, T>{moments, terms, sums});
}

template <class X, class T>
void channel_norm(RawStream stream, const Channels& dims, const ChannelNorm<T>& norm, const X* x,
                  X* y) {
  launch_each(stream, "channel_norm", dims.numel(), ChannelNormLoop<X, T>{dims, norm, x, y});
}

template <class T>
void inverse_deviation(RawStream stream, int64_t n, T epsilon, const T* variance, T* out) {
  launch_each(stream, "inverse_deviation", n, InverseLoop<T>{epsilon, variance, out});
}

template <class X, class T>
void channel_norm_back(RawStream stream, const Channels& dims, const ChannelNormBack<X, T>& back,
                       T* partial, T* sums_memory) {
  const BackTerms<X, T> terms{back};
  auto* sums = reinterpret_cast<Two<T>*>(sums_memory);
  launch_reduce<Two<T>, TwoSums>(stream, "channel_norm_back", sums_of_channels(dims), terms,
                                 Two<T>{1, 1}, reinterpret_cast<Two<T>*>(partial), sums);
  launch_each(stream, "channel_norm_back", dims.count,
              SplitLoop<T>{sums, back.scale_grad, back.bias_grad});
  if (back.x_grad == nullptr) return;
  const T share = back.fixed ? T{} : T{1} / static_cast<T>(dims.each());
  launch_each(stream, "channel_norm_back", dims.numel(),
              ChannelBackLoop<X, T>{dims, terms, sums, share, back.x_grad});
}

#define FLEET_INSTANTIATE(T)                                                                \
  template void row_norm(RawStream, const RowNormArgs<T>&, const T*, T*, T*, T*);           \
  template void row_norm_back(RawStream, const RowNormArgs<T>&, const RowNormBack<T>&, T*); \
  template void inverse_deviation(RawStream, int64_t, T, const T*, T*)
FLEET_INSTANTIATE(float);
FLEET_INSTANTIATE(double);
#undef FLEET_INSTANTIATE

#define FLEET_INSTANTIATE(X)                                                              \
  template void channel_moments(RawStream, const Channels&, const X*,                     \
                                const ChannelMoments<Computed<X>>&, std::byte*);          \
  template void channel_norm(RawStream, const Channels&, const ChannelNorm<Computed<X>>&, \
                             const X*, X*);                                               \
  template void channel_norm_back(RawStream, const Channels&,                             \
                                  const ChannelNormBack<X, Computed<X>>&, Computed<X>*,   \
                                  Computed<X>*)
FLEET_INSTANTIATE(float);
FLEET_INSTANTIATE(double);
FLEET_INSTANTIATE(__half);
FLEET_INSTANTIATE(__nv_bfloat16);
#undef FLEET_INSTANTIATE

}  // namespace fleet::fluid::cuda
