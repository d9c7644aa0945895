// Sums of arrays of any element type. Internal to transport_collective and its back ends.
//
// 16-bit types are added up in float. Between ranks an array travels in one of two forms: as the
// caller gave it, or as a sum, which stays in float until the whole tree is summed and is rounded
// once, so that the result does not depend on who added what.
#pragma once

#include <cstdint>
#include <span>

#include "transport/collective/collective.h"

namespace fleet::transport::collective_detail {

enum class Form : uint8_t { kGiven, kSum };
// Bytes of an element; the two differ for 16-bit types only.
size_t size_of(ElementType type, Form form);

struct Addend {
  const void* values;
  Form form;
};

// out = the sum of `count` elements of the addends in this order, in the form that is asked for.
// `out` may be one of the addends of its form, but must not overlap one in part.
void add_up(const TreeSum& order, ElementType type, std::span<const Addend> addends, void* out,
            Form out_form, size_t count);

}  // namespace fleet::transport::collective_detail
