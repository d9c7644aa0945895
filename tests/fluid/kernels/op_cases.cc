#include "tests/fluid/kernels/op_cases.h"

#include "base/strings.h"

namespace fleet::fluid {
namespace {

Input floats(std::string slot, Shape shape, double low = -1, double high = 1) {
  return {std::move(slot), shape, DType::kFloat64, low, high, true};
}
Input labels(Shape shape, int classes) {
  return {"Label", shape, DType::kInt64, 0, static_cast<double>(classes), false};
}

void add_elementwise(std::vector<OpCase>& all) {
  for (const char* type : {"relu", "sigmoid", "tanh", "exp", "square", "abs", "sin", "cos", "floor",
                           "ceil", "round", "sign"}) {
    all.push_back({.type = type, .inputs = {floats("X", {3, 37}, -2, 2)}});
  }
  for (const char* type : {"sqrt", "log", "reciprocal"}) {
    all.push_back({.type = type, .inputs = {floats("X", {5, 19}, 0.5, 3)}});
  }
  for (const char* op : {"add", "sub", "mul", "div", "max", "min", "pow"}) {
    const std::string type = str_cat("elementwise_", op);
    const double low = op == std::string("div") || op == std::string("pow") ? 0.5 : -1;
    const auto add = [&](Shape x, Shape y, int64_t axis) {
      all.push_back({.type = type,
                     .inputs = {floats("X", x, low, 2), floats("Y", y, low, 2)},
                     .attrs = {{"axis", axis}}});
    };
    add({4, 9}, {4, 9}, -1);
    add({4, 9}, {9}, -1);
    add({2, 3, 4, 5}, {3, 4}, 1);
    add({2, 3, 4}, {1}, -1);
    add({2, 3, 4}, {2}, 0);
    add({3, 1, 4}, {3, 5, 1}, -1);
  }
}

void add_products_and_losses(std::vector<OpCase>& all) {
  all.push_back({.type = "mul", .inputs = {floats("X", {5, 7}), floats("Y", {7, 3})}});
  all.push_back({.type = "mul", .inputs = {floats("X", {30, 2}), floats("Y", {2, 20})}});
  all.push_back({.type = "mul",
                 .inputs = {floats("X", {2, 3, 4}), floats("Y", {2, 2, 5})},
                 .attrs = {{"x_num_col_dims", int64_t{2}}, {"y_num_col_dims", int64_t{2}}}});
  all.push_back({.type = "softmax", .inputs = {floats("X", {4, 6}, -3, 3)}});
  all.push_back({.type = "softmax",
                 .inputs = {floats("X", {2, 5, 3}, -3, 3)},
                 .attrs = {{"axis", int64_t{1}}}});
  all.push_back({.type = "softmax",
                 .inputs = {floats("X", {2, 18, 70}, -3, 3)},
                 .attrs = {{"axis", int64_t{1}}}});
  all.push_back({.type = "softmax", .inputs = {floats("X", {1, 2100}, -3, 3)}});
  all.push_back({.type = "cross_entropy",
                 .inputs = {floats("X", {6, 4}, 0.1, 1), labels({6, 1}, 4)},
                 .outputs = {"Y"},
                 .output = "Y"});
  all.push_back(
      {.type = "cross_entropy",
       .inputs = {floats("X", {6, 4}, 0.1, 1), {"Label", {6, 4}, DType::kFloat64, 0, 1, false}},
       .attrs = {{"soft_label", true}},
       .outputs = {"Y"},
       .output = "Y"});
  all.push_back({.type = "cross_entropy2",
                 .inputs = {floats("X", {6, 4}, 0.1, 1), labels({6, 1}, 4)},
                 .attrs = {{"ignore_index", int64_t{2}}},
                 .outputs = {"Y", "MatchX", "XShape"},
                 .output = "Y"});
  all.push_back({.type = "softmax_with_cross_entropy",
                 .inputs = {floats("Logits", {5, 4}, -3, 3), labels({5, 1}, 4)},
                 .attrs = {{"ignore_index", int64_t{1}}},
                 .outputs = {"Softmax", "Loss"},
                 .output = "Loss"});
  all.push_back({.type = "softmax_with_cross_entropy",
                 .inputs = {floats("Logits", {2, 4, 3}, -3, 3), labels({2, 1, 3}, 4)},
                 .attrs = {{"axis", int64_t{1}}},
                 .outputs = {"Softmax", "Loss"},
                 .output = "Loss"});
  // Labels of a row add up to 1.
  for (const Shape& shape : {Shape{5, 4}, Shape{2, 4, 70}}) {
    all.push_back({.type = "softmax_with_cross_entropy",
                   .inputs = {floats("Logits", shape, -3, 3),
                              {"Label", shape, DType::kFloat64, 0.25, 0.25, false}},
                   .attrs = {{"soft_label", true}, {"axis", int64_t{1}}},
                   .outputs = {"Softmax", "Loss"},
                   .output = "Loss"});
  }
}

void add_reductions_and_moves(std::vector<OpCase>& all) {
  all.push_back({.type = "mean", .inputs = {floats("X", {5, 11})}});
  all.push_back(
      {.type = "sum", .inputs = {floats("X", {3, 5}), floats("X", {3, 5}), floats("X", {3, 5})}});
  // Truths are added up, or averaged, as numbers only.
  for (const char* type : {"reduce_sum", "reduce_mean"}) {
    const auto add = [&](Shape shape, AttributeMap attrs) {
      all.push_back({.type = type,
                     .inputs = {floats("X", shape)},
                     .attrs = std::move(attrs),
                     .takes_truths = false});
    };
    for (const std::vector<int64_t>& dims : {std::vector<int64_t>{0}, {1}, {-1}, {0, 2}}) {
      add({3, 4, 5}, {{"dim", dims}});
    }
    add({3, 20}, {{"reduce_all", true}});
    add({3, 4}, {{"dim", std::vector<int64_t>{1}}, {"keep_dim", true}});
    all.push_back(
        {.type = type,
         .inputs = {{"X", {3, 4}, DType::kBool, 0, 1, false}},
         .attrs = {{"dim", std::vector<int64_t>{1}}, {"out_dtype", std::string("float64")}},
         .takes_empty = false});
  }
  all.push_back({.type = "scale",
                 .inputs = {floats("X", {3, 5})},
                 .attrs = {{"scale", -2.5}, {"bias", 0.5}, {"bias_after_scale", false}},
                 .floats_only = true});
  all.push_back({.type = "scale",
                 .inputs = {floats("X", {3, 5})},
                 .attrs = {{"scale", -2.0}, {"bias", 3.0}}});
  all.push_back(
      {.type = "clip", .inputs = {floats("X", {3, 15})}, .attrs = {{"min", -0.4}, {"max", 0.6}}});
  all.push_back({.type = "clip",
                 .inputs = {floats("X", {3, 15}),
                            {"Min", {1}, DType::kFloat64, -0.5, -0.4, false},
                            {"Max", {1}, DType::kFloat64, 0.5, 0.6, false}},
                 .takes_empty = false});
  all.push_back({.type = "clip_by_norm",
                 .inputs = {{"X", {3, 15}, DType::kFloat64, -1, 1, false}},
                 .attrs = {{"max_norm", 1.5}}});
  all.push_back({.type = "concat",
                 .inputs = {floats("X", {2, 3, 2}), floats("X", {2, 1, 2}), floats("X", {2, 2, 2})},
                 .attrs = {{"axis", int64_t{1}}}});
  all.push_back({.type = "split",
                 .inputs = {floats("X", {4, 6})},
                 .attrs = {{"axis", int64_t{-1}}, {"sections", std::vector<int64_t>{1, -1, 2}}},
                 .output_copies = 3,
                 .takes_empty = false});
  all.push_back({.type = "reshape2",
                 .inputs = {floats("X", {4, 6})},
                 .attrs = {{"shape", std::vector<int64_t>{2, -1, 3}}},
                 .outputs = {"Out", "XShape"},
                 .takes_empty = false});
  all.push_back({.type = "transpose2",
                 .inputs = {floats("X", {2, 3, 4})},
                 .attrs = {{"axis", std::vector<int64_t>{2, 0, 1}}},
                 .outputs = {"Out", "XShape"}});
  all.push_back({.type = "assign", .inputs = {floats("X", {7})}});
  all.push_back({.type = "top_k",
                 .inputs = {floats("X", {5, 9})},
                 .attrs = {{"k", int64_t{3}}},
                 .outputs = {"Out", "Indices"}});
}

Input fixed(std::string slot, Shape shape, double low = 0, double high = 1) {
  return {std::move(slot), shape, DType::kFloat64, low, high, false};
}
Input indices(std::string slot, Shape shape, int below, DType dtype = DType::kInt64) {
  return {std::move(slot), shape, dtype, 0, static_cast<double>(below), false};
}
Input truths(std::string slot, Shape shape) {
  return {std::move(slot), shape, DType::kBool, 0, 1, false};
}
Attribute whole(int64_t value) {
  return value;
}
Attribute wholes(std::vector<int64_t> values) {
  return values;
}

void add_activations(std::vector<OpCase>& all) {
  for (const char* type :
       {"relu6",        "leaky_relu",  "elu",        "gelu",        "swish",
        "hard_sigmoid", "hard_swish",  "stanh",      "softplus",    "softsign",
        "logsigmoid",   "tanh_shrink", "softshrink", "hard_shrink", "thresholded_relu",
        "soft_relu",    "brelu",       "erf",        "atan",        "sinh",
        "cosh"}) {
    all.push_back({.type = type, .inputs = {floats("X", {3, 107}, -4, 4)}});
  }
  for (const char* type : {"rsqrt", "log1p"}) {
    all.push_back({.type = type, .inputs = {floats("X", {5, 61}, 0.3, 3)}});
  }
  for (const char* type : {"asin", "acos"}) {
    all.push_back({.type = type, .inputs = {floats("X", {5, 19}, -0.9, 0.9)}});
  }
  const auto add = [&all](const char* type, AttributeMap attrs, double low = -4) {
    all.push_back({.type = type, .inputs = {floats("X", {4, 23}, low, 4)}, .attrs = attrs});
  };
  add("relu6", {{"threshold", 2.5}});
  add("elu", {{"alpha", 0.5}});
  add("gelu", {{"approximate", true}});
  add("swish", {{"beta", 2.0}});
  add("hard_sigmoid", {{"slope", 0.3}, {"offset", 0.4}});
  add("hard_swish", {{"threshold", 5.0}, {"scale", 4.0}, {"offset", 2.0}});
  add("soft_relu", {{"threshold", 2.0}});
  add("brelu", {{"t_min", -1.0}, {"t_max", 2.0}});
  for (const double factor : {0.0, 1.0, 2.0, 3.0, -1.0, 0.5, -1.5}) {
    add("pow", {{"factor", factor}}, 0.5);
  }
  all.push_back(
      {.type = "pow", .inputs = {floats("X", {3, 5}, 0.5, 2), fixed("FactorTensor", {1})}});
  all.push_back({.type = "prelu", .inputs = {floats("X", {3, 4, 5}), floats("Alpha", {1})}});
  all.push_back({.type = "prelu",
                 .inputs = {floats("X", {3, 4, 5}), floats("Alpha", {4})},
                 .attrs = {{"mode", std::string("channel")}}});
  all.push_back({.type = "prelu",
                 .inputs = {floats("X", {3, 4, 5}), floats("Alpha", {1, 4, 5})},
                 .attrs = {{"mode", std::string("element")}},
                 .takes_empty = false});
}

void add_comparisons(std::vector<OpCase>& all) {
  for (const char* type :
       {"less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal"}) {
    all.push_back({.type = type, .inputs = {floats("X", {3, 4}), floats("Y", {4})}});
  }
  for (const char* type : {"logical_and", "logical_or", "logical_xor"}) {
    all.push_back({.type = type, .inputs = {truths("X", {3, 4}), truths("Y", {3, 4})}});
  }
  all.push_back({.type = "logical_not", .inputs = {truths("X", {3, 4})}});
  all.push_back(
      {.type = "where",
       .inputs = {truths("Condition", {3, 4}), floats("X", {3, 4}), floats("Y", {3, 4})}});
  all.push_back({.type = "max_pool2d_with_index",
                 .inputs = {floats("X", {2, 3, 5, 4})},
                 .attrs = {{"ksize", wholes({3, 2})}, {"strides", wholes({2, 1})}},
                 .outputs = {"Out", "Mask"}});
  for (const char* type : {"isfinite", "isinf", "isnan"}) {
    all.push_back({.type = type, .inputs = {floats("X", {3, 4})}});
  }
  for (const char* type : {"reduce_all", "reduce_any"}) {
    all.push_back({.type = type,
                   .inputs = {truths("X", {3, 4, 2})},
                   .attrs = {{"dim", wholes({1})}},
                   .takes_empty = false});
  }
  for (const char* type : {"elementwise_mod", "elementwise_floordiv"}) {
    all.push_back({.type = type, .inputs = {floats("X", {4, 9}, -5, 5), floats("Y", {9}, 1, 3)}});
  }
}

void add_matrix_products(std::vector<OpCase>& all) {
  const auto add = [&all](Shape x, Shape y, bool x_turned = false, bool y_turned = false,
                          double alpha = 1.0) {
    all.push_back(
        {.type = "matmul",
         .inputs = {floats("X", x), floats("Y", y)},
         .attrs = {{"transpose_X", x_turned}, {"transpose_Y", y_turned}, {"alpha", alpha}},
         .takes_empty = x.rank() == 3});
  };
  for (const bool x_turned : {false, true}) {
    for (const bool y_turned : {false, true}) {
      const Shape x = x_turned ? Shape{4, 3} : Shape{3, 4};
      const Shape y = y_turned ? Shape{5, 4} : Shape{4, 5};
      const Shape xs = x_turned ? Shape{2, 4, 3} : Shape{2, 3, 4};
      const Shape ys = y_turned ? Shape{2, 5, 4} : Shape{2, 4, 5};
      add(x, y, x_turned, y_turned, -0.5);
      add(xs, ys, x_turned, y_turned, 0.5);
      add(xs, y, x_turned, y_turned);
      add(x, ys, x_turned, y_turned);
    }
  }
  all.push_back(
      {.type = "matmul", .inputs = {floats("X", {7}), floats("Y", {7})}, .takes_empty = false});
  add({2, 70}, {3, 2}, true, true);
  all.push_back({.type = "matmul",
                 .inputs = {floats("X", {4}), floats("Y", {2, 4, 3})},
                 .takes_empty = false});
  all.push_back({.type = "matmul",
                 .inputs = {floats("X", {2, 3, 4}), floats("Y", {4})},
                 .takes_empty = false});
  all.push_back({.type = "matmul",
                 .inputs = {floats("X", {3}), floats("Y", {5})},
                 .attrs = {{"transpose_X", true}, {"transpose_Y", true}},
                 .takes_empty = false});
  all.push_back(
      {.type = "matmul", .inputs = {floats("X", {2, 3, 4, 5}), floats("Y", {2, 3, 5, 2})}});
}

void add_other_reductions(std::vector<OpCase>& all) {
  for (const char* type : {"reduce_max", "reduce_min", "reduce_prod"}) {
    for (const std::vector<int64_t>& dims : {std::vector<int64_t>{0}, {1}, {-1}, {0, 2}, {1, 2}}) {
      all.push_back({.type = type, .inputs = {floats("X", {3, 4, 5})}, .attrs = {{"dim", dims}}});
    }
    all.push_back(
        {.type = type, .inputs = {floats("X", {3, 20})}, .attrs = {{"reduce_all", true}}});
    all.push_back({.type = type,
                   .inputs = {floats("X", {3, 4})},
                   .attrs = {{"dim", wholes({1})}, {"keep_dim", true}}});
  }
}

void add_places(std::vector<OpCase>& all) {
  all.push_back(
      {.type = "slice",
       .inputs = {floats("Input", {5, 6, 3})},
       .attrs = {
           {"axes", wholes({0, 1})}, {"starts", wholes({-3, 2})}, {"ends", wholes({100, -1})}}});
  all.push_back({.type = "slice",
                 .inputs = {floats("Input", {3, 4, 5})},
                 .attrs = {{"axes", wholes({1})},
                           {"starts", wholes({2})},
                           {"ends", wholes({3})},
                           {"decrease_axis", wholes({1})}}});
  for (const bool overwrite : {false, true}) {
    const Shape index = overwrite ? Shape{1} : Shape{7};
    all.push_back({.type = "gather",
                   .inputs = {floats("X", {5, 3}), indices("Index", index, 5, DType::kInt32)},
                   .attrs = {{"overwrite", overwrite}},
                   .takes_empty = false});
    all.push_back({.type = "scatter",
                   .inputs = {floats("X", {5, 3}), indices("Ids", index, 5),
                              floats("Updates", {index[0], 3})},
                   .attrs = {{"overwrite", overwrite}},
                   .takes_empty = false});
  }
  all.push_back({.type = "expand",
                 .inputs = {floats("X", {2, 3, 4})},
                 .attrs = {{"expand_times", wholes({2, 1, 3})}}});
  all.push_back({.type = "expand",
                 .inputs = {floats("X", {1, 40})},
                 .attrs = {{"expand_times", wholes({3, 1})}}});
  all.push_back({.type = "pad",
                 .inputs = {floats("X", {3, 4})},
                 .attrs = {{"paddings", wholes({1, 0, 2, 3})}, {"pad_value", 0.5}}});
  all.push_back({.type = "reverse",
                 .inputs = {floats("X", {3, 4, 2})},
                 .attrs = {{"axis", wholes({0, -1})}}});
  all.push_back({.type = "shape", .inputs = {floats("Input", {3, 4})}});
  for (const bool exclusive : {false, true}) {
    for (const bool reverse : {false, true}) {
      all.push_back({.type = "cumsum",
                     .inputs = {floats("X", {3, 4, 2})},
                     .attrs = {{"axis", whole(exclusive ? 1 : -1)},
                               {"exclusive", exclusive},
                               {"reverse", reverse}}});
    }
  }
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    all.push_back({.type = "one_hot",
                   .inputs = {indices("X", {5, 1}, 4, dtype)},
                   .attrs = {{"depth", whole(4)}}});
    all.push_back({.type = "one_hot_v2",
                   .inputs = {indices("X", {5, 2}, 4, dtype)},
                   .attrs = {{"depth", whole(4)}}});
  }
  for (const DType dtype : {DType::kInt32, DType::kInt64}) {
    all.push_back({.type = "hash",
                   .inputs = {indices("X", {5, 3}, 1000, dtype)},
                   .attrs = {{"num_hash", whole(2)}, {"mod_by", whole(97)}}});
  }
  for (const char* type : {"arg_max", "arg_min"}) {
    all.push_back(
        {.type = type, .inputs = {floats("X", {3, 4, 5})}, .attrs = {{"axis", whole(1)}}});
  }
  for (const bool descending : {false, true}) {
    all.push_back({.type = "argsort",
                   .inputs = {floats("X", {3, 6, 2})},
                   .attrs = {{"axis", whole(1)}, {"descending", descending}},
                   .outputs = {"Out", "Indices"}});
  }
}

void add_relabellings(std::vector<OpCase>& all) {
  all.push_back({.type = "squeeze2",
                 .inputs = {floats("X", {3, 1, 4, 1})},
                 .attrs = {{"axes", wholes({1, -1})}},
                 .outputs = {"Out", "XShape"}});
  all.push_back(
      {.type = "squeeze2", .inputs = {floats("X", {3, 1, 4, 1})}, .outputs = {"Out", "XShape"}});
  all.push_back({.type = "unsqueeze2",
                 .inputs = {floats("X", {3, 4})},
                 .attrs = {{"axes", wholes({1, -1})}},
                 .outputs = {"Out", "XShape"}});
  all.push_back({.type = "flatten2",
                 .inputs = {floats("X", {3, 2, 4})},
                 .attrs = {{"axis", whole(2)}},
                 .outputs = {"Out", "XShape"}});
  for (const int64_t axis : {0, 1, -1}) {
    all.push_back({.type = "stack",
                   .inputs = {floats("X", {3, 4}), floats("X", {3, 4})},
                   .attrs = {{"axis", axis}},
                   .outputs = {"Y"},
                   .output = "Y"});
  }
  all.push_back({.type = "unstack",
                 .inputs = {floats("X", {3, 2, 4})},
                 .attrs = {{"axis", whole(1)}, {"num", whole(2)}},
                 .outputs = {"Y"},
                 .output = "Y",
                 .output_copies = 2});
  all.push_back({.type = "transpose2",
                 .inputs = {floats("X", {2, 3, 4, 2})},
                 .attrs = {{"axis", wholes({0, 2, 1, 3})}},
                 .outputs = {"Out", "XShape"}});
}

// Shapes, axes and sections as tensors give them: all numbers of a tensor are the same one.
void add_numbers_of_tensors(std::vector<OpCase>& all) {
  const auto numbers = [](const char* slot, int64_t count, int value, DType dtype) {
    const double number = value;
    return Input{slot, {count}, dtype, number, number, false};
  };
  const auto add = [&all](const char* type, std::vector<Input> inputs, AttributeMap attrs = {},
                          std::vector<std::string> outputs = {"Out"}, size_t copies = 1) {
    all.push_back({.type = type,
                   .inputs = std::move(inputs),
                   .attrs = std::move(attrs),
                   .outputs = std::move(outputs),
                   .output_copies = copies,
                   .takes_empty = false});
  };
  const Input x = floats("X", {4, 6});
  const DType narrow = DType::kInt32;
  const DType wide = DType::kInt64;
  const std::vector<std::string> with_shape = {"Out", "XShape"};
  add("reshape2", {x, numbers("Shape", 2, 0, narrow)}, {}, with_shape);
  add("reshape2", {x, numbers("ShapeTensor", 1, 3, narrow), numbers("ShapeTensor", 1, 8, wide)},
      {{"shape", wholes({3, -1})}}, with_shape);
  add("unsqueeze2", {x, numbers("AxesTensor", 1, 1, wide)}, {}, with_shape);
  add("unsqueeze2",
      {x, numbers("AxesTensorList", 1, -1, wide), numbers("AxesTensorList", 1, 0, narrow)}, {},
      with_shape);
  add("expand", {x, numbers("ExpandTimes", 2, 2, narrow)});
  add("expand",
      {x, numbers("expand_times_tensor", 1, 3, wide), numbers("expand_times_tensor", 1, 1, wide)},
      {{"expand_times", wholes({-1, 1})}});
  add("concat", {x, x, numbers("AxisTensor", 1, 1, narrow)});
  add("split", {x, numbers("AxisTensor", 1, -1, narrow)}, {{"num", whole(2)}}, {"Out"}, 2);
  add("split",
      {x, numbers("SectionsTensorList", 1, 1, narrow), numbers("SectionsTensorList", 1, 5, wide)},
      {{"axis", whole(1)}, {"sections", wholes({-1, -1})}}, {"Out"}, 2);
  add("top_k", {x, numbers("K", 1, 3, narrow)}, {}, {"Out", "Indices"});
  Input sliced = x;
  sliced.slot = "Input";
  add("slice", {sliced, numbers("StartsTensor", 2, 1, narrow), numbers("EndsTensor", 2, -1, wide)},
      {{"axes", wholes({0, 1})}});
  add("slice",
      {sliced, numbers("StartsTensorList", 1, 2, wide), numbers("EndsTensorList", 1, 5, narrow)},
      {{"axes", wholes({1})}});
  add("one_hot", {indices("X", {5, 1}, 4), numbers("depth_tensor", 1, 4, narrow)});
  for (const char* slot : {"ShapeTensor", "ShapeTensorList"}) {
    all.push_back({.type = "fill_constant",
                   .inputs = {numbers(slot, 1, 7, narrow)},
                   .attrs = {{"value", 2.0}},
                   .takes_empty = false,
                   .typed_attribute = "dtype"});
  }
}

// Ops that only fill, copy or convert.
void add_copies(std::vector<OpCase>& all) {
  all.push_back({.type = "fill_constant",
                 .inputs = {},
                 .attrs = {{"shape", wholes({3, 4})}, {"value", 1.0}},
                 .typed_attribute = "dtype"});
  all.push_back({.type = "fill_constant_batch_size_like",
                 .inputs = {floats("Input", {5, 2})},
                 .attrs = {{"shape", wholes({-1, 4})}, {"value", 1.0}},
                 .typed_attribute = "dtype"});
  all.push_back({.type = "fill_zeros_like", .inputs = {floats("X", {3, 4})}});
  all.push_back({.type = "increment",
                 .inputs = {floats("X", {1})},
                 .attrs = {{"step", 2.0}},
                 .takes_empty = false});
  all.push_back({.type = "cast",
                 .inputs = {floats("X", {3, 4})},
                 .attrs = {{"out_dtype", std::string("float64")}},
                 .typed_attribute = "in_dtype"});
  all.push_back({.type = "split_byref",
                 .inputs = {floats("X", {4, 3})},
                 .attrs = {{"sections", wholes({1, 3})}},
                 .output_copies = 2,
                 .takes_empty = false});
}

// Without XShape.
void add_old_forms(std::vector<OpCase>& all) {
  all.push_back({.type = "reshape",
                 .inputs = {floats("X", {4, 6})},
                 .attrs = {{"shape", wholes({2, -1, 3})}},
                 .takes_empty = false});
  all.push_back({.type = "transpose",
                 .inputs = {floats("X", {2, 3, 4})},
                 .attrs = {{"axis", wholes({2, 0, 1})}}});
  all.push_back({.type = "squeeze",
                 .inputs = {floats("X", {3, 1, 4, 1})},
                 .attrs = {{"axes", wholes({1, -1})}}});
  all.push_back(
      {.type = "unsqueeze", .inputs = {floats("X", {3, 4})}, .attrs = {{"axes", wholes({1, -1})}}});
  all.push_back(
      {.type = "flatten", .inputs = {floats("X", {3, 2, 4})}, .attrs = {{"axis", whole(2)}}});
}

void add_pairs(std::vector<OpCase>& all) {
  const auto add = [&all](const char* type, std::vector<Input> inputs, AttributeMap attrs = {},
                          std::vector<std::string> outputs = {"Out"}) {
    const std::string output = outputs.front();
    all.push_back({.type = type,
                   .inputs = std::move(inputs),
                   .attrs = std::move(attrs),
                   .outputs = std::move(outputs),
                   .output = output});
  };
  const Shape shape{5, 3};
  add("sigmoid_cross_entropy_with_logits", {floats("X", shape, -3, 3), fixed("Label", shape)});
  add("sigmoid_cross_entropy_with_logits", {floats("X", shape, -3, 3), fixed("Label", shape)},
      {{"normalize", true}});
  add("log_loss", {floats("Predicted", shape, 0.1, 0.9), fixed("Labels", shape)}, {}, {"Loss"});
  add("hinge_loss", {floats("Logits", shape, -3, 3), fixed("Labels", shape)}, {}, {"Loss"});
  add("huber_loss", {floats("X", shape, -2, 2), floats("Y", shape, -2, 2)}, {{"delta", 0.7}},
      {"Out", "Residual"});
  add("smooth_l1_loss", {floats("X", shape, -2, 2), floats("Y", shape, -2, 2)}, {{"sigma", 1.5}},
      {"Out", "Diff"});
  add("smooth_l1_loss",
      {floats("X", shape, -2, 2), floats("Y", shape, -2, 2), fixed("InsideWeight", shape, 0.5, 1.5),
       fixed("OutsideWeight", shape, 0.5, 1.5)},
      {}, {"Out", "Diff"});
  add("bpr_loss", {floats("X", {5, 4}, -2, 2), labels({5, 1}, 4)}, {}, {"Y"});
  add("rank_loss", {fixed("Label", shape), floats("Left", shape, -2, 2), floats("Right", shape)});
  add("margin_rank_loss",
      {fixed("Label", shape, 0.5, 1), floats("X1", shape, -2, 2), floats("X2", shape)},
      {{"margin", 0.2}}, {"Out", "Activated"});
  for (const char* reduction : {"none", "sum", "mean", "batchmean"}) {
    all.push_back({.type = "kldiv_loss",
                   .inputs = {floats("X", shape, -3, 0), fixed("Target", shape, 0.1, 0.9)},
                   .attrs = {{"reduction", std::string(reduction)}},
                   .outputs = {"Loss"},
                   .output = "Loss",
                   .takes_empty = false});
  }
  add("label_smooth", {floats("X", shape)}, {{"epsilon", 0.2}});
  all.push_back({.type = "label_smooth",
                 .inputs = {floats("X", shape), fixed("PriorDist", {1, 3})},
                 .attrs = {{"epsilon", 0.2}},
                 .takes_empty = false});
  add("norm", {floats("X", {3, 4, 2})}, {{"axis", whole(1)}, {"epsilon", 1e-3}}, {"Out", "Norm"});
  add("cos_sim", {floats("X", shape), floats("Y", shape)}, {}, {"Out", "XNorm", "YNorm"});
  all.push_back({.type = "cos_sim",
                 .inputs = {floats("X", shape), floats("Y", {1, 3})},
                 .outputs = {"Out", "XNorm", "YNorm"},
                 .takes_empty = false});
}

}  // namespace

std::vector<OpCase> op_cases() {
  std::vector<OpCase> all;
  add_elementwise(all);
  add_products_and_losses(all);
  add_reductions_and_moves(all);
  add_activations(all);
  add_comparisons(all);
  add_matrix_products(all);
  add_other_reductions(all);
  add_places(all);
  add_relabellings(all);
  add_copies(all);
  add_numbers_of_tensors(all);
  add_old_forms(all);
  add_pairs(all);
  return all;
}

}  // namespace fleet::fluid
