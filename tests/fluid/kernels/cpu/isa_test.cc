#include "fluid/kernels/cpu/isa.h"

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

namespace fleet::fluid::cpu {
namespace {

std::vector<const IsaLoops*> all_loops() {
  std::vector<const IsaLoops*> loops = {avx2_loops()};
  if (avx512_loops() != nullptr) loops.push_back(avx512_loops());
  return loops;
}

using Loop = void (*)(const float*, float*, size_t);

float one(Loop loop, float x) {
  float out = 0;
  loop(&x, &out, 1);
  return out;
}

// Largest error relative to the true value.
template <class F>
double worst(Loop loop, F truth, float low, float high) {
  double largest = 0;
  for (float x = low; x < high; x += 0.0007f) {
    const double exact = truth(static_cast<double>(x));
    if (std::abs(exact) < 1e-30) continue;
    largest = std::max(largest, std::abs(static_cast<double>(one(loop, x)) / exact - 1));
  }
  return largest;
}

TEST(VectorMaths, IsExactToAFewUnitsInTheLastPlace) {
  for (const IsaLoops* loops : all_loops()) {
    const double bound = 4 * 0x1p-24 * 2;
    EXPECT_LT(worst(
                  loops->exp, [](double x) { return std::exp(x); }, -60, 88),
              bound);
    EXPECT_LT(worst(
                  loops->tanh, [](double x) { return std::tanh(x); }, -12, 12),
              bound);
    EXPECT_LT(worst(
                  loops->sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -60, 60),
              bound);
    EXPECT_LT(worst(
                  loops->log, [](double x) { return std::log(x); }, 0.0007f, 60),
              bound);
    EXPECT_LT(worst(
                  loops->log1p, [](double x) { return std::log1p(x); }, -0.98f, 60),
              bound);
    EXPECT_LT(worst(
                  loops->erf, [](double x) { return std::erf(x); }, -6, 6),
              bound);
  }
}

TEST(VectorMaths, TakesLogarithmsOfAllSizes) {
  for (const IsaLoops* loops : all_loops()) {
    for (const float x : {1e-44f, 1e-40f, 1.2e-38f, 1e-20f, 1e20f, 3.4e38f}) {
      EXPECT_NEAR(one(loops->log, x), std::log(static_cast<double>(x)), 1e-5) << x;
    }
    for (const float x : {1e-30f, -1e-30f, 1e-8f, 1e-4f}) {
      EXPECT_NEAR(one(loops->log1p, x) / x, std::log1p(static_cast<double>(x)) / x, 1e-6) << x;
    }
  }
}

TEST(VectorMaths, KeepsTheValuesAtTheEnds) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const IsaLoops* loops : all_loops()) {
    EXPECT_EQ(one(loops->exp, infinity), infinity);
    EXPECT_EQ(one(loops->exp, 100), infinity);
    EXPECT_EQ(one(loops->exp, -infinity), 0);
    EXPECT_EQ(one(loops->exp, 0), 1);
    EXPECT_TRUE(std::isnan(one(loops->exp, std::nanf(""))));
    EXPECT_NEAR(one(loops->exp, -90), std::exp(-90.0), 1e-44);
    EXPECT_NEAR(one(loops->tanh, infinity), 1, 3e-7);
    EXPECT_NEAR(one(loops->tanh, -infinity), -1, 3e-7);
    EXPECT_EQ(one(loops->tanh, 0), 0);
    EXPECT_TRUE(std::isnan(one(loops->tanh, std::nanf(""))));
    EXPECT_EQ(one(loops->sigmoid, infinity), 1);
    EXPECT_EQ(one(loops->sigmoid, -infinity), 0);
    EXPECT_TRUE(std::isnan(one(loops->sigmoid, std::nanf(""))));
    EXPECT_EQ(one(loops->log, infinity), infinity);
    EXPECT_EQ(one(loops->log, 0), -infinity);
    EXPECT_EQ(one(loops->log, 1), 0);
    EXPECT_TRUE(std::isnan(one(loops->log, -1)));
    EXPECT_TRUE(std::isnan(one(loops->log, std::nanf(""))));
    EXPECT_EQ(one(loops->log1p, infinity), infinity);
    EXPECT_EQ(one(loops->log1p, -1), -infinity);
    EXPECT_TRUE(std::isnan(one(loops->log1p, -2)));
    EXPECT_NEAR(one(loops->erf, infinity), 1, 3e-7);
    EXPECT_NEAR(one(loops->erf, -infinity), -1, 3e-7);
    EXPECT_EQ(one(loops->erf, 0), 0);
    EXPECT_TRUE(std::isnan(one(loops->erf, std::nanf(""))));
  }
}

TEST(VectorMaths, KeepsTheEndsOfExponentialsInVectors) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float x : {infinity, -infinity, std::nanf(""), 100.0f, 88.72f, 88.73f, -87.4f, -90.0f,
                        -103.9f, -104.1f, -1000.0f, 0.0f, -0.0f, 1e-44f}) {
    for (const IsaLoops* loops : all_loops()) {
      std::vector<float> all(64, x);
      loops->exp(all.data(), all.data(), all.size());
      const float alone = one(loops->exp, x);
      for (const float result : all) {
        if (std::isnan(x)) {
          EXPECT_TRUE(std::isnan(result));
        } else {
          EXPECT_EQ(result, alone) << x;
        }
      }
    }
  }
}

TEST(VectorMaths, GivesTheSameBitsWhereverAnArrayIsCut) {
  std::vector<float> x(103);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) * 0.17f - 8;
  for (const IsaLoops* loops : all_loops()) {
    for (const Loop loop : {loops->exp, loops->tanh, loops->sigmoid, loops->log, loops->erf}) {
      std::vector<float> whole(x.size());
      loop(x.data(), whole.data(), x.size());
      for (size_t cut = 0; cut <= x.size(); ++cut) {
        std::vector<float> parts(x.size());
        loop(x.data(), parts.data(), cut);
        loop(x.data() + cut, parts.data() + cut, x.size() - cut);
        ASSERT_EQ(std::memcmp(parts.data(), whole.data(), sizeof(float) * x.size()), 0) << cut;
      }
    }
  }
}

}  // namespace
}  // namespace fleet::fluid::cpu
