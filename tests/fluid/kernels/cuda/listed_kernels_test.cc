// The list of device kernels that every build has (device_kernel_list.h), against those that this
// build registers. Needs no device.
#include <gtest/gtest.h>
#include <initializer_list>
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

// Ops with a kernel on the CPU and none on a device. Whoever takes a kernel away adds its op here,
// and says what for.
std::set<std::string> on_the_host() {
  std::set<std::string> ops;
  const auto add = [&ops](std::initializer_list<const char*> names) {
    for (const char* name : names) ops.emplace(name);
  };
  // Jobs with servers, and what averages or compresses what ranks send.
  add({"dc_compensate", "dgc", "dgc_momentum", "fake_init", "interleave_rows", "marked_row_sums",
       "merge_ids", "ref_by_trainer_id", "split_byref", "split_ids", "split_selected_rows",
       "squared_row_sums", "sum_marked_rows"});
  // Growing tables are on the host.
  add({"add_growing_table_shows", "lookup_growing_table", "lookup_growing_table_grad",
       "make_growing_table", "split_growing_rows", "update_growing_table"});
  // Values of the host decide: shapes, blocks, arrays, what is printed.
  add({"lod_array_length", "print", "range", "read_from_array", "read_from_array_grad",
       "select_input", "select_output", "sequence_mask", "tensor_array_to_tensor",
       "tensor_array_to_tensor_grad", "where_index", "write_to_array", "write_to_array_grad"});
  // Ranks meet in the middle of a step.
  add({"sync_batch_norm", "sync_batch_norm_grad", "sync_batch_norm_grad_sums",
       "sync_batch_norm_sums"});
  // Once in a while, or a few numbers.
  add({"assign_value", "auc", "precision_recall", "truncated_gaussian_random"});
  // Not written yet.
  add({"fused_embedding_seq_pool", "fused_embedding_seq_pool_grad", "gru", "gru_grad", "hash",
       "lstm", "lstm_grad", "max_pool2d_with_index", "max_pool2d_with_index_grad", "sequence_conv",
       "sequence_conv_grad", "sequence_pad", "sequence_pad_grad", "sequence_unpad",
       "sequence_unpad_grad"});
  return ops;
}

TEST(ListedKernels, AreOfAllOpsButThoseOfTheHost) {
  std::set<std::string> without;
  for (const std::string& op : KernelTable::standard().ops(DeviceKind::kCpu)) without.insert(op);
  for (const ListedKernels& row : listed_device_kernels()) without.erase(std::string(row.op));
  EXPECT_EQ(without, on_the_host());
}

}  // namespace
}  // namespace fleet::fluid
