#include "fluid/kernels/nn/pool_windows.h"

#include <string>

#include "base/strings.h"
#include "fluid/kernels/kernel.h"
#include "fluid/ops/nn/conv.h"

namespace fleet::fluid {

PoolWindows pool_windows(const PrepareContext& context, const Pool2dAttrs& attrs) {
  const Shape& x = context.in("X").shape;
  context.require(x.rank() == 4, "X", "four dimensions", x.to_string());
  const std::string where = str_cat("op '", context.op().type, "', slot 'X', variable '",
                                    context.op().input("X").front(), "'");
  const ImageAxes axes = image_axes(attrs.data_format, where);
  const bool ordinary = attrs.paddle_form && attrs.pooling_type == "max";
  const bool last = axes.channels == 3;
  PoolWindows p{.window = pool_window(attrs, x, where),
                .adaptive = attrs.adaptive && !attrs.global_pooling && !ordinary,
                .exclusive = attrs.exclusive,
                .planes = last ? x[0] : x[0] * x[1],
                .lanes = last ? x[3] : 1,
                .out = x};
  p.out.set(axes.height, p.window[0].out);
  p.out.set(axes.width, p.window[1].out);
  for (const size_t dimension : {size_t{0}, size_t{1}}) {
    for (int64_t o = 0; o < p.window[dimension].out; ++o) {
      const PoolSpan span = p.span(dimension, o);
      context.require(span.end > span.begin, "X", "windows that reach into the image",
                      str_cat("a window over ", dimension == 0 ? "rows" : "columns", " [",
                              span.begin, ", ", span.end, ")"));
    }
  }
  return p;
}

}  // namespace fleet::fluid
