#include "fluid/ops/nn/embedding.h"

#include <algorithm>
#include <cstring>

#include "base/strings.h"
#include "fluid/kernels/cpu/nn/register_nn.h"

namespace fleet::fluid::cpu {
namespace {

// A table and the ids that are looked up in it.
struct Lookup {
  int w = -1;
  int ids = -1;
  int64_t height = 0;
  int64_t width = 0;
  int64_t count = 0;  // of ids
  int64_t padding = -1;
  std::string where;

  void check(int64_t id) const {
    if (id >= 0 && id < height) return;
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "an id is outside of the table",
                 .where = where,
                 .expected = str_cat("ids in [0, ", height, ")"),
                 .got = str_cat(id),
                 .fix = "enlarge the table, or map unknown words to an id of their own"});
  }
};

template <class Attrs>
Lookup lookup_of(const PrepareContext& context) {
  const Shape& w = context.in("W").shape;
  const ValueSpec& ids = context.in("Ids");
  context.require(w.rank() == 2, "W", "[height, width]", w.to_string());
  context.require(ids.dtype == DType::kInt64, "Ids", "int64", std::string(dtype_name(ids.dtype)));
  const Operator& op = context.op();
  return {.w = context.input("W"),
          .ids = context.input("Ids"),
          .height = w[0],
          .width = w[1],
          .count = ids.shape.numel(),
          .padding = context.attrs<Attrs>().padding_idx,
          .where = str_cat("op '", op.type, "', ids '", op.input("Ids").front(), "', table '",
                           op.input("W").front(), "'")};
}

Shape out_shape(const PrepareContext& context, const Lookup& lookup, bool last_is_one) {
  const Shape& ids = context.in("Ids").shape;
  const int rank = last_is_one ? ids.rank() - 1 : ids.rank();
  Shape out(ids.dims().first(static_cast<size_t>(std::max(rank, 0))));
  out.push_back(lookup.width);
  return out;
}

template <class T, class Attrs, bool LastIsOne>
std::unique_ptr<Prepared> prepare_lookup(PrepareContext& context) {
  const Lookup lookup = lookup_of<Attrs>(context);
  const int out = context.set_output("Out", out_shape(context, lookup, LastIsOne), dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* table = c.in<T>(lookup.w);
    const auto* ids = c.in<int64_t>(lookup.ids);
    T* outs = c.out<T>(out);
    const size_t bytes = static_cast<size_t>(lookup.width) * sizeof(T);
    for (int64_t i = 0; i < lookup.count; ++i) {
      T* row = outs + i * lookup.width;
      if (lookup.padding >= 0 && ids[i] == lookup.padding) {
        std::memset(row, 0, bytes);
        continue;
      }
      lookup.check(ids[i]);
      std::memcpy(row, table + ids[i] * lookup.width, bytes);
    }
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
    std::fill(outs, outs + lookup.height * lookup.width, T{});
    for (int64_t i = 0; i < lookup.count; ++i) {
      if (lookup.padding >= 0 && ids[i] == lookup.padding) continue;
      lookup.check(ids[i]);
      T* row = outs + ids[i] * lookup.width;
      const T* from = grads + i * lookup.width;
      for (int64_t k = 0; k < lookup.width; ++k) row[k] += from[k];
    }
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
    std::memcpy(values, grads, bytes * static_cast<size_t>(lookup.count));
    for (int64_t i = 0; i < lookup.count; ++i) {
      lookup.check(ids[i]);
      const bool padding = !keep_padding && lookup.padding >= 0 && ids[i] == lookup.padding;
      if (padding) std::memset(values + i * lookup.width, 0, bytes);
    }
  });
}

template <class T, class Attrs>
std::unique_ptr<Prepared> prepare_grad(PrepareContext& context) {
  const Lookup lookup = lookup_of<Attrs>(context);
  const Shape& grad = context.in("Out@GRAD").shape;
  context.require(grad.numel() == lookup.count * lookup.width, "Out@GRAD",
                  str_cat(lookup.count, " rows of ", lookup.width), grad.to_string());
  const auto attrs = context.attrs<Attrs>();
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
