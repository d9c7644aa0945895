#include "strategies/parameter_server/worker/remote_values.h"

#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/core/interleaved_rows.h"

namespace fleet::strategies {

RemoteValues::SeparateRows& RemoteValues::add_separate(const RemoteTensor& place,
                                                       const RemotePart& part,
                                                       fluid::Tensor whole) {
  const auto row_bytes = static_cast<int64_t>(place.bytes()) / place.shape[0];
  fluid::Shape shape = place.shape;
  shape.set(0, static_cast<int64_t>(part.bytes) / row_bytes);
  return separate_.emplace_back(SeparateRows{.whole = std::move(whole),
                                             .rows = fluid::Tensor(place.dtype, shape),
                                             .first = static_cast<int64_t>(part.offset) / row_bytes,
                                             .stride = part.stride});
}

void RemoteValues::add_wanted(const RemoteTensor& place, fluid::Tensor& value) {
  value.reset(place.dtype, place.shape);
  for (const RemotePart& part : place.parts) {
    std::byte* memory =
        part.stride > 1 ? add_separate(place, part, value).rows.raw() : value.raw() + part.offset;
    memory_.push_back({part.remote, memory, part.bytes});
  }
}

void RemoteValues::add_given(const RemoteTensor& place, const fluid::Tensor& given) {
  const fluid::Tensor value = given.on_host();
  if (value.dtype() != place.dtype || value.numel() != place.shape.numel()) {
    throw_error(ErrorCode::kShapeMismatch,
                {.what = "a value does not fit the variable that it is given to",
                 .where = place.name,
                 .expected = str_cat(fluid::dtype_name(place.dtype), place.shape),
                 .got = str_cat(fluid::dtype_name(value.dtype()), value.shape()),
                 .fix = "load a model of the same network"});
  }
  given_.push_back(value);
  for (const RemotePart& part : place.parts) {
    if (part.stride > 1) {
      SeparateRows& own = add_separate(place, part, value);
      own.rows = fluid::take_rows(value, own.first, own.stride, own.rows.shape()[0]);
      memory_.push_back({part.remote, own.rows.raw(), part.bytes});
    } else {
      // Requests that assign only read it.
      auto* memory = const_cast<std::byte*>(value.raw()) + part.offset;
      memory_.push_back({part.remote, memory, part.bytes});
    }
  }
}

void RemoteValues::finish() {
  for (SeparateRows& part : separate_)
    fluid::put_rows(part.rows, part.first, part.stride, part.whole);
}

}  // namespace fleet::strategies
