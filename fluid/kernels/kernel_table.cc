#include "fluid/kernels/kernel_table.h"

#include <utility>

#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/device_kernels.h"
#include "fluid/kernels/half/convert.h"
#include "fluid/kernels/half/widened.h"

namespace fleet::fluid {
namespace {

KernelTable make_standard() {
  KernelTable table;
  cpu::register_kernels(table);
  register_device_kernels(table);
  return table;
}

}  // namespace

void KernelTable::add_first(std::string_view op, DeviceKind device, DType dtype, Kernel kernel) {
  if (dtype == DType::kFloat32) {
    auto& wide = widened_[WidenedKey(op, device)];
    wide.insert(wide.begin(), widened(kernel));
  }
  auto& list = kernels_[Key(op, device, dtype)];
  list.insert(list.begin(), std::move(kernel));
}

void KernelTable::add_last(std::string_view op, DeviceKind device, DType dtype, Kernel kernel) {
  if (dtype == DType::kFloat32) widened_[WidenedKey(op, device)].push_back(widened(kernel));
  kernels_[Key(op, device, dtype)].push_back(std::move(kernel));
}

std::span<const Kernel> KernelTable::find(std::string_view op, DeviceKind device,
                                          DType dtype) const {
  const auto found = kernels_.find(Key(op, device, dtype));
  if (found != kernels_.end()) return found->second;
  if (!is_half(dtype)) return {};
  const auto wide = widened_.find(WidenedKey(op, device));
  if (wide == widened_.end()) return {};
  return wide->second;
}

bool KernelTable::knows(std::string_view op, DeviceKind device) const {
  const auto found = kernels_.lower_bound(Key(op, device, DType::kBool));
  return found != kernels_.end() && std::get<0>(found->first) == op &&
         std::get<1>(found->first) == device;
}

std::vector<KernelTable::Row> KernelTable::rows() const {
  std::vector<Row> rows;
  for (const auto& [key, kernels] : kernels_) {
    rows.push_back({.op = std::get<0>(key),
                    .device = std::get<1>(key),
                    .dtype = std::get<2>(key),
                    .kernels = kernels});
  }
  return rows;
}

std::vector<std::string> KernelTable::ops(DeviceKind device) const {
  std::vector<std::string> names;
  for (const auto& [key, kernels] : kernels_) {
    if (std::get<1>(key) != device) continue;
    if (names.empty() || names.back() != std::get<0>(key)) names.push_back(std::get<0>(key));
  }
  return names;
}

const KernelTable& KernelTable::standard() {
  static const KernelTable kTable = make_standard();
  return kTable;
}

const KernelTable& kernel_table(const Program& program) {
  return program.op_library() ? program.op_library()->kernels() : KernelTable::standard();
}

}  // namespace fleet::fluid
