// What a parameter is after some steps, against formulas in double precision: the forms that differ
// from Paddle's, and sparse gradients, whose update is that of the dense gradient.
#include <cmath>
#include <functional>
#include <gmock/gmock.h>
#include <memory>

#include "fluid/executor/executor.h"
#include "fluid/layers/tensor.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid::optimizer {
namespace {

constexpr int64_t kHeight = 4;
constexpr int64_t kWidth = 2;

using Numbers = std::vector<double>;
using Make = std::function<std::unique_ptr<Optimizer>()>;

// The rows of a step's gradient, some of them several times, the last row in one step only.
const std::vector<std::vector<int64_t>>& step_rows() {
  static const std::vector<std::vector<int64_t>> kRows = {{1, 3, 1}, {0, 2, 2},    {1, 1, 1, 0},
                                                          {2},       {0, 1, 2, 0}, {1}};
  return kRows;
}

float first_value(int64_t at) {
  return 0.5F - 0.2F * static_cast<float>(at);
}

float gradient_value(size_t step, size_t at) {
  return std::sin(static_cast<float>(3 * step + 5 * at + 1));
}

SelectedRows gradient_rows(size_t step) {
  const std::vector<int64_t>& rows = step_rows()[step];
  SelectedRows gradient;
  gradient.rows = rows;
  gradient.height = kHeight;
  gradient.value = Tensor(DType::kFloat32, Shape{static_cast<int64_t>(rows.size()), kWidth});
  for (size_t i = 0; i < rows.size() * kWidth; ++i) {
    gradient.value.data<float>()[i] = gradient_value(step, i);
  }
  return gradient;
}

Tensor gradient_dense(size_t step) {
  const SelectedRows rows = gradient_rows(step);
  Tensor dense = Tensor::zeros(DType::kFloat32, Shape{kHeight, kWidth});
  for (size_t i = 0; i < rows.rows.size(); ++i) {
    for (int64_t k = 0; k < kWidth; ++k) {
      dense.data<float>()[rows.rows[i] * kWidth + k] +=
          gradient_value(step, i * kWidth + static_cast<size_t>(k));
    }
  }
  return dense;
}

// The parameter after each step.
std::vector<std::vector<float>> train(const Make& make, bool by_rows) {
  Program main;
  Program startup;
  const ProgramGuard programs(main, startup);
  const unique_name::Guard names;
  const Shape shape{kHeight, kWidth};
  const Variable param =
      layers::create_parameter(shape, DType::kFloat32, {.name = "w", .attr = {.name = "w"}});
  VarDesc desc;
  desc.name = "w@GRAD";
  desc.dtype = DType::kFloat32;
  desc.shape = shape;
  desc.kind = by_rows ? VarKind::kSelectedRows : VarKind::kLodTensor;
  desc.persistable = true;
  const Variable gradient(main.global_block(), main.global_block().add_var(desc));
  make()->apply_gradients({{param, gradient}}, &startup);
  Executor executor;
  executor.run(startup);
  Tensor first(DType::kFloat32, shape);
  for (int64_t i = 0; i < first.numel(); ++i) first.data<float>()[i] = first_value(i);
  executor.scope().var("w") = first;
  std::vector<std::vector<float>> values;
  for (size_t step = 0; step < step_rows().size(); ++step) {
    if (by_rows) {
      executor.scope().var("w@GRAD") = gradient_rows(step);
    } else {
      executor.scope().var("w@GRAD") = gradient_dense(step);
    }
    executor.run(main);
    const auto span = executor.scope().tensor("w").values<float>();
    values.emplace_back(span.begin(), span.end());
  }
  return values;
}

void expect_near(const std::vector<float>& got, const Numbers& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(got[i]), expected[i], 2e-6) << what << ", element " << i;
  }
}

// A rule in double precision: the parameter after a step of this gradient.
using Rule = std::function<void(int step, Numbers& parameter, const Numbers& gradient)>;

void expect_rule(const Make& make, const Rule& rule, bool by_rows) {
  const auto got = train(make, by_rows);
  Numbers parameter;
  for (int64_t i = 0; i < kHeight * kWidth; ++i) {
    parameter.push_back(static_cast<double>(first_value(i)));
  }
  for (size_t step = 0; step < got.size(); ++step) {
    const Tensor dense = gradient_dense(step);
    const auto span = dense.values<float>();
    rule(static_cast<int>(step) + 1, parameter, Numbers(span.begin(), span.end()));
    expect_near(got[step], parameter, "step " + std::to_string(step));
  }
}

struct Named {
  std::string name;
  Make make;
};

template <class O, class Options>
Named named(const std::string& name, const Options& options) {
  return {name, [options] { return std::make_unique<O>(options); }};
}

std::vector<Named> optimizers() {
  return {
      named<SGD>("SGD", SGDOptions{.learning_rate = 0.1}),
      named<Momentum>("Momentum", MomentumOptions{.learning_rate = 0.1, .momentum = 0.9}),
      named<Momentum>("Nesterov",
                      MomentumOptions{.learning_rate = 0.1, .momentum = 0.9, .use_nesterov = true}),
      named<LarsMomentum>("LarsMomentum",
                          LarsMomentumOptions{.learning_rate = 0.1, .momentum = 0.9}),
      named<Adagrad>("Adagrad", AdagradOptions{.learning_rate = 0.1}),
      named<DecayedAdagrad>("DecayedAdagrad", DecayedAdagradOptions{.learning_rate = 0.1}),
      named<Adadelta>("Adadelta", AdadeltaOptions{.epsilon = 1e-3}),
      named<Adam>("Adam", AdamOptions{.learning_rate = 0.1}),
      named<Adamax>("Adamax", AdamaxOptions{.learning_rate = 0.1}),
      named<RMSProp>(
          "RMSProp",
          RMSPropOptions{
              .learning_rate = 0.01, .epsilon = 1e-3, .momentum = 0.5, .centered = true}),
      named<Ftrl>("Ftrl", FtrlOptions{.learning_rate = 0.1, .l1 = 0.05, .l2 = 0.02}),
      named<Lamb>("Lamb", LambOptions{.learning_rate = 0.1}),
  };
}

