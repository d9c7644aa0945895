#include <bit>
#include <cmath>
#include <numbers>

#include "base/strings.h"
#include "fluid/kernels/cpu/nn/class_rows.h"
#include "fluid/kernels/cpu/nn/register_nn.h"
#include "fluid/ops/nn/sampled.h"

namespace fleet::fluid::cpu {
namespace {

// The tree: for each row the nodes from one end of its path to the other, and the bits there.
struct Tree {
  int label = -1;
  int table = -1;  // -1: the complete tree
  int code = -1;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t classes = 0;
  int64_t nodes = 0;
  int64_t length = 0;  // of the longest path
  std::string where;

  // f(position, node, bit) along a row's path.
  template <class F>
  void walk(const KernelContext& c, int64_t row, F f) const {
    if (table < 0) {
      const int64_t leaf = c.in<int64_t>(label)[row] + classes;
      check(leaf - classes, classes);
      for (int64_t j = 0; leaf >> (j + 1) > 0; ++j) f(j, (leaf >> (j + 1)) - 1, (leaf >> j) & 1);
      return;
    }
    const auto* path = c.in<int64_t>(table) + row * length;
    const auto* bits = c.in<int64_t>(code) + row * length;
    for (int64_t j = 0; j < length && path[j] >= 0; ++j) {
      check(path[j], nodes);
      f(j, path[j], bits[j] != 0 ? int64_t{1} : int64_t{0});
    }
  }

  void check(int64_t index, int64_t count) const {
    if (index >= 0 && index < count) return;
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "a label or node is outside of the tree",
                 .where = where,
                 .expected = str_cat("[0, ", count, ")"),
                 .got = str_cat(index),
                 .fix = "check labels and paths, or raise num_classes"});
  }
};

Tree tree_of(const PrepareContext& context, const HierarchicalSigmoidAttrs& attrs, DType dtype) {
  const Shape& x = context.in("X").shape;
  const ValueSpec& w = context.in("W");
  const ValueSpec& label = context.in("Label");
  context.require(x.rank() == 2, "X", "[rows, width]", x.to_string());
  context.require(w.dtype == dtype && w.shape.rank() == 2 && w.shape[1] == x[1], "W",
                  str_cat(dtype_name(dtype), "[nodes, ", x[1], "]"),
                  str_cat(dtype_name(w.dtype), w.shape));
  context.require(label.dtype == DType::kInt64 && label.shape.numel() == x[0], "Label",
                  str_cat("int64[", x[0], ", 1]"), str_cat(dtype_name(label.dtype), label.shape));
  Tree tree{.label = context.input("Label"),
            .table = context.input("PathTable"),
            .code = context.input("PathCode"),
            .rows = x[0],
            .width = x[1],
            .classes = attrs.num_classes,
            .nodes = w.shape[0],
            .where = str_cat("op '", context.op().type, "', labels '",
                             context.op().input("Label").front(), "'")};
  if (tree.table < 0) {
    tree.length = std::bit_width(static_cast<uint64_t>(attrs.num_classes - 1));
    context.require(w.shape[0] >= attrs.num_classes - 1, "W",
                    str_cat(attrs.num_classes - 1, " rows"), w.shape.to_string());
    return tree;
  }
  for (const char* slot : {"PathTable", "PathCode"}) {
    const ValueSpec& path = context.in(slot);
    context.require(path.dtype == DType::kInt64 && path.shape.rank() == 2 && path.shape[0] == x[0],
                    slot, str_cat("int64[", x[0], ", length]"),
                    str_cat(dtype_name(path.dtype), path.shape));
  }
  tree.length = context.in("PathTable").shape[1];
  context.require(context.in("PathCode").shape[1] == tree.length, "PathCode",
                  context.in("PathTable").shape.to_string(),
                  context.in("PathCode").shape.to_string());
  return tree;
}

// log(1 + exp(z)), for z cut to [-40, 40].
template <class T>
T softplus(T z) {
  return std::max(z, T{}) + std::log1p(std::exp(-std::abs(z)));
}

