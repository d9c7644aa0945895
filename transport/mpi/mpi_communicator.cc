#include "transport/mpi/mpi_communicator.h"

#include "transport/mpi/mpi_messages_impl.h"

namespace fleet::transport {
namespace {

int largest_tag(MPI_Comm comm) {
  int* bound = nullptr;
  int known = 0;
  MPI_Comm_get_attr(comm, MPI_TAG_UB, static_cast<void*>(&bound), &known);
  constexpr int kGuaranteed = 32767;
  return known != 0 ? *bound : kGuaranteed;
}

}  // namespace

Result<std::unique_ptr<CollectiveCommunicator>> make_mpi_communicator(MpiSession& session,
                                                                      Duration timeout,
                                                                      CommunicatorOptions options) {
  if (session.size() == 1) return single_communicator();
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const auto guard = session.lock();
    MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request);
  }
  const TimePoint start = steady_clock().now();
  while (true) {
    int done = 0;
    {
      const auto guard = session.lock();
      MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
    if (done != 0) break;
    const Duration waited = steady_clock().now() - start;
    if (waited < timeout) {
      mpi_detail::pass_time(session.oversubscribed(), waited);
      continue;
    }
    session.mark_lost();
    return collective_detail::missing_ranks("creation", {.phase = "a communicator"}, session.rank(),
                                            {}, waited);
  }
  MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
  const int bound = largest_tag(MPI_COMM_WORLD);
  return make_communicator(std::make_unique<mpi_detail::MpiPeer>(session, comm, bound), options);
}

}  // namespace fleet::transport
