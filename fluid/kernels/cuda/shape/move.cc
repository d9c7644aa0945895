// Ops that move elements (fluid/kernels/shape/mover.h), gathers and lookups of rows.
#include <vector>

#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/math/reduce_loops.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/kernels/cuda/row_loops.h"
#include "fluid/kernels/cuda/shape/move_loops.h"
#include "fluid/kernels/nn/lookup.h"
#include "fluid/kernels/shape/expansion.h"
#include "fluid/kernels/shape/mover.h"
#include "fluid/ops/nn/embedding.h"
#include "fluid/ops/shape/fill.h"
#include "fluid/ops/shape/index_ops.h"

namespace fleet::fluid::cuda {
namespace {

using cpu::for_types;

WalkDims dims_of(const StridedWalk& walk) {
  WalkDims dims;
  for (const StridedWalk::Dim& dim : walk.dims()) {
    dims.size[dims.rank] = dim.size;
    dims.from[dims.rank] = dim.from;
    dims.to[dims.rank] = dim.to;
    dims.count *= dim.size;
    ++dims.rank;
  }
  if (walk.empty()) dims.count = 0;
  return dims;
}

// Two neighbours as one element, where runs, steps and pointers allow it.
bool widen(WalkDims& dims, size_t word, const std::byte* from, const std::byte* to) {
  const auto aligned = [word](const std::byte* at) {
    return reinterpret_cast<uintptr_t>(at) % (2 * word) == 0;
  };
  if (dims.rank == 0 || word >= 16 || !aligned(from) || !aligned(to)) return false;
  const int last = dims.rank - 1;
  if (dims.from[last] != 1 || dims.to[last] != 1 || dims.size[last] % 2 != 0) return false;
  for (int d = 0; d < last; ++d) {
    if (dims.from[d] % 2 != 0 || dims.to[d] % 2 != 0) return false;
  }
  dims.size[last] /= 2;
  dims.count /= 2;
  for (int d = 0; d < last; ++d) {
    dims.from[d] /= 2;
    dims.to[d] /= 2;
  }
  return true;
}

void copy_all(const KernelContext& c, const Tensor& from, Tensor& to) {
  stream_of(c).copy(from.raw(), to.raw(), from.bytes());
}

void fill_words(const KernelContext& c, uint64_t value, size_t word, std::byte* to, int64_t n) {
  const RawStream stream = stream_of(c).raw();
  switch (word) {
    case 1:
      return fill(stream, static_cast<uint8_t>(value), reinterpret_cast<uint8_t*>(to), n);
    case 2:
      return fill(stream, static_cast<int16_t>(value), reinterpret_cast<int16_t*>(to), n);
    case 4:
      return fill(stream, static_cast<int32_t>(value), reinterpret_cast<int32_t*>(to), n);
    default:
      return fill(stream, static_cast<int64_t>(value), reinterpret_cast<int64_t*>(to), n);
  }
}

constexpr Mover kMover = {.device = DeviceKind::kCuda,
                          .copy =
                              [](const KernelContext& c, const StridedWalk& walk, size_t word,
                                 const std::byte* from, std::byte* to) {
                                WalkDims dims = dims_of(walk);
                                while (widen(dims, word, from, to)) word *= 2;
                                copy_walk(stream_of(c).raw(), dims, word, from, to);
                              },
                          .copy_all = copy_all,
                          .fill = fill_words};

std::unique_ptr<Prepared> prepare_assign(PrepareContext& context) {
  const ValueSpec& spec = context.in("X");
  const int x = context.input("X");
  const int out = context.set_output("Out", spec.shape, spec.dtype);
  return make_prepared([=](const KernelContext& c) { copy_all(c, c.input(x), c.output(out)); });
}

// The elements of Out that came from each element of X, as its sum's terms.
SumDims sums_of(const StridedWalk& back) {
  SumDims sums;
  for (const StridedWalk::Dim& dim : back.dims()) {
    const bool gone = dim.to == 0;
    int& rank = gone ? sums.gone_rank : sums.kept_rank;
    (gone ? sums.gone_size : sums.kept_size)[rank] = dim.size;
    (gone ? sums.gone_step : sums.kept_step)[rank] = dim.from;
    (gone ? sums.terms : sums.results) *= dim.size;
    ++rank;
  }
  if (back.empty()) sums.results = 0;
  return sums;
}

template <class T>
std::unique_ptr<Prepared> prepare_expand_grad(PrepareContext& context) {
  const Expansion e = expansion_of(context);
  context.require(context.in("Out@GRAD").shape == e.out, "Out@GRAD", e.out.to_string(),
                  context.in("Out@GRAD").shape.to_string());
  const SumDims sums = sums_of(e.back);
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    T* partial = stream_of(c).scratch<T>(reduce_partials(sums));
    sum_dims<T>(stream_of(c).raw(), sums, c.in<T>(grad), T{1}, partial, c.out<T>(out));
  });
}