template <class T>
std::unique_ptr<Prepared> prepare_tree(PrepareContext& context) {
  const auto attrs = context.attrs<HierarchicalSigmoidAttrs>();
  const Tree tree = tree_of(context, attrs, dtype_of<T>());
  const int x = context.input("X");
  const int w = context.input("W");
  const int bias = context.input("Bias");
  const int out = context.set_output("Out", Shape{tree.rows, 1}, dtype_of<T>());
  const int pre_out = context.set_output("PreOut", Shape{tree.rows, tree.length}, dtype_of<T>());
  const T unused = attrs.paddle_form ? static_cast<T>(std::numbers::ln2) : T{};
  return make_prepared([=](const KernelContext& c) {
    std::fill_n(c.out<T>(pre_out), tree.rows * tree.length, T{});
    for (int64_t row = 0; row < tree.rows; ++row) {
      T* losses = c.out<T>(pre_out) + row * tree.length;
      T total{};
      int64_t used = 0;
      tree.walk(c, row, [&](int64_t j, int64_t node, int64_t bit) {
        const T logit =
            dot(c.in<T>(x) + row * tree.width, c.in<T>(w) + node * tree.width, tree.width) +
            (bias >= 0 ? c.in<T>(bias)[node] : T{});
        const T z = std::clamp(logit, T{-40}, T{40});
        losses[j] = softplus(z);
        total += losses[j] - (bit != 0 ? z : T{});
        ++used;
      });
      c.out<T>(out)[row] = total + static_cast<T>(tree.length - used) * unused;
    }
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_tree_grad(PrepareContext& context) {
  const auto attrs = context.attrs<HierarchicalSigmoidAttrs>();
  const Tree tree = tree_of(context, attrs, dtype_of<T>());
  const int x = context.input("X");
  const int w = context.input("W");
  const int pre_out = context.input("PreOut");
  const int grad = context.input("Out@GRAD");
  ClassGradients at{.x = context.own_output("X@GRAD"),
                    .weight = context.own_output("W@GRAD"),
                    .bias = -1,
                    .sparse = attrs.is_sparse,
                    .rows = tree.rows,
                    .classes = tree.nodes,
                    .width = tree.width};
  if (context.has_input("Bias")) {
    at.bias = context.set_output("Bias@GRAD", context.in("Bias").shape, dtype_of<T>());
  }
  return make_prepared([=](const KernelContext& c) {
    std::vector<int64_t> looked_at;
    for (int64_t row = 0; at.sparse && row < tree.rows; ++row) {
      tree.walk(c, row, [&](int64_t, int64_t node, int64_t) { looked_at.push_back(node); });
    }
    ClassGradientSum<T> sum(c, at, c.in<T>(x), c.in<T>(w), looked_at);
    for (int64_t row = 0; row < tree.rows; ++row) {
      const T* losses = c.in<T>(pre_out) + row * tree.length;
      tree.walk(c, row, [&](int64_t j, int64_t node, int64_t bit) {
        const T sigmoid = -std::expm1(-losses[j]);
        sum.add(row, node, (sigmoid - static_cast<T>(bit)) * c.in<T>(grad)[row]);
      });
    }
  });
}

// Kernel::table_rows.
std::vector<int64_t> nodes_of_paths(const PrepareContext& context, const KernelContext& values) {
  const auto attrs = context.attrs<HierarchicalSigmoidAttrs>();
  const Tree tree = tree_of(context, attrs, context.in("W").dtype);
  std::vector<int64_t> nodes;
  for (int64_t row = 0; row < tree.rows; ++row) {
    tree.walk(values, row, [&nodes](int64_t, int64_t node, int64_t) { nodes.push_back(node); });
  }
  return nodes;
}

}  // namespace

void register_hierarchical_sigmoid(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, Kernel kernel) {
      table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), std::move(kernel));
    };
    add("hierarchical_sigmoid",
        {.name = "loop", .prepare = prepare_tree<T>, .table_rows = nodes_of_paths});
    add("hierarchical_sigmoid_grad", {.name = "loop", .prepare = prepare_tree_grad<T>});
  });
}

}  // namespace fleet::fluid::cpu
