// Kernels that compute with OpenMP leave the caller's threads as they were.
#include <gtest/gtest.h>
#include <omp.h>
#include <thread>
#include <vector>

#include "fluid/executor/executor.h"
#include "fluid/kernels/cpu/math/gemm.h"
#include "fluid/layers/layers.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid {
namespace {

// What `work` leaves of the threads that its caller asked for.
template <class Work>
int threads_after(int wanted, const Work& work) {
  int after = 0;
  std::thread caller([&] {
    omp_set_num_threads(wanted);
    work();
    after = omp_get_max_threads();
  });
  caller.join();
  return after;
}

TEST(OpenMp, IsTheCallersAfterAProduct) {
  const auto product = [] {
    const auto gemm = cpu::onednn_gemm({.m = 4, .n = 5, .k = 6});
    ASSERT_NE(gemm, nullptr);
    const std::vector<float> a(24, 1.0F);
    const std::vector<float> b(30, 1.0F);
    std::vector<float> c(20);
    Scratch scratch;
    gemm->run(a.data(), b.data(), c.data(), scratch, Tiles());
    EXPECT_EQ(c.front(), 6.0F);
  };
  EXPECT_EQ(threads_after(3, product), 3);
  EXPECT_EQ(threads_after(1, product), 1);
}

// A convolution that oneDNN computes, and its gradients' products.
TEST(OpenMp, IsTheCallersAfterAProgram) {
  Program main;
  Program startup;
  const ProgramGuard programs(main, startup);
  const auto image = layers::data("image", {16, 12, 12});
  const auto hidden = layers::conv2d(image, 32, 3, {.stride = 2, .groups = 4, .act = "relu"});
  const auto out = layers::fc(layers::fc(hidden, 2048), 2048);
  const auto run = [&] {
    Executor executor;
    executor.run(startup);
    executor.run(main, {{"image", Tensor::zeros(DType::kFloat32, {4, 16, 12, 12})}}, {out.name()});
  };
  EXPECT_EQ(threads_after(3, run), 3);
}

}  // namespace
}  // namespace fleet::fluid
