// The kernel contract. A kernel is a row of the kernel table: (op, device, dtype) -> prepare.
// Preparing happens once per op and set of input shapes, running happens every step.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/philox.h"
#include "base/process/tile_pool.h"
#include "fluid/core/value.h"
#include "fluid/program/program.h"

namespace fleet::fluid {

enum class ValueKind : uint8_t { kNone, kTensor, kSelectedRows, kTensorArray, kRaw };

// What a kernel may specialise on: the outside of a value. `shape` is that of SelectedRows::value
// for selected rows.
struct ValueSpec {
  ValueKind kind = ValueKind::kNone;
  DType dtype = DType::kFloat32;
  Layout layout = Layout::kPlain;
  Shape shape;

  bool operator==(const ValueSpec&) const = default;
};

ValueSpec spec_of(const Value& value);

// Memory that a kernel needs only while it runs; grows to the largest request and stays. Belongs
// to one workspace, so to one thread at a time.
class Scratch {
 public:
  // 64-byte aligned, uninitialised, valid until the next call.
  std::byte* get(size_t bytes);

 private:
  Buffer buffer_;
};

// What a prepared kernel runs with. Values are addressed by the flat positions that
// PrepareContext::input and output gave.
class KernelContext {
 public:
  KernelContext(std::span<Value* const> inputs, std::span<Value* const> outputs, Scratch& scratch)
      : inputs_(inputs), outputs_(outputs), scratch_(&scratch) {}

  // Dense tensors; the position must hold one (the executor checked it against the spec).
  const Tensor& input(int i) const { return *std::get_if<Tensor>(inputs_[static_cast<size_t>(i)]); }
  Tensor& output(int i) const { return *std::get_if<Tensor>(outputs_[static_cast<size_t>(i)]); }
  template <class T>
  const T* in(int i) const {
    return reinterpret_cast<const T*>(input(i).raw());
  }
  template <class T>
  T* out(int i) const {
    return reinterpret_cast<T*>(output(i).raw());
  }
  Value& input_value(int i) const { return *inputs_[static_cast<size_t>(i)]; }
  const SelectedRows& rows_input(int i) const {
    return *std::get_if<SelectedRows>(inputs_[static_cast<size_t>(i)]);
  }
  size_t input_count() const { return inputs_.size(); }
  Value& output_value(int i) const { return *outputs_[static_cast<size_t>(i)]; }

  // For outputs of own_output: makes the output a dense tensor of that shape, or selected rows with
  // values of that shape; the contents are unspecified.
  Tensor& make_dense(int i, DType dtype, const Shape& shape) const;
  SelectedRows& make_rows(int i, DType dtype, const Shape& shape) const;

  Scratch& scratch() const { return *scratch_; }
  // Calls tile(i) for i from 0 to count - 1, in no order and perhaps in several threads at once:
  // what they are comes from shapes alone. A tile does not use scratch().
  template <class Tile>
  void parallel_tiles(int64_t count, const Tile& tile) const {
    tiles_.run(count, tile);
  }
  const Tiles& tiles() const { return tiles_; }
  void* stream() const { return stream_; }
  // Counter-based randomness: steps of this program run before, and the logical shard.
  uint64_t step() const { return step_; }
  int shard() const { return shard_; }

  // A word that is looked at when the step is over and the stream's work is done. Update kernels
  // whose work goes on when `run` has returned, and so cannot call add_written, have that work set
  // it to 1 when an element that they wrote into the parameter is not finite, and never to 0.
  // Kernels on the workspace's stream may write it; it stays where it is.
  uint32_t* nonfinite_word() const { return nonfinite_word_; }

  // The op that runs next is of the same type, on the same device, and touches nothing that this
  // one writes, nor writes what it reads. A kernel may leave its work to that op's, which puts the
  // work of both on the stream, or leaves it to the next.
  bool more_follow() const { return more_follow_; }
  void set_more_follow(bool more) { more_follow_ = more; }

  // Where the op runs and its outputs are.
  const Place& place() const { return place_; }
  void set_place(const Place& place) { place_ = place; }
  void set_stream(void* stream) { stream_ = stream; }
  void set_tiles(Tiles tiles) { tiles_ = tiles; }
  void set_nonfinite_word(uint32_t* word) { nonfinite_word_ = word; }
  void set_step(uint64_t step, int shard) {
    step_ = step;
    shard_ = shard;
    written_ = 0;
  }

  // Update kernels: adds the sum of elements that they wrote into the parameter. It is finite only
  // when all of them are.
  void add_written(double sum) const {
    if (tiles_.parallel()) {
      std::atomic_ref(written_).fetch_add(sum, std::memory_order_relaxed);
    } else {
      written_ += sum;
    }
  }
  double written() const { return written_; }

 private:
  std::span<Value* const> inputs_;
  std::span<Value* const> outputs_;
  Scratch* scratch_;
  Tiles tiles_;
  Place place_;
  void* stream_ = nullptr;  // of the device; null on CPU
  uint32_t* nonfinite_word_ = nullptr;
  uint64_t step_ = 0;
  int shard_ = 0;
  bool more_follow_ = false;
  mutable double written_ = 0;
};

// A kernel made ready for one set of shapes: it may hold library primitives, packed weights and
// scratch of its own. Used by one thread at a time.
class Prepared {
 public:
  virtual ~Prepared() = default;
  virtual void run(const KernelContext& context) = 0;
};

template <class F>
std::unique_ptr<Prepared> make_prepared(F function) {
  class Function final : public Prepared {
   public:
    explicit Function(F f) : function_(std::move(f)) {}
    void run(const KernelContext& context) override { function_(context); }

   private:
    F function_;
  };
  return std::make_unique<Function>(std::move(function));
}

// What prepare sees: the op, its variables, the specs of its inputs; and where it says what its
// outputs will be. The executor gives every declared output memory before run.
class PrepareContext {
 public:
  PrepareContext(const Block& block, const Operator& op, std::span<const ValueSpec> inputs,
                 size_t output_count);

