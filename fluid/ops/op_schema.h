// What an op is: its slots, attributes, shapes and gradient, as data. Every op has one row in one
// table, listed by hand in fluid/ops/op_table.cc; nothing registers itself. Ops from outside are
// rows of a table of one's own, which programs carry (fluid/kernels/op_library.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fluid/program/program.h"

namespace fleet::fluid {

struct SlotSpec {
  std::string name;
  bool optional = false;  // may be absent or empty
  bool repeated = false;  // may hold several variables
  // Kernels are listed by element type (fluid/kernels/kernel.h, kernel_dtype). That of an op is the
  // type of the value in the first input slot with this mark that has one; without a marked input,
  // the declared type of the variable in the output slot with this mark; without any mark, the type
  // of the value in the first input slot of the row.
  bool gives_dtype = false;
  // Its tensors are numbers that stand for an attribute (ShapeTensor, AxisTensor, …): kernels read
  // them on the host.
  bool for_attribute = false;
};

// Who runs an op.
enum class RunBy : uint8_t {
  kKernel,    // a kernel of the program's kernel table
  kRuntime,   // the communication runtime of the job (fluid/kernels/comm_runtime.h)
  kExecutor,  // the executor, which runs the block in attribute sub_block; only ops of this library
  kShards,    // the executor, for all shards of a step at once: shard_sum (nn/sync_batch_norm.h)
};

// What shape inference sees of one op: the variables behind its slots.
class InferContext {
 public:
  InferContext(Block& block, const Operator& op) : block_(block), op_(op) {}

  const Operator& op() const { return op_; }
  template <class Attrs>
  Attrs attrs() const {
    return parse_attributes<Attrs>(op_.type, op_.attrs);
  }

  bool has_input(std::string_view slot) const { return !op_.input(slot).empty(); }
  bool has_output(std::string_view slot) const;
  size_t input_count(std::string_view slot) const { return op_.input(slot).size(); }
  size_t output_count(std::string_view slot) const { return op_.output(slot).size(); }
  const VarDesc& input(std::string_view slot, size_t i = 0) const;

  // Sets an output's shape, dtype and LoD level; does nothing for an output that nobody wants.
  void set_output(std::string_view slot, const Shape& shape, DType dtype, size_t i = 0,
                  int lod_level = 0);
  // Makes an output selected rows, a tensor array, … instead of a dense tensor.
  void set_kind(std::string_view slot, VarKind kind, size_t i = 0);
  // Output i of a slot is like an input: same shape, dtype, LoD level.
  void share(std::string_view input_slot, std::string_view output_slot, size_t i = 0);

  // Throws ProgramError (a wrong shape) that names op, slot and variable unless the condition
  // holds. `fix` is what the reader can do about it.
  void require(bool condition, std::string_view slot, std::string expected, std::string got,
               std::string fix = {}) const;
  // The same for the element type of an input; all variables of the slot are looked at.
  void require_dtype(std::string_view slot, DType expected) const;

 private:
  VarDesc* output(std::string_view slot, size_t i) const;  // null when nobody wants it
  std::string place(std::string_view slot) const;

  Block& block_;
  const Operator& op_;
};

// What a gradient rule sees: the forward op, and the names that gradients have. A rule returns the
// backward ops; outputs that nobody wants get no name (they are left empty by grad_of_input).
class GradContext {
 public:
  using NameOf = std::function<std::string(const std::string& variable)>;

  GradContext(const Operator& forward, const Block& block, NameOf wanted)
      : forward_(forward), block_(block), wanted_(std::move(wanted)) {}

  const Operator& forward() const { return forward_; }
  const Block& block() const { return block_; }
  // The forward op's names.
  const std::vector<std::string>& input(std::string_view slot) const {
    return forward_.input(slot);
  }
  const std::vector<std::string>& output(std::string_view slot) const {
    return forward_.output(slot);
  }
  // "<name>@GRAD" for each output: the gradients that come in.
  std::vector<std::string> grad_of_output(std::string_view slot) const;
  // The gradients to produce, one per input; an empty list when none is wanted. A single unwanted
  // one among several gets an empty name.
  std::vector<std::string> grad_of_input(std::string_view slot) const;

 private:
  const Operator& forward_;
  const Block& block_;
  NameOf wanted_;  // gradient name, or "" when the variable needs no gradient
};

// What profiles see of one run of an op: the shapes of the values behind its slots.
class RunShapes {
 public:
  using Shapes = std::vector<std::vector<int64_t>>;

  // A shape for each input and output, slot by slot in the order of slot names; empty for a value
  // without one. All three must outlive this.
  RunShapes(const Operator& op, const Shapes& inputs, const Shapes& outputs)
      : op_(op), inputs_(inputs), outputs_(outputs) {}

  // Of the first variable in the slot; empty when there is none.
  std::vector<int64_t> input(std::string_view slot) const;
  std::vector<int64_t> output(std::string_view slot) const;

