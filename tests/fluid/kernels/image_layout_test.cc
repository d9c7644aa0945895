// Images that stay in blocks of channels, and results in the memory of an operand, change no bit.
#include "fluid/kernels/image_layout.h"

#include <cstring>
#include <gtest/gtest.h>

#include "base/philox.h"
#include "fluid/executor/executor.h"
#include "fluid/executor/plan/plan_impl.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : key_(RandomKey::of(seed, "image layout")) {}
  int below(int n) {
    return static_cast<int>(uniform_float(key_, next_++) * static_cast<float>(n));
  }
  bool coin() { return below(2) == 0; }

 private:
  RandomKey key_;
  uint64_t next_ = 0;
};

Variable convolution(const Variable& x, Draw& draw) {
  const int64_t channels = x.shape()[1];
  const int64_t filters =
      std::vector<int64_t>{8, 12, 16, 32, 48}[static_cast<size_t>(draw.below(5))];
  const bool grouped = channels % 2 == 0 && filters % 2 == 0 && draw.coin();
  const int size = draw.coin() ? 3 : 1;
  return layers::conv2d(x, filters, size,
                        {.stride = 1 + draw.below(2) * (x.shape()[2] > 3 ? 1 : 0),
                         .padding = size / 2,
                         .groups = grouped ? 2 : 1,
                         .bias_attr = {.omit = draw.coin()},
                         .act = draw.coin() ? "relu" : ""});
}

Variable activation(const Variable& x, Draw& draw) {
  switch (draw.below(6)) {
    case 0:
      return layers::relu(x);
    case 1:
      return layers::tanh(x);
    case 2:
      return layers::leaky_relu(x, 0.1);
    case 3:
      return layers::swish(x);
    case 4:
      return layers::scale(x, {.scale = 0.5, .bias = 0.25});
    default:
      return layers::square(x);
  }
}

Variable norm(const Variable& x, Draw& draw) {
  const bool last = draw.below(5) == 0;
  return layers::batch_norm(x, {.act = draw.coin() ? "relu" : "",
                                .data_layout = last ? "NHWC" : "NCHW",
                                .use_global_stats = draw.below(4) == 0});
}

Variable pair(const Variable& x, Draw& draw) {
  const auto other = draw.coin() ? x : layers::sigmoid(x);
  switch (draw.below(5)) {
    case 0:
      return layers::elementwise_mul(x, other);
    case 1:
      return layers::elementwise_sub(x, layers::tanh(x));
    case 2:
      return layers::sums({x, other, layers::relu(x)});
    case 3:
      return layers::concat({x, other}, 1);
    default:
      return layers::elementwise_add(layers::relu(x), other);
  }
}

Variable layer(const Variable& x, Draw& draw) {
  switch (draw.below(9)) {
    case 0:
    case 1:
    case 2:
      return convolution(x, draw);
    case 3:
    case 4:
      return norm(x, draw);
    case 5:
      return activation(x, draw);
    case 6:
      return pair(x, draw);
    case 7:
      return layers::dropout(x, 0.3);
    default:
      return layers::pool2d(x, {.pool_size = 2,
                                .pool_type = draw.coin() ? "max" : "avg",
                                .pool_stride = 1,
                                .pool_padding = 1});
  }
}

struct Net {
  Program main;
  Program startup;
  std::string cost;

  explicit Net(uint64_t seed) {
    Draw draw(seed);
    main.set_random_seed(seed + 1);
    startup.set_random_seed(seed + 1);
    const ProgramGuard programs(main, startup);
    const unique_name::Guard names;
    const Variable x = layers::data("x", {draw.coin() ? 3 : 16, 5 + draw.below(8), 6});
    Variable last = layers::conv2d(x, 16, 3, {.padding = 1});
    for (int i = 0; i < 8; ++i) last = layer(last, draw);
    const Variable loss = layers::mean(layers::tanh(layers::fc(last, 3)));
    optimizer::Momentum({.learning_rate = 0.05, .momentum = 0.9}).minimize(loss);
    cost = loss.name();
  }

