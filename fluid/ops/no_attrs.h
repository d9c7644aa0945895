// For ops without attributes.
#pragma once

namespace fleet::fluid {

struct NoAttrs {
  template <class Archive>
  void serialize(Archive&) {}
};

}  // namespace fleet::fluid
