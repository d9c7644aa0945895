// The list of device kernels that every build has (device_kernel_list.h), against those that this
// build registers. Needs no device.
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>

#include "base/strings.h"
#include "fluid/kernels/device_kernel_list.h"

namespace fleet::fluid {
namespace {

using Lines = std::map<std::string, std::string>;  // by op

std::string line_of(const std::string& types, const std::string& rows) {
  return str_cat("\"", types, "\"", rows.empty() ? "" : str_cat(", \"", rows, "\""));
}

std::string rows_of(const Kernel& kernel) {
  return kernel.host_slots.empty() ? "rows" : str_cat("rows ", join(kernel.host_slots, " "));
}

// As the list has them.
Lines registered() {
  std::map<std::string, std::vector<std::string>> types;
  std::map<std::string, std::string> rows;
  for (const auto& row : KernelTable::standard().rows()) {
    if (row.device != DeviceKind::kCuda) continue;
    types[row.op].emplace_back(dtype_name(row.dtype));
    // Of some ops those of floating types alone.
    for (const Kernel& kernel : row.kernels) {
      if (kernel.takes_rows) rows[row.op] = rows_of(kernel);
    }
  }
  Lines lines;
  for (const auto& [op, names] : types) lines[op] = line_of(join(names, " "), rows[op]);
  return lines;
}

Lines listed() {
  Lines lines;
  for (const ListedKernels& row : listed_device_kernels()) {
    const std::string line = line_of(std::string(row.dtypes), std::string(row.rows));
    EXPECT_TRUE(lines.emplace(row.op, line).second) << row.op << " is listed twice";
  }
  return lines;
}

std::string line_of(const auto& row) {
  return str_cat("    {\"", row.first, "\", ", row.second, "},\n");
}

bool needs_cudnn(const std::string& op) {
  return op.find("conv2d") != std::string::npos;
}

TEST(ListedKernels, AreThoseThatThisBuildRegisters) {
  const Lines wanted = registered();
  const Lines now = listed();
  const bool with_cudnn = wanted.contains("conv2d");
  std::string more;
  std::string fewer;
  for (const auto& row : wanted) {
    if (const auto found = now.find(row.first); found == now.end() || *found != row)
      more += line_of(row);
  }
  for (const auto& row : now) {
    if (!with_cudnn && needs_cudnn(row.first)) continue;
    if (const auto found = wanted.find(row.first); found == wanted.end() || *found != row)
      fewer += line_of(row);
  }
  EXPECT_TRUE(more.empty()) << "add to fluid/kernels/device_kernel_list.cc:\n" << more;
  EXPECT_TRUE(fewer.empty()) << "remove from fluid/kernels/device_kernel_list.cc:\n" << fewer;
}

TEST(ListedKernels, AreInTheOrderOfTheirNames) {
  std::string last;
  for (const ListedKernels& row : listed_device_kernels()) {
    EXPECT_LT(last, row.op);
    last = row.op;
  }
}

}  // namespace
}  // namespace fleet::fluid
