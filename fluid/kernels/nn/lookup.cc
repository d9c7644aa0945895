#include "fluid/kernels/nn/lookup.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::fluid {

void Lookup::refuse(int64_t id) const {
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "an id is outside of the table",
               .where = where,
               .expected = str_cat("ids in [0, ", height, ")"),
               .got = str_cat(id),
               .fix = "enlarge the table, or map unknown words to an id of their own"});
}

Lookup lookup_of(const PrepareContext& context, int64_t padding) {
  const Shape& w = context.in("W").shape;
  const ValueSpec& ids = context.in("Ids");
  context.require(w.rank() == 2, "W", "[height, width]", w.to_string());
  context.require(ids.dtype == DType::kInt64, "Ids", "int64", std::string(dtype_name(ids.dtype)));
  const Operator& op = context.op();
  return {.w = context.input("W"),
          .ids = context.input("Ids"),
          .height = w[0],
          .width = w[1],
          .count = ids.shape.numel(),
          .padding = padding,
          .where = str_cat("op '", op.type, "', ids '", op.input("Ids").front(), "', table '",
                           op.input("W").front(), "'")};
}

Shape looked_up_shape(const PrepareContext& context, const Lookup& lookup, bool last_is_one) {
  const Shape& ids = context.in("Ids").shape;
  if (last_is_one) {
    context.require(ids.rank() >= 1 && ids[ids.rank() - 1] == 1, "Ids", "a last dimension of 1",
                    ids.to_string());
  }
  const int rank = last_is_one ? ids.rank() - 1 : ids.rank();
  Shape out(ids.dims().first(static_cast<size_t>(rank)));
  out.push_back(lookup.width);
  return out;
}

void require_row_gradients(const PrepareContext& context, const Lookup& lookup) {
  const Shape& grad = context.in("Out@GRAD").shape;
  context.require(grad.numel() == lookup.count * lookup.width, "Out@GRAD",
                  str_cat(lookup.count, " rows of ", lookup.width), grad.to_string());
}

}  // namespace fleet::fluid
