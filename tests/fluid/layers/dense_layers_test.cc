// Layers of one op: the op, shape and element type that each makes.
#include <functional>

#include "fluid/ops/append.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid {
namespace {

struct LayerCase {
  std::string op;                                    // the last one that the layer appends
  std::function<Variable(const Variable& x)> build;  // x is [-1, 3, 4], float32
  Shape shape = {-1, 3, 4};
  DType dtype = DType::kFloat32;
};

void PrintTo(const LayerCase& layer, std::ostream* out) {
  *out << layer.op;
}

Variable whole(const std::vector<int64_t>& shape) {
  return layers::data("whole", Shape(shape), DType::kInt64, {.append_batch_size = false});
}

void add_activations(std::vector<LayerCase>& all) {
  using Unary = Variable (*)(const Variable&, const std::string&);
  const std::vector<std::pair<std::string, Unary>> unary = {{"acos", layers::acos},
                                                            {"asin", layers::asin},
                                                            {"atan", layers::atan},
                                                            {"cosh", layers::cosh},
                                                            {"erf", layers::erf},
                                                            {"log1p", layers::log1p},
                                                            {"rsqrt", layers::rsqrt},
                                                            {"sinh", layers::sinh},
                                                            {"softplus", layers::softplus},
                                                            {"softsign", layers::softsign},
                                                            {"logsigmoid", layers::logsigmoid},
                                                            {"tanh_shrink", layers::tanh_shrink}};
  for (const auto& [op, layer] : unary) {
    all.push_back({op, [layer = layer](const Variable& x) { return layer(x, {}); }});
  }
  all.push_back({"relu6", [](const Variable& x) { return layers::relu6(x); }});
  all.push_back({"leaky_relu", [](const Variable& x) { return layers::leaky_relu(x); }});
  all.push_back({"elu", [](const Variable& x) { return layers::elu(x); }});
  all.push_back({"gelu", [](const Variable& x) { return layers::gelu(x, true); }});
  all.push_back({"swish", [](const Variable& x) { return layers::swish(x); }});
  all.push_back({"hard_sigmoid", [](const Variable& x) { return layers::hard_sigmoid(x); }});
  all.push_back({"hard_swish", [](const Variable& x) { return layers::hard_swish(x); }});
  all.push_back({"stanh", [](const Variable& x) { return layers::stanh(x); }});
  all.push_back({"soft_relu", [](const Variable& x) { return layers::soft_relu(x); }});
  all.push_back({"softshrink", [](const Variable& x) { return layers::softshrink(x); }});
  all.push_back({"hard_shrink", [](const Variable& x) { return layers::hard_shrink(x); }});
  all.push_back(
      {"thresholded_relu", [](const Variable& x) { return layers::thresholded_relu(x); }});
  all.push_back({"brelu", [](const Variable& x) { return layers::brelu(x); }});
  all.push_back({"pow", [](const Variable& x) { return layers::pow(x, {.factor = 2.0}); }});
  all.push_back({"prelu", [](const Variable& x) { return layers::prelu(x, "element"); }});
}

void add_arithmetic(std::vector<LayerCase>& all) {
  const Shape same = {-1, 3, 4};
  all.push_back({"less_than", [](const Variable& x) { return x < x; }, same, DType::kBool});
  all.push_back({"greater_equal", [](const Variable& x) { return x >= x; }, same, DType::kBool});
  all.push_back({"logical_not", [](const Variable& x) { return layers::logical_not(x > x); }, same,
                 DType::kBool});
  all.push_back({"logical_and",
                 [](const Variable& x) { return layers::logical_and(x > x, x <= x); }, same,
                 DType::kBool});
  all.push_back({"reduce_max",
                 [](const Variable& x) { return layers::reduce_max(x, {.dim = {1}}); },
                 {-1, 4}});
  all.push_back(
      {"reduce_prod",
       [](const Variable& x) { return layers::reduce_prod(x, {.dim = {-1}, .keep_dim = true}); },
       {-1, 3, 1}});
  all.push_back({"reduce_any",
                 [](const Variable& x) { return layers::reduce_any(x > x); },
                 {1},
                 DType::kBool});
  all.push_back({"matmul",
                 [](const Variable& x) { return layers::matmul(x, x, {.transpose_y = true}); },
                 {-1, 3, 3}});
  all.push_back({"matmul",
                 [](const Variable& x) { return layers::matmul(x, layers::create_parameter({4})); },
                 {-1, 3}});
  all.push_back({"mul",
                 [](const Variable& x) {
                   return layers::mul(x, layers::create_parameter({12, 5}));
                 },
                 {-1, 5}});
  all.push_back({"norm", [](const Variable& x) { return layers::l2_normalize(x, -1); }});
  all.push_back({"log", [](const Variable& x) { return layers::log_softmax(x); }});
  all.push_back({"cos_sim", [](const Variable& x) { return layers::cos_sim(x, x); }, {-1, 1}});
}

void add_places(std::vector<LayerCase>& all) {
  all.push_back({"squeeze2", [](const Variable& x) {
                   return layers::squeeze(layers::unsqueeze(x, {1}), {1});
                 }});
  all.push_back({"unsqueeze2",
                 [](const Variable& x) {
                   return layers::unsqueeze(x, {0, -1});
                 },
                 {1, -1, 3, 4, 1}});
  all.push_back({"flatten2", [](const Variable& x) { return layers::flatten(x, 1); }, {-1, 12}});
  all.push_back({"stack",
                 [](const Variable& x) {
                   return layers::stack({x, x}, 1);
                 },
                 {-1, 2, 3, 4}});
  all.push_back(
      {"unstack", [](const Variable& x) { return layers::unstack(x, 1).back(); }, {-1, 4}});
  all.push_back({"slice",
                 [](const Variable& x) {
                   return layers::slice(x, {1, 2}, {1, -2}, {3, 9});
                 },
                 {-1, 2, 2}});
  all.push_back(
      {"gather", [](const Variable& x) { return layers::gather(x, whole({5})); }, {5, 3, 4}});
  all.push_back({"scatter", [](const Variable& x) { return layers::scatter(x, whole({-1}), x); }});
  all.push_back({"expand",
                 [](const Variable& x) {
                   return layers::expand(x, {1, 2, 3});
                 },
                 {-1, 6, 12}});
  all.push_back({"pad",
                 [](const Variable& x) {
                   return layers::pad(x, {0, 0, 1, 2, 0, 0});
                 },
                 {-1, 6, 4}});
  all.push_back({"reverse", [](const Variable& x) { return layers::reverse(x, {1}); }});
  all.push_back({"cumsum", [](const Variable& x) { return layers::cumsum(x, {.axis = 1}); }});
  all.push_back({"cumsum", [](const Variable& x) { return layers::cumsum(x); }, {-1}});
}

void add_numbers(std::vector<LayerCase>& all) {
  all.push_back({"hash",
                 [](const Variable&) {
                   return layers::hash(whole({-1, 2}), 1000, 3);
                 },
                 {-1, 3, 1},
                 DType::kInt64});
  all.push_back({"one_hot",
                 [](const Variable&) {
                   return layers::one_hot(whole({-1, 1}), 7);
                 },
                 {-1, 7}});
  all.push_back(
      {"arg_max", [](const Variable& x) { return layers::argmax(x, 1); }, {-1, 4}, DType::kInt64});
  all.push_back({"argsort",
                 [](const Variable& x) { return layers::argsort(x).indices; },
                 {-1, 3, 4},
                 DType::kInt64});
  all.push_back({"where_index",
                 [](const Variable& x) { return layers::where(x > x); },
                 {-1, 3},
                 DType::kInt64});
  all.push_back({"where", [](const Variable& x) { return layers::where(x > x, x, x); }});
  all.push_back(
      {"isfinite", [](const Variable& x) { return layers::isfinite(x); }, {1}, DType::kBool});
  all.push_back({"shape", [](const Variable& x) { return layers::shape(x); }, {3}, DType::kInt32});
  all.push_back({"range",
                 [](const Variable&) { return layers::range(0, 9, 2, DType::kInt32); },
                 {-1},
                 DType::kInt32});
  all.push_back({"fill_constant_batch_size_like",
                 [](const Variable& x) {
                   return layers::fill_constant_batch_size_like(x, {7, 2}, DType::kInt64, 1);
                 },
                 {-1, 2},
                 DType::kInt64});
  all.push_back({"fill_zeros_like", [](const Variable& x) { return layers::zeros_like(x); }});
}

void add_losses(std::vector<LayerCase>& all) {
  all.push_back({"sigmoid_cross_entropy_with_logits", [](const Variable& x) {
                   return layers::sigmoid_cross_entropy_with_logits(x, x);
                 }});
  all.push_back({"log_loss", [](const Variable& x) { return layers::log_loss(x, x); }});
  all.push_back({"huber_loss", [](const Variable& x) { return layers::huber_loss(x, x, 1.0); }});
  all.push_back({"hinge_loss", [](const Variable& x) { return layers::hinge_loss(x, x); }});
  all.push_back({"rank_loss", [](const Variable& x) { return layers::rank_loss(x, x, x); }});
  all.push_back(
      {"margin_rank_loss", [](const Variable& x) { return layers::margin_rank_loss(x, x, x); }});
  all.push_back({"kldiv_loss", [](const Variable& x) { return layers::kldiv_loss(x, x); }, {1}});
  all.push_back({"kldiv_loss", [](const Variable& x) { return layers::kldiv_loss(x, x, "none"); }});
  all.push_back({"reduce_mean", [](const Variable& x) { return layers::mse_loss(x, x); }, {1}});
  all.push_back(
      {"smooth_l1_loss", [](const Variable& x) { return layers::smooth_l1(x, x); }, {-1, 1}});
  all.push_back({"label_smooth", [](const Variable& x) { return layers::label_smooth(x); }});
  all.push_back({"bpr_loss",
                 [](const Variable& x) {
                   return layers::bpr_loss(x, whole({-1, 3, 1}));
                 },
                 {-1, 3, 1}});
  all.push_back({"auc",
                 [](const Variable& x) {
                   return layers::auc(layers::flatten(x), whole({-1, 1})).auc;
                 },
                 {1},
                 DType::kFloat64});
}

std::vector<LayerCase> layer_cases() {
  std::vector<LayerCase> all;
  add_activations(all);
  add_arithmetic(all);
  add_places(all);
  add_numbers(all);
  add_losses(all);
  return all;
}

class DenseLayers : public testing::TestWithParam<LayerCase> {
 protected:
  Program main_;
  Program startup_;
  ProgramGuard programs_{main_, startup_};
  unique_name::Guard names_;
};

TEST_P(DenseLayers, AppendTheirOp) {
  const Variable out = GetParam().build(layers::data("x", {3, 4}));
  EXPECT_EQ(out.shape(), GetParam().shape);
  EXPECT_EQ(dtype_name(out.dtype()), dtype_name(GetParam().dtype));
  EXPECT_EQ(main_.global_block().ops().back()->type, GetParam().op);
  EXPECT_NO_THROW(verify(main_));
  EXPECT_NO_THROW(verify(startup_));
}

INSTANTIATE_TEST_SUITE_P(Table, DenseLayers, testing::ValuesIn(layer_cases()), [](const auto& row) {
  return row.param.op + "_" + std::to_string(row.index);
});

}  // namespace
}  // namespace fleet::fluid
