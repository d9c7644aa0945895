// Comparisons, logic, selection by truth values.
#include "fluid/ops/math/compare.h"

#include <array>
#include <cmath>

#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cpu/math/binary.h"
#include "fluid/kernels/functions/binary.h"

namespace fleet::fluid::cpu {
namespace {

using namespace functions;  // NOLINT(google-build-using-namespace)

template <class Op>
void add_compare(KernelTable& table, const char* type) {
  for_types<bool, int32_t, int64_t, float, double>([&]<class T>(std::type_identity<T>) {
    table.add_last(type, DeviceKind::kCpu, dtype_of<T>(),
                   {"loop", [](PrepareContext& context) {
                      return prepare_binary<T, bool>(context, context.attrs<CompareAttrs>().axis,
                                                     binary_row<Op, T, bool>);
                    }});
  });
}

template <class Op>
void add_logical(KernelTable& table, const char* type) {
  table.add_last(type, DeviceKind::kCpu, DType::kBool,
                 {"loop", [](PrepareContext& context) {
                    return prepare_binary<bool, bool>(context, -1, binary_row<Op, bool, bool>);
                  }});
}

std::unique_ptr<Prepared> prepare_not(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  const int x = context.input("X");
  const int out = context.set_output("Out", shape, DType::kBool);
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    const bool* xs = c.in<bool>(x);
    bool* outs = c.out<bool>(out);
    c.tiles().split(n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) outs[i] = !xs[i];
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_where(PrepareContext& context) {
  const Shape shape = context.in("X").shape;
  require_condition(context, shape);
  context.require(context.in("Y").shape == shape && context.in("Y").dtype == dtype_of<T>(), "Y",
                  str_cat(dtype_name(dtype_of<T>()), shape), context.in("Y").shape.to_string());
  const int condition = context.input("Condition");
  const int x = context.input("X");
  const int y = context.input("Y");
  const int out = context.set_output("Out", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    const bool* truth = c.in<bool>(condition);
    const T* xs = c.in<T>(x);
    const T* ys = c.in<T>(y);
    T* outs = c.out<T>(out);
    c.tiles().split(n, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) outs[i] = truth[i] ? xs[i] : ys[i];
    });
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_where_grad(PrepareContext& context) {
  const Shape shape = context.in("Out@GRAD").shape;
  require_condition(context, shape);
  const int condition = context.input("Condition");
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", shape, dtype_of<T>());
  const int y_grad = context.set_output("Y@GRAD", shape, dtype_of<T>());
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    const bool* truth = c.in<bool>(condition);
    const T* gs = c.in<T>(grad);
    T* x_grads = x_grad >= 0 ? c.out<T>(x_grad) : nullptr;
    T* y_grads = y_grad >= 0 ? c.out<T>(y_grad) : nullptr;
    c.tiles().split(n, 2, [&](int64_t begin, int64_t end) {
      if (x_grads != nullptr) {
        for (int64_t i = begin; i < end; ++i) x_grads[i] = truth[i] ? gs[i] : T{};
      }
      if (y_grads != nullptr) {
        for (int64_t i = begin; i < end; ++i) y_grads[i] = truth[i] ? T{} : gs[i];
      }
    });
  });
}

std::unique_ptr<Prepared> prepare_where_index(PrepareContext& context) {
  const Shape shape = context.in("Condition").shape;
  require_condition(context, shape);
  const int condition = context.input("Condition");
  const int out = context.own_output("Out");
  return make_prepared([=, n = shape.numel()](const KernelContext& c) {
    const bool* truth = c.in<bool>(condition);
    const int rank = shape.rank();
    const int64_t size = Tiles::items(1);
    auto* counts = reinterpret_cast<int64_t*>(
        c.scratch().get(static_cast<size_t>(pieces_of(n, size)) * sizeof(int64_t)));
    c.tiles().ranges(n, size, [&](int64_t begin, int64_t end) {
      counts[begin / size] = std::count(truth + begin, truth + end, true);
    });
    const int64_t found = to_offsets(counts, pieces_of(n, size));
    auto* found_at = c.make_dense(out, DType::kInt64, Shape{found, rank}).data<int64_t>();
    c.tiles().ranges(n, size, [&](int64_t begin, int64_t end) {
      int64_t* to = found_at + counts[begin / size] * rank;
      for (int64_t i = begin; i < end; ++i) {
        if (!truth[i]) continue;
        int64_t rest = i;
        for (int d = rank - 1; d >= 0; --d) {
          to[d] = rest % shape[d];
          rest /= shape[d];
        }
        to += rank;
      }
    });
  });
}

enum class Finite { kAll, kHasInf, kHasNan };

template <class T, Finite question>
std::unique_ptr<Prepared> prepare_finite(PrepareContext& context) {
  const int64_t n = context.in("X").shape.numel();
  const int x = context.input("X");
  const int out = context.set_output("Out", Shape{1}, DType::kBool);
  return make_prepared([=](const KernelContext& c) {
    const T* xs = c.in<T>(x);
    const auto any_of = [xs](int64_t begin, int64_t end) {
      bool any = false;
      for (int64_t i = begin; i < end; ++i) {
        if constexpr (question == Finite::kAll) any |= !std::isfinite(xs[i]);
        if constexpr (question == Finite::kHasInf) any |= std::isinf(xs[i]);
        if constexpr (question == Finite::kHasNan) any |= std::isnan(xs[i]);
      }
      return any;
    };
    const bool any =
        join_parts<bool>(c.tiles(), n, 1, any_of, [](const bool* parts, int64_t count) {
          return std::count(parts, parts + count, true) > 0;
        });
    *c.out<bool>(out) = question == Finite::kAll ? !any : any;
  });
}

}  // namespace

void register_compare(KernelTable& table) {
  add_compare<Less>(table, "less_than");
  add_compare<LessEqual>(table, "less_equal");
  add_compare<Greater>(table, "greater_than");
  add_compare<GreaterEqual>(table, "greater_equal");
  add_compare<Equal>(table, "equal");
  add_compare<NotEqual>(table, "not_equal");
  add_logical<And>(table, "logical_and");
  add_logical<Or>(table, "logical_or");
  add_logical<Xor>(table, "logical_xor");
  table.add_last("logical_not", DeviceKind::kCpu, DType::kBool, {"loop", prepare_not});
  // Listed under its output's type: it has no input X.
  table.add_last("where_index", DeviceKind::kCpu, DType::kInt64, {"loop", prepare_where_index});
  for_types<bool, int32_t, int64_t, float, double>([&table]<class T>(std::type_identity<T>) {
    table.add_last("where", DeviceKind::kCpu, dtype_of<T>(), {"loop", prepare_where<T>});
  });
  for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto add = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "loop", .prepare = prepare});
    };
    add("where_grad", prepare_where_grad<T>);
    add("isfinite", prepare_finite<T, Finite::kAll>);
    add("isinf", prepare_finite<T, Finite::kHasInf>);
    add("isnan", prepare_finite<T, Finite::kHasNan>);
  });
}

}  // namespace fleet::fluid::cpu
