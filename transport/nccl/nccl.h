// The functions of NCCL that Fleet calls. Nothing links the library: load_nccl() looks for it when
// a job wants it, so that one binary runs with GPUs and without.
//
// As in NCCL itself, a communicator is used by one thread at a time, and what is called between
// group_start() and group_end() is done together.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "transport/collective/collective.h"

struct ncclComm;  // NCCL's own

namespace fleet::transport {

// Returned by every call. The values are those of ncclResult_t.
enum class NcclResult : int {
  kSuccess,
  kUnhandledCudaError,
  kSystemError,
  kInternalError,
  kInvalidArgument,
  kInvalidUsage,
  kRemoteError,
  kInProgress,  // of a communicator that does not block: ask async_error()
};
std::string_view name_of(NcclResult result);  // "ncclRemoteError"

// What the ranks of one communicator share (ncclUniqueId).
using NcclId = std::array<char, 128>;

// A stream of the device (cudaStream_t).
using NcclStream = void*;

class Nccl {
 public:
  virtual ~Nccl() = default;

  // 22809 is 2.28.9.
  virtual int version() const = 0;
  // Where it was found.
  virtual std::string path() const = 0;
  // NCCL's words for a result and, with a communicator, for what last failed in it.
  virtual std::string explain(NcclResult result, ncclComm* comm) const = 0;

  // Encrypts the library's own TCP sockets in this process (TLS 1.3) with a key of 32 characters or
  // more, the same in all processes of a job, before the first id; the same key may come again.
  // InfiniBand, NVLink and shared memory stay as they are. kNotSupported, with why, where the
  // library is older than 2.32 or was built without TLS.
  virtual Status encrypt(const std::string& key) = 0;
  // By one rank, which tells it to the others.
  virtual NcclResult unique_id(NcclId& id) = 0;
  // Of the calling thread's device. Does not block: what is done with the communicator may be under
  // way when a call returns kInProgress.
  virtual NcclResult init(ncclComm*& comm, int ranks, const NcclId& id, int rank) = 0;
  virtual NcclResult async_error(ncclComm* comm, NcclResult& state) = 0;
  // Makes what is under way on the device fail at once, as far as the library can; kSuccess where
  // it cannot. Nothing is under way when async_error() says kSuccess.
  virtual NcclResult revoke(ncclComm* comm) = 0;
  // Whether revoke() does anything, and shrink() is there.
  virtual bool can_shrink() const = 0;
  // A communicator of the ranks of `comm` but for those, which are renumbered without gaps; called
  // by all of them. What is under way in `comm` ends; it has to be aborted all the same.
  virtual NcclResult shrink(ncclComm* comm, std::span<const int> without, ncclComm*& made) = 0;
  // Ends what is under way, and frees the communicator.
  virtual NcclResult abort(ncclComm* comm) = 0;
  // Of a communicator without anything under way; kInProgress when it does not come to an end.
  virtual NcclResult destroy(ncclComm* comm) = 0;

  virtual NcclResult group_start() = 0;
  virtual NcclResult group_end() = 0;
  virtual NcclResult send(const void* from, size_t bytes, int peer, ncclComm* comm,
                          NcclStream stream) = 0;
  virtual NcclResult receive(void* to, size_t bytes, int peer, ncclComm* comm,
                             NcclStream stream) = 0;
  // The sum over ranks, in an order of the library's own. `from` may be `to`.
  virtual NcclResult all_reduce(const void* from, void* to, size_t count, ElementType type,
                                ncclComm* comm, NcclStream stream) = 0;
  // The same for each rank's part of the sum: `count` elements of it.
  virtual NcclResult reduce_scatter(const void* from, void* to, size_t count, ElementType type,
                                    ncclComm* comm, NcclStream stream) = 0;
  virtual NcclResult broadcast(void* bytes, size_t size, int root, ncclComm* comm,
                               NcclStream stream) = 0;
  virtual NcclResult all_gather(const void* from, void* to, size_t bytes_of_each, ncclComm* comm,
                                NcclStream stream) = 0;
};

// The library of this name, found as dlopen() does. kNotSupported, with what to do, where this
// build has no NCCL, there is no such library, or it is older than 2.14, which cannot be told not
// to block.
Result<std::shared_ptr<Nccl>> load_nccl(const std::string& library = "libnccl.so.2");

}  // namespace fleet::transport
