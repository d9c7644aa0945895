#include "fluid/ops/nn/window.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid {
namespace {

[[noreturn]] void fail(std::string what, std::string_view where, std::string expected,
                       std::string got, std::string fix) {
  throw_error(ErrorCode::kShapeMismatch, {.what = std::move(what),
                                          .where = std::string(where),
                                          .expected = std::move(expected),
                                          .got = std::move(got),
                                          .fix = std::move(fix)});
}

void check_pair(std::string_view where, const char* name, const std::vector<int32_t>& values,
                int32_t least) {
  const bool fits = values.size() == 2 && std::all_of(values.begin(), values.end(),
                                                      [least](int32_t v) { return v >= least; });
  if (fits) return;
  fail("an attribute does not fit the op", where,
       str_cat(name, ": two numbers of at least ", least), "[" + join(values, ", ") + "]",
       str_cat("give ", name, " as {height, width}"));
}

// Attributes as they are written, image sizes filled in.
Window written_window(const WindowAttrs& attrs, std::array<int64_t, 2> image,
                      std::string_view where) {
  check_pair(where, "kernel size", attrs.kernel, 1);
  check_pair(where, "strides", attrs.strides, 1);
  check_pair(where, "dilations", attrs.dilations, 1);
  const bool two = attrs.paddings.size() == 4;
  if (!two) check_pair(where, "paddings", attrs.paddings, 0);
  Window window;
  for (size_t d = 0; d < 2; ++d) {
    window[d] = {.in = image[d],
                 .kernel = attrs.kernel[d],
                 .stride = attrs.strides[d],
                 .dilation = attrs.dilations[d],
                 .pad_before = attrs.paddings[two ? 2 * d : d],
                 .pad_after = attrs.paddings[two ? 2 * d + 1 : d],
                 .out = -1};
    if (window[d].pad_before < 0 || window[d].pad_after < 0) {
      fail("an attribute does not fit the op", where, "paddings of at least 0",
           "[" + join(attrs.paddings, ", ") + "]",
           "slice the image instead of padding it negatively");
    }
    if (attrs.padding_algorithm == "VALID") window[d].pad_before = window[d].pad_after = 0;
  }
  const std::vector<std::string> known = {"EXPLICIT", "SAME", "VALID"};
  if (std::find(known.begin(), known.end(), attrs.padding_algorithm) == known.end()) {
    fail("an attribute does not fit the op", where, "padding_algorithm EXPLICIT, SAME or VALID",
         attrs.padding_algorithm, "use one of the three");
  }
  return window;
}

// SAME: as much padding as keeps ceil(in / stride) outputs; dilation is not used then.
void pad_same(WindowAxis& axis) {
  axis.dilation = 1;
  if (axis.in < 0) return;
  const int64_t out = (axis.in + axis.stride - 1) / axis.stride;
  const int64_t total = std::max<int64_t>((out - 1) * axis.stride + axis.kernel - axis.in, 0);
  axis.pad_before = total / 2;
  axis.pad_after = total - axis.pad_before;
}

}  // namespace

ImageAxes image_axes(std::string_view data_format, std::string_view where) {
  if (data_format == "NCHW" || data_format == "AnyLayout") return {};
  if (data_format == "NHWC") return {.channels = 3, .height = 1, .width = 2};
  fail("an unknown layout of images", where, "data_format NCHW or NHWC", std::string(data_format),
       "use one of the two");
}

Window make_window(const WindowAttrs& attrs, std::array<int64_t, 2> image, std::string_view where) {
  Window window = written_window(attrs, image, where);
  for (WindowAxis& axis : window) {
    if (attrs.padding_algorithm == "SAME") pad_same(axis);
    if (axis.in < 0) continue;
    int64_t room = axis.in + axis.pad_before + axis.pad_after - axis.extent();
    if (room < 0 && room > -axis.stride) {
      axis.pad_after -= room;
      room = 0;
    }
    if (room < 0) {
      fail("a window does not fit the image", where,
           str_cat("an image of at least ", axis.extent(), " with its padding"),
           str_cat(axis.in, " and padding ", axis.pad_before + axis.pad_after),
           "use a smaller window, or more padding");
    }
    axis.out = (room + (attrs.ceil_mode ? axis.stride - 1 : 0)) / axis.stride + 1;
  }
  return window;
}

Window make_transposed_window(const WindowAttrs& attrs, std::array<int64_t, 2> image,
                              const std::vector<int32_t>& output_size, std::string_view where) {
  Window window = written_window(attrs, image, where);
  if (!output_size.empty()) check_pair(where, "output_size", output_size, 1);
  for (size_t d = 0; d < 2; ++d) {
    WindowAxis& axis = window[d];
    if (attrs.padding_algorithm == "SAME") pad_same(axis);
    axis.out = axis.in;
    axis.in = -1;
    if (axis.out < 0) continue;
    axis.in = (axis.out - 1) * axis.stride - axis.pad_before - axis.pad_after + axis.extent();
    if (output_size.empty()) continue;
    if (output_size[d] < axis.in || output_size[d] >= axis.in + axis.stride) {
      fail("an attribute does not fit the op", where,
           str_cat("output_size in [", axis.in, ", ", axis.in + axis.stride, ")"),
           str_cat(output_size[d]), "leave output_size out, or keep it in the range");
    }
    axis.in = output_size[d];
  }
  return window;
}

}  // namespace fleet::fluid
