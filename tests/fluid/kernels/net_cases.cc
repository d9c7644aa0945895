#include "tests/fluid/kernels/net_cases.h"

#include <utility>

#include "base/strings.h"
#include "fluid/backward/backward.h"
#include "fluid/layers/layers.h"
#include "fluid/ops/append.h"
#include "fluid/optimizer/averages.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid {
namespace {

using Variables = std::vector<Variable>;

Variable numbers(const std::string& name, const Shape& shape, DType dtype, int lod_level = 0) {
  const Variable var = layers::data(name, shape, dtype, {.lod_level = lod_level});
  var.set_stop_gradient(!is_floating(dtype));
  return var;
}

Variable words(int lod_level = 0) {
  return numbers("words", {1}, DType::kInt64, lod_level);
}

Variable loss_of(const Variable& x) {
  return layers::mean(layers::square(x) + x);
}

// Appends the backward part of a net that `out` ends.
Variables trained(const Variable& out) {
  const Variable loss = loss_of(out);
  Variables compared = {loss};
  for (const ParamGrad& pair : append_backward(loss)) {
    if (pair.grad.desc().kind == VarKind::kLodTensor) compared.push_back(pair.grad);
  }
  return compared;
}

// An op over variables; `out` is a new one.
Variable made(const std::string& type, SlotMap inputs, const std::string& slot, DType dtype,
              AttributeMap attrs = {}, SlotMap outputs = {}) {
  Block& block = default_main_program().current_block();
  VarDesc desc;
  desc.name = unique_name::generate(type);
  desc.dtype = dtype;
  const Variable out(block, block.add_var(std::move(desc)));
  outputs[slot] = {out.name()};
  append_op(block, {.type = type,
                    .inputs = std::move(inputs),
                    .outputs = std::move(outputs),
                    .attrs = std::move(attrs)});
  return out;
}

// An op that parts selected rows; nothing reads what it makes.
void parted(const std::string& type, const std::string& slot, const std::string& rows, DType dtype,
            AttributeMap attrs) {
  Block& block = default_main_program().current_block();
  Operator op{.type = type, .inputs = {{slot, {rows}}}, .outputs = {}, .attrs = std::move(attrs)};
  for (int part = 0; part < 2; ++part) {
    VarDesc desc;
    desc.name = unique_name::generate(type);
    desc.kind = VarKind::kSelectedRows;
    desc.dtype = dtype;
    op.outputs["Out"].push_back(desc.name);
    block.add_var(std::move(desc));
  }
  append_op(block, std::move(op));
}

void add_images(std::vector<NetCase>& all) {
  all.push_back({"convolutions", [](DType dtype) {
                   const Variable x = numbers("x", {4, 6, 6}, dtype);
                   const auto plain = layers::conv2d(x, 6, 3, {.padding = 1, .groups = 2});
                   const auto each = layers::conv2d(plain, 6, 3, {.groups = 6, .use_cudnn = false});
                   const auto back = layers::conv2d_transpose(each, 4, {.filter_size = 3});
                   return trained(layers::conv2d_transpose(
                       back, 4, {.filter_size = 2, .groups = 4, .use_cudnn = false}));
                 }});
  for (const char* type : {"max", "avg"}) {
    all.push_back({str_cat("pool_", type), [type](DType dtype) {
                     const Variable x = numbers("x", {4, 6, 6}, dtype);
                     const auto h = layers::conv2d(x, 3, 1);
                     return trained(
                         layers::pool2d(h, {.pool_size = 3, .pool_type = type, .pool_stride = 2}));
                   }});
  }
  all.push_back({"windows_over_the_end", [](DType dtype) {
                   const Variable x = numbers("x", {3, 6, 6}, dtype);
                   const auto small = layers::conv2d(x, 16, 5);
                   const auto pooled = layers::pool2d(small, {.pool_size = 3, .pool_stride = 2});
                   const auto windows = layers::conv2d(small, 16, 3, {.stride = 2});
                   return trained(windows + pooled);
                 }});
  all.push_back({"pool_adaptive", [](DType dtype) {
                   const Variable x = numbers("x", {4, 6, 6}, dtype);
                   return trained(layers::adaptive_pool2d(layers::conv2d(x, 3, 1), {4, 5}));
                 }});
  all.push_back({"normalisation", [](DType dtype) {
                   const Variable x = numbers("x", {4, 3, 3}, dtype);
                   const auto groups = layers::group_norm(layers::batch_norm(x), 2);
                   return trained(layers::dropout(layers::layer_norm(groups), 0.4));
                 }});
}

void add_tables(std::vector<NetCase>& all) {
  for (const bool sparse : {false, true}) {
    const std::string form = sparse ? "_rows" : "_dense";
    all.push_back({"lookups" + form, [sparse](DType dtype) {
                     const EmbeddingOptions options{.is_sparse = sparse, .dtype = dtype};
                     const auto old_form = layers::embedding(words(), {5, 4}, options);
                     const auto new_form = fluid::embedding(words(), {5, 4}, options);
                     return trained(layers::fc({old_form, layers::reshape(new_form, {-1, 4})}, 3));
                   }});
    all.push_back({"many_classes" + form, [sparse](DType dtype) {
                     const Variable x = numbers("x", {4}, dtype);
                     const auto h = layers::fc(x, 5, {.act = "tanh"});
                     const auto noise =
                         layers::nce(h, words(), 6, {.num_neg_samples = 3, .is_sparse = sparse});
                     const auto table = numbers("table", {3}, DType::kInt64);
                     const auto tree =
                         sparse
                             ? layers::hsigmoid(h, words(), 6,
                                                {.path_table = table,
                                                 .path_code = numbers("code", {3}, DType::kInt64),
                                                 .is_custom = true,
                                                 .is_sparse = true})
                             : layers::hsigmoid(h, words(), 6);
                     return trained(noise + tree);
                   }});
  }
}

// Noise of each distribution, and a tree of one's own.
void add_sampled_classes(std::vector<NetCase>& all) {
  for (const std::string sampler : {"uniform", "log_uniform", "custom_dist"}) {
    all.push_back({"sampled_" + sampler + "_dense", [sampler](DType dtype) {
                     const auto h = layers::fc(numbers("x", {4}, dtype), 5);
                     layers::NceOptions options{.sample_weight = numbers("weight", {1}, dtype),
                                                .num_neg_samples = 7,
                                                .sampler = sampler};
                     if (sampler == "custom_dist") options.custom_dist = {0.1, 0.3, 0.2, 0.4};
                     const auto noise = layers::nce(h, words(), 4, options);
                     const auto tree =
                         layers::hsigmoid(h, words(), 6,
                                          {.path_table = numbers("table", {3}, DType::kInt64),
                                           .path_code = numbers("code", {3}, DType::kInt64),
                                           .is_custom = true});
                     return trained(noise + tree);
                   }});
  }
}

// Weights without a gradient: no rows are made, though is_sparse asks for them.
void add_frozen_classes(std::vector<NetCase>& all) {
  all.push_back(
      {"frozen_classes_rows", [](DType dtype) {
         const auto h = layers::fc(numbers("x", {4}, dtype), 5);
         const auto noise = layers::nce(
             h, words(), 6,
             {.param_attr = {.name = "classes"}, .num_neg_samples = 3, .is_sparse = true});
         const auto tree = layers::hsigmoid(
             h, words(), 6,
             {.param_attr = {.name = "nodes"}, .is_sparse = true, .rows_without_paths = true});
         Block& block = default_main_program().global_block();
         for (const char* name : {"classes", "nodes"}) {
           Variable(block, block.var(name)).set_stop_gradient(true);
         }
         return trained(noise + tree);
       }});
}

// One table that is looked up twice, with sparse gradients, or one of them dense.
void add_shared_tables(std::vector<NetCase>& all) {
  for (const bool mixed : {false, true}) {
    all.push_back({mixed ? "shared_table_mixed" : "shared_table_rows", [mixed](DType dtype) {
                     EmbeddingOptions options{.is_sparse = true,
                                              .padding_idx = 1,
                                              .param_attr = {.name = "shared"},
                                              .dtype = dtype};
                     const auto first = layers::embedding(words(), {5, 4}, options);
                     options.is_sparse = !mixed;
                     options.padding_idx = -1;
                     const auto second =
                         layers::embedding(numbers("others", {1}, DType::kInt64), {5, 4}, options);
                     const auto loss = loss_of(layers::fc({first, second}, 3));
                     optimizer::Adagrad({.learning_rate = 0.05}).minimize(loss);
                     return Variables{loss};
                   }});
  }
}

// Updates whose outputs are not their inputs: rows without a gradient are copied.
void add_updates_apart(std::vector<NetCase>& all) {
  all.push_back(
      {"updates_apart_rows", [](DType dtype) {
         const auto h = layers::embedding(
             words(), {5, 4}, {.is_sparse = true, .param_attr = {.name = "t"}, .dtype = dtype});
         append_backward(loss_of(h));
         const auto filled = [dtype](const Shape& shape, double value) {
           return layers::fill_constant(shape, dtype, value).name();
         };
         const auto updated = [&](const char* type, SlotMap more, SlotMap outputs,
                                  AttributeMap attrs = {}) {
           more["Param"] = {"t"};
           more["Grad"] = {"t@GRAD"};
           more["LearningRate"] = {filled({1}, 0.1)};
           return made(type, std::move(more), "ParamOut", dtype, std::move(attrs),
                       std::move(outputs));
         };
         const std::string moment = filled({5, 4}, 0.5);
         const std::string moment2 = filled({5, 4}, 0.25);
         const std::string power1 = filled({1}, 0.5);
         const std::string power2 = filled({1}, 0.25);
         return Variables{updated("sgd", {}, {}),
                          updated("adagrad", {{"Moment", {moment}}}, {{"MomentOut", {moment}}}),
                          updated("adam",
                                  {{"Moment1", {moment}},
                                   {"Moment2", {moment2}},
                                   {"Beta1Pow", {power1}},
                                   {"Beta2Pow", {power2}}},
                                  {{"Moment1Out", {moment}},
                                   {"Moment2Out", {moment2}},
                                   {"Beta1PowOut", {power1}},
                                   {"Beta2PowOut", {power2}}},
                                  {{"lazy_mode", true}})};
       }});
}

void add_sequences(std::vector<NetCase>& all) {
  for (const char* type : {"sum", "average", "sqrt", "max", "first", "last"}) {
    all.push_back({str_cat("sequence_pool_", type), [type](DType dtype) {
                     const auto h = layers::fc(numbers("s", {4}, dtype, 1), 3);
                     return trained(layers::sequence_pool(h, type));
                   }});
  }
  all.push_back(
      {"click_rates_rows", [](DType dtype) {
         const EmbeddingOptions options{.is_sparse = true, .padding_idx = 2, .dtype = dtype};
         const auto pooled = [&](const char* type) {
           return layers::sequence_pool(layers::embedding(words(1), {5, 4}, options), type);
         };
         const auto h = layers::concat({pooled("sum"), pooled("max"), pooled("sqrt")}, 1);
         const auto loss = loss_of(layers::fc(layers::fc(h, 6, {.act = "relu"}), 2));
         optimizer::Ftrl({.learning_rate = 0.05}).minimize(loss);
         return Variables{loss};
       }});
  all.push_back({"recurrences", [](DType dtype) {
                   const Variable s = numbers("s", {4}, dtype, 1);
                   const auto lstm = layers::dynamic_lstm(layers::fc(s, 12), 12).hidden;
                   const auto gru = layers::dynamic_gru(layers::fc(lstm, 9), 3);
                   return trained(gru);
                 }});
  all.push_back({"recurrences_wide", [](DType dtype) {
                   const Variable s = numbers("s", {4}, dtype, 1);
                   const layers::DynamicLstmOptions from_end{.use_peepholes = false,
                                                             .is_reverse = true};
                   const auto lstm = layers::dynamic_lstm(layers::fc(s, 80), 80, from_end).hidden;
                   return trained(layers::dynamic_gru(layers::fc(lstm, 60), 20));
                 }});
  all.push_back({"sequences", [](DType dtype) {
                   const auto h = layers::sequence_conv(numbers("s", {4}, dtype, 1), 3);
                   const auto joined = layers::sequence_concat({h, layers::sequence_reverse(h)});
                   const auto pad = layers::fill_constant({1}, dtype, 0.5);
                   const auto padded = layers::sequence_pad(joined, pad);
                   const auto back = layers::sequence_unpad(padded.out, padded.length);
                   const auto shares =
                       layers::sequence_softmax(layers::fc(h, 1, {.bias_attr = no_bias()}));
                   const auto firsts = layers::sequence_first_step(h);
                   const auto weighted = layers::sequence_expand(firsts, h) * h * shares;
                   return trained(layers::reduce_sum(back) + layers::reduce_sum(weighted));
                 }});
  all.push_back({"masks", [](DType dtype) {
                   return Variables{layers::sequence_mask(layers::cast(words(), dtype), 4, dtype)};
                 }});
}

void add_initial_values(std::vector<NetCase>& all) {
  all.push_back(
      {"initial_values", [](DType dtype) {
         const auto h = layers::fc(numbers("x", {4}, dtype), 3,
                                   {.param_attr = {.initializer = initializer::TruncatedNormal{}}});
         made("fake_init", {}, "Out", DType::kFloat32, {{"shape", std::vector<int64_t>{2}}});
         return trained(h);
       }});
}

void add_control(std::vector<NetCase>& all) {
  all.push_back({"arrays", [](DType dtype) {
                   const auto h = layers::fc(numbers("x", {4}, dtype), 3);
                   const Variable zero = layers::fill_constant({1}, DType::kInt64, 0);
                   const auto array = layers::array_write(h, zero);
                   const auto length = layers::array_length(array);
                   const auto read = layers::array_read(array, zero);
                   const auto joined =
                       layers::tensor_array_to_tensor(layers::array_write(read, zero), 0).out;
                   Variables compared = trained(layers::Print(joined, {.summarize = 2}));
                   compared.push_back(length);
                   return compared;
                 }});
  all.push_back(
      {"choices", [](DType dtype) {
         const auto h = layers::fc(numbers("x", {4}, dtype), 3);
         const Variable truth = layers::fill_constant({1}, DType::kBool, 1);
         return trained(layers::cond(
             truth, [&] { return Variables{h * 2.0}; }, [&] { return Variables{h * 3.0}; })[0]);
       }});
  all.push_back({"metrics", [](DType dtype) {
                   const auto shares = layers::softmax(layers::fc(numbers("x", {4}, dtype), 3));
                   const auto label = words();
                   const auto best = layers::topk(shares, 1);
                   const auto counts = layers::precision_recall(
                       best.values, layers::cast(best.indices, DType::kInt32),
                       layers::cast(label, DType::kInt32), 3);
                   const auto two = layers::softmax(layers::fc(numbers("x", {4}, dtype), 2));
                   const Variable one = layers::fill_constant({1}, dtype, 1.0);
                   return Variables{layers::accuracy(shares, label), counts.batch_metrics,
                                    layers::auc(two, label).auc,
                                    layers::range(one, one + 4.5, one)};
                 }});
}

template <class Optimizer, class Options>
void add_update(std::vector<NetCase>& all, const std::string& name, Options options,
                bool takes_rows) {
  options.learning_rate = 0.05;
  for (const bool rows : {false, true}) {
    if (rows && !takes_rows) continue;
    all.push_back(
        {name + (rows ? "_rows" : "_dense"), [options, rows](DType dtype) {
           const auto h = layers::embedding(words(), {5, 4}, {.is_sparse = rows, .dtype = dtype});
           const auto loss = loss_of(layers::fc(h, 3));
           Optimizer(options).minimize(loss);
           return Variables{loss};
         }});
  }
}

void add_updates(std::vector<NetCase>& all) {
  using namespace optimizer;
  add_update<SGD>(all, "sgd", SGDOptions{}, true);
  add_update<SGD>(all, "sgd_by_value", SGDOptions{.grad_clip = clip::GradientClipByValue(0.01)},
                  true);
  add_update<SGD>(all, "sgd_by_norm", SGDOptions{.grad_clip = clip::GradientClipByNorm(0.01)},
                  true);
  add_update<SGD>(all, "sgd_by_global_norm",
                  SGDOptions{.grad_clip = clip::GradientClipByGlobalNorm(0.01)}, true);
  add_update<Momentum>(all, "momentum", MomentumOptions{}, true);
  add_update<LarsMomentum>(all, "lars_momentum", LarsMomentumOptions{}, true);
  add_update<Adagrad>(all, "adagrad", AdagradOptions{}, true);
  add_update<DecayedAdagrad>(all, "decayed_adagrad", DecayedAdagradOptions{}, true);
  add_update<Adadelta>(all, "adadelta", AdadeltaOptions{}, true);
  add_update<Adam>(all, "adam", AdamOptions{}, true);
  add_update<Adam>(all, "adam_lazy", AdamOptions{.lazy_mode = true}, true);
  add_update<Adamax>(all, "adamax", AdamaxOptions{}, true);
  add_update<RMSProp>(all, "rmsprop", RMSPropOptions{}, true);
  add_update<Ftrl>(all, "ftrl", FtrlOptions{}, true);
  add_update<Lamb>(all, "lamb", LambOptions{}, true);
  add_update<Dpsgd>(all, "dpsgd", DpsgdOptions{}, false);
  all.push_back({"averages", [](DType dtype) {
                   const auto loss = loss_of(layers::fc(numbers("x", {4}, dtype), 3));
                   SGD({.learning_rate = 0.05}).minimize(loss);
                   ModelAverage({.average_window_rate = 1.0, .min_average_window = 2});
                   return Variables{loss};
                 }});
  all.push_back({"lookahead", [](DType dtype) {
                   const auto loss = loss_of(layers::fc(numbers("x", {4}, dtype), 3));
                   SGD sgd({.learning_rate = 0.05});
                   Lookahead(sgd, {.alpha = 0.5, .k = 2}).minimize(loss);
                   return Variables{loss};
                 }});
}

// What transpilers place on servers.
void add_server_ops(std::vector<NetCase>& all) {
  all.push_back({"compensation", [](DType dtype) {
                   const auto p = numbers("p", {4}, dtype);
                   const auto g = numbers("g", {4}, dtype);
                   const auto b = numbers("b", {4}, dtype);
                   const auto id = layers::fill_constant({1}, DType::kInt64, 1);
                   const auto own = made("ref_by_trainer_id",
                                         {{"X", {p.name(), b.name()}}, {"TrainerId", {id.name()}}},
                                         "Out", dtype);
                   const auto out =
                       made("dc_compensate",
                            {{"Param", {p.name()}}, {"Grad", {g.name()}}, {"Backup", {own.name()}}},
                            "Out", dtype, {{"form", std::string("constant")}});
                   return Variables{
                       out, made("squared_row_sums", {{"X", {p.name()}}}, "Out", DType::kFloat64)};
                 }});
  all.push_back(
      {"rows_of_two_servers", [](DType dtype) {
         const auto x = layers::cumsum(layers::fill_constant({4, 2}, dtype, 0.75), {.axis = 0});
         return Variables{made("interleave_rows", {{"X", {x.name()}}}, "Out", dtype,
                               {{"parts", int64_t{2}}, {"rows", int64_t{3}}})};
       }});
  all.push_back({"halves_of_lamb", [](DType dtype) {
                   const auto p = numbers("p", {4}, dtype);
                   const auto rate = layers::fill_constant({1}, dtype, 0.1);
                   const auto power = layers::fill_constant({1}, dtype, 0.5);
                   const auto moment1 = numbers("moment1", {4}, dtype);
                   const auto moment2 = numbers("moment2", {4}, dtype);
                   const auto direction =
                       made("lamb_direction",
                            {{"Param", {p.name()}},
                             {"Grad", {numbers("g", {4}, dtype).name()}},
                             {"Moment1", {moment1.name()}},
                             {"Moment2", {moment2.name()}},
                             {"Beta1Pow", {power.name()}},
                             {"Beta2Pow", {power.name()}}},
                            "Direction", dtype, {},
                            {{"Moment1Out", {moment1.name()}}, {"Moment2Out", {moment2.name()}}});
                   const auto sums = [](const Variable& of) {
                     return made("squared_row_sums", {{"X", {of.name()}}}, "Out", DType::kFloat64);
                   };
                   const auto of_p = sums(p);
                   const auto of_direction = sums(direction);
                   made("lamb_apply",
                        {{"Param", {p.name()}},
                         {"Direction", {direction.name()}},
                         {"LearningRate", {rate.name()}},
                         {"ParamSquaredRowSums", {of_p.name()}},
                         {"DirectionSquaredRowSums", {of_direction.name()}}},
                        "ParamOut", dtype);
                   return Variables{direction, p};
                 }});
}

void add_row_ops(std::vector<NetCase>& all) {
  all.push_back(
      {"row_ops", [](DType dtype) {
         const auto h = layers::embedding(
             words(), {5, 4}, {.is_sparse = true, .param_attr = {.name = "t"}, .dtype = dtype});
         append_backward(loss_of(h));
         const std::string grad = "t@GRAD";
         const auto merged = made("merge_selected_rows", {{"X", {grad}}}, "Out", dtype);
         const auto marks = made("marked_row_sums", {{"X", {grad}}}, "Out", dtype);
         const auto scaled =
             made("scale", {{"X", {merged.name()}}}, "Out", dtype, {{"scale", 2.0}});
         scaled.edit().kind = VarKind::kSelectedRows;
         parted("split_selected_rows", "X", grad, dtype,
                {{"height_sections", std::vector<int64_t>{2, 3}}});
         parted("split_ids", "Ids", grad, dtype, {});
         const auto distinct = made("split_ids", {{"Ids", {"words"}}}, "Out", DType::kInt64);
         const auto of_server = layers::fill_constant({3, 4}, dtype, 0.5);
         const auto looked_up =
             made("merge_ids",
                  {{"Ids", {"words"}}, {"Rows", {distinct.name()}}, {"X", {of_server.name()}}},
                  "Out", dtype);
         return Variables{
             looked_up,
             made("get_tensor_from_selected_rows", {{"X", {scaled.name()}}}, "Out", dtype),
             made("sum_marked_rows", {{"X", {marks.name()}}}, "Out", dtype)};
       }});
}

}  // namespace

std::vector<NetCase> net_cases() {
  std::vector<NetCase> all;
  add_images(all);
  add_tables(all);
  add_sampled_classes(all);
  add_frozen_classes(all);
  add_shared_tables(all);
  add_updates_apart(all);
  add_sequences(all);
  add_initial_values(all);
  add_control(all);
  add_updates(all);
  add_server_ops(all);
  add_row_ops(all);
  return all;
}

}  // namespace fleet::fluid
