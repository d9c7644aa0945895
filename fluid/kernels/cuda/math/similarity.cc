// Norms and angles.
#include "fluid/kernels/math/similarity.h"

#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/math/similarity_loops.h"
#include "fluid/kernels/cuda/register_impl.h"

namespace fleet::fluid::cuda {
namespace {

Rows rows_of(const AxisView& view) {
  return {.outer = view.outer, .n = view.n, .inner = view.inner};
}

CosineDims dims_of(const CosineRows& rows) {
  return {.rows = rows.rows, .length = rows.length, .shared = rows.shared};
}

template <class T>
std::unique_ptr<Prepared> prepare_norm(PrepareContext& context) {
  const LineNorm l = norm_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    line_norm<T>(stream_of(c).raw(), rows_of(l.lines), static_cast<T>(l.epsilon), c.in<T>(l.x),
                 out_or_null<T>(c, l.norm), out_or_null<T>(c, l.out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_norm_grad(PrepareContext& context) {
  const LineNorm l = norm_back_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    line_norm_back<T>(stream_of(c).raw(), rows_of(l.lines), c.in<T>(l.x), c.in<T>(l.norm),
                      c.in<T>(l.grad), c.out<T>(l.out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_cos_sim(PrepareContext& context) {
  const CosineRows r = cosine_of(context, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    cosine<T>(stream_of(c).raw(), dims_of(r), c.in<T>(r.x), c.in<T>(r.y),
              out_or_null<T>(c, r.cosine), out_or_null<T>(c, r.x_norm),
              out_or_null<T>(c, r.y_norm));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_cos_sim_grad(PrepareContext& context) {
  const CosineRows r = cosine_back_of(context, dtype_of<T>());
  const CosineDims dims = dims_of(r);
  return make_prepared([=](const KernelContext& c) {
    Stream& stream = stream_of(c);
    const CosineBack<T> args{.x = c.in<T>(r.x),
                             .y = c.in<T>(r.y),
                             .x_norm = c.in<T>(r.x_norm),
                             .y_norm = c.in<T>(r.y_norm),
                             .cosine = c.in<T>(r.cosine),
                             .grad = c.in<T>(r.grad),
                             .x_grad = out_or_null<T>(c, r.x_grad),
                             .y_grad = out_or_null<T>(c, r.y_grad)};
    cosine_back<T>(stream.raw(), dims, args, stream.template scratch<T>(cosine_partials(dims)));
  });
}

}  // namespace

void register_similarity(KernelTable& table) {
  cpu::for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const auto list = [&table](const char* op, auto prepare) {
      table.add_last(op, DeviceKind::kCuda, dtype_of<T>(), {.name = "loop", .prepare = prepare});
    };
    list("norm", prepare_norm<T>);
    list("norm_grad", prepare_norm_grad<T>);
    list("cos_sim", prepare_cos_sim<T>);
    list("cos_sim_grad", prepare_cos_sim_grad<T>);
  });
}

}  // namespace fleet::fluid::cuda