  const Operator& op() const { return op_; }
  const Block& block() const { return block_; }

  // Flat position of variable i of a slot; -1 when the slot has no such variable. For outputs also
  // when nobody wants it.
  int input(std::string_view slot, size_t i = 0) const;
  int output(std::string_view slot, size_t i = 0) const;
  size_t input_count(std::string_view slot) const { return op_.input(slot).size(); }
  size_t output_count(std::string_view slot) const { return op_.output(slot).size(); }

  // The spec behind an input; throws ProgramError naming op and slot when there is none, or it has
  // no value yet.
  const ValueSpec& in(std::string_view slot, size_t i = 0) const;
  bool has_input(std::string_view slot) const { return input(slot) >= 0; }

  // Declares a dense output; does nothing for one that nobody wants. Returns its flat position.
  int set_output(std::string_view slot, const Shape& shape, DType dtype, size_t i = 0);
  // Declares an output whose value the kernel assigns itself while running.
  int own_output(std::string_view slot, size_t i = 0);
  // The kernel itself gives outputs their sequence structure; otherwise they take over that of the
  // first input whose variable has one.
  void own_lod() { own_lod_ = true; }
  bool sets_lod() const { return own_lod_; }
  // True when the output may lie in blocks of channels (fluid/kernels/image_layout.h), as far as
  // the program goes; set_blocked says that the declared output does.
  bool may_block(std::string_view slot) const;
  void set_blocked(std::string_view slot);
  // Null when the slot has no such variable.
  const VarDesc* output_var(std::string_view slot, size_t i = 0) const;
  const VarDesc* input_var(std::string_view slot, size_t i = 0) const;

  // The op's attributes as the struct that fluid/ops declares for it; throws ProgramError for an
  // unknown name or a value of the wrong kind.
  template <class Attrs>
  Attrs attrs() const {
    return parse_attributes<Attrs>(op_.type, op_.attrs);
  }

  // Throws ProgramError (shape mismatch) naming op and slot unless the condition holds.
  void require(bool condition, std::string_view slot, std::string expected, std::string got) const;

  struct OutputSpec {
    bool declared = false;
    bool own = false;
    DType dtype = DType::kFloat32;
    Shape shape;
    Layout layout = Layout::kPlain;
  };
  const std::vector<OutputSpec>& outputs() const { return outputs_; }
  std::span<const ValueSpec> inputs() const { return inputs_; }
  // Declares what a kernel that this one calls declared for the same op.
  void declare(std::vector<OutputSpec> outputs, bool sets_lod) {
    outputs_ = std::move(outputs);
    own_lod_ = sets_lod;
  }
  // Which outputs may lie in blocks; none unless the executor says so.
  void allow_blocks(std::vector<bool> outputs) { may_block_ = std::move(outputs); }

 private:
  const Block& block_;
  const Operator& op_;
  std::span<const ValueSpec> inputs_;
  std::vector<OutputSpec> outputs_;
  std::vector<bool> may_block_;
  bool own_lod_ = false;
};

// Which orders of images (fluid/kernels/image_layout.h) a kernel takes. The executor reorders
// inputs that come otherwise.
enum class ImageOrder : uint8_t {
  kPlain,
  // Either, the same in all images; an element of an output depends on those in its place alone.
  kElements,
  // Either, the same in all images; the other operands are numbers of a channel. The kernel finds
  // the order in the specs.
  kChannels,
  // Each image its own, as it comes; the kernel says itself how its outputs lie.
  kAny,
};

// One way to compute an op. `prepare` returns null when it cannot handle these shapes, layouts or
// attributes; the next kernel of the list is asked then.
struct Kernel {
  std::string name;  // "onednn", "reference"
  std::function<std::unique_ptr<Prepared>(PrepareContext&)> prepare;
  ImageOrder images = ImageOrder::kPlain;
  // An output may be given the memory of an input of its shape; with kChannels, of an image.
  bool in_place = false;
  // An output that has an input's elements in their order. The executor may give it that input's
  // memory on a device, and the kernel leaves it alone then. Unless it reshapes, only an output of
  // the input's shape is one.
  struct View {
    std::string input;
    std::string output;
    bool reshapes = false;
  };
  std::vector<View> views = {};
  // On a device: takes and makes selected rows, whose numbers are in host memory and whose values
  // are on the device. Of an op that has any among its variables, inputs of `host_slots` come in
  // host memory, too: numbers of rows are made of them.
  bool takes_rows = false;
  std::vector<std::string> host_slots = {};
  // Of an op that reads rows of a table without giving them (OpSchema::table_slot): the rows that
  // it looks at with these values, in any order and perhaps more than once. Of the table only type
  // and shape may be taken.
  std::function<std::vector<int64_t>(const PrepareContext&, const KernelContext&)> table_rows = {};
};

// The dtype under which an op's kernels are listed: that of the slot which the op's row marks
// (SlotSpec::gives_dtype), by default the first input; where that has no value, what the first
// output variable says. `inputs` are slot by slot in the order of slot names.
DType kernel_dtype(const Block& block, const Operator& op, std::span<const ValueSpec> inputs);

}  // namespace fleet::fluid
