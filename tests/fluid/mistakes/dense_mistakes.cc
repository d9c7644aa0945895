// Mistakes in programs of dense ops, refused while the program is built.
#include "tests/fluid/mistakes/mistakes.h"

namespace fleet::fluid::mistakes {
namespace {

void add_elementwise_mistakes(std::vector<Mistake>& all) {
  using Layer = Variable (*)(const Variable&, const Variable&, const layers::ElementwiseOptions&);
  const std::vector<std::pair<std::string, Layer>> arithmetic = {
      {"elementwise_add", layers::elementwise_add},
      {"elementwise_sub", layers::elementwise_sub},
      {"elementwise_mul", layers::elementwise_mul},
      {"elementwise_div", layers::elementwise_div},
      {"elementwise_max", layers::elementwise_max},
      {"elementwise_min", layers::elementwise_min},
      {"elementwise_pow", layers::elementwise_pow},
      {"elementwise_mod", layers::elementwise_mod},
      {"elementwise_floordiv", layers::elementwise_floordiv}};
  for (const auto& [op, layer] : arithmetic) {
    all.push_back({op + "_of_other_shapes",
                   [layer = layer](const Inputs& in) { layer(in.x, in.y, {}); },
                   kShape,
                   {op, "'x'", "'y'", "[-1, 4]", "[-1, 3]"}});
    all.push_back({op + "_of_other_types",
                   [layer = layer](const Inputs& in) { layer(in.x, in.whole, {}); },
                   kType,
                   {op, "'whole'", "float32", "int64", "cast"}});
    all.push_back({op + "_beyond_the_axis",
                   [layer = layer](const Inputs& in) { layer(in.z, in.flat, {.axis = 3}); },
                   kShape,
                   {op, "'z'", "'flat'", "axis 3"}});
  }
}

void add_comparison_mistakes(std::vector<Mistake>& all) {
  using Compare = Variable (*)(const Variable&, const Variable&, const Variable&);
  const std::vector<std::pair<std::string, Compare>> comparisons = {
      {"less_than", layers::less_than},
      {"less_equal", layers::less_equal},
      {"greater_than", layers::greater_than},
      {"greater_equal", layers::greater_equal},
      {"equal", layers::equal},
      {"not_equal", layers::not_equal}};
  for (const auto& [op, layer] : comparisons) {
    all.push_back({op + "_of_other_shapes",
                   [layer = layer](const Inputs& in) { layer(in.x, in.y, {}); },
                   kShape,
                   {op, "'x'", "'y'"}});
    all.push_back({op + "_of_other_types",
                   [layer = layer](const Inputs& in) { layer(in.x, in.whole, {}); },
                   kType,
                   {op, "'whole'", "float32", "int64"}});
  }
  using Logic = Variable (*)(const Variable&, const Variable&, const Variable&, const std::string&);
  const std::vector<std::pair<std::string, Logic>> logic = {{"logical_and", layers::logical_and},
                                                            {"logical_or", layers::logical_or},
                                                            {"logical_xor", layers::logical_xor}};
  for (const auto& [op, layer] : logic) {
    all.push_back({op + "_of_numbers",
                   [layer = layer](const Inputs& in) { layer(in.x, in.x, {}, {}); },
                   kType,
                   {op, "'x'", "bool", "float32"}});
  }
  all.push_back({"logical_not_of_numbers",
                 [](const Inputs& in) { layers::logical_not(in.x); },
                 kType,
                 {"logical_not", "'x'", "bool", "float32"}});
}

void add_activation_mistakes(std::vector<Mistake>& all) {
  all.push_back({"prelu_of_an_unknown_mode",
                 [](const Inputs& in) { layers::prelu(in.x, "row"); },
                 kArgument,
                 {"prelu", "row", "all, channel or element"}});
  all.push_back({"prelu_of_channels_of_a_vector",
                 [](const Inputs& in) { layers::prelu(in.flat, "channel"); },
                 kArgument,
                 {"prelu", "'flat'", "[6]", "mode 'all'"}});
  all.push_back({"prelu_of_unknown_rows",
                 [](const Inputs&) {
                   layers::prelu(layers::data("ragged", {-1, -1}), "element");
                 },
                 kArgument,
                 {"layer 'prelu'", "must be known", "expected: positive dimensions", "got: [1, -1]",
                  "fix: declare the input's dimensions"}});
  all.push_back({"clip_between_swapped_bounds",
                 [](const Inputs& in) { layers::clip(in.x, 1.0, -1.0); },
                 kShape,
                 {"clip", "'x'", "min < max", "min 1, max -1"}});
  all.push_back(
      {"activation_that_is_not_known",
       [](const Inputs& in) { layers::elementwise_add(in.x, in.x, {.act = "softpluss"}); },
       kArgument,
       {"did you mean 'softplus'"}});
}

void add_product_mistakes(std::vector<Mistake>& all) {
  all.push_back({"matmul_of_other_sizes",
                 [](const Inputs& in) { layers::matmul(in.x, in.z); },
                 kShape,
                 {"matmul", "'x'", "'z'", "Y of 4 rows"}});
  all.push_back({"matmul_of_other_sizes_transposed",
                 [](const Inputs& in) { layers::matmul(in.x, in.y, {.transpose_y = true}); },
                 kShape,
                 {"matmul", "'x'", "'y'", "4 rows", "transposed"}});
  all.push_back({"matmul_of_other_types",
                 [](const Inputs& in) { layers::matmul(in.x, in.whole); },
                 kType,
                 {"matmul", "'whole'", "float32", "int64"}});
  all.push_back({"matmul_of_other_batches",
                 [](const Inputs& in) {
                   const Variable other = layers::data("other", {5, 4, 3}, DType::kFloat32,
                                                       {.append_batch_size = false});
                   layers::matmul(in.z, other);
                 },
                 kShape,
                 {"matmul", "'z'", "'other'", "batches differ", "[5, 4, 3]"}});
  all.push_back({"mul_without_columns",
                 [](const Inputs& in) { layers::mul(in.flat, in.flat); },
                 kShape,
                 {"mul", "'flat'", "x_num_col_dims"}});
  all.push_back({"mul_of_other_sizes",
                 [](const Inputs& in) { layers::mul(in.x, in.z); },
                 kShape,
                 {"mul", "'x'", "4 rows"}});
}

void add_reduction_mistakes(std::vector<Mistake>& all) {
  using Layer = Variable (*)(const Variable&, const layers::ReduceOptions&);
  const std::vector<std::pair<std::string, Layer>> reductions = {
      {"reduce_sum", layers::reduce_sum},   {"reduce_mean", layers::reduce_mean},
      {"reduce_max", layers::reduce_max},   {"reduce_min", layers::reduce_min},
      {"reduce_prod", layers::reduce_prod}, {"reduce_all", layers::reduce_all},
      {"reduce_any", layers::reduce_any}};
  for (const auto& [op, layer] : reductions) {
    const bool logic = op == "reduce_all" || op == "reduce_any";
    all.push_back(
        {op + "_along_an_axis_that_is_not_there",
         [layer = layer, logic](const Inputs& in) { layer(logic ? in.truth : in.x, {.dim = {2}}); },
         kShape,
         {op, "axis 2", "[-2, 2)"}});
    if (!logic) continue;
    all.push_back({op + "_of_numbers",
                   [layer = layer](const Inputs& in) { layer(in.x, {}); },
                   kType,
                   {op, "'x'", "bool", "float32"}});
  }
  all.push_back({"sums_of_other_shapes",
                 [](const Inputs& in) {
                   layers::sums({in.x, in.y});
                 },
                 kShape,
                 {"sum", "'y'", "[-1, 4]", "[-1, 3]"}});
  all.push_back({"sums_of_nothing",
                 [](const Inputs&) { layers::sums({}); },
                 kArgument,
                 {"layer 'sum'", "at least one"}});
}

void add_shape_mistakes(std::vector<Mistake>& all) {
  all.push_back({"squeeze_of_a_long_dimension",
                 [](const Inputs& in) { layers::squeeze(in.z, {1}); },
                 kShape,
                 {"squeeze2", "'z'", "dimensions of 1", "axis 1", "[2, 3, 4]"}});
  all.push_back({"squeeze_beyond_the_rank",
                 [](const Inputs& in) { layers::squeeze(in.z, {3}); },
                 kShape,
                 {"squeeze2", "'z'", "axis 3"}});
  all.push_back({"unsqueeze_beyond_the_rank",
                 [](const Inputs& in) { layers::unsqueeze(in.z, {5}); },
                 kShape,
                 {"unsqueeze2", "'z'", "axis 5"}});
  all.push_back({"flatten_beyond_the_rank",
                 [](const Inputs& in) { layers::flatten(in.z, 4); },
                 kShape,
                 {"flatten2", "'z'", "[0, 3]", "axis 4"}});
  all.push_back({"transpose_that_forgets_a_dimension",
                 [](const Inputs& in) {
                   layers::transpose(in.z, {0, 1});
                 },
                 kShape,
                 {"transpose2", "'z'", "permutation of 0..2", "[0, 1]"}});
  all.push_back({"reshape_to_other_elements",
                 [](const Inputs& in) {
                   layers::reshape(in.z, {5, 5});
                 },
                 kShape,
                 {"reshape2", "'z'", "[2, 3, 4]", "[5, 5]"}});
  all.push_back({"reshape_with_two_open_dimensions",
                 [](const Inputs& in) {
                   layers::reshape(in.z, {-1, -1});
                 },
                 kShape,
                 {"reshape2", "'z'", "two dimensions are -1"}});
  all.push_back({"stack_of_other_shapes",
                 [](const Inputs& in) {
                   layers::stack({in.x, in.y});
                 },
                 kShape,
                 {"stack", "'y'", "[-1, 4]", "[-1, 3]"}});
  all.push_back({"stack_beyond_the_rank",
                 [](const Inputs& in) {
                   layers::stack({in.x, in.x}, 3);
                 },
                 kShape,
                 {"stack", "'x'", "axis 3"}});
  all.push_back({"unstack_of_an_unknown_dimension",
                 [](const Inputs& in) { layers::unstack(in.x, 0); },
                 kArgument,
                 {"unstack", "'x'", "num"}});
  all.push_back({"unstack_beyond_the_rank",
                 [](const Inputs& in) { layers::unstack(in.x, 2); },
                 kArgument,
                 {"unstack", "axis 2", "'x'"}});
  all.push_back({"unstack_of_another_number",
                 [](const Inputs& in) { layers::unstack(in.z, 1, 2); },
                 kShape,
                 {"unstack", "'z'", "2 along axis 1", "[2, 3, 4]"}});
}

void add_resizing_mistakes(std::vector<Mistake>& all) {
  all.push_back({"concat_beyond_the_rank",
                 [](const Inputs& in) {
                   layers::concat({in.x, in.x}, 2);
                 },
                 kShape,
                 {"concat", "'x'", "axis 2"}});
  all.push_back({"concat_of_other_types",
                 [](const Inputs& in) {
                   layers::concat({in.x, in.whole}, 0);
                 },
                 kType,
                 {"concat", "'whole'", "float32", "int64"}});
  all.push_back({"split_into_unequal_parts",
                 [](const Inputs& in) { layers::split(in.z, 2, 1); },
                 kShape,
                 {"split", "'z'", "2 equal parts", "3"}});
  all.push_back({"split_into_sections_of_another_sum",
                 [](const Inputs& in) {
                   layers::split(in.z, std::vector<int>{1, 1}, 1);
                 },
                 kShape,
                 {"split", "'z'", "sum to 3", "1, 1"}});
  all.push_back({"expand_of_too_few_dimensions",
                 [](const Inputs& in) {
                   layers::expand(in.z, {2, 2});
                 },
                 kShape,
                 {"expand", "'z'", "3 numbers", "[2, 2]"}});
  all.push_back({"expand_to_nothing",
                 [](const Inputs& in) {
                   layers::expand(in.x, {1, 0});
                 },
                 kShape,
                 {"expand", "'x'", ">= 1", "0"}});
  all.push_back({"pad_of_too_few_dimensions",
                 [](const Inputs& in) {
                   layers::pad(in.z, {1, 1});
                 },
                 kShape,
                 {"pad", "'z'", "6 numbers", "[1, 1]"}});
  all.push_back({"pad_by_less_than_nothing",
                 [](const Inputs& in) {
                   layers::pad(in.x, {0, 0, -1, 0});
                 },
                 kShape,
                 {"pad", "'x'", ">= 0", "-1"}});
}

// Numbers that variables should give.
void add_number_mistakes(std::vector<Mistake>& all) {
  all.push_back({"reshape_by_a_float",
                 [](const Inputs& in) {
                   layers::reshape(in.z, {layers::reduce_sum(in.flat), -1});
                 },
                 kShape,
                 {"reshape2", "ShapeTensor", "int32 or int64", "float32", "cast"}});
  all.push_back({"reshape_by_two_numbers_for_one",
                 [](const Inputs& in) {
                   layers::reshape(in.z, {layers::fill_constant({2}, DType::kInt32, 2), -1});
                 },
                 kShape,
                 {"reshape2", "ShapeTensor", "one number", "[2]"}});
  all.push_back(
      {"expand_by_too_few_numbers",
       [](const Inputs& in) { layers::expand(in.z, layers::fill_constant({2}, DType::kInt32, 2)); },
       kShape,
       {"expand", "ExpandTimes", "3 numbers", "[2]"}});
  all.push_back(
      {"slice_from_too_many_numbers",
       [](const Inputs& in) {
         layers::slice(in.z, {0, 1}, layers::fill_constant({3}, DType::kInt64, 0), {1, 1});
       },
       kShape,
       {"slice", "StartsTensor", "2 numbers", "[3]"}});
  all.push_back({"topk_of_a_float",
                 [](const Inputs& in) { layers::topk(in.x, layers::reduce_sum(in.flat)); },
                 kShape,
                 {"top_k", "'K", "int32 or int64", "float32"}});
  all.push_back({"concat_along_a_float",
                 [](const Inputs& in) {
                   layers::concat({in.x, in.x}, layers::reduce_sum(in.flat));
                 },
                 kShape,
                 {"concat", "AxisTensor", "int32 or int64", "float32"}});
  all.push_back({"fill_constant_by_a_value_of_another_type",
                 [](const Inputs& in) {
                   layers::fill_constant({2}, DType::kInt64, layers::reduce_sum(in.flat));
                 },
                 kType,
                 {"fill_constant", "int64", "float32", "cast"}});
  all.push_back({"scale_by_a_number_of_another_type",
                 [](const Inputs& in) {
                   layers::scale(in.x, {.scale = layers::fill_constant({1}, DType::kInt32, 2)});
                 },
                 kType,
                 {"scale", "float32", "int32", "cast"}});
  all.push_back({"pow_by_many_numbers",
                 [](const Inputs& in) { layers::pow(in.x, {.factor = in.flat}); },
                 kShape,
                 {"pow", "'flat'", "one number", "[6]"}});
  all.push_back({"fill_constant_of_an_unknown_shape",
                 [](const Inputs&) {
                   layers::fill_constant({-1, 2}, DType::kFloat32, 1.0);
                 },
                 kArgument,
                 {"fill_constant", "dimensions >= 0", "[-1, 2]"}});
}

void add_index_mistakes(std::vector<Mistake>& all) {
  all.push_back({"slice_along_an_axis_that_is_not_there",
                 [](const Inputs& in) { layers::slice(in.z, {3}, {0}, {1}); },
                 kShape,
                 {"slice", "'z'", "axis 3", "[2, 3, 4]"}});
  all.push_back({"slice_of_nothing",
                 [](const Inputs& in) { layers::slice(in.z, {1}, {2}, {2}); },
                 kShape,
                 {"slice", "'z'", "start < end", "[2, 2) along axis 1"}});
  all.push_back({"slice_without_an_end",
                 [](const Inputs& in) {
                   layers::slice(in.z, {0, 1}, {0, 1}, {1});
                 },
                 kShape,
                 {"slice", "'z'", "2 of each", "1 ends"}});
  all.push_back({"gather_by_floats",
                 [](const Inputs& in) { layers::gather(in.z, in.flat); },
                 kShape,
                 {"gather", "'flat'", "int32 or int64", "float32", "cast"}});
  all.push_back({"gather_by_a_matrix",
                 [](const Inputs& in) { layers::gather(in.z, in.whole); },
                 kShape,
                 {"gather", "'whole'", "[n] or [n, 1]", "[-1, 4]"}});
  all.push_back({"scatter_of_other_rows",
                 [](const Inputs& in) { layers::scatter(in.x, in.label, in.y); },
                 kShape,
                 {"scatter", "'y'", "[-1, 4]", "[-1, 3]"}});
  all.push_back({"scatter_of_other_types",
                 [](const Inputs& in) { layers::scatter(in.x, in.label, in.whole); },
                 kType,
                 {"scatter", "'whole'", "float32", "int64"}});
}

void add_search_mistakes(std::vector<Mistake>& all) {
  all.push_back({"one_hot_of_floats",
                 [](const Inputs& in) { layers::one_hot(in.column, 3); },
                 kShape,
                 {"one_hot", "'column'", "int32 or int64", "float32"}});
  all.push_back({"one_hot_of_rows",
                 [](const Inputs& in) { layers::one_hot(in.whole, 3); },
                 kShape,
                 {"one_hot", "'whole'", "[..., 1]", "[-1, 4]", "one_hot_v2"}});
  all.push_back({"one_hot_without_classes",
                 [](const Inputs& in) { layers::one_hot(in.label, 0); },
                 kShape,
                 {"one_hot", "'label'", "depth >= 1", "0"}});
  all.push_back({"hash_of_floats",
                 [](const Inputs& in) { layers::hash(in.x, 100); },
                 kShape,
                 {"hash", "'x'", "int32 or int64"}});
  all.push_back({"hash_into_no_buckets",
                 [](const Inputs& in) { layers::hash(in.label, 0); },
                 kShape,
                 {"hash", "'label'", "mod_by >= 1", "0"}});
  all.push_back({"hash_no_times",
                 [](const Inputs& in) { layers::hash(in.label, 100, 0); },
                 kShape,
                 {"hash", "'label'", "num_hash >= 1", "0"}});
  all.push_back({"argmax_along_an_axis_that_is_not_there",
                 [](const Inputs& in) { layers::argmax(in.x, 2); },
                 kShape,
                 {"arg_max", "'x'", "axis 2"}});
  all.push_back({"argmin_along_an_axis_that_is_not_there",
                 [](const Inputs& in) { layers::argmin(in.x, -3); },
                 kShape,
                 {"arg_min", "'x'", "axis -3"}});
  all.push_back({"argsort_along_an_axis_that_is_not_there",
                 [](const Inputs& in) { layers::argsort(in.x, 2); },
                 kShape,
                 {"argsort", "'x'", "axis 2"}});
  all.push_back({"cumsum_along_an_axis_that_is_not_there",
                 [](const Inputs& in) { layers::cumsum(in.x, {.axis = 2}); },
                 kShape,
                 {"cumsum", "'x'", "axis 2"}});
  all.push_back({"reverse_along_an_axis_that_is_not_there",
                 [](const Inputs& in) { layers::reverse(in.x, {2}); },
                 kShape,
                 {"reverse", "'x'", "axis 2"}});
  all.push_back({"topk_of_more_than_there_are",
                 [](const Inputs& in) { layers::topk(in.x, 5); },
                 kShape,
                 {"top_k", "'x'", "k = 5"}});
}

void add_choice_mistakes(std::vector<Mistake>& all) {
  all.push_back({"where_of_numbers",
                 [](const Inputs& in) { layers::where(in.x); },
                 kType,
                 {"where_index", "'x'", "bool", "float32"}});
  all.push_back({"where_of_other_shapes",
                 [](const Inputs& in) { layers::where(in.truth, in.x, in.y); },
                 kShape,
                 {"where", "'y'", "[-1, 4]", "[-1, 3]"}});
  all.push_back({"where_of_other_types",
                 [](const Inputs& in) { layers::where(in.truth, in.x, in.whole); },
                 kType,
                 {"where", "'whole'", "float32", "int64"}});
  all.push_back({"range_of_other_types",
                 [](const Inputs&) {
                   const auto one = [](DType type) { return layers::fill_constant({1}, type, 1); };
                   layers::range(one(DType::kInt64), one(DType::kFloat32), one(DType::kInt64));
                 },
                 kType,
                 {"range", "int64", "float32"}});
  all.push_back({"constant_of_an_unknown_shape",
                 [](const Inputs&) {
                   layers::fill_constant({-1, 2}, DType::kFloat32, 0);
                 },
                 kArgument,
                 {"layer 'fill_constant'", "expected: dimensions >= 0", "got: [-1, 2]",
                  "fix: give every dimension"}});
  all.push_back({"constant_of_a_batch_dimension_that_is_not_there",
                 [](const Inputs& in) {
                   layers::fill_constant_batch_size_like(in.x, {-1, 2}, DType::kFloat32, 0,
                                                         {.input_dim_idx = 2});
                 },
                 kShape,
                 {"fill_constant_batch_size_like", "'x'", "input_dim_idx", "2"}});
  all.push_back({"increment_of_several_elements",
                 [](const Inputs& in) { layers::increment(in.x); },
                 kShape,
                 {"increment", "'x'", "one element"}});
}

void add_loss_mistakes(std::vector<Mistake>& all) {
  using Pair = std::function<void(const Variable&, const Variable&)>;
  const std::vector<std::pair<std::string, Pair>> pairs = {
      {"sigmoid_cross_entropy_with_logits",
       [](const Variable& a, const Variable& b) {
         layers::sigmoid_cross_entropy_with_logits(a, b);
       }},
      {"log_loss", [](const Variable& a, const Variable& b) { layers::log_loss(a, b); }},
      {"huber_loss", [](const Variable& a, const Variable& b) { layers::huber_loss(a, b, 1.0); }},
      {"hinge_loss", [](const Variable& a, const Variable& b) { layers::hinge_loss(a, b); }},
      {"smooth_l1_loss", [](const Variable& a, const Variable& b) { layers::smooth_l1(a, b); }},
      {"kldiv_loss", [](const Variable& a, const Variable& b) { layers::kldiv_loss(a, b); }}};
  for (const auto& [op, loss] : pairs) {
    all.push_back({op + "_of_other_shapes",
                   [loss = loss](const Inputs& in) { loss(in.x, in.y); },
                   kShape,
                   {op, "'x'", "'y'", "[-1, 4]", "[-1, 3]"}});
    all.push_back({op + "_of_other_types",
                   [loss = loss](const Inputs& in) { loss(in.x, in.whole); },
                   kType,
                   {op, "'whole'", "float32", "int64"}});
  }
}

void add_other_loss_mistakes(std::vector<Mistake>& all) {
  all.push_back({"kldiv_loss_of_an_unknown_reduction",
                 [](const Inputs& in) { layers::kldiv_loss(in.x, in.x, "median"); },
                 kShape,
                 {"kldiv_loss", "none, mean, sum or batchmean", "median"}});
  all.push_back({"smooth_l1_with_one_weight",
                 [](const Inputs& in) { layers::smooth_l1(in.x, in.x, {.inside_weight = in.x}); },
                 kShape,
                 {"smooth_l1_loss", "'x'", "or neither"}});
  all.push_back({"smooth_l1_of_a_vector",
                 [](const Inputs& in) { layers::smooth_l1(in.flat, in.flat); },
                 kShape,
                 {"smooth_l1_loss", "'flat'", "[6]"}});
  all.push_back({"bpr_loss_of_one_class",
                 [](const Inputs& in) { layers::bpr_loss(in.column, in.label); },
                 kShape,
                 {"bpr_loss", "'column'", "two classes"}});
  all.push_back({"bpr_loss_of_float_labels",
                 [](const Inputs& in) { layers::bpr_loss(in.x, in.column); },
                 kType,
                 {"bpr_loss", "'column'", "int64", "float32"}});
  all.push_back({"rank_loss_of_other_shapes",
                 [](const Inputs& in) { layers::rank_loss(in.x, in.x, in.y); },
                 kShape,
                 {"rank_loss", "'y'", "[-1, 4]", "[-1, 3]"}});
  all.push_back({"margin_rank_loss_of_other_shapes",
                 [](const Inputs& in) { layers::margin_rank_loss(in.x, in.x, in.y); },
                 kShape,
                 {"margin_rank_loss", "'y'", "[-1, 4]", "[-1, 3]"}});
  all.push_back({"label_smooth_by_more_than_all",
                 [](const Inputs& in) { layers::label_smooth(in.x, {.epsilon = 1.5}); },
                 kArgument,
                 {"label_smooth", "0 to 1", "1.5"}});
  all.push_back({"label_smooth_towards_other_classes",
                 [](const Inputs& in) { layers::label_smooth(in.x, {.prior_dist = in.flat}); },
                 kShape,
                 {"label_smooth", "'flat'", "4 elements", "[6]"}});
  all.push_back({"cross_entropy_of_float_labels",
                 [](const Inputs& in) { layers::cross_entropy(in.x, in.column); },
                 kType,
                 {"cross_entropy2", "'column'", "int64", "float32"}});
  all.push_back({"softmax_along_an_axis_that_is_not_there",
                 [](const Inputs& in) { layers::softmax(in.x, {.axis = 2}); },
                 kShape,
                 {"softmax", "'x'", "axis 2"}});
  all.push_back({"softmax_loss_of_other_labels",
                 [](const Inputs& in) { layers::softmax_with_cross_entropy(in.x, in.whole); },
                 kShape,
                 {"softmax_with_cross_entropy", "'whole'", "[-1, 1]", "[-1, 4]"}});
}

void add_metric_mistakes(std::vector<Mistake>& all) {
  all.push_back({"auc_of_an_unknown_curve",
                 [](const Inputs& in) { layers::auc(in.x, in.label, {.curve = "LIFT"}); },
                 kShape,
                 {"auc", "ROC or PR", "LIFT"}});
  all.push_back({"auc_without_thresholds",
                 [](const Inputs& in) { layers::auc(in.x, in.label, {.num_thresholds = 0}); },
                 kArgument,
                 {"auc", "num_thresholds >= 1", "0"}});
  all.push_back({"auc_of_whole_numbers",
                 [](const Inputs& in) { layers::auc(in.whole, in.label); },
                 kShape,
                 {"auc", "'whole'", "probabilities", "int64"}});
  all.push_back({"auc_of_float_labels",
                 [](const Inputs& in) { layers::auc(in.x, in.column); },
                 kType,
                 {"auc", "'column'", "int64", "float32"}});
  all.push_back({"accuracy_of_wide_labels",
                 [](const Inputs& in) { layers::accuracy(in.x, in.whole); },
                 kShape,
                 {"accuracy", "'whole'", "[n, 1]", "[-1, 4]"}});
  all.push_back(
      {"precision_without_classes",
       [](const Inputs& in) { layers::precision_recall(in.column, in.label, in.label, 0); },
       kShape,
       {"precision_recall", "'column'", "class_number >= 1"}});
  all.push_back(
      {"precision_of_wide_indices",
       [](const Inputs& in) { layers::precision_recall(in.column, in.label, in.label, 2); },
       kType,
       {"precision_recall", "'label'", "int32", "int64"}});
  all.push_back({"cos_sim_of_other_rows",
                 [](const Inputs& in) { layers::cos_sim(in.x, in.y); },
                 kShape,
                 {"cos_sim", "'y'", "[-1, 4]", "[-1, 3]"}});
  all.push_back({"l2_normalize_along_an_axis_that_is_not_there",
                 [](const Inputs& in) { layers::l2_normalize(in.x, 2); },
                 kShape,
                 {"norm", "'x'", "axis 2"}});
}

}  // namespace

void add_dense_mistakes(std::vector<Mistake>& all) {
  add_elementwise_mistakes(all);
  add_comparison_mistakes(all);
  add_activation_mistakes(all);
  add_product_mistakes(all);
  add_reduction_mistakes(all);
  add_shape_mistakes(all);
  add_resizing_mistakes(all);
  add_number_mistakes(all);
  add_index_mistakes(all);
  add_search_mistakes(all);
  add_choice_mistakes(all);
  add_loss_mistakes(all);
  add_other_loss_mistakes(all);
  add_metric_mistakes(all);
}

}  // namespace fleet::fluid::mistakes
