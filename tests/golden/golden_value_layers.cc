#include "fluid/layers/control_flow.h"
#include "fluid/layers/loss.h"
#include "fluid/layers/math_ops.h"
#include "fluid/layers/ops.h"
#include "fluid/layers/sequence.h"
#include "fluid/layers/tensor.h"
#include "fluid/program/default_programs.h"
#include "tests/golden/golden_layers.h"

namespace fleet::golden {
namespace {

namespace layers = fluid::layers;
using fluid::DType;
using fluid::Shape;
using fluid::Variable;

std::string text(Call& call, const char* name, const char* otherwise = "") {
  return call.args.get<std::string>(name, otherwise);
}

double number(Call& call, const char* name, double otherwise) {
  return call.args.get<double>(name, otherwise);
}

bool flag(Call& call, const char* name, bool otherwise) {
  return call.args.get<bool>(name, otherwise);
}

DType dtype(Call& call, const char* otherwise = "float32") {
  return fluid::parse_dtype(text(call, "dtype", otherwise));
}

Shape shape(Call& call) {
  return Shape(call.args.get<std::vector<int64_t>>("shape", {}));
}

std::vector<int> numbers(Call& call, const char* name) {
  const Json* found = call.args.find(name);
  if (found == nullptr) return {};
  return found->is_array() ? found->get<std::vector<int>>() : std::vector{found->get<int>()};
}

void add_comparisons(std::map<std::string, Builder>& builders) {
  using Compare = Variable (*)(const Variable&, const Variable&, const Variable&);
  const std::map<std::string, Compare> compare = {{"less_than", layers::less_than},
                                                  {"less_equal", layers::less_equal},
                                                  {"greater_than", layers::greater_than},
                                                  {"greater_equal", layers::greater_equal},
                                                  {"equal", layers::equal},
                                                  {"not_equal", layers::not_equal}};
  for (const auto& [name, layer] : compare) {
    builders[name] = [layer = layer](Call& call) -> Outputs {
      return {layer(call.in("x"), call.in("y"), call.maybe("cond"))};
    };
  }
  using Logical =
      Variable (*)(const Variable&, const Variable&, const Variable&, const std::string&);
  const std::map<std::string, Logical> logical = {{"logical_and", layers::logical_and},
                                                  {"logical_or", layers::logical_or},
                                                  {"logical_xor", layers::logical_xor}};
  for (const auto& [name, layer] : logical) {
    builders[name] = [layer = layer](Call& call) -> Outputs {
      return {layer(call.in("x"), call.in("y"), call.maybe("out"), text(call, "name"))};
    };
  }
  builders["logical_not"] = [](Call& call) -> Outputs {
    return {layers::logical_not(call.in("x"), call.maybe("out"), text(call, "name"))};
  };
  using Judge = Variable (*)(const Variable&);
  const std::map<std::string, Judge> judges = {
      {"isfinite", layers::isfinite}, {"has_inf", layers::has_inf}, {"has_nan", layers::has_nan}};
  for (const auto& [name, layer] : judges) {
    builders[name] = [layer = layer](Call& call) -> Outputs { return {layer(call.in("x"))}; };
  }
}

void add_curves(std::map<std::string, Builder>& builders) {
  builders["brelu"] = [](Call& call) -> Outputs {
    return {layers::brelu(call.in("x"), number(call, "t_min", 0.0), number(call, "t_max", 24.0),
                          text(call, "name"))};
  };
  builders["hard_sigmoid"] = [](Call& call) -> Outputs {
    return {layers::hard_sigmoid(call.in("x"), {.slope = number(call, "slope", 0.2),
                                                .offset = number(call, "offset", 0.5),
                                                .name = text(call, "name")})};
  };
  builders["hard_swish"] = [](Call& call) -> Outputs {
    return {layers::hard_swish(call.in("x"), {.threshold = number(call, "threshold", 6.0),
                                              .scale = number(call, "scale", 6.0),
                                              .offset = number(call, "offset", 3.0),
                                              .name = text(call, "name")})};
  };
  builders["stanh"] = [](Call& call) -> Outputs {
    return {layers::stanh(call.in("x"), {.scale_a = number(call, "scale_a", 0.67),
                                         .scale_b = number(call, "scale_b", 1.7159),
                                         .name = text(call, "name")})};
  };
  builders["pow"] = [](Call& call) -> Outputs {
    return {layers::pow(call.in("x"),
                        {.factor = number(call, "factor", 1.0), .name = text(call, "name")})};
  };
  builders["prelu"] = [](Call& call) -> Outputs {
    return {layers::prelu(
        call.in("x"), text(call, "mode"),
        {.param_attr = make_attr(call.args.find("param_attr")), .name = text(call, "name")})};
  };
  builders["log_softmax"] = [](Call& call) -> Outputs {
    return {layers::log_softmax(call.in("input"), call.args.get<int>("axis", -1))};
  };
  builders["label_smooth"] = [](Call& call) -> Outputs {
    return {layers::label_smooth(call.in("label"), {.prior_dist = call.maybe("prior_dist"),
                                                    .epsilon = number(call, "epsilon", 0.1),
                                                    .name = text(call, "name")})};
  };
}

void add_constants(std::map<std::string, Builder>& builders) {
  builders["fill_constant"] = [](Call& call) -> Outputs {
    return {layers::fill_constant(shape(call), dtype(call), number(call, "value", 0.0),
                                  flag(call, "force_cpu", false))};
  };
  builders["uniform_random"] = [](Call& call) -> Outputs {
    return {layers::uniform_random(shape(call), {.dtype = dtype(call),
                                                 .min = number(call, "min", -1.0),
                                                 .max = number(call, "max", 1.0),
                                                 .seed = call.args.get<int>("seed", 0)})};
  };
  builders["gaussian_random"] = [](Call& call) -> Outputs {
    return {layers::gaussian_random(shape(call), {.mean = number(call, "mean", 0.0),
                                                  .std = number(call, "std", 1.0),
                                                  .seed = call.args.get<int>("seed", 0),
                                                  .dtype = dtype(call)})};
  };
  builders["fill_constant_batch_size_like"] = [](Call& call) -> Outputs {
    return {layers::fill_constant_batch_size_like(
        call.in("input"), shape(call), dtype(call), number(call, "value", 0.0),
        {.input_dim_idx = call.args.get<int>("input_dim_idx", 0),
         .output_dim_idx = call.args.get<int>("output_dim_idx", 0),
         .force_cpu = flag(call, "force_cpu", false)})};
  };
  builders["ones"] = [](Call& call) -> Outputs {
    return {layers::ones(shape(call), dtype(call), flag(call, "force_cpu", false))};
  };
  builders["zeros"] = [](Call& call) -> Outputs {
    return {layers::zeros(shape(call), dtype(call), flag(call, "force_cpu", false))};
  };
  builders["zeros_like"] = [](Call& call) -> Outputs { return {layers::zeros_like(call.in("x"))}; };
  builders["range"] = [](Call& call) -> Outputs {
    if (call.has("start")) {
      return {layers::range(call.in("start"), call.in("end"), call.in("step"))};
    }
    return {layers::range(number(call, "start", 0.0), number(call, "end", 0.0),
                          number(call, "step", 1.0), dtype(call))};
  };
  builders["create_global_var"] = [](Call& call) -> Outputs {
    return {layers::create_global_var(shape(call), number(call, "value", 0.0), dtype(call),
                                      {.persistable = flag(call, "persistable", false),
                                       .force_cpu = flag(call, "force_cpu", false),
                                       .name = text(call, "name")})};
  };
  builders["assign"] = [](Call& call) -> Outputs {
    if (!call.has("output")) return {layers::assign(call.in("input"))};
    layers::assign(call.in("input"), call.in("output"));
    return {call.in("output")};
  };
  builders["increment"] = [](Call& call) -> Outputs {
    if (!flag(call, "in_place", true)) throw NotYetKnown("increment with in_place = false");
    return {layers::increment(call.in("x"), number(call, "value", 1.0))};
  };
}

void add_moves(std::map<std::string, Builder>& builders) {
  builders["unstack"] = [](Call& call) -> Outputs {
    return layers::unstack(call.in("x"), call.args.get<int>("axis", 0),
                           call.args.get<int>("num", 0));
  };
  builders["slice"] = [](Call& call) -> Outputs {
    return {layers::slice(call.in("input"), numbers(call, "axes"), numbers(call, "starts"),
                          numbers(call, "ends"))};
  };
  builders["gather"] = [](Call& call) -> Outputs {
    return {layers::gather(call.in("input"), call.in("index"), flag(call, "overwrite", true))};
  };
  builders["scatter"] = [](Call& call) -> Outputs {
    return {layers::scatter(call.in("input"), call.in("index"), call.in("updates"),
                            flag(call, "overwrite", true), text(call, "name"))};
  };
  builders["expand"] = [](Call& call) -> Outputs {
    return {layers::expand(call.in("x"), numbers(call, "expand_times"), text(call, "name"))};
  };
  builders["pad"] = [](Call& call) -> Outputs {
    return {layers::pad(call.in("x"), numbers(call, "paddings"), number(call, "pad_value", 0.0),
                        text(call, "name"))};
  };
  builders["reverse"] = [](Call& call) -> Outputs {
    return {layers::reverse(call.in("x"), numbers(call, "axis"))};
  };
  builders["cumsum"] = [](Call& call) -> Outputs {
    return {layers::cumsum(call.in("x"), {.axis = call.args.get<int>("axis", -1),
                                          .exclusive = flag(call, "exclusive", false),
                                          .reverse = flag(call, "reverse", false)})};
  };
  builders["one_hot"] = [](Call& call) -> Outputs {
    return {layers::one_hot(call.in("input"), call.args.get<int>("depth", 0),
                            flag(call, "allow_out_of_range", false))};
  };
  builders["hash"] = [](Call& call) -> Outputs {
    return {layers::hash(call.in("input"), call.args.get<int>("hash_size", 0),
                         call.args.get<int>("num_hash", 1), text(call, "name"))};
  };
  builders["argmin"] = [](Call& call) -> Outputs {
    return {layers::argmin(call.in("x"), call.args.get<int>("axis", 0))};
  };
  builders["argsort"] = [](Call& call) -> Outputs {
    const auto sorted = layers::argsort(call.in("input"), call.args.get<int>("axis", -1),
                                        flag(call, "descending", false), text(call, "name"));
    return {sorted.values, sorted.indices};
  };
  builders["where"] = [](Call& call) -> Outputs {
    if (!call.has("x")) return {layers::where(call.in("condition"))};
    return {layers::where(call.in("condition"), call.in("x"), call.in("y"))};
  };
  builders["shape"] = [](Call& call) -> Outputs { return {layers::shape(call.in("input"))}; };
}

Outputs build_cond(Call& call) {
  const auto yes = call.function("true_fn");
  const auto no = call.function("false_fn");
  return layers::cond(
      call.in("pred"), [&yes] { return yes({}); }, [&no] { return no({}); }, text(call, "name"));
}

Outputs build_while_loop(Call& call) {
  const auto cond = call.function("cond");
  return layers::while_loop([&cond](const Outputs& states) { return cond(states).at(0); },
                            call.function("body"), call.all("loop_vars"),
                            flag(call, "is_test", false), text(call, "name"));
}

void add_arrays(std::map<std::string, Builder>& builders) {
  builders["create_array"] = [](Call& call) -> Outputs {
    return {layers::create_array(dtype(call))};
  };
  builders["array_write"] = [](Call& call) -> Outputs {
    return {layers::array_write(call.in("x"), call.in("i"), call.maybe("array"))};
  };
  builders["array_read"] = [](Call& call) -> Outputs {
    return {layers::array_read(call.in("array"), call.in("i"))};
  };
  builders["array_length"] = [](Call& call) -> Outputs {
    return {layers::array_length(call.in("array"))};
  };
  builders["tensor_array_to_tensor"] = [](Call& call) -> Outputs {
    const auto made =
        layers::tensor_array_to_tensor(call.in("input"), call.args.get<int>("axis", 1),
                                       flag(call, "use_stack", false), text(call, "name"));
    return {made.out, made.sizes};
  };
}

Outputs build_dynamic_lstm(Call& call) {
  const auto made =
      layers::dynamic_lstm(call.in("input"), call.args.get<int64_t>("size", 0),
                           {.h_0 = call.maybe("h_0"),
                            .c_0 = call.maybe("c_0"),
                            .param_attr = make_attr(call.args.find("param_attr")),
                            .bias_attr = make_attr(call.args.find("bias_attr")),
                            .use_peepholes = flag(call, "use_peepholes", true),
                            .is_reverse = flag(call, "is_reverse", false),
                            .gate_activation = text(call, "gate_activation", "sigmoid"),
                            .cell_activation = text(call, "cell_activation", "tanh"),
                            .candidate_activation = text(call, "candidate_activation", "tanh"),
                            .name = text(call, "name")});
  fluid::Block& block = fluid::default_main_program().current_block();
  block.op(block.op_count() - 1).attrs["paddle_form"] = true;
  return {made.hidden, made.cell};
}

Outputs build_dynamic_gru(Call& call) {
  return {layers::dynamic_gru(call.in("input"), call.args.get<int64_t>("size", 0),
                              {.param_attr = make_attr(call.args.find("param_attr")),
                               .bias_attr = make_attr(call.args.find("bias_attr")),
                               .is_reverse = flag(call, "is_reverse", false),
                               .gate_activation = text(call, "gate_activation", "sigmoid"),
                               .candidate_activation = text(call, "candidate_activation", "tanh"),
                               .h_0 = call.maybe("h_0"),
                               .origin_mode = flag(call, "origin_mode", false)})};
}

void add_recurrent(std::map<std::string, Builder>& builders) {
  builders["dynamic_lstm"] = build_dynamic_lstm;
  builders["dynamic_gru"] = build_dynamic_gru;
  builders["sequence_pad"] = [](Call& call) -> Outputs {
    const auto padded = layers::sequence_pad(call.in("x"), call.in("pad_value"),
                                             call.args.get<int>("maxlen", -1), text(call, "name"));
    return {padded.out, padded.length};
  };
  builders["sequence_unpad"] = [](Call& call) -> Outputs {
    return {layers::sequence_unpad(call.in("x"), call.in("length"), text(call, "name"))};
  };
  builders["sequence_mask"] = [](Call& call) -> Outputs {
    return {layers::sequence_mask(call.in("x"), call.args.get<int>("maxlen", -1),
                                  dtype(call, "int64"), text(call, "name"))};
  };
  builders["precision_recall"] = [](Call& call) -> Outputs {
    const auto made =
        layers::precision_recall(call.in("max_probs"), call.in("indices"), call.in("labels"),
                                 call.args.get<int>("class_number", 0), call.maybe("states"));
    return {made.batch_metrics, made.accumulated_metrics, made.states};
  };
}

// A schedule whose rate is a layer like others.
void add_schedules(std::map<std::string, Builder>& builders) {
  for (const char* name :
       {"exponential_decay", "natural_exp_decay", "inverse_time_decay", "polynomial_decay",
        "piecewise_decay", "cosine_decay", "noam_decay", "linear_lr_warmup"}) {
    builders[name] = [name](Call& call) -> Outputs {
      const auto rate = make_rate({{"schedule", name}, {"args", call.args.take_all()}});
      return {rate.variable()};
    };
  }
  builders["autoincreased_step_counter"] = [](Call& call) -> Outputs {
    return {layers::autoincreased_step_counter(text(call, "counter_name"),
                                               call.args.get<int64_t>("begin", 1),
                                               call.args.get<int64_t>("step", 1))};
  };
}

}  // namespace

void add_value_layers(std::map<std::string, Builder>& builders) {
  add_comparisons(builders);
  add_curves(builders);
  add_constants(builders);
  add_moves(builders);
  builders["cond"] = build_cond;
  builders["while_loop"] = build_while_loop;
  add_arrays(builders);
  add_recurrent(builders);
  add_schedules(builders);
}

}  // namespace fleet::golden
