// Layers over sequences: inputs have lod_level 1 or more (`data(…, {.lod_level = 1})`), their rows
// belong to sequences one after the other. See nn.h for what all layers have in common.
#pragma once

#include <string>
#include <vector>

#include "fluid/layers/numbers.h"
#include "fluid/layers/parameters/param_attr.h"
#include "fluid/program/variable.h"

namespace fleet::fluid::layers {

struct SequencePoolOptions {
  bool is_test = false;
  double pad_value = 0.0;  // for empty sequences
};
// One row per sequence; pool_type: "sum", "average", "sqrt" (sum / sqrt(length)), "max", "last",
// "first".
Variable sequence_pool(const Variable& input, const std::string& pool_type,
                       const SequencePoolOptions& options = {});
Variable sequence_first_step(const Variable& input);
Variable sequence_last_step(const Variable& input);

// Over each sequence; input [rows, 1].
Variable sequence_softmax(const Variable& input, const std::string& name = {});
// Repeats x's sequences (its rows, without lod_level) as often as y's have members at ref_level.
Variable sequence_expand(const Variable& x, const Variable& y, int ref_level = -1,
                         const std::string& name = {});
// Sequence i of each input, joined.
Variable sequence_concat(const std::vector<Variable>& input, const std::string& name = {});
Variable sequence_reverse(const Variable& x, const std::string& name = {});

struct SequenceConvOptions {
  int filter_size = 3;  // rows that make one
  int filter_stride = 1;
  // Where the rows begin, relative to the one computed; absent: centred.
  std::optional<int> padding_start = {};
  ParamAttr bias_attr = {};
  ParamAttr param_attr = {};
  std::string act = {};
  std::string name = {};
};
Variable sequence_conv(const Variable& input, int64_t num_filters,
                       const SequenceConvOptions& options = {});

struct Padded {
  Variable out;     // [sequences, maxlen, …]
  Variable length;  // int64 [sequences]
};
// maxlen -1: the longest sequence's.
Padded sequence_pad(const Variable& x, const Variable& pad_value, int maxlen = -1,
                    const std::string& name = {});
Variable sequence_unpad(const Variable& x, const Variable& length, const std::string& name = {});

// 1 where the position is before the length, else 0; maxlen -1: the largest length.
Variable sequence_mask(const Variable& x, const Number& maxlen = -1, DType dtype = DType::kInt64,
                       const std::string& name = {});

struct DynamicLstmOptions {
  Variable h_0 = {};
  Variable c_0 = {};
  ParamAttr param_attr = {};
  ParamAttr bias_attr = {};
  bool use_peepholes = true;
  bool is_reverse = false;
  std::string gate_activation = "sigmoid";
  std::string cell_activation = "tanh";
  std::string candidate_activation = "tanh";
  std::string name = {};
};
struct HiddenAndCell {
  Variable hidden;
  Variable cell;
};
// Long short-term memory; input [rows, size] is already multiplied (by fc), size = 4 d. Gives
// [rows, d] twice.
HiddenAndCell dynamic_lstm(const Variable& input, int64_t size,
                           const DynamicLstmOptions& options = {});

struct DynamicGruOptions {
  ParamAttr param_attr = {};
  ParamAttr bias_attr = {};
  bool is_reverse = false;
  std::string gate_activation = "sigmoid";
  std::string candidate_activation = "tanh";
  Variable h_0 = {};
  bool origin_mode = false;
};
// Gated recurrent unit; input [rows, 3 size] is already multiplied. Gives [rows, size].
Variable dynamic_gru(const Variable& input, int64_t size, const DynamicGruOptions& options = {});

}  // namespace fleet::fluid::layers
