#include "fluid/kernels/cuda/launch_impl.h"
#include "fluid/kernels/cuda/nn/sampled_loops.h"
#include "fluid/kernels/cuda/random_impl.h"
#include "fluid/kernels/functions/losses.h"

namespace fleet::fluid::cuda {
namespace {

using functions::TreePaths;

__device__ bool is_class(const ClassRows& rows, int64_t index) {
  return index >= 0 && index < rows.count;
}

template <class T>
struct LogitLoop {
  ClassRows rows;
  const T* x;
  const T* w;
  const T* bias;
  T* out;
  template <class Team>
  __device__ void row(int64_t i) const {
    const int64_t index = rows.classes[i];
    const bool known = is_class(rows, index);
    const T* xs = x + i / rows.samples * rows.width;
    const T* ws = w + (known ? index : 0) * rows.width;
    T sum{};
    for (int64_t k = team_thread<Team>(); known && k < rows.width; k += Team::kSize) {
      sum += xs[k] * ws[k];
    }
    sum = sum_of_team<Team>(sum);
    if (team_thread<Team>() != 0) return;
    const T shift = known && bias != nullptr ? bias[index] : T{};
    out[i] = known ? sum + shift : static_cast<T>(NAN);
  }
};

template <class T>
struct RowBackLoop {
  ClassRows rows;
  const T* slopes;
  const T* w;
  T* x_grad;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / rows.width;
    const int64_t k = i % rows.width;
    T sum{};
    for (int64_t j = row * rows.samples; j < (row + 1) * rows.samples; ++j) {
      const int64_t index = rows.classes[j];
      sum += is_class(rows, index) ? w[index * rows.width + k] * slopes[j] : slopes[j];
    }
    x_grad[i] = sum;
  }
};

template <class T>
struct TermLoop {
  ClassRows rows;
  const T* slopes;
  const T* x;
  T* terms;
  __device__ void operator()(int64_t i) const {
    const int64_t sample = i / rows.width;
    terms[i] = x[sample / rows.samples * rows.width + i % rows.width] * slopes[sample];
  }
};

struct DrawLoop {
  NceArgs args;
  NceDraw draw;
  int64_t* classes;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / args.samples;
    const int64_t j = i % args.samples;
    if (j < args.labels) {
      classes[i] = draw.labels[row * args.labels + j];
    } else if (draw.custom != nullptr) {
      classes[i] = draw.custom[j - args.labels];
    } else {
      const auto at = static_cast<uint64_t>(i);
      classes[i] = args.noise.draw(uniform_number(draw.key, 2 * at, draw.word),
                                   uniform_number(draw.key, 2 * at + 1, draw.word));
    }
  }
};

__device__ double expected_number(const NceArgs& args, int64_t index) {
  return args.noise.probability(index) * static_cast<double>(args.samples - args.labels);
}

template <class T>
struct CostLoop {
  NceArgs args;
  ClassRows rows;
  const T* weight;
  T* logits;
  T* cost;
  __device__ void operator()(int64_t row) const {
    double total = 0;
    for (int64_t j = 0; j < args.samples; ++j) {
      const int64_t i = row * args.samples + j;
      const int64_t index = rows.classes[i];
      const T o = T{1} / (T{1} + exp(-logits[i]));
      logits[i] = o;
      total += is_class(rows, index)
                   ? functions::nce_cost(static_cast<double>(o), expected_number(args, index),
                                         j < args.labels)
                   : NAN;
    }
    cost[row] = static_cast<T>(total) * (weight != nullptr ? weight[row] : T{1});
  }
};

template <class T>
struct SlopeLoop {
  NceArgs args;
  ClassRows rows;
  const T* sigmoids;
  const T* weight;
  const T* grad;
  T* slopes;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / args.samples;
    const int64_t index = rows.classes[i];
    const T expected =
        is_class(rows, index) ? static_cast<T>(expected_number(args, index)) : static_cast<T>(NAN);
    T slope = functions::nce_slope(sigmoids[i], expected, i % args.samples < args.labels);
    if (weight != nullptr) slope *= weight[row];
    slopes[i] = slope * grad[row];
  }
};

__device__ bool is_label(const TreePaths& paths, int64_t row) {
  return paths.table != nullptr || (paths.label[row] >= 0 && paths.label[row] < paths.classes);
}

struct NodeLoop {
  TreePaths paths;
  int64_t nodes;
  int64_t* out;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / paths.length;
    const int64_t node = is_label(paths, row) ? paths.reached(row, i % paths.length).node : -1;
    out[i] = node < nodes ? node : -1;
  }
};