  Feed feed(int64_t rows, uint64_t step) const {
    Shape shape = main.global_block().find_var("x")->shape;
    shape.set(0, rows);
    Tensor x(DType::kFloat32, shape);
    const RandomKey key = RandomKey::of(step, "images");
    for (int64_t i = 0; i < x.numel(); ++i) {
      x.data<float>()[i] = uniform_float(key, static_cast<uint64_t>(i)) - 0.5f;
    }
    return {{"x", x}};
  }

  // Everything that ops write and that is not kept: a value that is fetched lies plainly, in memory
  // of its own.
  std::vector<Fetch> all() const {
    std::vector<Fetch> names{cost};
    for (const auto& op : main.global_block().ops()) {
      for (const std::string& name : op->output_names()) {
        const VarDesc* var = main.global_block().find_var(name);
        if (!name.empty() && name != cost && !var->persistable) names.emplace_back(name);
      }
    }
    return names;
  }
};

struct Outcome {
  std::vector<Tensor> values;  // costs, then everything that is kept
};

Outcome train(const Net& net, const std::vector<Fetch>& fetches) {
  Executor executor;
  executor.run(net.startup);
  Outcome outcome;
  for (uint64_t step = 0; step < 3; ++step) {
    const int64_t rows = step == 1 ? 3 : 4;
    outcome.values.push_back(executor.run(net.main, net.feed(rows, step), fetches).front());
  }
  for (const VarDesc* var : net.main.global_block().vars()) {
    if (var->persistable) outcome.values.push_back(executor.scope().tensor(var->name).clone());
  }
  return outcome;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

class RandomImages : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomImages, TrainToTheSameBitsInBlocksAndPlainly) {
  const Net net(GetParam());
  const Outcome fast = train(net, {net.cost});
  const Outcome plain = train(net, net.all());
  ASSERT_EQ(fast.values.size(), plain.values.size());
  for (size_t i = 0; i < fast.values.size(); ++i) {
    EXPECT_TRUE(same_bits(fast.values[i], plain.values[i])) << i << "\n" << net.main.to_string();
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomImages, ::testing::Range<uint64_t>(0, 40));

// conv, batch_norm, relu, twice, and the sum of both.
struct Residual {
  Program main;
  Program startup;
  std::string cost;
  std::vector<std::string> images;
  int64_t channels;

  explicit Residual(int64_t width) : channels(width) {
    const ProgramGuard programs(main, startup);
    const unique_name::Guard names;
    const Variable x = layers::data("x", {3, 6, 6});
    const Variable first = conv_norm(x);
    const Variable second = conv_norm(first);
    const Variable sum = layers::elementwise_add(first, second);
    images.push_back(sum.name());
    const Variable loss = layers::mean(layers::fc(sum, 2));
    optimizer::SGD({.learning_rate = 0.1}).minimize(loss);
    cost = loss.name();
  }

