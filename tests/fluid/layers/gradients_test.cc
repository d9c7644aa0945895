// Gradients of images, normalisation, embeddings and sampled losses, through their layers.
#include "fluid/ops/paddle_form.h"
#include "tests/fluid/gradient_check.h"

namespace fleet::fluid {
namespace {

using Gradients = GradientCheck;

TEST_F(Gradients, OfConvolutionsWithGroupsStridesAndUnevenPadding) {
  const Variable x = data("x", {4, 7, 6});
  const Variable a =
      layers::conv2d(x, 6, {3, 2}, {.stride = {2, 1}, .padding = {1, 0, 2, 1}, .groups = 2});
  const Variable b = layers::conv2d(layers::tanh(a), 6, 3, {.padding = "SAME", .groups = 6});
  const Variable c = layers::conv2d(b, 2, 2, {.dilation = {2, 1}, .act = "tanh"});
  expect_gradients(loss_of(c), {{"x", random_tensor({2, 4, 7, 6}, 1)}});
}

TEST_F(Gradients, OfConvolutionsWithChannelsLast) {
  const Variable x = data("x", {6, 5, 4});
  const Variable a =
      layers::conv2d(x, 6, 3, {.padding = 1, .groups = 2, .act = "tanh", .data_format = "NHWC"});
  const Variable b = layers::pool2d(
      a, {.pool_size = 2, .pool_type = "avg", .pool_stride = 2, .data_format = "NHWC"});
  const Variable c = layers::conv2d(b, 3, 2, {.data_format = "NHWC"});
  expect_gradients(loss_of(c), {{"x", random_tensor({2, 6, 5, 4}, 2)}});
}

TEST_F(Gradients, OfTransposedConvolutions) {
  const Variable x = data("x", {4, 3, 4});
  const Variable a = layers::conv2d_transpose(
      x, 6,
      {.filter_size = layers::Pair(3), .padding = 1, .stride = 2, .groups = 2, .act = "tanh"});
  const Variable b = layers::conv2d_transpose(a, 2,
                                              {.output_size = layers::Pair(11, 15),
                                               .filter_size = layers::Pair(4, 4),
                                               .padding = 1,
                                               .stride = {2, 2}});
  EXPECT_EQ(a.shape(), Shape({-1, 6, 5, 7}));
  EXPECT_EQ(b.shape(), Shape({-1, 2, 11, 15}));
  expect_gradients(loss_of(b), {{"x", random_tensor({2, 4, 3, 4}, 3)}});
}

TEST_F(Gradients, OfEveryKindOfPooling) {
  const Variable x = data("x", {2, 8, 7});
  const Variable image = layers::conv2d(x, 3, 3, {.padding = 1});
  std::vector<Variable> parts;
  for (const char* type : {"max", "avg"}) {
    for (const bool exclusive : {true, false}) {
      parts.push_back(
          layers::mean(layers::square(layers::pool2d(image, {.pool_size = 3,
                                                             .pool_type = type,
                                                             .pool_stride = 2,
                                                             .pool_padding = 1,
                                                             .ceil_mode = true,
                                                             .exclusive = exclusive}))));
    }
    parts.push_back(layers::mean(layers::square(layers::adaptive_pool2d(image, {3, 2}, type))));
    parts.push_back(layers::mean(
        layers::square(layers::pool2d(image, {.pool_type = type, .global_pooling = true}))));
  }
  expect_gradients(layers::sums(parts), {{"x", random_tensor({2, 2, 8, 7}, 4)}});
}

TEST_F(Gradients, OfNormalisation) {
  const Variable x = data("x", {6, 3, 4});
  Variable image = layers::conv2d(x, 6, 2, {.padding = 1});
  image = layers::batch_norm(image, {.act = "tanh"});
  image = layers::group_norm(image, 3);
  image = layers::batch_norm(image, {.use_global_stats = true});
  const Variable rows = layers::fc(image, 5);
  const Variable normal = layers::batch_norm(layers::layer_norm(rows));
  expect_gradients(loss_of(layers::layer_norm(normal, {.scale = false})),
                   {{"x", random_tensor({4, 6, 3, 4}, 5)}});
}

TEST_F(Gradients, OfNormalisationWithChannelsLast) {
  const Variable x = data("x", {3, 4, 6});
  Variable image = layers::conv2d(x, 6, 2, {.padding = 1, .data_format = "NHWC"});
  image = layers::batch_norm(image, {.act = "tanh", .data_layout = "NHWC"});
  image = layers::group_norm(image, 2, {.data_layout = "NHWC"});
  expect_gradients(loss_of(layers::layer_norm(image, {.begin_norm_axis = 2})),
                   {{"x", random_tensor({3, 3, 4, 6}, 6)}});
}

// Three channels and two, of either layout, and both forms of the gradient.
TEST_F(Gradients, OfGroupsThatDoNotDivideTheChannels) {
  const Variable x = data("x", {4, 3, 4});
  Variable image = layers::conv2d(x, 5, 2);
  image = layers::group_norm(image, 2);
  image = layers::transpose(layers::tanh(image), {0, 2, 3, 1});
  image = layers::group_norm(image, 2, {.data_layout = "NHWC"});
  expect_gradients(loss_of(image), {{"x", random_tensor({2, 4, 3, 4}, 6)}});
}

TEST_F(Gradients, OfGroupNormInPaddlesForm) {
  const Variable x = data("x", {4, 3, 4});
  Variable image = layers::conv2d(x, 5, 2);
  image = layers::group_norm(image, 2);
  image = layers::group_norm(layers::tanh(image), 5, {.param_attr = no_bias()});
  image = layers::group_norm(image, 1, {.bias_attr = no_bias()});
  const Variable loss = loss_of(image);
  take_paddle_forms(main_);
  expect_gradients(loss, {{"x", random_tensor({2, 4, 3, 4}, 6)}});
}

TEST_F(Gradients, TrainsAScaleOfZeroButInPaddlesForm) {
  for (const bool paddle : {false, true}) {
    Program main;
    Program startup;
    const ProgramGuard programs(main, startup);
    const Variable x = data("x", {4, 3, 4});
    const ParamAttr zero{.name = "scale", .initializer = initializer::Constant{.value = 0.0}};
    const Variable image = layers::group_norm(x, 2, {.param_attr = zero});
    const Variable weights = layers::data("w", {4, 3, 4}, DType::kFloat64);
    const Variable loss = layers::mean(image * weights);
    if (paddle) take_paddle_forms(main);
    const auto pairs = append_backward(loss);
    Executor executor;
    executor.run(startup);
    const Feed feed = {{"x", random_tensor({2, 4, 3, 4}, 6)},
                       {"w", random_tensor({2, 4, 3, 4}, 7)}};
    for (const ParamGrad& pair : pairs) {
      if (pair.param.name() != "scale") continue;
      const Tensor grad = executor.run(main, feed, {pair.grad})[0];
      for (const double value : grad.values<double>()) EXPECT_EQ(value == 0.0, paddle);
    }
  }
}

// A window of 3 over an image of 2, in steps of 2, is taken as far as it goes.
TEST_F(Gradients, OfWindowsThatLieOverTheEndOfAnImage) {
  const Variable x = data("x", {3, 2, 2});
  const Variable image = layers::conv2d(x, 4, 3, {.stride = 2});
  EXPECT_EQ(image.shape(), Shape({-1, 4, 1, 1}));
  const Variable wide = layers::conv2d(x, 3, 1);
  std::vector<Variable> parts = {loss_of(image)};
  for (const char* type : {"max", "avg"}) {
    const Variable pooled =
        layers::pool2d(wide, {.pool_size = 3, .pool_type = type, .pool_stride = 2});
    EXPECT_EQ(pooled.shape(), Shape({-1, 3, 1, 1}));
    parts.push_back(loss_of(pooled));
  }
  expect_gradients(layers::sums(parts), {{"x", random_tensor({2, 3, 2, 2}, 8)}});
}

class Embeddings : public GradientCheck, public testing::WithParamInterface<bool> {};

TEST_P(Embeddings, PassGradientsToTheRowsThatWereLookedUp) {
  const Variable first = ids("a", {1});
  const Variable second = ids("b", {3});
  EmbeddingOptions options{.is_sparse = GetParam(),
                           .padding_idx = 2,
                           .param_attr = {.name = "table"},
                           .dtype = DType::kFloat64};
  const Variable x = layers::embedding(first, {9, 4}, options);
  options.padding_idx.reset();
  const Variable y = embedding(second, {9, 4}, options);
  EXPECT_EQ(x.shape(), Shape({-1, 4}));
  EXPECT_EQ(y.shape(), Shape({-1, 3, 4}));
  const Variable loss = layers::mean(layers::square(layers::fc(x, 3))) +
                        layers::mean(layers::square(layers::fc(y, 3)));
  expect_gradients(loss,
                   {{"a", int_tensor({2, 5, 5, 8}, {4, 1})},
                    {"b", int_tensor({0, 2, 5, 1, 1, 1, 8, 7, 2, 0, 0, 3}, {4, 3})}},
                   36);
}

INSTANTIATE_TEST_SUITE_P(DenseAndSparse, Embeddings, testing::Bool());

class Trees : public GradientCheck, public testing::WithParamInterface<bool> {};

TEST_P(Trees, PassGradientsAlongThePath) {
  const Variable x = data("x", {3});
  const Variable label = ids("label", {1});
  const Variable hidden = layers::fc(x, 4, {.act = "tanh"});
  const Variable cost =
      layers::hsigmoid(hidden, label, 7, {.is_sparse = GetParam(), .rows_without_paths = true});
  expect_gradients(
      loss_of(cost),
      {{"x", random_tensor({5, 3}, 7)}, {"label", int_tensor({0, 6, 3, 3, 1}, {5, 1})}}, 30);
}

TEST_P(Trees, OfTheUsersOwnEndWhereTheyEnd) {
  const Variable x = data("x", {3});
  const Variable label = ids("label", {1});
  const Variable table = ids("table", {3});
  const Variable code = ids("code", {3});
  const Variable hidden = layers::fc(x, 4, {.act = "tanh"});
  const Variable cost = layers::hsigmoid(
      hidden, label, 4,
      {.path_table = table, .path_code = code, .is_custom = true, .is_sparse = GetParam()});
  expect_gradients(loss_of(cost),
                   {{"x", random_tensor({2, 3}, 8)},
                    {"label", int_tensor({0, 1}, {2, 1})},
                    {"table", int_tensor({0, 2, -1, 0, 1, 3}, {2, 3})},
                    {"code", int_tensor({1, 0, -1, 0, 1, 1}, {2, 3})}},
                   30);
}

INSTANTIATE_TEST_SUITE_P(DenseAndSparse, Trees, testing::Bool());

}  // namespace
}  // namespace fleet::fluid
