// Losses that look at a few of many classes, with dense gradients: nce, hierarchical_sigmoid.
#include "fluid/kernels/nn/sampled.h"

#include <numbers>

#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/nn/sampled_loops.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/kernels/cuda/shape/move_loops.h"
#include "fluid/ops/nn/sampled.h"

namespace fleet::fluid::cuda {
namespace {

// Arrays one after the other in the stream's scratch.
class Arrays {
 public:
  template <class T>
  Arrays& want(int64_t count) {
    bytes_ += aligned(static_cast<size_t>(count) * sizeof(T));
    return *this;
  }
  void get(Stream& stream) {
    next_ = stream.template scratch<std::byte>(static_cast<int64_t>(bytes_));
  }
  // In the order in which they were wanted.
  template <class T>
  T* take(int64_t count) {
    T* array = reinterpret_cast<T*>(next_);
    next_ += aligned(static_cast<size_t>(count) * sizeof(T));
    return array;
  }

 private:
  static size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

  size_t bytes_ = 0;
  std::byte* next_ = nullptr;
};

// The gradients of x, of w and of the bias, from those of logits. `terms` has an element for each
// of `width` of each sample, `sorting` is that of add_rows.
template <class T>
void add_class_gradients(const KernelContext& c, const ClassGradients& at, const ClassRows& rows,
                         const T* slopes, const T* x, const T* w, T* terms, std::byte* sorting) {
  const RawStream stream = stream_of(c).raw();
  const RowIndices index{.values = rows.classes, .count = rows.all(), .rows = rows.count};
  std::byte* sorted = sort_bytes(index.count) == 0 ? nullptr : sorting;
  if (at.x >= 0) class_rows_back<T>(stream, rows, slopes, w, c.out<T>(at.x));
  if (at.weight >= 0) {
    class_terms<T>(stream, rows, slopes, x, terms);
    fill<T>(stream, T{}, c.out<T>(at.weight), rows.count * rows.width);
    add_rows<T>(stream, index, rows.width, terms, c.out<T>(at.weight), sorted);
  }
  if (at.bias >= 0) {
    fill<T>(stream, T{}, c.out<T>(at.bias), c.output(at.bias).numel());
    add_rows<T>(stream, index, 1, slopes, c.out<T>(at.bias), sorted);
  }
}

// Selected rows are made on the CPU.
template <class Attrs>
bool makes_rows(const PrepareContext& context, const char* weight_grad) {
  return context.attrs<Attrs>().is_sparse && context.output(weight_grad) >= 0;
}

NceArgs args_of(const KernelContext& c, const NceSlots& nce) {
  return {.noise = nce.noise(c), .labels = nce.labels, .samples = nce.samples};
}

ClassRows rows_of(const NceSlots& nce, const int64_t* classes) {
  return {.rows = nce.rows,
          .samples = nce.samples,
          .width = nce.width,
          .count = nce.classes,
          .classes = classes};
}

template <class T>
std::unique_ptr<Prepared> prepare_nce(PrepareContext& context) {
  const NceSlots nce = nce_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    Stream& stream = stream_of(c);
    NceDraw draw{.key = nce.key, .word = nce.word(c), .labels = c.in<int64_t>(nce.label)};
    if (!nce.custom.empty()) {
      auto* custom = stream.template scratch<int32_t>(static_cast<int64_t>(nce.custom.size()));
      stream.upload(nce.custom.data(), custom, nce.custom.size() * sizeof(int32_t));
      draw.custom = custom;
    }
    auto* classes = c.out<int64_t>(nce.picked);
    const ClassRows rows = rows_of(nce, classes);
    nce_draw(stream.raw(), args_of(c, nce), draw, nce.rows, classes);
    class_logits<T>(stream.raw(), rows, c.in<T>(nce.input), c.in<T>(nce.weight),
                    in_or_null<T>(c, nce.bias), c.out<T>(nce.logits));
    nce_costs<T>(stream.raw(), args_of(c, nce), rows, in_or_null<T>(c, nce.row_weight),
                 c.out<T>(nce.logits), c.out<T>(nce.cost));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_nce_grad(PrepareContext& context) {
  if (makes_rows<NceAttrs>(context, "Weight@GRAD")) return nullptr;
  const NceSlots nce = nce_back_of(context, dtype_of<T>());
  const ClassGradients at = class_gradients_of(context, "Input", "Weight", false, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const ClassRows rows = rows_of(nce, c.in<int64_t>(nce.picked));
    const int64_t terms = rows.all() * rows.width;
    const auto sorting = static_cast<int64_t>(sort_bytes(rows.all()));
    Arrays arrays;
    arrays.want<T>(rows.all()).template want<T>(terms).template want<std::byte>(sorting);
    arrays.get(stream_of(c));
    T* slopes = arrays.template take<T>(rows.all());
    T* of_weight = arrays.template take<T>(terms);
    nce_slopes<T>(stream_of(c).raw(), args_of(c, nce), rows, c.in<T>(nce.logits),
                  in_or_null<T>(c, nce.row_weight), c.in<T>(nce.grad), slopes);
    add_class_gradients<T>(c, at, rows, slopes, c.in<T>(nce.input), c.in<T>(nce.weight), of_weight,
                           arrays.template take<std::byte>(sorting));
  });
}

ClassRows rows_of(const TreeSlots& tree, const int64_t* nodes) {
  return {.rows = tree.rows,
          .samples = tree.length,
          .width = tree.width,
          .count = tree.nodes,
          .classes = nodes};
}

template <class T>
std::unique_ptr<Prepared> prepare_tree(PrepareContext& context) {
  const TreeSlots tree = tree_of(context, dtype_of<T>());
  const bool paddle_form = context.attrs<HierarchicalSigmoidAttrs>().paddle_form;
  const T unused = paddle_form ? static_cast<T>(std::numbers::ln2) : T{};
  return make_prepared([=](const KernelContext& c) {
    const RawStream stream = stream_of(c).raw();
    const functions::TreePaths paths = tree.paths(c);
    const int64_t all = tree.rows * tree.length;
    Arrays arrays;
    arrays.want<int64_t>(all).template want<T>(all).get(stream_of(c));
    auto* nodes = arrays.template take<int64_t>(all);
    T* logits = arrays.template take<T>(all);
    const ClassRows rows = rows_of(tree, nodes);
    tree_nodes(stream, paths, tree.rows, tree.nodes, nodes);
    class_logits<T>(stream, rows, c.in<T>(tree.x), c.in<T>(tree.weight),
                    in_or_null<T>(c, tree.bias), logits);
    tree_losses<T>(stream, paths, rows, logits, unused, c.out<T>(tree.pre_out), c.out<T>(tree.out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_tree_grad(PrepareContext& context) {
  if (makes_rows<HierarchicalSigmoidAttrs>(context, "W@GRAD")) return nullptr;
  const TreeSlots tree = tree_back_of(context, dtype_of<T>());
  const ClassGradients at = class_gradients_of(context, "X", "W", false, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const RawStream stream = stream_of(c).raw();
    const functions::TreePaths paths = tree.paths(c);
    const int64_t all = tree.rows * tree.length;
    const auto sorting = static_cast<int64_t>(sort_bytes(all));
    Arrays arrays;
    arrays.want<int64_t>(all).template want<T>(all).template want<T>(all * tree.width);
    arrays.template want<std::byte>(sorting).get(stream_of(c));
    auto* nodes = arrays.template take<int64_t>(all);
    T* slopes = arrays.template take<T>(all);
    T* terms = arrays.template take<T>(all * tree.width);
    const ClassRows rows = rows_of(tree, nodes);
    tree_nodes(stream, paths, tree.rows, tree.nodes, nodes);
    tree_slopes<T>(stream, paths, rows, c.in<T>(tree.pre_out), c.in<T>(tree.grad), slopes);
    add_class_gradients<T>(c, at, rows, slopes, c.in<T>(tree.x), c.in<T>(tree.weight), terms,
                           arrays.template take<std::byte>(sorting));
  });
}

}  // namespace

void register_sampled(KernelTable& table) {
  cpu::for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto list = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCuda, dtype_of<T>(), {.name = "loop", .prepare = prepare});
    };
    list("nce", prepare_nce<T>);
    list("nce_grad", prepare_nce_grad<T>);
    list("hierarchical_sigmoid", prepare_tree<T>);
    list("hierarchical_sigmoid_grad", prepare_tree_grad<T>);
  });
}

}  // namespace fleet::fluid::cuda
