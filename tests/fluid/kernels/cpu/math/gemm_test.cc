#include "fluid/kernels/cpu/math/gemm.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <vector>

#include "base/philox.h"
#include "base/process/tile_pool.h"

namespace fleet::fluid::cpu {
namespace {

template <class T>
std::vector<T> random_values(int64_t n, const char* name) {
  const RandomKey key = RandomKey::of(3, name);
  std::vector<T> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<T>(uniform_double(key, i) - 0.5);
  }
  return values;
}

const std::vector<GemmShape> kShapes = {{1, 1, 1},     {1, 16, 3},    {3, 5, 7},    {8, 32, 16},
                                        {9, 33, 17},   {32, 128, 32}, {32, 2, 128}, {128, 2, 32},
                                        {13, 31, 64},  {6, 47, 5},    {7, 8, 9},    {2, 100, 1},
                                        {64, 48, 100}, {5, 24, 0},    {0, 4, 4}};

// Every way of laying out the operands gives the reference's numbers.
template <class T>
void expect_products(double tolerance) {
  for (GemmShape shape : kShapes) {
    for (int flags = 0; flags < 4; ++flags) {
      shape.transpose_a = (flags & 1) != 0;
      shape.transpose_b = (flags & 2) != 0;
      const auto a = random_values<T>(shape.m * shape.k, "a");
      const auto b = random_values<T>(shape.k * shape.n, "b");
      std::vector<T> wanted(static_cast<size_t>(shape.m * shape.n));
      std::vector<T> got(wanted.size());
      Scratch scratch;
      reference_gemm<T>(shape)->run(a.data(), b.data(), wanted.data(), scratch, Tiles());
      tile_gemm<T>(shape)->run(a.data(), b.data(), got.data(), scratch, Tiles());
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], tolerance);
      if constexpr (std::is_same_v<T, float>) {
        const auto library = onednn_gemm(shape);
        if (library == nullptr) continue;
        library->run(a.data(), b.data(), got.data(), scratch, Tiles());
        for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], tolerance);
      }
    }
  }
}

// Packed products, on any number of threads, have the bits of those over operands where they lie.
template <class T>
void expect_bits_of_tiles(GemmShape shape) {
  TilePool pool({.threads = 3, .spins = false});
  for (int flags = 0; flags < 4; ++flags) {
    shape.transpose_a = (flags & 1) != 0;
    shape.transpose_b = (flags & 2) != 0;
    const auto a = random_values<T>(shape.m * shape.k, "a");
    const auto b = random_values<T>(shape.k * shape.n, "b");
    std::vector<T> wanted(static_cast<size_t>(shape.m * shape.n));
    std::vector<T> got(wanted.size());
    Scratch scratch;
    tile_gemm<T>(shape)->run(a.data(), b.data(), wanted.data(), scratch, Tiles());
    for (const Tiles& tiles : {Tiles(), Tiles(&pool)}) {
      std::fill(got.begin(), got.end(), T{-1});
      blocked_gemm<T>(shape)->run(a.data(), b.data(), got.data(), scratch, tiles);
      EXPECT_EQ(std::memcmp(got.data(), wanted.data(), got.size() * sizeof(T)), 0)
          << shape.m << " x " << shape.n << " x " << shape.k << ", transposed " << flags;
    }
  }
}

TEST(Gemm, PackedProductsHaveTheSameBits) {
  // Beyond a tile of the result in each direction, what is packed at a time, and whole panels.
  for (const GemmShape& shape :
       {GemmShape{1, 1, 1}, GemmShape{5, 17, 3}, GemmShape{200, 150, 300}, GemmShape{6, 140, 1100},
        GemmShape{3100, 20, 9}, GemmShape{401, 259, 257}, GemmShape{8, 16, 256}}) {
    expect_bits_of_tiles<float>(shape);
    expect_bits_of_tiles<double>(shape);
  }
}

TEST(Gemm, AgreesWithTheReference) {
  expect_products<float>(2e-5);
  expect_products<double>(1e-13);
}

TEST(Gemm, EveryInstructionSetAgrees) {
  const IsaLoops* wide = avx512_loops();
  if (wide == nullptr) GTEST_SKIP() << "this machine has no AVX-512";
  const auto a = random_values<float>(33 * 40, "a");
  const auto b = random_values<float>(40 * 50, "b");
  std::vector<float> one(33 * 50);
  std::vector<float> other(one.size());
  GemmArgs<float> args = {33, 50, 40, a.data(), 40, false, b.data(), 50, one.data(), 50};
  avx2_loops()->gemm_f32(args);
  args.c = other.data();
  wide->gemm_f32(args);
  EXPECT_EQ(std::memcmp(one.data(), other.data(), one.size() * sizeof(float)), 0);
}

// A row of the product does not depend on how many rows there are.
TEST(Gemm, RowsHaveTheBitsThatTheyHaveAlone) {
  const GemmShape all = {37, 45, 29};
  const auto a = random_values<float>(37 * 29, "a");
  const auto b = random_values<float>(29 * 45, "b");
  std::vector<float> whole(37 * 45);
  std::vector<float> row(45);
  const auto same_bits = [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  };
  Scratch scratch;
  tile_gemm<float>(all)->run(a.data(), b.data(), whole.data(), scratch, Tiles());
  for (int64_t i = 0; i < 37; ++i) {
    tile_gemm<float>({1, 45, 29})->run(a.data() + i * 29, b.data(), row.data(), scratch, Tiles());
    ASSERT_TRUE(std::equal(row.begin(), row.end(), whole.begin() + i * 45, same_bits)) << i;
  }
}

TEST(Gemm, TransposesOddShapes) {
  for (const auto& [rows, columns] : {std::pair{1, 1}, {8, 8}, {9, 7}, {17, 33}, {3, 100}}) {
    const auto x = random_values<float>(rows * columns, "x");
    std::vector<float> out(x.size());
    transpose(x.data(), rows, columns, out.data());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        ASSERT_EQ(out[static_cast<size_t>(j * rows + i)], x[static_cast<size_t>(i * columns + j)]);
      }
    }
  }
}

}  // namespace
}  // namespace fleet::fluid::cpu
