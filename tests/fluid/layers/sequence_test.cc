// Sequence ops and recurrent nets: gradients, and results worked out by hand.
#include "tests/fluid/gradient_check.h"

namespace fleet::fluid {
namespace {

using testing::ElementsAre;

using Sequences = GradientCheck;

std::vector<double> values_of(const Tensor& tensor) {
  const auto values = tensor.values<double>();
  return {values.begin(), values.end()};
}

TEST_F(Sequences, ArePooledToOneRowEach) {
  const Variable x = data("x", {1}, 1);
  std::vector<Fetch> fetch;
  for (const char* type : {"sum", "average", "sqrt", "max", "first", "last"}) {
    fetch.emplace_back(layers::sequence_pool(x, type, {.pad_value = -5}));
  }
  Tensor rows = Tensor::from(std::vector<double>{1, 3, 2, 4, 9, 16, 11}, {7, 1});
  rows.set_lod(sequences({3, 0, 4}));
  const auto results = executor_.run(main_, {{"x", rows}}, fetch);
  EXPECT_THAT(values_of(results[0]), ElementsAre(6, -5, 40));
  EXPECT_THAT(values_of(results[1]), ElementsAre(2, -5, 10));
  EXPECT_THAT(values_of(results[2]), ElementsAre(testing::DoubleEq(6 / std::sqrt(3.0)), -5, 20));
  EXPECT_THAT(values_of(results[3]), ElementsAre(3, -5, 16));
  EXPECT_THAT(values_of(results[4]), ElementsAre(1, -5, 4));
  EXPECT_THAT(values_of(results[5]), ElementsAre(2, -5, 11));
}

TEST_F(Sequences, OfOtherLengthsNeedNoOtherProgram) {
  const Variable x = data("x", {1}, 1);
  const Variable sum = layers::sequence_pool(x, "sum");
  for (const std::vector<int64_t>& lengths :
       {std::vector<int64_t>{2, 1}, {1, 2}, {3}, {1, 1, 1, 1}}) {
    Tensor rows = Tensor(DType::kFloat64, {sequences(lengths)[0].back(), 1});
    std::fill_n(rows.data<double>(), rows.numel(), 1.0);
    rows.set_lod(sequences(lengths));
    const Tensor result = executor_.run(main_, {{"x", rows}}, {sum})[0];
    EXPECT_THAT(values_of(result), testing::ElementsAreArray(lengths));
  }
}

TEST_F(Sequences, WithoutStructureAreRefusedByName) {
  const Variable x = data("x", {1}, 1);
  const Variable sum = layers::sequence_pool(x, "sum");
  try {
    executor_.run(main_, {{"x", random_tensor({3, 1}, 1)}}, {sum});
    FAIL() << "a tensor without sequences went through";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("sequence_pool"));
    EXPECT_THAT(error.what(), testing::HasSubstr("'x'"));
    EXPECT_THAT(error.what(), testing::HasSubstr("set_lod"));
  }
}

TEST_F(Sequences, ThatDoNotFitTheirRowsAreRefusedByName) {
  const Variable x = data("x", {1}, 1);
  const Variable sum = layers::sequence_pool(x, "sum");
  for (const LoD& wrong : std::vector<LoD>{{{}},
                                           {{0, 5, 3}},
                                           {{1, 3}},
                                           {{-1, 3}},
                                           {{0, 2}},
                                           {{0, 4}},
                                           {{0, 1}, {}},
                                           {{0, 2}, {0, 3}}}) {
    Tensor rows = random_tensor({3, 1}, 1);
    rows.set_lod(wrong);
    expect_error(
        [&] {
          executor_.run(main_, {{"x", rows}}, {sum});
        },
        ErrorCode::kFeed, {"'x'", "set_lod"});
  }
}

TEST_F(Sequences, MayBeNone) {
  const Variable x = data("x", {1}, 1);
  const Variable sum = layers::sequence_pool(x, "sum");
  Tensor none(DType::kFloat64, {0, 1});
  none.set_lod({{0}});
  EXPECT_EQ(executor_.run(main_, {{"x", none}}, {sum})[0].shape()[0], 0);
  none.set_lod({{0, 0, 0}});
  EXPECT_THAT(values_of(executor_.run(main_, {{"x", none}}, {sum})[0]), ElementsAre(0, 0));
}

TEST_F(Sequences, GoThroughPaddingAndBack) {
  const Variable x = data("x", {2}, 1);
  const Variable pad = layers::fill_constant({1}, DType::kFloat64, 7);
  const auto padded = layers::sequence_pad(x, pad, 4);
  const Variable back = layers::sequence_unpad(padded.out, padded.length);
  const Variable mask = layers::sequence_mask(padded.length, 4, DType::kFloat64);
  const Tensor rows = random_sequences({2, 0, 4}, 2, 9);
  const auto results = executor_.run(main_, {{"x", rows}}, {padded.out, padded.length, back, mask});
  EXPECT_EQ(results[0].shape(), Shape({3, 4, 2}));
  EXPECT_EQ(results[0].data<double>()[2 * 2], 7);
  EXPECT_THAT(results[1].values<int64_t>(), ElementsAre(2, 0, 4));
  EXPECT_EQ(values_of(results[2]), values_of(rows));
  EXPECT_EQ(results[2].lod(), rows.lod());
  EXPECT_THAT(values_of(results[3]), ElementsAre(1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1));
}

TEST_F(Sequences, PassGradientsThroughEveryOp) {
  const Variable x = data("x", {3}, 1);
  const Variable h = layers::fc(x, 4, {.act = "tanh"});
  const Variable weights = layers::sequence_softmax(layers::fc(h, 1));
  const Variable context = layers::sequence_conv(h, 5, {.filter_size = 3, .act = "tanh"});
  const Variable both = layers::sequence_concat({context, layers::sequence_reverse(context)});
  const Variable pad = layers::fill_constant({1}, DType::kFloat64, 0.3);
  const auto padded = layers::sequence_pad(both, pad);
  const Variable again = layers::sequence_unpad(padded.out * 1.5, padded.length);
  std::vector<Variable> parts;
  for (const char* type : {"sum", "average", "sqrt", "max", "first", "last"}) {
    parts.push_back(layers::mean(layers::square(layers::sequence_pool(again, type))));
  }
  const Variable pooled = layers::sequence_pool(h, "max");
  const Variable spread = layers::sequence_expand(pooled, h, 0);
  parts.push_back(layers::mean(layers::square(spread * h)));
  parts.push_back(layers::mean(layers::square(weights)));
  expect_gradients(layers::sums(parts), {{"x", random_sequences({3, 1, 5, 2}, 3, 10)}});
}

struct RnnCase {
  bool peepholes;
  bool reverse;
  bool states;
};

class Rnns : public GradientCheck, public testing::WithParamInterface<int> {
 protected:
  bool flag(int bit) const { return (GetParam() >> bit & 1) != 0; }
};

TEST_P(Rnns, PassGradientsBackThroughTime) {
  const Variable x = data("x", {3}, 1);
  layers::DynamicLstmOptions options{.use_peepholes = flag(0), .is_reverse = flag(1)};
  if (flag(2)) {
    const Variable first = layers::fc(layers::sequence_pool(x, "sum"), 4);
    options.h_0 = first;
    options.c_0 = layers::tanh(first);
  }
  const auto lstm = layers::dynamic_lstm(layers::fc(x, 16), 16, options);
  expect_gradients(loss_of(layers::sequence_pool(lstm.hidden, "average")) +
                       loss_of(layers::sequence_pool(lstm.cell, "last")),
                   {{"x", random_sequences({3, 1, 4}, 3, 11)}});
}

TEST_P(Rnns, WithGatesDoSoToo) {
  const Variable x = data("x", {3}, 1);
  layers::DynamicGruOptions options{.is_reverse = flag(1), .origin_mode = flag(0)};
  if (flag(2)) options.h_0 = layers::fc(layers::sequence_pool(x, "sum"), 4);
  const Variable hidden = layers::dynamic_gru(layers::fc(x, 12), 4, options);
  expect_gradients(loss_of(layers::sequence_pool(hidden, "average")),
                   {{"x", random_sequences({2, 4, 1}, 3, 12)}});
}

INSTANTIATE_TEST_SUITE_P(Options, Rnns, testing::Range(0, 8));

}  // namespace
}  // namespace fleet::fluid