template <class T>
struct TreeLossLoop {
  TreePaths paths;
  const T* logits;
  T unused;
  T* pre_out;
  T* out;
  __device__ void operator()(int64_t row) const {
    const bool known = is_label(paths, row);
    T total = known ? T{} : static_cast<T>(NAN);
    int64_t used = 0;
    bool ended = !known;
    for (int64_t j = 0; j < paths.length; ++j) {
      const int64_t i = row * paths.length + j;
      const auto place = ended ? TreePaths::Place{} : paths.at(row, j);
      ended = place.node < 0;
      if (ended) {
        pre_out[i] = known ? T{} : static_cast<T>(NAN);
        continue;
      }
      const T z = functions::cut_logit(logits[i]);
      pre_out[i] = functions::softplus(z);
      total += pre_out[i] - (place.bit ? z : T{});
      ++used;
    }
    out[row] = total + static_cast<T>(paths.length - used) * unused;
  }
};

template <class T>
struct TreeSlopeLoop {
  TreePaths paths;
  const T* pre_out;
  const T* grad;
  T* slopes;
  __device__ void operator()(int64_t i) const {
    const int64_t row = i / paths.length;
    if (!is_label(paths, row)) {
      slopes[i] = static_cast<T>(NAN);
      return;
    }
    const auto place = paths.reached(row, i % paths.length);
    slopes[i] = place.node < 0 ? T{} : functions::tree_slope(pre_out[i], place.bit) * grad[row];
  }
};

}  // namespace

template <class T>
void class_logits(RawStream stream, const ClassRows& rows, const T* x, const T* w, const T* bias,
                  T* out) {
  launch_rows(stream, "class_logits", rows.all(), rows.width, LogitLoop<T>{rows, x, w, bias, out});
}
template <class T>
void class_rows_back(RawStream stream, const ClassRows& rows, const T* slopes, const T* w,
                     T* x_grad) {
  launch_each(stream, "class_rows_back", rows.rows * rows.width,
              RowBackLoop<T>{rows, slopes, w, x_grad});
}
template <class T>
void class_terms(RawStream stream, const ClassRows& rows, const T* slopes, const T* x, T* terms) {
  launch_each(stream, "class_terms", rows.all() * rows.width, TermLoop<T>{rows, slopes, x, terms});
}

void nce_draw(RawStream stream, const NceArgs& args, const NceDraw& draw, int64_t rows,
              int64_t* classes) {
  launch_each(stream, "nce_draw", rows * args.samples, DrawLoop{args, draw, classes});
}
template <class T>
void nce_costs(RawStream stream, const NceArgs& args, const ClassRows& rows, const T* weight,
               T* logits, T* cost) {
  launch_each(stream, "nce_costs", rows.rows, CostLoop<T>{args, rows, weight, logits, cost});
}
template <class T>
void nce_slopes(RawStream stream, const NceArgs& args, const ClassRows& rows, const T* sigmoids,
                const T* weight, const T* grad, T* slopes) {
  launch_each(stream, "nce_slopes", rows.all(),
              SlopeLoop<T>{args, rows, sigmoids, weight, grad, slopes});
}

void tree_nodes(RawStream stream, const TreePaths& paths, int64_t rows, int64_t nodes,
                int64_t* out) {
  launch_each(stream, "tree_nodes", rows * paths.length, NodeLoop{paths, nodes, out});
}
template <class T>
void tree_losses(RawStream stream, const TreePaths& paths, const ClassRows& nodes, const T* logits,
                 T unused, T* pre_out, T* out) {
  launch_each(stream, "tree_losses", nodes.rows,
              TreeLossLoop<T>{paths, logits, unused, pre_out, out});
}
template <class T>
void tree_slopes(RawStream stream, const TreePaths& paths, const ClassRows& nodes, const T* pre_out,
                 const T* grad, T* slopes) {
  launch_each(stream, "tree_slopes", nodes.all(), TreeSlopeLoop<T>{paths, pre_out, grad, slopes});
}

#define FLEET_INSTANTIATE(T)                                                                     \
  template void class_logits(RawStream, const ClassRows&, const T*, const T*, const T*, T*);     \
  template void class_rows_back(RawStream, const ClassRows&, const T*, const T*, T*);            \
  template void class_terms(RawStream, const ClassRows&, const T*, const T*, T*);                \
  template void nce_costs(RawStream, const NceArgs&, const ClassRows&, const T*, T*, T*);        \
  template void nce_slopes(RawStream, const NceArgs&, const ClassRows&, const T*, const T*,      \
                           const T*, T*);                                                        \
  template void tree_losses(RawStream, const TreePaths&, const ClassRows&, const T*, T, T*, T*); \
  template void tree_slopes(RawStream, const TreePaths&, const ClassRows&, const T*, const T*, T*)
FLEET_INSTANTIATE(float);
FLEET_INSTANTIATE(double);
#undef FLEET_INSTANTIATE

}  // namespace fleet::fluid::cuda
