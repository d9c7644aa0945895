// Collectives over any back end that moves messages between ranks (point_to_point.h): the
// algorithms, chosen by size, and the tokens that wait for them.
//
// Sums follow the shard tree (base/shard_tree.h), so their bits depend neither on timing nor on
// the number of ranks; the algorithm that is chosen does not change them either. With N ranks and
// an array of M bytes, an all-reduce takes one of these ways:
//
//   direct     few ranks, small M   N - 1 messages of M bytes, one delay
//   doubling   more, small M        log2(N) messages of about M bytes, as many delays
//   halving    more, middle M       2 log2(N) messages of M/2, M/4 … bytes
//   pieces     large M              2 M / (bytes of a piece) messages, the bytes of a ring
//   reading    large M, where ranks can read each other's memory (PeerMemory)
//
// Doubling and halving go along the tree: ranks at distance 1, 2, 4 … exchange the values of the
// largest tree nodes that they know, one or two when ranks own one shard each, more when ranges are
// not aligned to the tree. The choice is the same at every rank: it follows from N, M and the
// options, which are the same everywhere.
//
// Every operation has a number, its kind, type and size, which a back end compares between ranks:
// who calls another one than the others is named with both sides.
//
// A wait that comes near its deadline makes a roll call: every rank that waits says so to all
// others. So the ranks that did not come are named, not those that wait for them in turn.
#pragma once

#include <memory>

#include "transport/collective/collective.h"
#include "transport/collective/point_to_point.h"

namespace fleet::transport {

// The same at every rank.
struct CommunicatorOptions {
  // Up to this many ranks, small data goes from everyone to everyone.
  int direct_ranks = 8;
  // Up to this many bytes from all ranks together, such an all-reduce takes the direct way.
  size_t direct_limit_bytes = 256 * 1024;
  // Up to this many bytes of the array, an all-reduce among more ranks takes the doubling way.
  size_t doubling_limit_bytes = 16 * 1024;
  // Where the pieces of large arrays end.
  size_t piece_bytes = 256 * 1024;
  // Among more ranks, data of which each rank's share has fewer bytes than this goes in log2(N)
  // messages: an all-reduce and a reduce-scatter by halving, an all-gather by doubling.
  size_t least_piece_bytes = 64 * 1024;
  // Where ranks read each other's memory, all-reduces of more bytes do so, in such pieces.
  size_t reading_limit_bytes = 16 * 1024;
  size_t reading_piece_bytes = 128 * 1024;
  // Rounds of pieces (one for each rank) that are under way together.
  int window = 4;
};

// The communicator of the back end's ranks.
std::unique_ptr<CollectiveCommunicator> make_communicator(std::unique_ptr<PointToPoint> peers,
                                                          CommunicatorOptions options = {});

}  // namespace fleet::transport
