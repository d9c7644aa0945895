// Programs of Paddle, written here as its files have them.
#include "fluid/io/paddle_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fluid/executor/executor.h"
#include "fluid/io/paddle_attributes.h"
#include "fluid/io/paddle_wire.h"
#include "tests/testing/own_ops.h"

namespace fleet::fluid {
namespace {

using ::testing::ElementsAre;

// A protobuf message, field by field.
class Message {
 public:
  Message& number(uint32_t field, uint64_t value) {
    paddle::put_varint(bytes_, uint64_t{field} << 3);
    paddle::put_varint(bytes_, value);
    return *this;
  }
  Message& bytes(uint32_t field, std::span<const std::byte> value) {
    paddle::put_varint(bytes_, uint64_t{field} << 3 | 2);
    paddle::put_varint(bytes_, value.size());
    bytes_.insert(bytes_.end(), value.begin(), value.end());
    return *this;
  }
  Message& text(uint32_t field, std::string_view value) {
    return bytes(field, std::as_bytes(std::span(value)));
  }
  Message& message(uint32_t field, const Message& value) { return bytes(field, value.bytes_); }
  const std::vector<std::byte>& all() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

Message tensor_var(const std::string& name, DType dtype, const Shape& shape) {
  Message tensor;
  tensor.number(1, paddle::code_of_dtype(dtype).value());
  for (const int64_t dim : shape.dims()) tensor.number(2, static_cast<uint64_t>(dim));
  const Message type = Message().number(1, 7).message(3, Message().message(1, tensor));
  return Message().text(1, name).message(2, type);
}

Message slot(const std::string& name, const std::string& variable) {
  return Message().text(1, name).text(2, variable);
}

// An op with one attribute, which is on.
Message op_with_flag(const std::string& type, const std::string& flag) {
  return Message().text(3, type).message(4, Message().text(1, flag).number(2, 6).number(10, 1));
}

Program import(const Message& block) {
  return decode_paddle_program(Message().message(1, block).all()).value().program;
}

TEST(PaddlePrograms, AreImportedInPaddlesForm) {
  Message block;
  for (const char* name : {"x", "y", "rest"}) {
    block.message(3, tensor_var(name, DType::kInt64, {4}));
  }
  block.message(4, Message()
                       .text(3, "elementwise_mod")
                       .message(1, slot("X", "x"))
                       .message(1, slot("Y", "y"))
                       .message(2, slot("Out", "rest")));
  const Program program = import(block);
  Executor executor;
  const Tensor x = Tensor::from(std::vector<int64_t>{7, -7, 7, -7}, {4});
  const Tensor y = Tensor::from(std::vector<int64_t>{2, 2, -2, -2}, {4});
  const Tensor rest = executor.run(program, {{"x", x}, {"y", y}}, {"rest"})[0];
  EXPECT_THAT(rest.values<int64_t>(), ElementsAre(1, -1, 1, -1));
}

// cos_sim has a flag for Paddle's executor, which says nothing about values.
TEST(PaddlePrograms, MayAskForShapesAtRunTime) {
  Message block;
  for (const char* name : {"x", "y"}) block.message(3, tensor_var(name, DType::kFloat32, {1, 2}));
  for (const char* name : {"cosine", "x_norm", "y_norm"}) {
    block.message(3, tensor_var(name, DType::kFloat32, {1, 1}));
  }
  Message op = op_with_flag("cos_sim", "@ALL_KERNELS_MUST_COMPUTE_RUNTIME_SHAPE@");
  op.message(1, slot("X", "x")).message(1, slot("Y", "y")).message(2, slot("Out", "cosine"));
  op.message(2, slot("XNorm", "x_norm")).message(2, slot("YNorm", "y_norm"));
  block.message(4, op);
  const Program program = import(block);
  Executor executor;
  const Tensor x = Tensor::from(std::vector<float>{3, 4}, {1, 2});
  const Tensor y = Tensor::from(std::vector<float>{0, 2}, {1, 2});
  const Tensor cosine = executor.run(program, {{"x", x}, {"y", y}}, {"cosine"})[0];
  EXPECT_FLOAT_EQ(cosine.item<float>(), 0.8F);
}

TEST(PaddlePrograms, WithAnotherFlagThatIsOnAreRefused) {
  const Message block = Message().message(4, op_with_flag("cos_sim", "unheard_of"));
  const auto refused = decode_paddle_program(Message().message(1, block).all());
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().to_string(), ::testing::HasSubstr("unheard_of = true"));
}

TEST(PaddlePrograms, MayUseOpsOfOnesOwn) {
  Message block;
  for (const char* name : {"x", "y"}) block.message(3, tensor_var(name, DType::kFloat32, {2}));
  block.message(4,
                Message().text(3, "cubed").message(1, slot("X", "x")).message(2, slot("Out", "y")));
  const auto bytes = Message().message(1, block).all();
  const auto refused = decode_paddle_program(bytes);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.status().to_string(), ::testing::HasSubstr("no op 'cubed'"));
  const Program program = decode_paddle_program(bytes, fleet::testing::own_ops()).value().program;
  Executor executor;
  const Tensor x = Tensor::from(std::vector<float>{2, -3}, {2});
  EXPECT_THAT(executor.run(program, {{"x", x}}, {"y"})[0].values<float>(), ElementsAre(8, -27));
}

// By the release's op protos, for any op.
TEST(PaddleAttributes, AreNeutralAtTheDefaultsOfTheRelease) {
  using paddle::is_neutral;
  EXPECT_TRUE(is_neutral("fuse_brelu_threshold", 6.0));
  EXPECT_FALSE(is_neutral("fuse_brelu_threshold", 5.0));
  EXPECT_TRUE(is_neutral("Scale_in", 1.0));
  EXPECT_FALSE(is_neutral("Scale_in", 2.0));
  EXPECT_TRUE(is_neutral("Scale_weights", std::vector<double>{1.0}));
  EXPECT_FALSE(is_neutral("Scale_weights", std::vector<double>{1.0, 0.5}));
  EXPECT_TRUE(is_neutral("fuse_activation", std::string()));
  EXPECT_FALSE(is_neutral("fuse_activation", std::string("relu")));
  EXPECT_TRUE(is_neutral("use_quantizer", false));
  EXPECT_FALSE(is_neutral("use_quantizer", true));
  for (const char* library : {"use_cudnn", "use_mkldnn", "use_ngraph", "exhaustive_search"}) {
    EXPECT_TRUE(is_neutral(library, true)) << library;
  }
  EXPECT_TRUE(is_neutral("workspace_size_MB", int64_t{4096}));
  EXPECT_FALSE(is_neutral("unheard_of", int64_t{1}));
}

}  // namespace
}  // namespace fleet::fluid
