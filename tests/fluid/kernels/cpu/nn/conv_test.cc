#include "fluid/kernels/cpu/nn/conv.h"

#include <cmath>
#include <gtest/gtest.h>
#include <utility>
#include <vector>

#include "base/philox.h"

namespace fleet::fluid::cpu {
namespace {

std::vector<const IsaLoops*> all_loops() {
  std::vector<const IsaLoops*> loops = {avx2_loops()};
  if (avx512_loops() != nullptr) loops.push_back(avx512_loops());
  return loops;
}

WindowAxis axis(int64_t in, int64_t kernel, int64_t dilation, int64_t before, int64_t after) {
  WindowAxis made = {
      .in = in, .kernel = kernel, .dilation = dilation, .pad_before = before, .pad_after = after};
  made.out = in + before + after - made.extent() + 1;
  return made;
}

std::vector<ConvShape> shapes() {
  return {
      {.batch = 16, .in = 5, .out = 4, .window = {axis(7, 3, 1, 0, 0), axis(6, 2, 1, 0, 0)}},
      {.batch = 48, .in = 20, .out = 27, .window = {axis(5, 5, 1, 2, 2), axis(8, 3, 1, 1, 1)}},
      {.batch = 31, .in = 6, .out = 7, .window = {axis(9, 3, 2, 4, 1), axis(5, 2, 3, 0, 3)}},
      {.batch = 13, .in = 17, .out = 1, .window = {axis(1, 1, 1, 0, 0), axis(9, 4, 1, 3, 0)}},
      {.batch = 64, .in = 1, .out = 20, .window = {axis(12, 5, 1, 0, 0), axis(13, 5, 1, 0, 0)}},
  };
}

// The operands of a convolution, random.
struct Operands {
  std::vector<float> src;
  std::vector<float> filter;
  std::vector<float> dst;

  explicit Operands(const ConvShape& s)
      : src(numbers(s.batch * s.in * s.window[0].in * s.window[1].in, "src")),
        filter(numbers(s.out * s.in * s.window[0].kernel * s.window[1].kernel, "filter")),
        dst(numbers(s.batch * s.out * s.window[0].out * s.window[1].out, "dst")) {}

  static std::vector<float> numbers(int64_t n, const char* name) {
    const RandomKey key = RandomKey::of(5, name);
    std::vector<float> values(static_cast<size_t>(n));
    for (size_t i = 0; i < values.size(); ++i) values[i] = uniform_float(key, i) - 0.5f;
    return values;
  }