TEST(SparseForms, RowsUpdateAsTheDenseGradientDoes) {
  for (const Named& optimizer : optimizers()) {
    const auto dense = train(optimizer.make, false);
    const auto rows = train(optimizer.make, true);
    for (size_t step = 0; step < dense.size(); ++step) {
      expect_near(rows[step], Numbers(dense[step].begin(), dense[step].end()),
                  optimizer.name + ", step " + std::to_string(step));
    }
  }
}

// Adam in double precision; with `lazy` rows without a gradient stay.
Rule adam_rule(double rate, bool lazy) {
  auto m = std::make_shared<Numbers>(kHeight * kWidth);
  auto v = std::make_shared<Numbers>(kHeight * kWidth);
  return [=](int step, Numbers& p, const Numbers& g) {
    const auto& rows = step_rows()[static_cast<size_t>(step) - 1];
    const double factor = std::sqrt(1 - std::pow(0.999, step)) / (1 - std::pow(0.9, step));
    for (size_t i = 0; i < p.size(); ++i) {
      const auto row = static_cast<int64_t>(i) / kWidth;
      if (lazy && std::find(rows.begin(), rows.end(), row) == rows.end()) continue;
      (*m)[i] = 0.9 * (*m)[i] + 0.1 * g[i];
      (*v)[i] = 0.999 * (*v)[i] + 0.001 * g[i] * g[i];
      p[i] -= rate * factor * (*m)[i] / (std::sqrt((*v)[i]) + 1e-8);
    }
  };
}

TEST(SparseForms, AdamCorrectsByThePowersOfItsStep) {
  for (const bool lazy : {false, true}) {
    const Make make = [lazy] {
      return std::make_unique<Adam>(AdamOptions{.learning_rate = 0.01, .lazy_mode = lazy});
    };
    expect_rule(make, adam_rule(0.01, lazy), true);
  }
}

TEST(Rules, AdadeltaStepsByTheOldMeanOfUpdates) {
  Numbers squares(kHeight * kWidth);
  Numbers updates(kHeight * kWidth);
  const Rule rule = [&](int, Numbers& p, const Numbers& g) {
    for (size_t i = 0; i < p.size(); ++i) {
      squares[i] = 0.9 * squares[i] + 0.1 * g[i] * g[i];
      const double step = std::sqrt((updates[i] + 1e-3) / (squares[i] + 1e-3)) * g[i];
      updates[i] = 0.9 * updates[i] + 0.1 * step * step;
      p[i] -= step;
    }
  };
  const Make make = [] {
    return std::make_unique<Adadelta>(AdadeltaOptions{.epsilon = 1e-3, .rho = 0.9});
  };
  expect_rule(make, rule, false);
}

TEST(Rules, FtrlHasBothPenalties) {
  constexpr double kRate = 0.1;
  constexpr double kL1 = 0.05;
  constexpr double kL2 = 0.3;
  Numbers squares(kHeight * kWidth);
  Numbers linear(kHeight * kWidth);
  const Rule rule = [&](int, Numbers& p, const Numbers& g) {
    for (size_t i = 0; i < p.size(); ++i) {
      const double sum = squares[i] + g[i] * g[i];
      linear[i] += g[i] - (std::sqrt(sum) - std::sqrt(squares[i])) / kRate * p[i];
      squares[i] = sum;
      const double beyond = std::copysign(kL1, linear[i]) - linear[i];
      const double slope = std::sqrt(sum) / kRate + 2 * kL2;
      p[i] = std::abs(linear[i]) > kL1 ? beyond / slope : 0.0;
    }
  };
  const Make make = [] {
    return std::make_unique<Ftrl>(FtrlOptions{.learning_rate = kRate, .l1 = kL1, .l2 = kL2});
  };
  expect_rule(make, rule, false);
}

double norm(const Numbers& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

TEST(Rules, LambCorrectsItsMoments) {
  Numbers m(kHeight * kWidth);
  Numbers v(kHeight * kWidth);
  const Rule rule = [&](int step, Numbers& p, const Numbers& g) {
    Numbers direction(p.size());
    for (size_t i = 0; i < p.size(); ++i) {
      m[i] = 0.9 * m[i] + 0.1 * g[i];
      v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
      const double mean = m[i] / (1 - std::pow(0.9, step));
      const double square = v[i] / (1 - std::pow(0.999, step));
      direction[i] = mean / (std::sqrt(square) + 1e-6) + 0.01 * p[i];
    }
    const double ratio = norm(p) / norm(direction);
    for (size_t i = 0; i < p.size(); ++i) p[i] -= 0.01 * ratio * direction[i];
  };
  const Make make = [] { return std::make_unique<Lamb>(LambOptions{.learning_rate = 0.01}); };
  expect_rule(make, rule, false);
}

}  // namespace
}  // namespace fleet::fluid::optimizer
