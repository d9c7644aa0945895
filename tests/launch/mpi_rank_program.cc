// A rank for the tests of launch: mpi_rank_program [ok | hang | abort]. "hang" says its rank and
// pid into $MAILBOX once all ranks have met, and then waits in MPI for ever on rank 0.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mpi.h>
#include <unistd.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int sum = 0;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  std::printf("rank %d of %d, sum %d\n", rank, size, sum);
  std::fflush(stdout);
  const char* mode = argc > 1 ? argv[1] : "ok";
  if (std::strcmp(mode, "abort") == 0 && rank == 1) MPI_Abort(MPI_COMM_WORLD, 5);
  if (std::strcmp(mode, "hang") == 0) {
    std::FILE* mailbox = std::fopen(std::getenv("MAILBOX"), "w");
    std::fprintf(mailbox, "worker%d %d\n", rank, static_cast<int>(::getpid()));
    std::fclose(mailbox);
    if (rank != 0) ::pause();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
