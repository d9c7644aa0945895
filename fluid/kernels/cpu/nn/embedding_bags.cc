// fused_embedding_seq_pool: sums of the rows that bags of ids name.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "fluid/kernels/cpu/column_tiles.h"
#include "fluid/kernels/cpu/nn/looked_up_rows.h"
#include "fluid/kernels/cpu/nn/register_nn.h"
#include "fluid/kernels/cpu/sequence/sequences.h"
#include "fluid/kernels/cpu/tile_copy.h"
#include "fluid/ops/nn/embedding.h"

namespace fleet::fluid::cpu {
namespace {

// The sums of a bag's rows, in the order of its ids. Padding is a row of zeros, so that sums have
// the bits that they have of rows.
template <class T>
class BagSums {
  using Vector [[gnu::vector_size(32), gnu::aligned(alignof(T)), gnu::may_alias]] = T;
  static constexpr int64_t kLanes = 32 / sizeof(T);

 public:
  BagSums(const LookedUpRows<T>& rows, const T* zeros, int64_t width)
      : rows_(rows), zeros_(zeros), width_(width) {}

  // Of ids begin to end - 1, of which there are some.
  void write(int64_t begin, int64_t end, T* out) const {
    int64_t column = 0;
    column = in_registers<8>(begin, end, column, out);
    column = in_registers<2>(begin, end, column, out);
    column = in_registers<1>(begin, end, column, out);
    if (column == width_) return;
    const LookedUpRows<T> rows = rows_.from(column);
    const int64_t left = width_ - column;
    std::copy_n(row(rows, begin), left, out + column);
    for (int64_t i = begin + 1; i < end; ++i) {
      const T* const from = row(rows, i);
      for (int64_t k = 0; k < left; ++k) out[column + k] += from[k];
    }
  }

 private:
  const T* row(const LookedUpRows<T>& rows, int64_t i) const {
    const T* const found = rows.at(i);
    return found == nullptr ? zeros_ : found;
  }

  // So many vectors of columns at a time, from `column` on; gives the first column that is left.
  template <int kVectors>
  int64_t in_registers(int64_t begin, int64_t end, int64_t column, T* out) const {
    constexpr int64_t kColumns = kVectors * kLanes;
    for (; column + kColumns <= width_; column += kColumns) {
      const LookedUpRows<T> rows = rows_.from(column);
      Vector sums[kVectors];
      const auto* first = reinterpret_cast<const Vector*>(row(rows, begin));
      for (int v = 0; v < kVectors; ++v) sums[v] = first[v];
      for (int64_t i = begin + 1; i < end; ++i) {
        const auto* from = reinterpret_cast<const Vector*>(row(rows, i));
        for (int v = 0; v < kVectors; ++v) sums[v] += from[v];
      }
      auto* to = reinterpret_cast<Vector*>(out + column);
      for (int v = 0; v < kVectors; ++v) to[v] = sums[v];
    }
    return column;
  }

  const LookedUpRows<T>& rows_;
  const T* const zeros_;
  const int64_t width_;
};

// Where bags begin, for a kernel whose ids are lookup_of's.
SequenceInput bags_of(const PrepareContext& context) {
  const Shape& ids = context.in("Ids").shape;
  context.require(ids.rank() == 2 && ids[1] == 1, "Ids", "[rows, 1]", ids.to_string());
  return {context, "Ids"};
}

template <class T>
std::unique_ptr<Prepared> prepare_bags(PrepareContext& context) {
  const Lookup lookup = lookup_of(context, context.attrs<FusedEmbeddingSeqPoolAttrs>().padding_idx);
  const SequenceInput bags = bags_of(context);
  const int out = context.own_output("Out");
  context.own_lod();
  const std::vector<T> zeros(static_cast<size_t>(lookup.width));
  return make_prepared([=](const KernelContext& c) {
    const Offsets& offsets = bags.offsets(c);
    const int64_t width = lookup.width;
    Tensor& sums = c.make_dense(out, dtype_of<T>(), Shape{sequence_count(offsets), width});
    sums.set_lod(outer_levels(bags.tensor(c).lod()));
    T* const outs = sums.template data<T>();
    const LookedUpRows<T> rows(lookup, c);
    const BagSums<T> bag_sums(rows, zeros.data(), width);
    split_sequences(c.tiles(), offsets, width, [&](int64_t bag) {
      T* const sum = outs + bag * width;
      const int64_t begin = offsets[static_cast<size_t>(bag)];
      const int64_t end = offsets[static_cast<size_t>(bag) + 1];
      if (begin == end) {
        std::fill_n(sum, width, T{});
      } else {
        bag_sums.write(begin, end, sum);
      }
    });
  });
}

struct BagGradient {
  Lookup lookup;
  SequenceInput bags;
  int grad = -1;

