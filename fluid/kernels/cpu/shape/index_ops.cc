// Ops that take elements from places or put them there.
#include "fluid/ops/shape/index_ops.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/hash.h"
#include "base/strings.h"
#include "fluid/kernels/cpu/column_tiles.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/shape/strided.h"
#include "fluid/kernels/cpu/tensor_attributes.h"
#include "fluid/kernels/cpu/tile_copy.h"
#include "fluid/kernels/shape/expansion.h"
#include "fluid/kernels/shape/row_ops.h"

namespace fleet::fluid::cpu {
namespace {

template <class T>
std::unique_ptr<Prepared> prepare_expand_grad(PrepareContext& context) {
  const Expansion e = expansion_of(context);
  const Shape& shape = context.in("X").shape;
  context.require(context.in("Out@GRAD").shape == e.out, "Out@GRAD", e.out.to_string(),
                  context.in("Out@GRAD").shape.to_string());
  const int grad = context.input("Out@GRAD");
  const int out = context.set_output("X@GRAD", shape, dtype_of<T>());
  return make_prepared([=, walk = e.back, n = shape.numel()](const KernelContext& c) {
    T* outs = c.out<T>(out);
    fill_in_tiles(c.tiles(), outs, n, T{});
    strided_add(c.tiles(), walk, c.in<T>(grad), outs);
  });
}

int64_t checked_row(int64_t row, int64_t rows, const char* op) {
  if (row >= 0 && row < rows) return row;
  throw_error(ErrorCode::kFeed, {.what = "an index is outside of the rows",
                                 .where = str_cat("op '", op, "'"),
                                 .expected = str_cat("0 to ", rows - 1),
                                 .got = str_cat(row),
                                 .fix = "correct the indices, or give the variable more rows"});
}

std::unique_ptr<Prepared> prepare_gather(PrepareContext& context) {
  const GatherRows g = gather_of(context);
  const size_t bytes = static_cast<size_t>(g.width) * dtype_size(context.in("X").dtype);
  return make_prepared([=](const KernelContext& c) {
    const std::byte* from = c.input(g.from).raw();
    std::byte* to = c.output(g.out).raw();
    c.tiles().split(g.index.count, g.width, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto row = static_cast<size_t>(checked_row(g.index(c, i), g.rows, "gather"));
        if (bytes != 0) std::memcpy(to + static_cast<size_t>(i) * bytes, from + row * bytes, bytes);
      }
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_gather_grad(PrepareContext& context) {
  const GatherRows g = gather_back_of(context);
  return make_prepared([=](const KernelContext& c) {
    const T* grads = c.in<T>(g.from);
    T* outs = c.out<T>(g.out);
    fill_in_tiles(c.tiles(), outs, g.rows * g.width, T{});
    split_columns(c.tiles(), g.index.count, g.width, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < g.index.count; ++i) {
        T* to = outs + checked_row(g.index(c, i), g.rows, "gather_grad") * g.width;
        const T* from = grads + i * g.width;
        if (g.overwrite) std::fill(to + begin, to + end, T{});
        for (int64_t j = begin; j < end; ++j) to[j] += from[j];
      }
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_scatter(PrepareContext& context) {
  const ScatterRows s = scatter_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    T* outs = c.out<T>(s.out);
    copy_elements(c.tiles(), c.input(s.x), c.output(s.out));
    const T* updates = c.in<T>(s.updates);
    split_columns(c.tiles(), s.index.count, s.width, [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < s.index.count; ++i) {
        T* to = outs + checked_row(s.index(c, i), s.rows, "scatter") * s.width;
        std::fill(to + begin, to + end, T{});
      }
      for (int64_t i = 0; i < s.index.count; ++i) {
        T* to = outs + s.index(c, i) * s.width;
        const T* from = updates + i * s.width;
        for (int64_t j = begin; j < end; ++j) to[j] = s.overwrite ? from[j] : to[j] + from[j];
      }
    });
  });
}

// Rows that were replaced pass nothing to X; of updates to one row, the last passed on.
template <class T>
std::unique_ptr<Prepared> prepare_scatter_grad(PrepareContext& context) {
  const ScatterRowsBack s = scatter_back_of(context, dtype_of<T>());
  std::vector<int64_t> last(static_cast<size_t>(s.rows));
  return make_prepared([=](const KernelContext& c) mutable {
    const T* grads = c.in<T>(s.grad);
    for (int64_t i = 0; i < s.index.count; ++i) {
      last[static_cast<size_t>(checked_row(s.index(c, i), s.rows, "scatter_grad"))] = i;
    }
    if (s.x_grad >= 0) copy_elements(c.tiles(), c.input(s.grad), c.output(s.x_grad));
    const auto pass_on = [&](int64_t i) {
      const int64_t row = s.index(c, i);
      const bool is_last = last[static_cast<size_t>(row)] == i;
      if (s.x_grad >= 0 && !s.keeps_named_rows && is_last) {
        T* to = c.out<T>(s.x_grad) + row * s.width;
        std::fill(to, to + s.width, T{});
      }
      if (s.update_grad < 0) return;
      T* to = c.out<T>(s.update_grad) + i * s.width;
      const bool counts = !s.last_only || is_last;
      for (int64_t j = 0; j < s.width; ++j) to[j] = counts ? grads[row * s.width + j] : T{};
    };
    c.tiles().split(s.index.count, s.width, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) pass_on(i);
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_hash(PrepareContext& context) {
  const auto attrs = context.attrs<HashAttrs>();
  const Shape& shape = context.in("X").shape;
  context.require(shape.rank() == 2, "X", "[rows, ids of each]", shape.to_string());
  context.require(attrs.num_hash >= 1, "X", "num_hash >= 1", str_cat(attrs.num_hash));
  context.require(attrs.mod_by >= 1 && attrs.mod_by <= std::numeric_limits<T>::max(), "X",
                  "mod_by >= 1, and a number of X's type", str_cat(attrs.mod_by));
  const int64_t rows = shape[0];
  const size_t bytes = static_cast<size_t>(shape[1]) * sizeof(T);
  const int64_t hashes = attrs.num_hash;
  const int x = context.input("X");
  const int out = context.set_output("Out", Shape{rows, hashes, 1}, dtype_of<T>());
  return make_prepared([=, mod = static_cast<uint64_t>(attrs.mod_by)](const KernelContext& c) {
    const auto* from = reinterpret_cast<const char*>(c.in<T>(x));
    T* to = c.out<T>(out);
    // About as much work as so many additions.
    const auto work = hashes * (16 + static_cast<int64_t>(bytes));
    c.tiles().split(rows, work, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const std::string_view row(from + static_cast<size_t>(i) * bytes, bytes);
        for (int64_t k = 0; k < hashes; ++k) {
          to[i * hashes + k] = static_cast<T>(xxh64(row, static_cast<uint64_t>(k)) % mod);
        }
      }
    });
  });
}

std::unique_ptr<Prepared> prepare_shape(PrepareContext& context) {
  const Shape shape = context.in("Input").shape;
  const int out = context.set_output("Out", Shape{shape.rank()}, DType::kInt32);
  return make_prepared([=](const KernelContext& c) {
    for (int i = 0; i < shape.rank(); ++i) c.out<int32_t>(out)[i] = static_cast<int32_t>(shape[i]);
  });
}

}  // namespace

void register_index(KernelTable& table) {
  const std::vector<TensorAttribute> times = {
      {.name = "expand_times", .whole = "ExpandTimes", .list = "expand_times_tensor"}};
  const auto add = [&table]<class T>(std::type_identity<T>, const char* op, const auto& prepare) {
    table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "copy", .prepare = prepare});
  };
  for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&]<class T>(std::type_identity<T> type) {
        add(type, "gather", prepare_gather);
        add(type, "shape", prepare_shape);
      });
  for_types<int32_t, int64_t>([&]<class T>(std::type_identity<T>) {
    table.add_last("hash", DeviceKind::kCpu, dtype_of<T>(),
                   {.name = "loop", .prepare = prepare_hash<T>});
  });
  for_types<int32_t, int64_t, float, double>(
      [&]<class T>(std::type_identity<T> type) { add(type, "scatter", prepare_scatter<T>); });
  for_types<float, double>([&]<class T>(std::type_identity<T> type) {
    add(type, "expand_grad", with_tensor_attributes(prepare_expand_grad<T>, times));
    add(type, "gather_grad", prepare_gather_grad<T>);
    add(type, "scatter_grad", prepare_scatter_grad<T>);
  });
}

}  // namespace fleet::fluid::cpu
