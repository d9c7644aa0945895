// Mistakes with images, tables, sequences and blocks.
#include <algorithm>

#include "base/strings.h"
#include "fluid/ops/append.h"
#include "tests/fluid/mistakes/mistakes.h"

namespace fleet::fluid::mistakes {
namespace {

// A convolution of `image` that has `more` too, as fused programs of Paddle do.
void convolve(const Inputs& in, const std::string& op, const std::string& slot) {
  Block& block = in.main.global_block();
  VarDesc filter;
  filter.name = "filter";
  filter.shape = Shape{6, 6, 3, 3};
  block.add_var(filter);
  VarDesc out;
  out.name = "convolved";
  block.add_var(out);
  append_op(block, {.type = op,
                    .inputs = {{"Input", {"image"}}, {"Filter", {"filter"}}, {slot, {"flat"}}},
                    .outputs = {{"Output", {"convolved"}}},
                    .attrs = {}});
}

void add_convolution_mistakes(std::vector<Mistake>& all) {
  for (const auto& [op, slot] : std::vector<std::pair<std::string, std::string>>{
           {"conv2d", "Bias"}, {"conv2d", "ResidualData"}, {"conv2d_transpose", "Bias"}}) {
    all.push_back({str_cat(op, "_with_", slot),
                   [op = op, slot = slot](const Inputs& in) { convolve(in, op, slot); },
                   kShape,
                   {op, slot, "'flat'", "fusing passes", "elementwise_add"}});
  }
  all.push_back({"conv2d_of_rows",
                 [](const Inputs& in) { layers::conv2d(in.x, 4, 3); },
                 kArgument,
                 {"conv2d", "'x'", "[-1, 4]"}});
  all.push_back({"conv2d_with_groups_that_do_not_divide",
                 [](const Inputs& in) { layers::conv2d(in.image, 8, 3, {.groups = 4}); },
                 kArgument,
                 {"conv2d", "groups", "6", "4"}});
  all.push_back({"conv2d_of_filters_that_groups_do_not_divide",
                 [](const Inputs& in) { layers::conv2d(in.image, 7, 3, {.groups = 3}); },
                 kArgument,
                 {"conv2d", "num_filters", "a multiple of 3", "7"}});
  all.push_back({"conv2d_of_no_filter_size",
                 [](const Inputs& in) { layers::conv2d(in.image, 8, 0); },
                 kArgument,
                 {"conv2d", "filter_size", ">= 1", "0"}});
  all.push_back({"conv2d_larger_than_its_image",
                 [](const Inputs& in) { layers::conv2d(in.image, 8, 9); },
                 kShape,
                 {"conv2d", "'image'", "at least 9", "8 and padding 0"}});
  all.push_back({"conv2d_of_an_unknown_padding",
                 [](const Inputs& in) { layers::conv2d(in.image, 8, 3, {.padding = "EQUAL"}); },
                 kShape,
                 {"conv2d", "EXPLICIT, SAME or VALID", "EQUAL"}});
  all.push_back({"conv2d_of_a_negative_padding",
                 [](const Inputs& in) { layers::conv2d(in.image, 8, 3, {.padding = -1}); },
                 kShape,
                 {"conv2d", "'image'", "paddings", "at least 0", "-1"}});
  all.push_back({"conv2d_without_a_stride",
                 [](const Inputs& in) { layers::conv2d(in.image, 8, 3, {.stride = 0}); },
                 kShape,
                 {"conv2d", "'image'", "strides", "[0, 0]"}});
  all.push_back({"conv2d_of_an_unknown_layout",
                 [](const Inputs& in) { layers::conv2d(in.image, 8, 3, {.data_format = "CHWN"}); },
                 kShape,
                 {"conv2d", "NCHW or NHWC", "CHWN"}});
  all.push_back({"conv2d_of_whole_numbers",
                 [](const Inputs&) {
                   layers::conv2d(layers::data("pixels", {3, 8, 8}, DType::kInt64), 4, 3);
                 },
                 kShape,
                 {"conv2d", "'pixels'", "floating point", "int64"}});
  all.push_back({"conv2d_transpose_of_no_size",
                 [](const Inputs& in) { layers::conv2d_transpose(in.image, 8, {}); },
                 kArgument,
                 {"conv2d_transpose", "output_size", "filter_size"}});
  all.push_back(
      {"conv2d_transpose_to_a_size_that_no_stride_gives",
       [](const Inputs& in) {
         layers::conv2d_transpose(
             in.image, 8,
             {.output_size = layers::Pair(30), .filter_size = layers::Pair(3), .stride = 2});
       },
       kShape,
       {"conv2d_transpose", "'image'", "output_size in", "30"}});
}

void add_image_mistakes(std::vector<Mistake>& all) {
  all.push_back({"pool2d_of_rows",
                 [](const Inputs& in) { layers::pool2d(in.x, {.pool_size = 2}); },
                 kShape,
                 {"pool2d", "'x'", "four dimensions", "[-1, 4]"}});
  all.push_back(
      {"pool2d_of_an_unknown_type",
       [](const Inputs& in) { layers::pool2d(in.image, {.pool_size = 2, .pool_type = "median"}); },
       kShape,
       {"pool2d", "'image'", "max or avg", "median"}});
  all.push_back({"pool2d_without_a_size",
                 [](const Inputs& in) { layers::pool2d(in.image, {}); },
                 kShape,
                 {"pool2d", "'image'", "kernel size", "[-1, -1]"}});
  all.push_back({"pool2d_larger_than_its_image",
                 [](const Inputs& in) { layers::pool2d(in.image, {.pool_size = 10}); },
                 kShape,
                 {"pool2d", "'image'", "at least 10", "8"}});
  all.push_back({"batch_norm_of_a_number",
                 [](const Inputs& in) { layers::batch_norm(in.flat); },
                 kArgument,
                 {"batch_norm", "'flat'", "two dimensions", "[6]"}});
  all.push_back({"batch_norm_of_an_unknown_layout",
                 [](const Inputs& in) { layers::batch_norm(in.image, {.data_layout = "HWCN"}); },
                 kArgument,
                 {"batch_norm", "NCHW or NHWC", "HWCN"}});
  all.push_back({"batch_norm_of_a_large_epsilon",
                 [](const Inputs& in) { layers::batch_norm(in.image, {.epsilon = 0.1}); },
                 kShape,
                 {"batch_norm", "'image'", "epsilon in [0, 0.001]", "0.1"}});
  all.push_back({"layer_norm_over_the_batch",
                 [](const Inputs& in) { layers::layer_norm(in.x, {.begin_norm_axis = 0}); },
                 kArgument,
                 {"layer_norm", "begin_norm_axis", "'x'", "0"}});
  all.push_back({"layer_norm_beyond_the_rank",
                 [](const Inputs& in) { layers::layer_norm(in.x, {.begin_norm_axis = 2}); },
                 kArgument,
                 {"layer_norm", "begin_norm_axis", "'x'", "2"}});
  all.push_back({"group_norm_of_groups_that_do_not_divide",
                 [](const Inputs& in) { layers::group_norm(in.image, 4); },
                 kShape,
                 {"group_norm", "'image'", "4 groups divide", "[-1, 6, 8, 8]"}});
  all.push_back({"dropout_of_more_than_all",
                 [](const Inputs& in) { layers::dropout(in.x, 1.5); },
                 kShape,
                 {"dropout", "'x'", "[0, 1]", "1.5"}});
  all.push_back(
      {"dropout_of_an_unknown_form",
       [](const Inputs& in) { layers::dropout(in.x, 0.5, {.dropout_implementation = "upscale"}); },
       kShape,
       {"dropout", "'x'", "upscale_in_train", "upscale"}});
}

void add_table_mistakes(std::vector<Mistake>& all) {
  all.push_back({"embedding_of_floats",
                 [](const Inputs& in) {
                   layers::embedding(in.column, {10, 4});
                 },
                 kType,
                 {"lookup_table", "'column'", "int64", "float32"}});
  all.push_back({"embedding_of_rows_of_ids",
                 [](const Inputs& in) {
                   layers::embedding(in.whole, {10, 4});
                 },
                 kShape,
                 {"lookup_table", "'whole'", "last dimension of 1", "[-1, 4]", "lookup_table_v2"}});
  all.push_back({"embedding_without_a_width",
                 [](const Inputs& in) { layers::embedding(in.words, {10}); },
                 kArgument,
                 {"embedding", "{height, width}", "[10]"}});
  all.push_back({"embedding_padded_by_a_row_that_is_not_there",
                 [](const Inputs& in) {
                   layers::embedding(in.words, {10, 4}, {.padding_idx = 10});
                 },
                 kArgument,
                 {"embedding", "padding_idx", "[-10, 10)", "10"}});
}

void add_class_mistakes(std::vector<Mistake>& all) {
  all.push_back({"nce_of_an_unknown_sampler",
                 [](const Inputs& in) { layers::nce(in.x, in.label, 8, {.sampler = "zipf"}); },
                 kArgument,
                 {"nce", "zipf", "log_uniform"}});
  all.push_back(
      {"nce_of_too_few_probabilities",
       [](const Inputs& in) {
         layers::nce(in.x, in.label, 8, {.sampler = "custom_dist", .custom_dist = {0.5, 0.5}});
       },
       kArgument,
       {"nce", "custom_dist", "8 probabilities", "2"}});
  all.push_back({"nce_without_noise",
                 [](const Inputs& in) { layers::nce(in.x, in.label, 8, {.num_neg_samples = 0}); },
                 kShape,
                 {"nce", "'label'", "num_neg_samples of at least 1", "0"}});
  all.push_back({"nce_of_float_labels",
                 [](const Inputs& in) { layers::nce(in.x, in.column, 8); },
                 kType,
                 {"nce", "'column'", "int64", "float32"}});
  all.push_back({"hsigmoid_of_one_class",
                 [](const Inputs& in) { layers::hsigmoid(in.x, in.label, 1); },
                 kArgument,
                 {"hierarchical_sigmoid", "num_classes", ">= 2", "1"}});
  all.push_back({"hsigmoid_of_half_a_tree",
                 [](const Inputs& in) {
                   layers::hsigmoid(in.x, in.label, 4, {.path_table = in.whole, .is_custom = true});
                 },
                 kArgument,
                 {"hierarchical_sigmoid", "path_table and path_code"}});
}

// What a layer appends, and once more with a change that layers do not make.
template <class Change>
void append_changed_nce(const Inputs& in, Change change) {
  layers::nce(in.x, in.label, 8, {.num_neg_samples = 2});
  Block& block = in.main.global_block();
  const auto is_nce = [](const auto& op) { return op->type == "nce"; };
  Operator op = **std::find_if(block.ops().begin(), block.ops().end(), is_nce);
  change(op);
  append_op(block, std::move(op));
}

void add_class_input_mistakes(std::vector<Mistake>& all) {
  all.push_back({"nce_of_labels_of_three_dimensions",
                 [](const Inputs& in) {
                   layers::nce(in.x, layers::data("pairs", {2, 1}, DType::kInt64), 8);
                 },
                 kShape,
                 {"nce", "'pairs'", "[rows] or [rows, labels]", "[-1, 2, 1]"}});
  all.push_back(
      {"nce_weighed_by_whole_numbers",
       [](const Inputs& in) { layers::nce(in.x, in.label, 8, {.sample_weight = in.label}); },
       kType,
       {"nce", "SampleWeight", "'label'", "float32", "int64"}});
  all.push_back({"nce_weighed_by_another_number_of_rows",
                 [](const Inputs& in) {
                   const Variable x = layers::fill_constant({2, 4}, DType::kFloat32, 1);
                   layers::nce(x, in.label, 8, {.sample_weight = in.flat});
                 },
                 kShape,
                 {"nce", "SampleWeight", "'flat'", "[2, 1]", "[6]"}});
  all.push_back({"nce_of_noise_that_is_no_class",
                 [](const Inputs& in) {
                   append_changed_nce(in, [](Operator& op) {
                     op.attrs["custom_neg_classes"] = std::vector<int64_t>{3, 8};
                   });
                 },
                 kShape,
                 {"nce", "custom_neg_classes in [0, 8)", "got: 8", "num_total_classes"}});
  all.push_back({"nce_of_a_bias_of_whole_numbers",
                 [](const Inputs& in) {
                   const Variable bias = layers::fill_constant({8, 1}, DType::kInt64, 0);
                   append_changed_nce(in, [&](Operator& op) { op.inputs["Bias"] = {bias.name()}; });
                 },
                 kType,
                 {"nce", "Bias", "float32", "int64"}});
}

void add_sequence_mistakes(std::vector<Mistake>& all) {
  all.push_back({"sequence_pool_of_an_unknown_type",
                 [](const Inputs& in) { layers::sequence_pool(in.steps, "mean"); },
                 kShape,
                 {"sequence_pool", "'steps'", "AVERAGE", "MEAN"}});
  all.push_back({"sequence_softmax_of_rows",
                 [](const Inputs& in) { layers::sequence_softmax(in.steps); },
                 kShape,
                 {"sequence_softmax", "'steps'", "[rows, 1]", "[-1, 12]"}});
  all.push_back({"sequence_concat_of_other_widths",
                 [](const Inputs& in) {
                   layers::sequence_concat({in.steps, in.x});
                 },
                 kShape,
                 {"sequence_concat", "[-1, 12]", "[-1, 4]", "'x'"}});
  all.push_back({"sequence_concat_of_nothing",
                 [](const Inputs&) { layers::sequence_concat({}); },
                 kArgument,
                 {"sequence_concat", "at least one"}});
  all.push_back({"sequence_conv_of_images",
                 [](const Inputs& in) { layers::sequence_conv(in.image, 4); },
                 kArgument,
                 {"sequence_conv", "'image'", "[-1, 6, 8, 8]"}});
  all.push_back({"sequence_conv_of_strides",
                 [](const Inputs& in) { layers::sequence_conv(in.steps, 4, {.filter_stride = 2}); },
                 kShape,
                 {"sequence_conv", "'steps'", "contextStride 1", "2"}});
  all.push_back({"sequence_pad_to_nothing",
                 [](const Inputs& in) {
                   layers::sequence_pad(in.steps, layers::fill_constant({1}, DType::kFloat32, 0),
                                        0);
                 },
                 kShape,
                 {"sequence_pad", "'steps'", "-1 or positive", "0"}});
  all.push_back({"lstm_of_a_size_without_four_gates",
                 [](const Inputs& in) { layers::dynamic_lstm(in.steps, 10); },
                 kArgument,
                 {"lstm", "a multiple of 4", "10"}});
  all.push_back({"lstm_of_another_width",
                 [](const Inputs& in) { layers::dynamic_lstm(in.steps, 16); },
                 kShape,
                 {"lstm", "[4, 16]", "12"}});
  all.push_back({"lstm_of_half_a_state",
                 [](const Inputs& in) { layers::dynamic_lstm(in.steps, 12, {.h_0 = in.y}); },
                 kArgument,
                 {"lstm", "h_0 and c_0", "both or none"}});
  all.push_back({"lstm_of_an_unknown_activation",
                 [](const Inputs& in) {
                   layers::dynamic_lstm(in.steps, 12, {.gate_activation = "sigmoidal"});
                 },
                 kShape,
                 {"lstm", "'steps'", "did you mean 'sigmoid'"}});
  all.push_back({"gru_of_another_width",
                 [](const Inputs& in) { layers::dynamic_gru(in.steps, 5); },
                 kShape,
                 {"gru", "[5, 15]", "12"}});
}

void add_block_mistakes(std::vector<Mistake>& all) {
  all.push_back({"cond_of_a_number",
                 [](const Inputs& in) {
                   layers::cond(
                       in.x, [&] { return std::vector<Variable>{in.x}; },
                       [&] { return std::vector<Variable>{in.x}; });
                 },
                 kArgument,
                 {"cond", "'x'", "bool[1]", "float32"}});
  all.push_back({"cond_of_unequal_branches",
                 [](const Inputs& in) {
                   const Variable one = layers::fill_constant({1}, DType::kInt64, 1);
                   layers::cond(
                       layers::equal(one, one),
                       [&] {
                         return std::vector<Variable>{in.x, in.y};
                       },
                       [&] { return std::vector<Variable>{in.x}; });
                 },
                 kArgument,
                 {"cond", "branches", "2", "1"}});
  all.push_back({"while_of_a_number",
                 [](const Inputs& in) { layers::While loop(in.column); },
                 kArgument,
                 {"while", "'column'", "bool[1]"}});
  all.push_back({"while_that_never_ends",
                 [](const Inputs& in) {
                   const Variable one = layers::fill_constant({1}, DType::kInt64, 1);
                   layers::While loop(layers::equal(one, one));
                   loop.block([&] { layers::relu(in.x); });
                 },
                 kArgument,
                 {"while", "never writes the condition"}});
  all.push_back({"while_loop_that_forgets_a_variable",
                 [](const Inputs& in) {
                   const Variable one = layers::fill_constant({1}, DType::kInt64, 1);
                   layers::while_loop(
                       [](const std::vector<Variable>& v) { return layers::equal(v[0], v[0]); },
                       [](const std::vector<Variable>& v) { return std::vector<Variable>{v[0]}; },
                       {one, in.x});
                 },
                 kArgument,
                 {"while_loop", "body", "2", "1"}});
}

void add_recurrent_mistakes(std::vector<Mistake>& all) {
  all.push_back({"static_rnn_of_an_input_outside_of_its_step",
                 [](const Inputs& in) {
                   layers::StaticRNN rnn;
                   rnn.step_input(in.z);
                 },
                 kArgument,
                 {"static_rnn", "step_input", "step"}});
  all.push_back({"static_rnn_of_a_memory_of_nothing",
                 [](const Inputs& in) {
                   layers::StaticRNN rnn;
                   rnn.step([&] {
                     rnn.step_input(in.z);
                     rnn.memory({});
                   });
                 },
                 kArgument,
                 {"static_rnn", "memory", "init", "batch_ref"}});
  all.push_back({"static_rnn_of_a_memory_never_updated",
                 [](const Inputs& in) {
                   layers::StaticRNN rnn;
                   rnn.step([&] {
                     const Variable now = rnn.step_input(in.z);
                     rnn.memory({.init = layers::fill_constant({3, 4}, DType::kFloat32, 0)});
                     rnn.step_output(now);
                   });
                 },
                 kArgument,
                 {"static_rnn", "never updated", "update_memory"}});
  all.push_back({"array_read_of_a_tensor",
                 [](const Inputs& in) {
                   layers::array_read(in.x, layers::fill_constant({1}, DType::kInt64, 0));
                 },
                 kShape,
                 {"read_from_array", "'x'", "tensor array", "create_array"}});
  all.push_back({"array_write_at_several_places",
                 [](const Inputs& in) {
                   layers::array_write(in.x, layers::fill_constant({6}, DType::kInt64, 0));
                 },
                 kShape,
                 {"write_to_array", "one index", "[6]"}});
}

}  // namespace

void add_network_mistakes(std::vector<Mistake>& all) {
  add_convolution_mistakes(all);
  add_image_mistakes(all);
  add_table_mistakes(all);
  add_class_mistakes(all);
  add_class_input_mistakes(all);
  add_sequence_mistakes(all);
  add_block_mistakes(all);
  add_recurrent_mistakes(all);
}

}  // namespace fleet::fluid::mistakes
