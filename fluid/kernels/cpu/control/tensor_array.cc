// Tensor arrays and the choice among branches: whole tensors are copied, whatever their type.
#include "fluid/ops/control/tensor_array.h"

#include <cstring>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cpu/tile_copy.h"

namespace fleet::fluid::cpu {
namespace {

std::string place(const PrepareContext& context, std::string_view slot) {
  return str_cat("op '", context.op().type, "', slot '", slot, "', variable '",
                 context.op().input(slot).front(), "'");
}

[[noreturn]] void throw_index(const std::string& where, int64_t index, size_t size) {
  throw_error(ErrorCode::kInvalidArgument, {.what = "no such element of a tensor array",
                                            .where = where,
                                            .expected = str_cat("an index in [0, ", size, ")"),
                                            .got = str_cat(index),
                                            .fix = "write the element before it is read"});
}

// The array of a value; an empty one when it holds none yet.
const TensorArray& array_of(const Value& value) {
  static const TensorArray kEmpty;
  const auto* array = std::get_if<TensorArray>(&value);
  return array == nullptr ? kEmpty : *array;
}

TensorArray& make_array(Value& value) {
  if (!std::holds_alternative<TensorArray>(value)) value = TensorArray();
  return *std::get_if<TensorArray>(&value);
}

void copy_to_output(const KernelContext& c, int out, const Tensor& from) {
  Tensor& to = c.make_dense(out, from.dtype(), from.shape());
  copy_elements(c.tiles(), from, to);
  to.share_lod(from);
}

void set_zero(const KernelContext& c, Tensor& tensor) {
  zero_in_tiles(c.tiles(), tensor.raw(), tensor.bytes());
}

std::unique_ptr<Prepared> prepare_write(PrepareContext& context) {
  const int x = context.input("X");
  const int i = context.input("I");
  const int out = context.own_output("Out");
  context.own_lod();
  return make_prepared([=, where = place(context, "I")](const KernelContext& c) {
    const int64_t index = *c.in<int64_t>(i);
    if (index < 0) throw_index(where, index, 0);
    TensorArray& array = make_array(c.output_value(out));
    const auto at = static_cast<size_t>(index);
    if (array.size() <= at) array.resize(at + 1);
    array[at] = clone_in_tiles(c.tiles(), c.input(x));
  });
}

// Takes the element's gradient out of the array's: what the write replaced has none.
std::unique_ptr<Prepared> prepare_write_grad(PrepareContext& context) {
  const int x = context.input("X");
  const int i = context.input("I");
  const int grad = context.input("Out@GRAD");
  const int out = context.own_output("X@GRAD");
  return make_prepared([=](const KernelContext& c) {
    TensorArray& array = make_array(c.input_value(grad));
    const auto at = static_cast<size_t>(*c.in<int64_t>(i));
    if (at >= array.size() || !array[at].initialized()) {
      return set_zero(c, c.make_dense(out, c.input(x).dtype(), c.input(x).shape()));
    }
    copy_to_output(c, out, array[at]);
    array[at] = Tensor();
  });
}

std::unique_ptr<Prepared> prepare_read(PrepareContext& context) {
  const int x = context.input("X");
  const int i = context.input("I");
  const int out = context.own_output("Out");
  context.own_lod();
  return make_prepared([=, where = place(context, "X")](const KernelContext& c) {
    const TensorArray& array = array_of(c.input_value(x));
    const int64_t index = *c.in<int64_t>(i);
    const auto at = static_cast<size_t>(index);
    if (index < 0 || at >= array.size() || !array[at].initialized()) {
      throw_index(where, index, array.size());
    }
    copy_to_output(c, out, array[at]);
  });
}

std::unique_ptr<Prepared> prepare_read_grad(PrepareContext& context) {
  const int i = context.input("I");
  const int grad = context.input("Out@GRAD");
  const int out = context.own_output("X@GRAD");
  return make_prepared([=](const KernelContext& c) {
    TensorArray& array = make_array(c.output_value(out));
    array.clear();
    const auto at = static_cast<size_t>(*c.in<int64_t>(i));
    array.resize(at + 1);
    array[at] = clone_in_tiles(c.tiles(), c.input(grad));
  });
}

std::unique_ptr<Prepared> prepare_length(PrepareContext& context) {
  const int x = context.input("X");
  const int out = context.set_output("Out", Shape{1}, DType::kInt64);
  return make_prepared([=](const KernelContext& c) {
    *c.out<int64_t>(out) = static_cast<int64_t>(array_of(c.input_value(x)).size());
  });
}

// Elements seen as [outer, own part of the axis, inner], in bytes.
struct Joint {
  int axis = 0;
  bool stacks = false;

