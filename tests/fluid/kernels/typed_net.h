// A net of net_cases.h in one floating type, on one place.
#pragma once

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <vector>

#include "base/philox.h"
#include "base/strings.h"
#include "tests/fluid/kernels/net_cases.h"
#include "tests/fluid/kernels/one_op.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid {

// A net in one floating type, and what it computes in some steps.
class TypedNet {
 public:
  TypedNet(const NetCase& net, DType dtype, const KernelTable& kernels = KernelTable::standard(),
           const Place& place = CPUPlace(), bool cuda_graph = false)
      : executor_(place, {.cuda_graph = cuda_graph, .kernels = &kernels}) {
    const ProgramGuard programs(main_, startup_);
    const unique_name::Guard names;
    for (const Variable& var : net.build(dtype)) compared_.emplace_back(var.name());
    executor_.run(startup_);
  }

  // Persistable variables get the values that `other` has.
  void begin_as(TypedNet& other) {
    for (const VarDesc* desc : main_.global_block().vars()) {
      const std::string& name = desc->name;
      Value* value = executor_.scope().find(name);
      if (!desc->persistable || value == nullptr) continue;
      const Tensor from = other.executor_.scope().tensor(name).copy_to(CPUPlace());
      Tensor& own = std::get<Tensor>(*value);
      Tensor to = own.copy_to(CPUPlace());
      ASSERT_EQ(from.shape(), to.shape()) << name;
      for (int64_t i = 0; i < to.numel(); ++i) set_element(to, i, element(from, i));
      own.copy_from(to);
    }
  }

  // The offsets are those of data with sequences.
  std::vector<Tensor> run(int step, int64_t rows = 6,
                          const std::vector<int64_t>& offsets = {0, 2, 6}) {
    return executor_.run(main_, feed(step, rows, offsets), compared_);
  }

  // What outlives steps, by name, in host memory.
  std::map<std::string, Tensor> kept() {
    std::map<std::string, Tensor> tensors;
    for (const VarDesc* desc : main_.global_block().vars()) {
      const std::string& name = desc->name;
      const Value* value = executor_.scope().find(name);
      if (desc->persistable && value != nullptr) {
        tensors[name] = std::get<Tensor>(*value).copy_to(CPUPlace());
      }
    }
    return tensors;
  }

 private:
  Feed feed(int step, int64_t rows, const std::vector<int64_t>& offsets) const {
    Feed feed;
    for (const VarDesc* desc : main_.global_block().vars()) {
      const std::string& name = desc->name;
      if (!desc->is_data) continue;
      Shape shape = desc->shape;
      shape.set(0, rows);
      Tensor tensor(desc->dtype, shape);
      const RandomKey key = RandomKey::of(5, name);
      for (int64_t i = 0; i < tensor.numel(); ++i) {
        const auto word = static_cast<uint64_t>(step);
        const float drawn = uniform_float(key, static_cast<uint64_t>(i), word);
        const auto whole = static_cast<double>((i + step) % 3);
        set_element(tensor, i, is_floating(desc->dtype) ? 0.1 + static_cast<double>(drawn) : whole);
      }
      if (desc->lod_level > 0) tensor.set_lod({offsets});
      feed.emplace_back(name, std::move(tensor));
    }
    return feed;
  }

  Program main_;
  Program startup_;
  Executor executor_;
  std::vector<Fetch> compared_;
};

// Equal but for roundings, in proportion to the largest element.
inline void expect_near(const Tensor& got, const Tensor& exact, double rtol,
                        const std::string& name) {
  ASSERT_EQ(got.shape(), exact.shape()) << name;
  double scale = 1e-2;
  for (int64_t i = 0; i < exact.numel(); ++i) scale = std::max(scale, std::abs(element(exact, i)));
  for (int64_t i = 0; i < got.numel(); ++i) {
    ASSERT_NEAR(element(got, i), element(exact, i), rtol * scale) << name << " element " << i;
  }
}

}  // namespace fleet::fluid