  // Where bags begin; throws ProgramError unless the gradient has a row for each of them.
  const Offsets& offsets(const KernelContext& c) const {
    const Offsets& offsets = bags.offsets(c);
    const Shape wanted{sequence_count(offsets), lookup.width};
    if (c.input(grad).shape() == wanted) return offsets;
    throw_error(ErrorCode::kShapeMismatch, {.what = "the gradient has another shape than the sums",
                                            .where = lookup.where,
                                            .expected = wanted.to_string(),
                                            .got = c.input(grad).shape().to_string(),
                                            .fix = "feed gradients that belong to the ids"});
  }
};

template <class T>
std::unique_ptr<Prepared> prepare_dense_bag_grad(PrepareContext& context, const BagGradient& of) {
  const int out = context.set_output("W@GRAD", context.in("W").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const Lookup& lookup = of.lookup;
    const Offsets& offsets = of.offsets(c);
    const auto* ids = c.in<int64_t>(lookup.ids);
    const T* grads = c.in<T>(of.grad);
    T* outs = c.out<T>(out);
    fill_in_tiles(c.tiles(), outs, lookup.height * lookup.width, T{});
    split_columns(c.tiles(), lookup.count, lookup.width, [&](int64_t begin, int64_t end) {
      for (int64_t bag = 0; bag < sequence_count(offsets); ++bag) {
        const T* const row = grads + bag * lookup.width;
        const int64_t last = offsets[static_cast<size_t>(bag) + 1];
        for (int64_t i = offsets[static_cast<size_t>(bag)]; i < last; ++i) {
          if (lookup.is_padding(ids[i])) continue;
          lookup.check(ids[i]);
          T* const sum = outs + ids[i] * lookup.width;
          for (int64_t k = begin; k < end; ++k) sum[k] += row[k];
        }
      }
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_sparse_bag_grad(PrepareContext& context, const BagGradient& of) {
  const int out = context.own_output("W@GRAD");
  return make_prepared([=](const KernelContext& c) {
    const Lookup& lookup = of.lookup;
    const Offsets& offsets = of.offsets(c);
    const auto* ids = c.in<int64_t>(lookup.ids);
    const T* grads = c.in<T>(of.grad);
    SelectedRows& rows = c.make_rows(out, dtype_of<T>(), Shape{lookup.count, lookup.width});
    rows.height = lookup.height;
    rows.rows.assign(ids, ids + lookup.count);
    T* values = rows.value.template data<T>();
    split_rows(c.tiles(), offsets, lookup.width, [&](int64_t bag, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        lookup.check(ids[i]);
        if (lookup.is_padding(ids[i])) {
          std::fill_n(values + i * lookup.width, lookup.width, T{});
        } else {
          std::copy_n(grads + bag * lookup.width, lookup.width, values + i * lookup.width);
        }
      }
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_bag_grad(PrepareContext& context) {
  const auto attrs = context.attrs<FusedEmbeddingSeqPoolAttrs>();
  const BagGradient of{lookup_of(context, attrs.padding_idx), bags_of(context),
                       context.input("Out@GRAD")};
  return attrs.is_sparse ? prepare_sparse_bag_grad<T>(context, of)
                         : prepare_dense_bag_grad<T>(context, of);
}

}  // namespace

void register_embedding_bags(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "rows", .prepare = prepare});
    };
    add("fused_embedding_seq_pool", prepare_bags<T>);
    add("fused_embedding_seq_pool_grad", prepare_bag_grad<T>);
  });
}

}  // namespace fleet::fluid::cpu
