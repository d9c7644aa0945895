// What kernels of every device check of their inputs before they are prepared. Each throws
// ProgramError that names the op's slot, what is wanted and what is there.
#pragma once

#include "base/strings.h"
#include "fluid/kernels/functions/activations.h"
#include "fluid/kernels/kernel.h"

namespace fleet::fluid {

// The matrices that op mul makes of its inputs: leading dimensions are rows, the others columns.
struct MulShape {
  int64_t m = 0;
  int64_t k = 0;
  int64_t n = 0;
  Shape out;
};
MulShape mul_shape(const PrepareContext& context);

// Of op prelu.
PreluView prelu_view(const PrepareContext& context);

// Input Condition is truth values of this shape.
void require_condition(const PrepareContext& context, const Shape& shape);

// One class for each row of `shape`.
Shape with_one_class(Shape shape, int axis = -1);
// Input Label has as many elements as `wanted`, and the type.
void require_labels(const PrepareContext& context, const Shape& wanted, DType dtype);

// Input Grad of an update op: as many elements as Param, or selected rows of it.
struct GradientInput {
  int position = -1;
  bool sparse = false;
  int64_t height = 0;  // rows of Param, and elements of one
  int64_t width = 0;
  int64_t numel() const { return height * width; }
};
GradientInput gradient_input(const PrepareContext& context, DType dtype);

// The position of an input of the same shape and type as another.
int input_like(const PrepareContext& context, const char* slot, const char* other);
// The position of an input of `n` elements of the type; the error says what they are: "one a row".
int sized_input(const PrepareContext& context, const char* slot, int64_t n, DType dtype,
                const char* what);

// Input X is selected rows.
bool takes_rows(const PrepareContext& context);
void require_rows(const PrepareContext& context);
// Selected rows of a tensor with a height, and not of a growing table. `where`: "op 'sum', slot
// 'X'".
void require_height(const SelectedRows& rows, std::string_view where);

// The position of input Y: selected rows X are multiplied by one number of their type alone.
int row_factor_input(const PrepareContext& context, DType dtype);

// The position of an input of one element.
template <class T>
int scalar_input(const PrepareContext& context, const char* slot) {
  const ValueSpec& spec = context.in(slot);
  context.require(spec.dtype == dtype_of<T>() && spec.shape.numel() == 1, slot,
                  str_cat("one element of ", dtype_name(dtype_of<T>())),
                  str_cat(dtype_name(spec.dtype), spec.shape));
  return context.input(slot);
}

// The same of one that may be left out: then -1.
template <class T>
int optional_scalar_input(const PrepareContext& context, const char* slot) {
  return context.has_input(slot) ? scalar_input<T>(context, slot) : -1;
}

// The position of an update's state, a dense tensor of the type with an element for each of Param.
int state_input(const PrepareContext& context, const char* slot, DType dtype);
template <class T>
int state_input(const PrepareContext& context, const char* slot) {
  return state_input(context, slot, dtype_of<T>());
}

}  // namespace fleet::fluid
