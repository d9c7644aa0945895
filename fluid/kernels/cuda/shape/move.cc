// Ops that move elements (fluid/kernels/shape/mover.h), gathers and lookups of rows.
#include <algorithm>
#include <string>

#include "base/strings.h"
#include "fluid/core/cuda/cuda_call_impl.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/math/reduce_loops.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/kernels/cuda/shape/move_loops.h"
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
  if (to.raw() == from.raw() || from.bytes() == 0) return;
  check_cuda(cudaMemcpyAsync(to.raw(), from.raw(), from.bytes(), cudaMemcpyDeviceToDevice,
                             static_cast<cudaStream_t>(stream_of(c).raw())),
             "cudaMemcpyAsync");
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

// Indices whose values are read when the op runs.
struct IndexInput {
  int input = -1;
  RowIndices rows;
  RowIndices at(const KernelContext& c) const {
    RowIndices now = rows;
    now.values = c.input(input).raw();
    return now;
  }
};

IndexInput index_input(const PrepareContext& context, const char* slot, int64_t rows) {
  const ValueSpec& spec = context.in(slot);
  const bool wide = spec.dtype == DType::kInt64;
  context.require(wide || spec.dtype == DType::kInt32, slot, "int32 or int64",
                  std::string(dtype_name(spec.dtype)));
  return {.input = context.input(slot),
          .rows = {.wide = wide, .count = spec.shape.numel(), .rows = rows}};
}

template <class T>
void add_all_rows(const KernelContext& c, const IndexInput& index, int64_t width, int grad,
                  int out) {
  Stream& stream = stream_of(c);
  const RowIndices rows = index.at(c);
  fill<T>(stream.raw(), T{}, c.out<T>(out), rows.rows * width);
  const size_t bytes = sort_bytes(rows.count);
  auto* sorted = bytes == 0 ? nullptr : stream.scratch<std::byte>(static_cast<int64_t>(bytes));
  add_rows<T>(stream.raw(), rows, width, c.in<T>(grad), c.out<T>(out), sorted);
}

struct Lookup {
  IndexInput ids;
  int64_t width = 0;
};

template <class Attrs>
Lookup lookup_of(const PrepareContext& context) {
  const Shape& w = context.in("W").shape;
  const ValueSpec& ids = context.in("Ids");
  context.require(w.rank() == 2, "W", "[height, width]", w.to_string());
  context.require(ids.dtype == DType::kInt64, "Ids", "int64", std::string(dtype_name(ids.dtype)));
  Lookup lookup{.ids = index_input(context, "Ids", w[0]), .width = w[1]};
  lookup.ids.rows.skipped = std::max<int64_t>(context.attrs<Attrs>().padding_idx, -1);
  return lookup;
}

template <class T, class Attrs, bool LastIsOne>
std::unique_ptr<Prepared> prepare_lookup(PrepareContext& context) {
  const Lookup lookup = lookup_of<Attrs>(context);
  const Shape& ids = context.in("Ids").shape;
  const int rank = LastIsOne ? ids.rank() - 1 : ids.rank();
  Shape shape(ids.dims().first(static_cast<size_t>(std::max(rank, 0))));
  shape.push_back(lookup.width);
  const int w = context.input("W");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    take_rows<T>(stream_of(c).raw(), lookup.ids.at(c), lookup.width, c.in<T>(w), c.out<T>(out));
  });
}

template <class T, class Attrs>
std::unique_ptr<Prepared> prepare_lookup_grad(PrepareContext& context) {
  const Lookup lookup = lookup_of<Attrs>(context);
  const Shape& grads = context.in("Out@GRAD").shape;
  context.require(grads.numel() == lookup.ids.rows.count * lookup.width, "Out@GRAD",
                  str_cat(lookup.ids.rows.count, " rows of ", lookup.width), grads.to_string());
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("W@GRAD", context.in("W").shape, dtype_of<T>());
  return make_prepared(
      [=](const KernelContext& c) { add_all_rows<T>(c, lookup.ids, lookup.width, grad, out); });
}

}  // namespace

void register_move(KernelTable& table) {
  register_moves(table, kMover);
  register_boxes(table, kMover);
  const auto list = [&table](DType dtype, const char* op, auto prepare) {
    table.add_last(op, DeviceKind::kCuda, dtype, {.name = "loop", .prepare = prepare});
  };
  for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&]<class T>(std::type_identity<T>) { list(dtype_of<T>(), "assign", prepare_assign); });
  for_types<float, double>([&]<class T>(std::type_identity<T>) {
    const DType dtype = dtype_of<T>();
    list(dtype, "expand_grad", prepare_expand_grad<T>);
    list(dtype, "lookup_table", prepare_lookup<T, LookupTableAttrs, true>);
    list(dtype, "lookup_table_v2", prepare_lookup<T, LookupTableV2Attrs, false>);
    list(dtype, "lookup_table_grad", prepare_lookup_grad<T, LookupTableAttrs>);
    list(dtype, "lookup_table_v2_grad", prepare_lookup_grad<T, LookupTableV2Attrs>);
  });
}

}  // namespace fleet::fluid::cuda