  Variable conv_norm(const Variable& x) {
    const Variable conv =
        layers::conv2d(x, channels, 3, {.padding = 1, .bias_attr = {.omit = true}});
    const Variable normal = layers::batch_norm(conv);
    const Variable out = layers::relu(normal);
    for (const auto* var : {&conv, &normal, &out}) images.push_back(var->name());
    return out;
  }
};

// A kernel that computes nothing, but notes how the image comes.
Kernel recorder(std::vector<std::string>& plain, const char* op, const char* slot) {
  return {.name = "recorder",
          .prepare =
              [&plain, op, slot](PrepareContext& context) {
                if (context.in(slot).layout == Layout::kPlain) plain.emplace_back(op);
                return std::unique_ptr<Prepared>();
              },
          .images = ImageOrder::kAny};
}

TEST(ImageLayout, StaysInBlocksBetweenConvolutions) {
  const Residual net(2 * image_block());
  std::vector<std::string> plain;
  KernelTable kernels = KernelTable::standard();
  const auto record = [&](const char* op, const char* slot) {
    kernels.add_first(op, DeviceKind::kCpu, DType::kFloat32, recorder(plain, op, slot));
  };
  record("conv2d", "Input");
  record("batch_norm", "X");
  record("relu", "X");
  record("elementwise_add", "X");
  record("conv2d_grad", "Output@GRAD");
  record("batch_norm_grad", "Y@GRAD");
  record("relu_grad", "Out");
  Executor executor(CPUPlace(), {.kernels = &kernels});
  executor.run(net.startup);
  executor.run(net.main, {{"x", Tensor::zeros(DType::kFloat32, {2, 3, 6, 6})}}, {net.cost});
  // What is fed, and the bias of the fully connected layer.
  EXPECT_EQ(plain, (std::vector<std::string>{"conv2d", "elementwise_add"}));
}

TEST(ImageLayout, PlanSaysWhichVariablesMayLieInBlocks) {
  const auto plan_of = [](const Residual& net, std::vector<std::string> fetches) {
    return Plan::compile({.program = &net.main, .feeds = {"x"}, .fetches = std::move(fetches)},
                         KernelTable::standard(), true);
  };
  const Residual net(2 * image_block());
  const auto plan = plan_of(net, {net.cost});
  for (const std::string& name : net.images) {
    const PlanVar& var = plan->vars()[static_cast<size_t>(plan->find_var(name))];
    // The sum is read by a fully connected layer alone.
    EXPECT_EQ(var.may_block, name != net.images.back()) << name;
  }
  EXPECT_FALSE(plan->vars()[static_cast<size_t>(plan->find_var("x"))].may_block);

  const auto fetching = plan_of(net, {net.cost, net.images.front()});
  const int fetched = fetching->find_var(net.images.front());
  EXPECT_FALSE(fetching->vars()[static_cast<size_t>(fetched)].may_block);

  const Residual odd(image_block() + 1);
  const auto plain = plan_of(odd, {odd.cost});
  for (const PlanVar& var : plain->vars()) EXPECT_FALSE(var.may_block) << var.name;
}

TEST(ImageLayout, ResultsTakeTheMemoryOfOperandsThatDie) {
  const Residual net(image_block());
  const auto plan = Plan::compile({.program = &net.main, .feeds = {"x"}, .fetches = {net.cost}},
                                  KernelTable::standard(), true);
  const auto buffer_of = [&](const std::string& name) {
    return plan->vars()[static_cast<size_t>(plan->find_var(name))].buffer;
  };
  // batch_norm's output dies in relu, whose gradient needs the result only.
  EXPECT_EQ(buffer_of(net.images[1]), buffer_of(net.images[2]));
  // convolutions' outputs live until the gradient of batch_norm.
  EXPECT_NE(buffer_of(net.images[0]), buffer_of(net.images[1]));
}

TEST(ImageLayout, ReorderingThereAndBackGivesTheImage) {
  const int64_t block = image_block();
  Tensor plain(DType::kFloat32, {2, 2 * block, 3, 5});
  for (int64_t i = 0; i < plain.numel(); ++i) plain.data<float>()[i] = static_cast<float>(i);
  Tensor blocked;
  reorder_image(plain, blocked);
  EXPECT_EQ(blocked.layout(), Layout::kBlocked);
  // Image 1, channel block + 2, point (1, 3).
  const int64_t at = ((1 * 2 + 1) * 15 + 8) * block + 2;
  EXPECT_EQ(blocked.data<float>()[at], plain.data<float>()[((2 * block) + block + 2) * 15 + 8]);
  Tensor back;
  reorder_image(blocked, back);
  EXPECT_EQ(back.layout(), Layout::kPlain);
  EXPECT_TRUE(same_bits(plain, back));
}

}  // namespace
}  // namespace fleet::fluid
