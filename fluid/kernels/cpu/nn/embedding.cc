#include "fluid/ops/nn/embedding.h"

#include <algorithm>
#include <cstring>

#include "fluid/kernels/cpu/column_tiles.h"
#include "fluid/kernels/cpu/nn/looked_up_rows.h"
#include "fluid/kernels/cpu/nn/register_nn.h"
#include "fluid/kernels/cpu/tile_copy.h"
#include "fluid/kernels/nn/lookup.h"

namespace fleet::fluid::cpu {
namespace {

template <class T, class Attrs, bool LastIsOne>
std::unique_ptr<Prepared> prepare_lookup(PrepareContext& context) {
  const Lookup lookup = lookup_of(context, context.attrs<Attrs>().padding_idx);
  const Shape shape = looked_up_shape(context, lookup, LastIsOne);
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const LookedUpRows<T> rows(lookup, c);
    T* outs = c.out<T>(out);
    c.tiles().split(lookup.count, lookup.width, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* const to = outs + i * lookup.width;
        if (const T* const row = rows.at(i)) {
          std::copy_n(row, lookup.width, to);
        } else {
          std::fill_n(to, lookup.width, T{});
        }
      }
    });
  });
}

// Every row of the table; equal ids are added in the order in which they occur.
template <class T>
std::unique_ptr<Prepared> prepare_dense_grad(PrepareContext& context, const Lookup& lookup) {
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("W@GRAD", context.in("W").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const auto* ids = c.in<int64_t>(lookup.ids);
    const T* grads = c.in<T>(grad);
    T* outs = c.out<T>(out);
    fill_in_tiles(c.tiles(), outs, lookup.height * lookup.width, T{});
    split_columns(c.tiles(), lookup.count, lookup.width, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < lookup.count; ++i) {
        if (lookup.is_padding(ids[i])) continue;
        lookup.check(ids[i]);
        T* row = outs + ids[i] * lookup.width;
        const T* from = grads + i * lookup.width;
        for (int64_t k = begin; k < end; ++k) row[k] += from[k];
      }
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_sparse_grad(PrepareContext& context, const Lookup& lookup,
                                              bool keep_padding) {
  const int grad = context.input("Out@GRAD");
  const int out = context.own_output("W@GRAD");
  return make_prepared([=](const KernelContext& c) {
    const auto* ids = c.in<int64_t>(lookup.ids);
    const T* grads = c.in<T>(grad);
    SelectedRows& rows = c.make_rows(out, dtype_of<T>(), Shape{lookup.count, lookup.width});
    rows.height = lookup.height;
    rows.rows.assign(ids, ids + lookup.count);
    T* values = rows.value.template data<T>();
    const size_t bytes = static_cast<size_t>(lookup.width) * sizeof(T);
    c.tiles().split(lookup.count, lookup.width, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * lookup.width;
      std::memcpy(values + first, grads + first, bytes * static_cast<size_t>(end - begin));
      for (int64_t i = begin; i < end; ++i) {
        lookup.check(ids[i]);
        if (!keep_padding && lookup.is_padding(ids[i])) {
          std::memset(values + i * lookup.width, 0, bytes);
        }
      }
    });
  });
}

template <class T, class Attrs>
std::unique_ptr<Prepared> prepare_grad(PrepareContext& context) {
  const auto attrs = context.attrs<Attrs>();
  const Lookup lookup = lookup_of(context, attrs.padding_idx);
  require_row_gradients(context, lookup);
  if (!attrs.is_sparse) return prepare_dense_grad<T>(context, lookup);
  return prepare_sparse_grad<T>(context, lookup, attrs.paddle_form);
}

}  // namespace

void register_embedding(KernelTable& table) {
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "rows", .prepare = prepare});
    };
    add("lookup_table", prepare_lookup<T, LookupTableAttrs, true>);
    add("lookup_table_v2", prepare_lookup<T, LookupTableV2Attrs, false>);
    add("lookup_table_grad", prepare_grad<T, LookupTableAttrs>);
    add("lookup_table_v2_grad", prepare_grad<T, LookupTableV2Attrs>);
  });
}

}  // namespace fleet::fluid::cpu
