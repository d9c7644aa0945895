#include "fluid/layers/loss.h"
#include "fluid/layers/ops.h"
#include "fluid/layers/tensor.h"
#include "tests/golden/golden_layers.h"

namespace fleet::golden {
namespace {

namespace layers = fluid::layers;
using fluid::Variable;

std::string text(Call& call, const char* name, const char* otherwise = "") {
  return call.args.get<std::string>(name, otherwise);
}

double number(Call& call, const char* name, double otherwise) {
  return call.args.get<double>(name, otherwise);
}

void add_activations(std::map<std::string, Builder>& builders) {
  using Unary = Variable (*)(const Variable&, const std::string&);
  const std::map<std::string, Unary> unary = {{"abs", layers::abs},
                                              {"acos", layers::acos},
                                              {"asin", layers::asin},
                                              {"atan", layers::atan},
                                              {"ceil", layers::ceil},
                                              {"cos", layers::cos},
                                              {"cosh", layers::cosh},
                                              {"erf", layers::erf},
                                              {"exp", layers::exp},
                                              {"floor", layers::floor},
                                              {"log", layers::log},
                                              {"log1p", layers::log1p},
                                              {"logsigmoid", layers::logsigmoid},
                                              {"mean", layers::mean},
                                              {"reciprocal", layers::reciprocal},
                                              {"relu", layers::relu},
                                              {"round", layers::round},
                                              {"rsqrt", layers::rsqrt},
                                              {"sigmoid", layers::sigmoid},
                                              {"sin", layers::sin},
                                              {"sinh", layers::sinh},
                                              {"softplus", layers::softplus},
                                              {"softsign", layers::softsign},
                                              {"sqrt", layers::sqrt},
                                              {"square", layers::square},
                                              {"tanh", layers::tanh},
                                              {"tanh_shrink", layers::tanh_shrink}};
  for (const auto& [name, layer] : unary) {
    builders[name] = [layer = layer](Call& call) -> Outputs {
      return {layer(call.in("x"), text(call, "name"))};
    };
  }
  // With one number: its name and usual value.
  using WithNumber = Variable (*)(const Variable&, double, const std::string&);
  struct Row {
    WithNumber layer;
    const char* argument;
    double usual;
  };
  const std::map<std::string, Row> with_number = {
      {"relu6", {layers::relu6, "threshold", 6.0}},
      {"leaky_relu", {layers::leaky_relu, "alpha", 0.02}},
      {"elu", {layers::elu, "alpha", 1.0}},
      {"soft_relu", {layers::soft_relu, "threshold", 40.0}},
      {"softshrink", {layers::softshrink, "alpha", 0.5}},
      {"hard_shrink", {layers::hard_shrink, "threshold", 0.5}},
      {"thresholded_relu", {layers::thresholded_relu, "threshold", 1.0}}};
  for (const auto& [name, row] : with_number) {
    builders[name] = [row = row](Call& call) -> Outputs {
      return {row.layer(call.in("x"), number(call, row.argument, row.usual), text(call, "name"))};
    };
  }
  // The release gives beta to the op under a name that it does not have.
  builders["swish"] = [](Call& call) -> Outputs {
    number(call, "beta", 1.0);
    return {layers::swish(call.in("x"), 1.0, text(call, "name"))};
  };
  builders["sign"] = [](Call& call) -> Outputs { return {layers::sign(call.in("x"))}; };
  builders["gelu"] = [](Call& call) -> Outputs {
    return {layers::gelu(call.in("x"), call.args.get<bool>("approximate", false))};
  };
}

void add_arithmetic(std::map<std::string, Builder>& builders) {
  using Binary = Variable (*)(const Variable&, const Variable&, const layers::ElementwiseOptions&);
  const std::map<std::string, Binary> binary = {
      {"elementwise_add", layers::elementwise_add},
      {"elementwise_sub", layers::elementwise_sub},
      {"elementwise_mul", layers::elementwise_mul},
      {"elementwise_div", layers::elementwise_div},
      {"elementwise_max", layers::elementwise_max},
      {"elementwise_min", layers::elementwise_min},
      {"elementwise_pow", layers::elementwise_pow},
      {"elementwise_mod", layers::elementwise_mod},
      {"elementwise_floordiv", layers::elementwise_floordiv}};
  for (const auto& [name, layer] : binary) {
    builders[name] = [layer = layer](Call& call) -> Outputs {
      return {layer(call.in("x"), call.in("y"),
                    {.axis = call.args.get<int>("axis", -1),
                     .act = text(call, "act"),
                     .name = text(call, "name")})};
    };
  }
  using Reduce = Variable (*)(const Variable&, const layers::ReduceOptions&);
  const std::map<std::string, Reduce> reductions = {
      {"reduce_sum", layers::reduce_sum},   {"reduce_mean", layers::reduce_mean},
      {"reduce_max", layers::reduce_max},   {"reduce_min", layers::reduce_min},
      {"reduce_prod", layers::reduce_prod}, {"reduce_all", layers::reduce_all},
      {"reduce_any", layers::reduce_any}};
  for (const auto& [name, layer] : reductions) {
    builders[name] = [layer = layer](Call& call) -> Outputs {
      layers::ReduceOptions options{.keep_dim = call.args.get<bool>("keep_dim", false),
                                    .name = text(call, "name")};
      if (const Json* dim = call.args.find("dim")) {
        options.dim = dim->is_array() ? dim->get<std::vector<int>>() : std::vector{dim->get<int>()};
      }
      return {layer(call.in("input"), options)};
    };
  }
  builders["matmul"] = [](Call& call) -> Outputs {
    return {layers::matmul(call.in("x"), call.in("y"),
                           {.transpose_x = call.args.get<bool>("transpose_x", false),
                            .transpose_y = call.args.get<bool>("transpose_y", false),
                            .alpha = number(call, "alpha", 1.0),
                            .name = text(call, "name")})};
  };
  builders["mul"] = [](Call& call) -> Outputs {
    return {layers::mul(call.in("x"), call.in("y"),
                        {.x_num_col_dims = call.args.get<int>("x_num_col_dims", 1),
                         .y_num_col_dims = call.args.get<int>("y_num_col_dims", 1),
                         .name = text(call, "name")})};
  };
}

void add_shapes(std::map<std::string, Builder>& builders) {
  builders["squeeze"] = [](Call& call) -> Outputs {
    return {layers::squeeze(call.in("input"), call.args.get<std::vector<int>>("axes", {}),
                            text(call, "name"))};
  };
  builders["unsqueeze"] = [](Call& call) -> Outputs {
    return {layers::unsqueeze(call.in("input"), call.args.get<std::vector<int>>("axes", {}),
                              text(call, "name"))};
  };
  builders["flatten"] = [](Call& call) -> Outputs {
    return {layers::flatten(call.in("x"), call.args.get<int>("axis", 1), text(call, "name"))};
  };
  builders["stack"] = [](Call& call) -> Outputs {
    return {layers::stack(call.all("x"), call.args.get<int>("axis", 0))};
  };
  builders["argmax"] = [](Call& call) -> Outputs {
    return {layers::argmax(call.in("x"), call.args.get<int>("axis", 0))};
  };
  builders["l2_normalize"] = [](Call& call) -> Outputs {
    return {layers::l2_normalize(call.in("x"), call.args.get<int>("axis", -1),
                                 number(call, "epsilon", 1e-12), text(call, "name"))};
  };
  builders["cos_sim"] = [](Call& call) -> Outputs {
    return {layers::cos_sim(call.in("X"), call.in("Y"))};
  };
}

void add_losses(std::map<std::string, Builder>& builders) {
  builders["sigmoid_cross_entropy_with_logits"] = [](Call& call) -> Outputs {
    return {layers::sigmoid_cross_entropy_with_logits(
        call.in("x"), call.in("label"),
        {.ignore_index = call.args.get<int>("ignore_index", -100),
         .name = text(call, "name"),
         .normalize = call.args.get<bool>("normalize", false)})};
  };
  builders["log_loss"] = [](Call& call) -> Outputs {
    return {layers::log_loss(call.in("input"), call.in("label"), number(call, "epsilon", 1e-4),
                             text(call, "name"))};
  };
  builders["huber_loss"] = [](Call& call) -> Outputs {
    return {layers::huber_loss(call.in("input"), call.in("label"), number(call, "delta", 1.0))};
  };
  builders["hinge_loss"] = [](Call& call) -> Outputs {
    return {layers::hinge_loss(call.in("input"), call.in("label"), text(call, "name"))};
  };
  builders["bpr_loss"] = [](Call& call) -> Outputs {
    return {layers::bpr_loss(call.in("input"), call.in("label"), text(call, "name"))};
  };
  builders["rank_loss"] = [](Call& call) -> Outputs {
    return {
        layers::rank_loss(call.in("label"), call.in("left"), call.in("right"), text(call, "name"))};
  };
  builders["margin_rank_loss"] = [](Call& call) -> Outputs {
    return {layers::margin_rank_loss(call.in("label"), call.in("left"), call.in("right"),
                                     number(call, "margin", 0.1), text(call, "name"))};
  };
  builders["kldiv_loss"] = [](Call& call) -> Outputs {
    return {layers::kldiv_loss(call.in("x"), call.in("target"), text(call, "reduction", "mean"),
                               text(call, "name"))};
  };
  builders["mse_loss"] = [](Call& call) -> Outputs {
    return {layers::mse_loss(call.in("input"), call.in("label"))};
  };
  builders["smooth_l1"] = [](Call& call) -> Outputs {
    return {layers::smooth_l1(call.in("x"), call.in("y"),
                              {.inside_weight = call.maybe("inside_weight"),
                               .outside_weight = call.maybe("outside_weight"),
                               .sigma = number(call, "sigma", 1.0)})};
  };
}

}  // namespace

void add_math_layers(std::map<std::string, Builder>& builders) {
  add_activations(builders);
  add_arithmetic(builders);
  add_shapes(builders);
  add_losses(builders);
}

}  // namespace fleet::golden