 private:
  const Operator& op_;
  const Shapes& inputs_;
  const Shapes& outputs_;
};

// What an op of the job's runtime does with values, for reports of where time goes.
enum class CommKind : uint8_t { kReceives, kSends, kReduces };

// How the block of an op that the executor runs is differentiated; only ops of this library.
struct BlockGradient {
  enum class Kind : uint8_t {
    kNone,
    kRuns,   // of conditions and loops: the runs of the block, the last first
    kSteps,  // of a recurrent net: states go from step to step
  };
  Kind kind = Kind::kNone;
  // Of kRuns: the input slot of what the block reads, and the output slot of its scopes.
  std::string inputs = {};
  std::string scopes = {};
};

// An input of which an op takes the norm, and the input slot for the sums of the squares of each
// row ([rows], float64). Without them the op takes the norm of what it has; with them that of the
// whole that its input is a slice of.
struct NormInput {
  std::string of;
  std::string row_sums;
};

// Two ops that together are an update op with the norm of something that it makes on the way.
struct SplitUpdate {
  // Takes the update's inputs without LearningRate and its attributes, and gives Direction and the
  // update's outputs without ParamOut. Updates parts.
  std::string direction = {};
  // Takes Param, Direction and LearningRate, and sums over rows as its own `norms` say; gives
  // ParamOut. Without attributes.
  std::string apply = {};
};

struct OpSchema {
  std::string type;
  std::vector<SlotSpec> inputs;
  std::vector<SlotSpec> outputs;
  // Checks attributes and fills in the defaults; throws ProgramError.
  std::function<AttributeMap(const AttributeMap&)> normalize;
  // Sets shapes and dtypes of the outputs and checks those of the inputs; may be empty for ops
  // without typed outputs.
  std::function<void(InferContext&)> infer;
  // The backward ops; empty for an op that has no gradient.
  std::function<std::vector<Operator>(const GradContext&)> gradient;
  // A claim of an update op (inputs Param and Grad): applied to some rows of a parameter, with
  // these rows of its gradient and states, it makes of them what it makes of them in the whole
  // parameter. Servers keep a parameter whole whose update does not claim it.
  bool updates_parts = false;
  // A claim of an update op: one step with the sum of two gradients is near to two steps with one
  // each. Gradients that an asynchronous worker merges before it sends are added up then; those of
  // other ops are averaged.
  bool linear_in_gradient = false;
  // Of an update op that applies another one to rows of its parameter: the attribute that names
  // that one. What that one's row says of gradients holds for this op (update_schema_of).
  std::string applies = {};
  // Of an update op with these attributes: a gradient of selected rows changes these rows of Param
  // and no others. Empty: it may change all.
  std::function<bool(const AttributeMap&)> changes_named_rows_only;
  // Of an op that does not update parts: Paddle's servers cut its parameters nevertheless, and so
  // do those of this library where DistributeTranspilerConfig::whole_norms is off.
  bool cut_without_norms = false;
  // Norms of whole variables that servers with slices of them can give to the op; see NormInput.
  std::vector<NormInput> norms;
  // Of an update op without `norms`: what stands for it on servers that have slices. Empty: none.
  SplitUpdate split_update;
  // Draws random numbers that depend on what its outputs are called, so that the same op under
  // other names gives others, or counts how often it ran, as lookups of growing tables do:
  // recomputation keeps what it made.
  bool draws_numbers = false;
  // Multiplications and additions of one run, for profiles; empty: they are not counted.
  std::function<double(const RunShapes&)> flops;
  CommKind comm = CommKind::kReceives;
  // Of an op of the job's runtime: it may be given tensors on a device where the runtime sums there
  // (CommRuntime::sums_on).
  bool takes_devices = false;
  // Of an op of the job's runtime: it says when, and neither reads nor writes its variables.
  bool only_orders = false;
  BlockGradient block_gradient;
  RunBy run_by = RunBy::kKernel;
  // Runs once for each logical shard of a step, whatever its role; a step with such an op is cut
  // into shards, as one that trains is. Others run per shard by role.
  bool once_a_shard = false;
  // The outputs are views of the first input's memory, which therefore lives as long as they do.
  bool makes_views = false;
  // The input slot of a table of which the op reads only the rows that its ids or labels name, so
  // that the rest may be on servers; empty for other ops.
  std::string table_slot;
  // Of an op with a table_slot: its output Out is the rows that its input Ids names and nothing
  // else, so that whoever has the table can compute the op. Attribute padding_idx is the id whose
  // row is zeros; is_sparse and remote_prefetch say whether only rows travel. Of another op with a
  // table_slot a kernel says which rows it reads (Kernel::table_rows).
  bool gives_table_rows = false;
  // Of an op that gives_table_rows: the last dimension of Ids is 1, and none of Out's.
  bool ids_end_in_one = false;
  // Of the backward op of an op that gives_table_rows, and has its Ids: the input slot of the
  // table.
  std::string table_gradient_slot;
  // The op gives its output a shape and no values where the servers of the job have them; lookups
  // of its rows are then asked of the job's runtime. Elsewhere a kernel computes it.
  bool leaves_values_to_servers = false;
};

// All ops that programs may use. A value: copy the standard one and add to it to bring own ops.
class OpTable {
 public:
  // Replaces an op of the same type.
  void add(OpSchema schema);
  const OpSchema* find(std::string_view type) const;
  // Throws ProgramError with the nearest known name.
  const OpSchema& at(std::string_view type) const;
  const std::map<std::string, OpSchema, std::less<>>& all() const { return schemas_; }

  // The ops of this library.
  static const OpTable& standard();

 private:
  std::map<std::string, OpSchema, std::less<>> schemas_;
};

// The ops that a program may use: those of its library, or OpTable::standard() without one.
const OpTable& op_table(const Program& program);
// The row of an op of the program; a row without contents for an op that the program's table does
// not have. Valid as long as the program has its library.
const OpSchema& schema_of(const Program& program, const Operator& op);
// The same of an update op; of one that applies another, the row of that.
const OpSchema& update_schema_of(const Program& program, const Operator& op);

}  // namespace fleet::fluid
