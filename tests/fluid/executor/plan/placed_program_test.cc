#include "fluid/executor/plan/placed_program.h"

#include <gmock/gmock.h>

#include "base/strings.h"
#include "tests/fluid/net_fixture.h"
#include "tests/testing/device/emulated_device.h"

namespace fleet::fluid {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class PlacedPrograms : public NetFixture {
 protected:
  // "tanh on the device", "→ host copy of h", one a line.
  std::vector<std::string> lines(const std::function<bool(const std::string&)>& chosen) {
    const KernelTable kernels = testing::kernels_with_device_ops(chosen);
    placed_ = placed_program(main_, kernels, CUDAPlace(0), {.tables_here = true});
    std::vector<std::string> lines;
    for (const PlacedOp& op : placed_.ops) {
      const std::string inside = op.block->index() > 0 ? "  " : "";
      lines.push_back(
          op.op == nullptr
              ? str_cat(inside, "copy ", op.copied->name, op.to_device ? " to device" : " to host")
              : str_cat(inside, op.op->type, ": ", to_string(op.why_host)));
    }
    return lines;
  }

  PlacedProgram placed_;
};

TEST_F(PlacedPrograms, HaveTheirCopiesWherePlacesMeet) {
  const Variable x = layers::data("x", {3});
  const Variable h = layers::tanh(layers::square(x));
  layers::sqrt(h);
  EXPECT_THAT(
      lines([](const std::string& op) { return op == "tanh"; }),
      ElementsAre("square: no kernel on the device",
                  str_cat("copy ", main_.global_block().op(0).output("Out")[0], " to device"),
                  "tanh: on the device", "copy " + h.name() + " to host",
                  "sqrt: no kernel on the device"));
  EXPECT_THAT(placed_.fed, IsEmpty());
  lines([](const std::string&) { return true; });
  ASSERT_EQ(placed_.fed.size(), 1U);
  EXPECT_EQ(placed_.fed[0]->name, "x");
}

TEST_F(PlacedPrograms, HaveTheOpsOfABlockBehindTheOneThatRunsIt) {
  const Variable limit = layers::fill_constant({1}, DType::kInt64, 5);
  const Variable i = layers::fill_constant({1}, DType::kInt64, 0);
  const Variable holds = layers::less_than(i, limit);
  layers::While loop(holds);
  loop.block([&] {
    layers::increment(i);
    layers::assign(layers::less_than(i, limit), holds);
  });
  const std::string to_device = " to device";
  EXPECT_THAT(lines([](const std::string& op) { return op != "fill_constant"; }),
              ElementsAre("fill_constant: no kernel on the device",
                          "fill_constant: no kernel on the device", "copy " + i.name() + to_device,
                          "copy " + limit.name() + to_device, "less_than: on the device",
                          "while: runs a block, whose ops have places of their own",
                          "  copy " + i.name() + to_device, "  increment: on the device",
                          "  copy " + limit.name() + to_device, "  less_than: on the device",
                          "  assign: on the device", "  copy " + i.name() + " to host"));
}

}  // namespace
}  // namespace fleet::fluid
