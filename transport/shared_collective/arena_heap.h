// The part of an arena that callers get memory of, for the other ranks to read.
//
// There is memory behind what was allocated only, so the heap can be larger than the machine.
#pragma once

#include <memory>
#include <vector>

#include "transport/collective/point_to_point.h"
#include "transport/shared_collective/arena.h"

namespace fleet::transport {

// Allocated blocks may be freed from any thread.
class ArenaHeap final : public PeerMemory {
 public:
  // `own` is this rank's arena, `arenas` are those of all ranks.
  ArenaHeap(const std::shared_ptr<Arena>& own, std::vector<std::shared_ptr<const Arena>> arenas);
  ~ArenaHeap() override;

  Buffer allocate(size_t bytes) override;
  std::optional<uint64_t> place_of(std::span<const std::byte> bytes) const override;
  const std::byte* at(int rank, uint64_t place, size_t bytes) const override;

 private:
  class Blocks;
  std::shared_ptr<Blocks> blocks_;
  std::shared_ptr<Arena> own_;
  std::vector<std::shared_ptr<const Arena>> arenas_;
};

}  // namespace fleet::transport