  Joint(const PrepareContext& context) {
    const auto attrs = context.attrs<TensorArrayToTensorAttrs>();
    axis = attrs.axis;
    stacks = attrs.use_stack;
  }
  int axis_of(const Tensor& element) const {
    const int rank = element.shape().rank() + (stacks ? 1 : 0);
    return axis < 0 ? axis + rank : axis;
  }
  int64_t outer(const Tensor& element) const { return element.shape().numel(0, axis_of(element)); }
  int64_t size(const Tensor& element) const {
    return stacks ? 1 : element.shape()[axis_of(element)];
  }
  size_t run(const Tensor& element) const {  // bytes of one outer index
    const Shape& shape = element.shape();
    return static_cast<size_t>(shape.numel(axis_of(element), shape.rank())) *
           dtype_size(element.dtype());
  }
  Shape joined(const Tensor& first, int64_t total) const {
    Shape shape;
    const int at = axis_of(first);
    for (int d = 0; d < first.shape().rank(); ++d) {
      if (stacks && d == at) shape.push_back(total);
      shape.push_back(!stacks && d == at ? total : first.shape()[d]);
    }
    if (stacks && at == first.shape().rank()) shape.push_back(total);
    return shape;
  }
};

const TensorArray& full_array(const KernelContext& c, int x, const std::string& where) {
  const TensorArray& array = array_of(c.input_value(x));
  if (array.empty()) throw_index(where, 0, 0);
  for (size_t i = 0; i < array.size(); ++i) {
    if (!array[i].initialized()) throw_index(where, static_cast<int64_t>(i), array.size());
  }
  return array;
}

// Calls copy(i, offset in element i, offset in the whole, bytes) for the run of each element in
// each outer index, in tiles of runs.
template <class Copy>
void each_run(const KernelContext& c, const Joint& joint, const TensorArray& array,
              const Copy& copy) {
  std::vector<size_t> ends;  // of the runs of one outer index
  for (const Tensor& element : array) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + joint.run(element));
  }
  const auto count = static_cast<int64_t>(array.size());
  const int64_t runs = joint.outer(array[0]) * count;
  const int64_t cost = static_cast<int64_t>(ends.back()) / count / 4;
  c.tiles().split(runs, cost, [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run) {
      const auto i = static_cast<size_t>(run % count);
      const auto outer = static_cast<size_t>(run / count);
      const size_t first = i == 0 ? 0 : ends[i - 1];
      const size_t bytes = ends[i] - first;
      copy(i, outer * bytes, outer * ends.back() + first, bytes);
    }
  });
}

std::unique_ptr<Prepared> prepare_join(PrepareContext& context) {
  const Joint joint(context);
  const int x = context.input("X");
  const int out = context.own_output("Out");
  const int sizes = context.own_output("OutIndex");
  context.own_lod();
  return make_prepared([=, where = place(context, "X")](const KernelContext& c) {
    const TensorArray& array = full_array(c, x, where);
    int64_t total = 0;
    for (const Tensor& element : array) total += joint.size(element);
    Tensor& joined = c.make_dense(out, array[0].dtype(), joint.joined(array[0], total));
    each_run(c, joint, array, [&](size_t i, size_t own, size_t in_joined, size_t bytes) {
      std::memcpy(joined.raw() + in_joined, array[i].raw() + own, bytes);
    });
    if (sizes < 0) return;
    Tensor& index = c.make_dense(sizes, DType::kInt32, Shape{static_cast<int64_t>(array.size())});
    for (size_t i = 0; i < array.size(); ++i) {
      index.data<int32_t>()[i] = static_cast<int32_t>(joint.size(array[i]));
    }
  });
}

std::unique_ptr<Prepared> prepare_join_grad(PrepareContext& context) {
  const Joint joint(context);
  const int x = context.input("X");
  const int grad = context.input("Out@GRAD");
  const int out = context.own_output("X@GRAD");
  return make_prepared([=, where = place(context, "X")](const KernelContext& c) {
    const TensorArray& array = full_array(c, x, where);
    TensorArray& grads = make_array(c.output_value(out));
    grads.clear();
    for (const Tensor& element : array) grads.emplace_back(element.dtype(), element.shape());
    const std::byte* from = c.input(grad).raw();
    each_run(c, joint, array, [&](size_t i, size_t own, size_t in_joined, size_t bytes) {
      std::memcpy(grads[i].raw() + own, from + in_joined, bytes);
    });
  });
}

std::unique_ptr<Prepared> prepare_select_input(PrepareContext& context) {
  const int first = context.input("X");
  const auto count = static_cast<int64_t>(context.input_count("X"));
  const int mask = context.input("Mask");
  const int out = context.own_output("Out");
  context.own_lod();
  return make_prepared([=, where = place(context, "Mask")](const KernelContext& c) {
    const int64_t chosen = *c.in<int32_t>(mask);
    if (chosen < 0 || chosen >= count) throw_index(where, chosen, static_cast<size_t>(count));
    const auto* x = std::get_if<Tensor>(&c.input_value(first + static_cast<int>(chosen)));
    if (x == nullptr || !x->initialized()) throw_index(where, chosen, static_cast<size_t>(count));
    copy_to_output(c, out, *x);
  });
}

std::unique_ptr<Prepared> prepare_select_output(PrepareContext& context) {
  const int x = context.input("X");
  const int mask = context.input("Mask");
  std::vector<int> outs;
  for (size_t i = 0; i < context.output_count("Out"); ++i) {
    outs.push_back(context.own_output("Out", i));
  }
  return make_prepared([=](const KernelContext& c) {
    const auto chosen = static_cast<size_t>(*c.in<int32_t>(mask));
    for (size_t i = 0; i < outs.size(); ++i) {
      if (outs[i] < 0) continue;
      copy_to_output(c, outs[i], c.input(x));
      if (i != chosen) set_zero(c, *std::get_if<Tensor>(&c.output_value(outs[i])));
    }
  });
}

}  // namespace

void register_control(KernelTable& table) {
  for_types<bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>(
      [&table]<class T>(std::type_identity<T>) {
        const auto add = [&table](const char* op, auto prepare) {
          table.add_last(op, DeviceKind::kCpu, dtype_of<T>(), {.name = "copy", .prepare = prepare});
        };
        add("write_to_array", prepare_write);
        add("write_to_array_grad", prepare_write_grad);
        add("read_from_array", prepare_read);
        add("read_from_array_grad", prepare_read_grad);
        add("lod_array_length", prepare_length);
        add("tensor_array_to_tensor", prepare_join);
        add("tensor_array_to_tensor_grad", prepare_join_grad);
        add("select_input", prepare_select_input);
        add("select_output", prepare_select_output);
      });
}

}  // namespace fleet::fluid::cpu
