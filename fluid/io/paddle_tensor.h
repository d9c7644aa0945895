// The tensor files of Paddle (Paddle Fluid 1.8.5), which its save ops and
// save_persistables write. Little-endian.
//
//   dense          u32 0; u64 levels of the sequence structure, for each u64 bytes and u64 offsets;
//                  u32 0; i32 n; n bytes protobuf TensorDesc (1: element type, 2: dimensions); data
//   selected rows  u32 0; u64 count; i64 rows; i64 height; then as dense from "u32 0; i32 n" on
//
// A combined file is several of them, one after the other, without names: the program's variables
// sorted by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "fluid/core/value.h"

namespace fleet::fluid {

// Reads one value from the front of `bytes` and moves it on. Every length is checked against what
// is there before memory is taken. kCorruptFile says what is wrong.
Result<Tensor> decode_paddle_tensor(std::span<const std::byte>& bytes);
Result<SelectedRows> decode_paddle_rows(std::span<const std::byte>& bytes);

// Appends a value to `out`. Throws UsageError for an element type that the format lacks: bool,
// int16, int32, int64, float16, float32 and float64 are there.
void encode_paddle(const Tensor& tensor, std::vector<std::byte>& out);
void encode_paddle(const SelectedRows& rows, std::vector<std::byte>& out);

// What stands in a file of selected rows in front of so many row numbers (i64), and between them
// and the values.
void encode_paddle_rows_begin(uint64_t count, std::vector<std::byte>& out);
void encode_paddle_rows_middle(int64_t height, DType dtype, const Shape& shape,
                               std::vector<std::byte>& out);

}  // namespace fleet::fluid
