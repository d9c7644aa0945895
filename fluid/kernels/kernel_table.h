// Which kernels compute which op.
#pragma once

#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "fluid/core/place.h"
#include "fluid/kernels/kernel.h"

namespace fleet::fluid {

// Ordered lists of kernels by (op, device, dtype): fastest first, plain reference last. A value:
// copy the standard one and add to it to bring own kernels.
class KernelTable {
 public:
  // Puts a kernel in front of those that are there.
  void add_first(std::string_view op, DeviceKind device, DType dtype, Kernel kernel);
  // Puts a kernel behind those that are there.
  void add_last(std::string_view op, DeviceKind device, DType dtype, Kernel kernel);

  // Empty when there is none. For a 16-bit type without kernels of its own, those of float32, with
  // what they read widened and what they make rounded (half/widened.h).
  std::span<const Kernel> find(std::string_view op, DeviceKind device, DType dtype) const;
  bool knows(std::string_view op, DeviceKind device) const;
  // Every (op, device, dtype) in order.
  struct Row {
    std::string op;
    DeviceKind device;
    DType dtype;
    std::span<const Kernel> kernels;
  };
  std::vector<Row> rows() const;
  // Names of all ops that have a kernel on the device.
  std::vector<std::string> ops(DeviceKind device) const;

  // The kernels of this library; immutable, safe to read from any thread.
  static const KernelTable& standard();

 private:
  using Key = std::tuple<std::string, DeviceKind, DType>;
  using WidenedKey = std::tuple<std::string, DeviceKind>;
  std::map<Key, std::vector<Kernel>, std::less<>> kernels_;
  std::map<WidenedKey, std::vector<Kernel>, std::less<>> widened_;
};

// What computes the ops of a program: the kernels of its library, or KernelTable::standard()
// without one.
const KernelTable& kernel_table(const Program& program);

}  // namespace fleet::fluid
