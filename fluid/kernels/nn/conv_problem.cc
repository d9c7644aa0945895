#include "fluid/kernels/nn/conv_problem.h"

#include <string>
#include <type_traits>

#include "base/strings.h"
#include "fluid/ops/nn/conv.h"

namespace fleet::fluid {
namespace {

void check_operands(const PrepareContext& context, bool transposed) {
  const Shape& input = context.in("Input").shape;
  const Shape& filter = context.in("Filter").shape;
  context.require(input.rank() == 4, "Input", "four dimensions", input.to_string());
  context.require(filter.rank() == 4, "Filter", "four dimensions", filter.to_string());
  const auto groups = transposed ? context.attrs<Conv2dTransposeAttrs>().groups
                                 : context.attrs<Conv2dAttrs>().groups;
  context.require(groups >= 1, "Filter", "groups of at least 1", str_cat(groups));
}

Shape image(const ImageAxes& axes, int64_t batch, int64_t channels, int64_t height, int64_t width) {
  Shape shape{batch, 0, 0, 0};
  shape.set(axes.channels, channels);
  shape.set(axes.height, height);
  shape.set(axes.width, width);
  return shape;
}

template <bool Transposed>
ConvProblem problem_of(const PrepareContext& context) {
  using Attrs = std::conditional_t<Transposed, Conv2dTransposeAttrs, Conv2dAttrs>;
  check_operands(context, Transposed);
  const auto attrs = context.attrs<Attrs>();
  const Shape& input = context.in("Input").shape;
  const Shape& filter = context.in("Filter").shape;
  const std::string where = str_cat("op '", context.op().type, "', slot 'Input', variable '",
                                    context.op().input("Input").front(), "'");
  const ImageAxes axes = image_axes(attrs.data_format, where);
  ConvProblem problem;
  ConvShape& s = problem.shape;
  s.batch = input[0];
  s.groups = attrs.groups;
  s.channels_last = axes.channels == 3;
  if constexpr (Transposed) {
    s.window = conv_transpose_window(attrs, input, filter, where);
    s.out = input[axes.channels];
    s.in = filter[1] * s.groups;
    context.require(filter[0] == s.out && s.out % s.groups == 0, "Filter",
                    str_cat("[", s.out, ", outputs / groups, height, width]"), filter.to_string());
    problem.output = image(axes, s.batch, s.in, s.window[0].in, s.window[1].in);
  } else {
    s.window = conv_window(attrs, input, filter, where);
    s.in = input[axes.channels];
    s.out = filter[0];
    context.require(filter[1] * s.groups == s.in && s.out % s.groups == 0, "Filter",
                    str_cat("[outputs, ", s.in, " / ", s.groups, ", height, width]"),
                    filter.to_string());
    problem.output = image(axes, s.batch, s.out, s.window[0].out, s.window[1].out);
  }
  return problem;
}

}  // namespace

ConvProblem conv_problem(const PrepareContext& context, bool transposed) {
  return transposed ? problem_of<true>(context) : problem_of<false>(context);
}

}  // namespace fleet::fluid
