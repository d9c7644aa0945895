#include <algorithm>

#include "fluid/layers/conv.h"
#include "fluid/layers/embedding.h"
#include "fluid/layers/loss.h"
#include "fluid/layers/norm.h"
#include "fluid/layers/sampled.h"
#include "fluid/layers/sequence.h"
#include "fluid/layers/tensor.h"
#include "fluid/program/default_programs.h"
#include "tests/golden/golden_layers.h"

namespace fleet::golden {
namespace {

namespace layers = fluid::layers;
using fluid::Shape;

// A number, or one for each of the two dimensions.
layers::Pair pair_of(Call& call, const char* name, int otherwise) {
  const Json* found = call.args.find(name);
  if (found == nullptr) return otherwise;
  if (found->is_number()) return found->get<int>();
  return {found->at(0).get<int>(), found->at(1).get<int>()};
}

layers::Padding padding_of(Call& call, const char* name) {
  const Json* found = call.args.find(name);
  if (found == nullptr) return 0;
  if (found->is_number()) return found->get<int>();
  if (found->is_string()) return found->get<std::string>().c_str();
  if (found->size() == 2) return {found->at(0).get<int>(), found->at(1).get<int>()};
  return {found->at(0).get<int>(), found->at(1).get<int>(), found->at(2).get<int>(),
          found->at(3).get<int>()};
}

std::string text(Call& call, const char* name, const char* otherwise = "") {
  return call.args.get<std::string>(name, otherwise);
}

Outputs build_conv2d(Call& call) {
  return {layers::conv2d(call.in("input"), call.args.get<int64_t>("num_filters", 0),
                         pair_of(call, "filter_size", 1),
                         {.stride = pair_of(call, "stride", 1),
                          .padding = padding_of(call, "padding"),
                          .dilation = pair_of(call, "dilation", 1),
                          .groups = call.args.get<int>("groups", 1),
                          .param_attr = make_attr(call.args.find("param_attr")),
                          .bias_attr = make_attr(call.args.find("bias_attr")),
                          .use_cudnn = call.args.get<bool>("use_cudnn", true),
                          .act = text(call, "act"),
                          .name = text(call, "name"),
                          .data_format = text(call, "data_format", "NCHW")})};
}

Outputs build_conv2d_transpose(Call& call) {
  layers::Conv2dTransposeOptions options{.padding = padding_of(call, "padding"),
                                         .stride = pair_of(call, "stride", 1),
                                         .dilation = pair_of(call, "dilation", 1),
                                         .groups = call.args.get<int>("groups", 1),
                                         .param_attr = make_attr(call.args.find("param_attr")),
                                         .bias_attr = make_attr(call.args.find("bias_attr")),
                                         .use_cudnn = call.args.get<bool>("use_cudnn", true),
                                         .act = text(call, "act"),
                                         .name = text(call, "name")};
  if (call.args.find("output_size")) options.output_size = pair_of(call, "output_size", 1);
  if (call.args.find("filter_size")) options.filter_size = pair_of(call, "filter_size", 1);
  return {layers::conv2d_transpose(call.in("input"), call.args.get<int64_t>("num_filters", 0),
                                   options)};
}

Outputs build_pool2d(Call& call) {
  return {layers::pool2d(call.in("input"),
                         {.pool_size = pair_of(call, "pool_size", -1),
                          .pool_type = text(call, "pool_type", "max"),
                          .pool_stride = pair_of(call, "pool_stride", 1),
                          .pool_padding = padding_of(call, "pool_padding"),
                          .global_pooling = call.args.get<bool>("global_pooling", false),
                          .use_cudnn = call.args.get<bool>("use_cudnn", true),
                          .ceil_mode = call.args.get<bool>("ceil_mode", false),
                          .name = text(call, "name"),
                          .exclusive = call.args.get<bool>("exclusive", true),
                          .data_format = text(call, "data_format", "NCHW")})};
}

Outputs build_batch_norm(Call& call) {
  return {layers::batch_norm(call.in("input"),
                             {.act = text(call, "act"),
                              .is_test = call.args.get<bool>("is_test", false),
                              .momentum = call.args.get<double>("momentum", 0.9),
                              .epsilon = call.args.get<double>("epsilon", 1e-5),
                              .param_attr = make_attr(call.args.find("param_attr")),
                              .bias_attr = make_attr(call.args.find("bias_attr")),
                              .data_layout = text(call, "data_layout", "NCHW"),
                              .in_place = call.args.get<bool>("in_place", false),
                              .name = text(call, "name"),
                              .moving_mean_name = text(call, "moving_mean_name"),
                              .moving_variance_name = text(call, "moving_variance_name"),
                              .use_global_stats = call.args.get<bool>("use_global_stats", false)})};
}

Outputs build_layer_norm(Call& call) {
  return {layers::layer_norm(call.in("input"),
                             {.scale = call.args.get<bool>("scale", true),
                              .shift = call.args.get<bool>("shift", true),
                              .begin_norm_axis = call.args.get<int>("begin_norm_axis", 1),
                              .epsilon = call.args.get<double>("epsilon", 1e-5),
                              .param_attr = make_attr(call.args.find("param_attr")),
                              .bias_attr = make_attr(call.args.find("bias_attr")),
                              .act = text(call, "act"),
                              .name = text(call, "name")})};
}

// The release makes neither scale nor bias that it is not asked for.
fluid::ParamAttr made_if_asked(Call& call, const char* argument) {
  const Json* given = call.args.find(argument);
  fluid::ParamAttr attr = make_attr(given);
  attr.omit = attr.omit || given == nullptr;
  return attr;
}

Outputs build_group_norm(Call& call) {
  const fluid::Variable made =
      layers::group_norm(call.in("input"), call.args.get<int>("groups", 1),
                         {.epsilon = call.args.get<double>("epsilon", 1e-5),
                          .param_attr = made_if_asked(call, "param_attr"),
                          .bias_attr = made_if_asked(call, "bias_attr"),
                          .act = text(call, "act"),
                          .data_layout = text(call, "data_layout", "NCHW"),
                          .name = text(call, "name")});
  const auto& ops = fluid::default_main_program().current_block().ops();
  const auto norm = std::find_if(ops.rbegin(), ops.rend(),
                                 [](const auto& op) { return op->type == "group_norm"; });
  const auto at = static_cast<size_t>(ops.rend() - norm) - 1;
  fluid::default_main_program().current_block().op(at).attrs["paddle_form"] = true;
  return {made};
}

Outputs build_dropout(Call& call) {
  return {layers::dropout(
      call.in("x"), call.args.get<double>("dropout_prob", 0.5),
      {.is_test = call.args.get<bool>("is_test", false),
       .seed = call.args.get<int>("seed", 0),
       .name = text(call, "name"),
       .dropout_implementation = text(call, "dropout_implementation", "downgrade_in_infer")})};
}

fluid::EmbeddingOptions embedding_options(Call& call) {
  fluid::EmbeddingOptions options{.is_sparse = call.args.get<bool>("is_sparse", false),
                                  .is_distributed = call.args.get<bool>("is_distributed", false),
                                  .param_attr = make_attr(call.args.find("param_attr")),
                                  .dtype = fluid::parse_dtype(text(call, "dtype", "float32"))};
  if (const Json* padding = call.args.find("padding_idx")) {
    options.padding_idx = padding->get<int64_t>();
  }
  return options;
}

Outputs build_nce(Call& call) {
  return {layers::nce(call.in("input"), call.in("label"),
                      call.args.get<int>("num_total_classes", 0),
                      {.sample_weight = call.maybe("sample_weight"),
                       .param_attr = make_attr(call.args.find("param_attr")),
                       .bias_attr = make_attr(call.args.find("bias_attr")),
                       .num_neg_samples = call.args.get<int>("num_neg_samples", 10),
                       .name = text(call, "name"),
                       .sampler = text(call, "sampler", "uniform"),
                       .custom_dist = call.args.get<std::vector<double>>("custom_dist", {}),
                       .seed = call.args.get<int>("seed", 0),
                       .is_sparse = call.args.get<bool>("is_sparse", false)})};
}

Outputs build_hsigmoid(Call& call) {
  return {layers::hsigmoid(call.in("input"), call.in("label"), call.args.get<int>("num_classes", 2),
                           {.param_attr = make_attr(call.args.find("param_attr")),
                            .bias_attr = make_attr(call.args.find("bias_attr")),
                            .name = text(call, "name"),
                            .path_table = call.maybe("path_table"),
                            .path_code = call.maybe("path_code"),
                            .is_custom = call.args.get<bool>("is_custom", false),
                            .is_sparse = call.args.get<bool>("is_sparse", false)})};
}

Outputs build_auc(Call& call) {
  const auto auc = layers::auc(call.in("input"), call.in("label"),
                               {.curve = text(call, "curve", "ROC"),
                                .num_thresholds = call.args.get<int>("num_thresholds", 4095),
                                .topk = call.args.get<int>("topk", 1),
                                .slide_steps = call.args.get<int>("slide_steps", 1)});
  return {auc.auc, auc.batch_auc, auc.states[0]};
}

Outputs build_sequence_conv(Call& call) {
  layers::SequenceConvOptions options{.filter_size = call.args.get<int>("filter_size", 3),
                                      .filter_stride = call.args.get<int>("filter_stride", 1),
                                      .bias_attr = make_attr(call.args.find("bias_attr")),
                                      .param_attr = make_attr(call.args.find("param_attr")),
                                      .act = text(call, "act"),
                                      .name = text(call, "name")};
  if (const Json* start = call.args.find("padding_start")) {
    options.padding_start = start->get<int>();
  }
  return {
      layers::sequence_conv(call.in("input"), call.args.get<int64_t>("num_filters", 0), options)};
}

void add_sequence_layers(std::map<std::string, Builder>& builders) {
  builders["sequence_pool"] = [](Call& call) -> Outputs {
    return {layers::sequence_pool(call.in("input"), text(call, "pool_type", "average"),
                                  {.is_test = call.args.get<bool>("is_test", false),
                                   .pad_value = call.args.get<double>("pad_value", 0.0)})};
  };
  builders["sequence_first_step"] = [](Call& call) -> Outputs {
    return {layers::sequence_first_step(call.in("input"))};
  };
  builders["sequence_last_step"] = [](Call& call) -> Outputs {
    return {layers::sequence_last_step(call.in("input"))};
  };
  builders["sequence_softmax"] = [](Call& call) -> Outputs {
    return {layers::sequence_softmax(call.in("input"), text(call, "name"))};
  };
  builders["sequence_expand"] = [](Call& call) -> Outputs {
    return {layers::sequence_expand(call.in("x"), call.in("y"), call.args.get<int>("ref_level", -1),
                                    text(call, "name"))};
  };
  builders["sequence_concat"] = [](Call& call) -> Outputs {
    return {layers::sequence_concat(call.all("input"), text(call, "name"))};
  };
  builders["sequence_reverse"] = [](Call& call) -> Outputs {
    return {layers::sequence_reverse(call.in("x"), text(call, "name"))};
  };
  builders["sequence_conv"] = build_sequence_conv;
}

}  // namespace

void add_network_layers(std::map<std::string, Builder>& builders) {
  builders["conv2d"] = build_conv2d;
  builders["conv2d_transpose"] = build_conv2d_transpose;
  builders["pool2d"] = build_pool2d;
  builders["adaptive_pool2d"] = [](Call& call) -> Outputs {
    const auto size = pair_of(call, "pool_size", 1);
    if (call.args.get<bool>("require_index", false)) {
      const auto pooled = layers::adaptive_pool2d(call.in("input"), size, layers::RequireIndex(),
                                                  text(call, "name"));
      return {pooled.out, pooled.mask};
    }
    return {layers::adaptive_pool2d(call.in("input"), size, text(call, "pool_type", "max"),
                                    text(call, "name"))};
  };
  builders["batch_norm"] = build_batch_norm;
  builders["layer_norm"] = build_layer_norm;
  builders["group_norm"] = build_group_norm;
  builders["dropout"] = build_dropout;
  builders["embedding"] = [](Call& call) -> Outputs {
    const auto size = call.args.get<std::vector<int64_t>>("size", {});
    return {layers::embedding(call.in("input"), Shape(size), embedding_options(call))};
  };
  builders["fluid.embedding"] = [](Call& call) -> Outputs {
    const auto size = call.args.get<std::vector<int64_t>>("size", {});
    return {fluid::embedding(call.in("input"), Shape(size), embedding_options(call))};
  };
  builders["fused_embedding_seq_pool"] = [](Call& call) -> Outputs {
    const auto size = call.args.get<std::vector<int64_t>>("size", {});
    const fluid::EmbeddingOptions options = embedding_options(call);
    return {
        fluid::contrib::layers::fused_embedding_seq_pool(call.in("input"), Shape(size),
                                                         {.is_sparse = options.is_sparse,
                                                          .padding_idx = options.padding_idx,
                                                          .combiner = text(call, "combiner", "sum"),
                                                          .param_attr = options.param_attr,
                                                          .dtype = options.dtype})};
  };
  builders["nce"] = build_nce;
  builders["hsigmoid"] = build_hsigmoid;
  builders["auc"] = build_auc;
  add_sequence_layers(builders);
}

}  // namespace fleet::golden
