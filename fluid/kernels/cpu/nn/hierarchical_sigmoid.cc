#include <algorithm>
#include <numbers>
#include <vector>

#include "base/strings.h"
#include "fluid/kernels/cpu/nn/class_rows.h"
#include "fluid/kernels/cpu/nn/register_nn.h"
#include "fluid/kernels/functions/losses.h"
#include "fluid/ops/nn/sampled.h"

namespace fleet::fluid::cpu {
namespace {

// Of a place on a path beside its dot product, in elements of a simple loop: an exponential and a
// logarithm.
constexpr int64_t kNodeWork = 100;

void check(const TreeSlots& tree, int64_t index, int64_t count) {
  if (index >= 0 && index < count) return;
  throw_error(ErrorCode::kInvalidArgument, {.what = "a label or node is outside of the tree",
                                            .where = tree.where,
                                            .expected = str_cat("[0, ", count, ")"),
                                            .got = str_cat(index),
                                            .fix = "check labels and paths, or raise num_classes"});
}

// f(position, node, bit) along a row's path, from its end at the leaf, or as the table has it.
template <class F>
void walk(const TreeSlots& tree, const functions::TreePaths& paths, int64_t row, F f) {
  if (paths.table == nullptr) check(tree, paths.label[row], tree.classes);
  for (int64_t j = 0; j < tree.length; ++j) {
    const auto place = paths.at(row, j);
    if (place.node < 0) return;
    check(tree, place.node, tree.nodes);
    f(j, place.node, place.bit);
  }
}

template <class T>
std::unique_ptr<Prepared> prepare_tree(PrepareContext& context) {
  const TreeSlots tree = tree_of(context, dtype_of<T>());
  const bool paddle_form = context.attrs<HierarchicalSigmoidAttrs>().paddle_form;
  const T unused = paddle_form ? static_cast<T>(std::numbers::ln2) : T{};
  return make_prepared([=](const KernelContext& c) {
    const functions::TreePaths paths = tree.paths(c);
    const auto loss_of_row = [&](int64_t row) {
      T* losses = c.out<T>(tree.pre_out) + row * tree.length;
      std::fill_n(losses, tree.length, T{});
      T total{};
      int64_t used = 0;
      walk(tree, paths, row, [&](int64_t j, int64_t node, bool bit) {
        const T logit = dot(c.in<T>(tree.x) + row * tree.width,
                            c.in<T>(tree.weight) + node * tree.width, tree.width) +
                        (tree.bias >= 0 ? c.in<T>(tree.bias)[node] : T{});
        const T z = functions::cut_logit(logit);
        losses[j] = functions::softplus(z);
        total += losses[j] - (bit ? z : T{});
        ++used;
      });
      return total + static_cast<T>(tree.length - used) * unused;
    };
    const int64_t work = tree.length * (tree.width + kNodeWork);
    c.tiles().split(tree.rows, work, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) c.out<T>(tree.out)[row] = loss_of_row(row);
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_tree_grad(PrepareContext& context) {
  const TreeSlots tree = tree_back_of(context, dtype_of<T>());
  const bool sparse = context.attrs<HierarchicalSigmoidAttrs>().is_sparse;
  const ClassGradients at = class_gradients_of(context, "X", "W", sparse, dtype_of<T>());
  return make_prepared([=, logits = LogitGradients<T>(tree.rows, tree.length),
                        sum = ClassGradientSum<T>()](const KernelContext& c) mutable {
    const functions::TreePaths paths = tree.paths(c);
    c.tiles().split(tree.rows, tree.length * kNodeWork, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t first = row * tree.length;
        const T* losses = c.in<T>(tree.pre_out) + first;
        std::fill_n(logits.classes.begin() + first, tree.length, -1);
        walk(tree, paths, row, [&](int64_t j, int64_t node, bool bit) {
          const T slope = functions::tree_slope(losses[j], bit);
          logits.set(first + j, node, slope * c.in<T>(tree.grad)[row]);
        });
      }
    });
    sum.run(c, at, c.in<T>(tree.x), c.in<T>(tree.weight), logits);
  });
}

// Kernel::table_rows.
std::vector<int64_t> nodes_of_paths(const PrepareContext& context, const KernelContext& values) {
  const TreeSlots tree = tree_inputs_of(context, context.in("W").dtype);
  const functions::TreePaths paths = tree.paths(values);
  std::vector<int64_t> nodes;
  for (int64_t row = 0; row < tree.rows; ++row) {
    walk(tree, paths, row, [&nodes](int64_t, int64_t node, bool) { nodes.push_back(node); });
  }
  return nodes;
}

}  // namespace

void register_hierarchical_sigmoid(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, const Kernel& kernel) {
      table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), kernel);
    };
    add("hierarchical_sigmoid",
        {.name = "loop", .prepare = prepare_tree<T>, .table_rows = nodes_of_paths});
    add("hierarchical_sigmoid_grad", {.name = "loop", .prepare = prepare_tree_grad<T>});
  });
}

}  // namespace fleet::fluid::cpu