  std::vector<float>& result(ConvPart part) {
    if (part == ConvPart::kForward) return dst;
    return part == ConvPart::kBackwardData ? src : filter;
  }
};

std::vector<float> computed(Conv<float>& conv, ConvPart part, const ConvShape& shape,
                            const Tiles& tiles = Tiles()) {
  Operands operands(shape);
  Scratch scratch;
  conv.run(operands.src.data(), operands.filter.data(), operands.dst.data(), scratch, tiles);
  return operands.result(part);
}

void expect_close(const std::vector<float>& got, const std::vector<float>& expected) {
  float scale = 0;
  for (const float value : expected) scale = std::max(scale, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-5f * scale) << i;
}

constexpr ConvPart kParts[] = {ConvPart::kForward, ConvPart::kBackwardData,
                               ConvPart::kBackwardFilter};

TEST(LaneConv, AgreesWithTheReferenceOnEveryInstructionSet) {
  for (const IsaLoops* isa : all_loops()) {
    for (const ConvShape& shape : shapes()) {
      for (const ConvPart part : kParts) {
        const auto conv = lane_conv(part, shape, *isa);
        if (conv == nullptr) continue;
        SCOPED_TRACE(testing::Message() << isa->name << ", part " << static_cast<int>(part)
                                        << ", batch " << shape.batch);
        expect_close(computed(*conv, part, shape),
                     computed(*reference_conv<float>(part, shape), part, shape));
      }
    }
  }
}

TEST(LaneConv, TakesWhatFillsItsLanesAndRegisters) {
  ConvShape shape = shapes().front();
  const auto taken = [&shape](ConvPart part) {
    return lane_conv(part, shape, *avx2_loops()) != nullptr;
  };
  for (const ConvPart part : kParts) EXPECT_TRUE(taken(part));
  shape.batch = 5;
  EXPECT_FALSE(taken(ConvPart::kForward)) << "five of eight lanes";
  shape.batch = 6;
  EXPECT_TRUE(taken(ConvPart::kForward));
  shape.out = 3;
  EXPECT_FALSE(taken(ConvPart::kForward)) << "three rows";
  EXPECT_TRUE(taken(ConvPart::kBackwardData));
  shape.in = 3;
  EXPECT_FALSE(taken(ConvPart::kBackwardData)) << "three rows";
  EXPECT_TRUE(taken(ConvPart::kBackwardFilter));
}

TEST(LaneConv, LeavesStridesAndImagesInFullBlocksToOthers) {
  ConvShape shape = shapes().front();
  shape.window[0].stride = 2;
  shape.window[0].out = 3;
  EXPECT_EQ(lane_conv(ConvPart::kForward, shape), nullptr);
  shape = shapes().front();
  shape.in = shape.out = 16;
  EXPECT_EQ(lane_conv(ConvPart::kForward, shape), nullptr);
}

// One chain of multiply-adds, as in the product with columns: an image's numbers have the same
// bits in every batch.
TEST(LaneConv, GivesAnImageTheBitsThatItHasAlone) {
  for (const IsaLoops* isa : all_loops()) {
    for (ConvShape shape : shapes()) {
      const auto conv = lane_conv(ConvPart::kForward, shape, *isa);
      if (conv == nullptr) continue;
      const auto together = computed(*conv, ConvPart::kForward, shape);
      const auto images = static_cast<size_t>(shape.batch);
      Operands all(shape);
      shape.batch = 1;
      const auto alone = gemm_conv(ConvPart::kForward, shape);
      Operands one(shape);
      Scratch scratch;
      const size_t in = all.src.size() / images;
      const size_t out = together.size() / images;
      for (size_t i = 0; i < images; ++i) {
        alone->run(all.src.data() + i * in, all.filter.data(), one.dst.data(), scratch, Tiles());
        const std::vector<float> image(together.begin() + static_cast<ptrdiff_t>(i * out),
                                       together.begin() + static_cast<ptrdiff_t>((i + 1) * out));
        ASSERT_EQ(image, one.dst) << isa->name << ", image " << i;
      }
    }
  }
}

// With tiles as small as they get, several times in a row.
void expect_tiles(std::unique_ptr<Conv<float>> (*make)(ConvPart, const ConvShape&),
                  const ConvShape& shape) {
  TilePool pool({.threads = 3, .spins = false});
  for (const ConvPart part : kParts) {
    SCOPED_TRACE(testing::Message() << "part " << static_cast<int>(part));
    const auto conv = make(part, shape);
    ASSERT_NE(conv, nullptr);
    const auto alone = computed(*conv, part, shape);
    expect_close(alone, computed(*reference_conv<float>(part, shape), part, shape));
    for (int i = 0; i < 3; ++i) ASSERT_EQ(computed(*conv, part, shape, Tiles(&pool)), alone);
  }
}

TEST(ConvTiles, HaveTheBitsOfOneThread) {
  const int64_t before = std::exchange(Tiles::elements, 8);
  const ConvShape few_channels = {
      .batch = 37, .in = 5, .out = 6, .window = {axis(9, 3, 1, 1, 1), axis(17, 3, 1, 1, 1)}};
  expect_tiles([](ConvPart part, const ConvShape& s) { return lane_conv(part, s); }, few_channels);
  expect_tiles(gemm_conv, few_channels);
  expect_tiles(reference_conv<float>, few_channels);
  // Fourteen parts of three images, and one of two.
  expect_tiles(
      onednn_conv,
      {.batch = 44, .in = 16, .out = 32, .window = {axis(15, 3, 1, 1, 1), axis(14, 3, 1, 1, 1)}});
  Tiles::elements = before;
}

}  // namespace
}  // namespace fleet::fluid::cpu