// The ids, on the device.
RowIndices indices_of(const KernelContext& c, const Lookup& lookup) {
  RowIndices indices{
      .values = c.input(lookup.ids).raw(), .count = lookup.count, .rows = lookup.height};
  if (lookup.padding >= 0) indices.skipped = lookup.padding;
  return indices;
}

template <class T, class Attrs, bool LastIsOne>
std::unique_ptr<Prepared> prepare_lookup(PrepareContext& context) {
  const Lookup lookup = lookup_of(context, context.attrs<Attrs>().padding_idx);
  const Shape shape = looked_up_shape(context, lookup, LastIsOne);
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    take_rows<T>(stream_of(c).raw(), indices_of(c, lookup), lookup.width, c.in<T>(lookup.w),
                 c.out<T>(out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_dense_grad(PrepareContext& context, const Lookup& lookup) {
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("W@GRAD", context.in("W").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    Stream& stream = stream_of(c);
    fill<T>(stream.raw(), T{}, c.out<T>(out), lookup.height * lookup.width);
    const size_t bytes = sort_bytes(lookup.count);
    auto* sorted = bytes == 0 ? nullptr : stream.scratch<std::byte>(static_cast<int64_t>(bytes));
    add_rows<T>(stream.raw(), indices_of(c, lookup), lookup.width, c.in<T>(grad), c.out<T>(out),
                sorted);
  });
}

// The ids are in host memory (Kernel::host_slots).
template <class T>
std::unique_ptr<Prepared> prepare_rows_grad(PrepareContext& context, const Lookup& lookup,
                                            bool keep_padding) {
  const int grad = context.input("Out@GRAD");
  const int out = context.own_output("W@GRAD");
  return make_prepared([=, padding = std::vector<int64_t>()](const KernelContext& c) mutable {
    const auto* ids = c.in<int64_t>(lookup.ids);
    padding.clear();
    for (int64_t i = 0; i < lookup.count; ++i) {
      lookup.check(ids[i]);
      if (!keep_padding && lookup.is_padding(ids[i])) padding.push_back(i);
    }
    SelectedRows& made = c.make_rows(out, dtype_of<T>(), Shape{lookup.count, lookup.width});
    made.height = lookup.height;
    made.rows.assign(ids, ids + lookup.count);
    Stream& stream = stream_of(c);
    stream.copy(c.input(grad).raw(), made.value.raw(), made.value.bytes());
    if (padding.empty()) return;
    const auto count = static_cast<int64_t>(padding.size());
    auto* positions = stream.scratch<int64_t>(count);
    stream.upload(padding.data(), positions, padding.size() * sizeof(int64_t));
    zero_rows<T>(stream.raw(), positions, count, lookup.width,
                 reinterpret_cast<T*>(made.value.raw()));
  });
}

template <class T, class Attrs>
std::unique_ptr<Prepared> prepare_lookup_grad(PrepareContext& context) {
  const auto attrs = context.attrs<Attrs>();
  const Lookup lookup = lookup_of(context, attrs.padding_idx);
  require_row_gradients(context, lookup);
  if (!attrs.is_sparse) return prepare_dense_grad<T>(context, lookup);
  return prepare_rows_grad<T>(context, lookup, attrs.paddle_form);
}

}  // namespace

void register_move(KernelTable& table) {
  register_moves(table, kMover);
  register_boxes(table, kMover);
  const auto list = [&table](DType dtype, const char* op, auto prepare) {
    table.add_last(op, DeviceKind::kCuda, dtype, {.name = "loop", .prepare = prepare});
  };
  for (const DType dtype : kElementTypes) list(dtype, "assign", prepare_assign);
  for_types<float, double>([&]<class T>(std::type_identity<T>) {
    const DType dtype = dtype_of<T>();
    list(dtype, "expand_grad", prepare_expand_grad<T>);
    list(dtype, "lookup_table", prepare_lookup<T, LookupTableAttrs, true>);
    list(dtype, "lookup_table_v2", prepare_lookup<T, LookupTableV2Attrs, false>);
    const auto list_back = [&](const char* op, auto prepare) {
      table.add_last(
          op, DeviceKind::kCuda, dtype,
          {.name = "loop", .prepare = prepare, .takes_rows = true, .host_slots = {"Ids"}});
    };
    list_back("lookup_table_grad", prepare_lookup_grad<T, LookupTableAttrs>);
    list_back("lookup_table_v2_grad", prepare_lookup_grad<T, LookupTableV2Attrs>);
  });
}

}  // namespace fleet::fluid::cuda
