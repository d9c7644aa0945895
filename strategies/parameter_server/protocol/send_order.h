// The order in which a synchronous server lets the pieces of dense gradients in.
//
// All contributors of a lane send in one order, and none sends a piece that the server has not let
// in: so what is let in comes from everybody, its sum gets ready, and the next pieces follow. That
// bounds the server's memory, and cannot stand still. The order is that of the slices' numbers,
// the last one first, for backward passes make the gradients of the last layers first.
#pragma once

#include <cstdint>
#include <vector>

#include "strategies/parameter_server/protocol/server_calls.h"

namespace fleet::strategies {

// Of one data lane; server and workers make it from the same slices. Immutable.
class SendOrder {
 public:
  struct Piece {
    uint32_t slice = 0;
    uint32_t piece = 0;
  };

  SendOrder() = default;
  SendOrder(const std::vector<SliceGeometry>& slices, uint32_t lane, uint32_t lanes)
      : first_(slices.size()) {
    for (size_t i = slices.size(); i-- > 0;) {
      first_[i] = size();
      if (slices[i].rows || i % lanes != lane) continue;
      for (uint32_t k = 0; k < pieces_of(slices[i].bytes); ++k) {
        pieces_.push_back({static_cast<uint32_t>(i), k});
      }
    }
  }

  uint32_t size() const { return static_cast<uint32_t>(pieces_.size()); }
  const Piece& operator[](uint32_t position) const { return pieces_[position]; }
  uint32_t position(uint32_t slice, uint32_t piece) const { return first_[slice] + piece; }

 private:
  std::vector<Piece> pieces_;
  std::vector<uint32_t> first_;  // position of each slice's first piece
};

}  // namespace fleet::strategies
