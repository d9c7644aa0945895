#include "transport/mpi_session/mpi_session.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mpi.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "base/net/own_address.h"
#include "base/strings.h"

namespace fleet::transport {
namespace {

constexpr Duration kExitTimeout = std::chrono::minutes(30);

// The cores that the ranks of one machine may use together.
int usable_cores(MPI_Comm local) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) CPU_SET(0, &cores);
  MPI_Allreduce(MPI_IN_PLACE, &cores, static_cast<int>(sizeof cores), MPI_BYTE, MPI_BOR, local);
  return CPU_COUNT(&cores);
}

// Between ranks of one machine Open MPI copies messages up to 4 KiB through shared memory, and lets
// the receiver's kernel fetch longer ones, which costs more than a copy until they are far longer.
// What users chose stays. Open MPI 5 has another name for it.
void prefer_copies_of_buckets() {
  for (const char* name : {"OMPI_MCA_btl_vader_eager_limit", "OMPI_MCA_btl_sm_eager_limit"}) {
    setenv(name, "262144", 0);
  }
}

// Not steady_clock() of base: this runs in exit handlers too, after objects of static life ended.
TimePoint now() {
  return std::chrono::steady_clock::now();
}

void nap() {
  const timespec span{0, 50'000};
  nanosleep(&span, nullptr);
}

// Buffers that MPI may touch as long as an exchange is under way; one that failed keeps them until
// the process ends.
struct Exchange {
  std::string mine;
  std::string all;
  int length = 0;
  std::vector<int> lengths;
  std::vector<int> offsets;
};

}  // namespace

struct MpiSession::State {
  MPI_Comm world = MPI_COMM_NULL;
  bool owns_mpi = false;
  bool finalized = false;
  std::vector<std::shared_ptr<const void>> kept;
  std::atomic<bool> lost{false};
};

MpiSession& MpiSession::get() {
  // MPI lives once in a process; the session is never destroyed, so that exit handlers may use it.
  static MpiSession& session = *new MpiSession();
  return session;
}

bool MpiSession::has_launcher() {
  // Open MPI's mpirun; PMIx, which it and srun speak; PMI, which older ones do.
  return getenv("OMPI_COMM_WORLD_SIZE") != nullptr || getenv("PMIX_RANK") != nullptr ||
         getenv("PMI_SIZE") != nullptr;
}

bool MpiSession::is_open() {
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  return initialized != 0 && finalized == 0;
}

MpiSession::MpiSession() : state_(std::make_unique<State>()) {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    throw_error(ErrorCode::kInput, {.what = "MPI was already finalised in this process",
                                    .where = "MpiSession",
                                    .expected = "a process that has not ended MPI",
                                    .got = "MPI_Finalized is true",
                                    .fix = "call MPI_Finalize after the last use of the library"});
  }
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    prefer_copies_of_buckets();
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    state_->owns_mpi = true;
    on_exit(
        [](int status, void* self) {
          if (status == 0) (void)static_cast<MpiSession*>(self)->finalize(kExitTimeout);
        },
        this);
  }
  MPI_Comm_dup(MPI_COMM_WORLD, &state_->world);
  MPI_Comm_set_errhandler(state_->world, MPI_ERRORS_RETURN);
  MPI_Comm_rank(state_->world, &rank_);
  MPI_Comm_size(state_->world, &size_);
  MPI_Comm local = MPI_COMM_NULL;
  MPI_Comm_split_type(state_->world, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &local);
  MPI_Comm_size(local, &local_ranks_);
  cores_ = usable_cores(local);
  MPI_Comm_free(&local);
}

MpiSession::~MpiSession() = default;

std::string MpiSession::address(const std::string& interfaces) const {
  return local_ranks_ == size_ ? "127.0.0.1" : machine_address(interfaces);
}

void MpiSession::keep(std::shared_ptr<const void> memory) {
  const auto guard = lock();
  state_->kept.push_back(std::move(memory));
}

void MpiSession::mark_lost() {
  state_->lost = true;
}
bool MpiSession::lost() const {
  return state_->lost;
}

namespace {

// Tests the request until it is done or the time is up.
Status complete(MPI_Request& request, MpiSession& session, std::string_view what,
                Duration timeout) {
  const TimePoint deadline = now() + timeout;
  for (int round = 0;; ++round) {
    int done = 0;
    int code = MPI_SUCCESS;
    {
      const auto guard = session.lock();
      code = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
    if (code != MPI_SUCCESS) {
      session.mark_lost();
      return Status(ErrorCode::kPeerLost, {.what = "an exchange over MPI failed",
                                           .where = str_cat("rank ", session.rank(), ", ", what),
                                           .expected = "every rank takes part",
                                           .got = str_cat("MPI error ", code),
                                           .fix = "read the logs of the other ranks"});
    }
    if (done != 0) return {};
    if (now() >= deadline) {
      session.mark_lost();
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count();
      return Status(ErrorCode::kDeadline,
                    {.what = "a rank did not take part in an exchange over MPI",
                     .where = str_cat("rank ", session.rank(), ", ", what),
                     .expected = str_cat("all ", session.size(), " ranks within ", ms, " ms"),
                     .got = "no answer from at least one of them",
                     .fix = "see which rank ended early or is stopped"});
    }
    if (round < 1000 && !session.oversubscribed()) continue;
    nap();
  }
}

}  // namespace

Result<std::vector<std::string>> MpiSession::all_gather(const std::string& mine, Duration timeout) {
  const auto ranks = static_cast<size_t>(size_);
  auto buffers = std::make_shared<Exchange>();
  Exchange& exchange = *buffers;
  exchange.mine = mine;
  exchange.length = static_cast<int>(mine.size());
  exchange.lengths.resize(ranks);
  exchange.offsets.resize(ranks);
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const auto guard = lock();
    MPI_Iallgather(&exchange.length, 1, MPI_INT, exchange.lengths.data(), 1, MPI_INT, state_->world,
                   &request);
  }
  auto status = complete(request, *this, "all_gather", timeout);
  if (status.ok()) {
    int total = 0;
    for (size_t i = 0; i < ranks; ++i) {
      exchange.offsets[i] = total;
      total += exchange.lengths[i];
    }
    exchange.all.resize(static_cast<size_t>(total));
    {
      const auto guard = lock();
      MPI_Iallgatherv(exchange.mine.data(), exchange.length, MPI_CHAR, exchange.all.data(),
                      exchange.lengths.data(), exchange.offsets.data(), MPI_CHAR, state_->world,
                      &request);
    }
    status = complete(request, *this, "all_gather", timeout);
  }
  if (!status.ok()) {
    keep(std::move(buffers));
    return status;
  }
  std::vector<std::string> texts;
  for (size_t i = 0; i < ranks; ++i) {
    texts.push_back(exchange.all.substr(static_cast<size_t>(exchange.offsets[i]),
                                        static_cast<size_t>(exchange.lengths[i])));
  }
  return texts;
}

Result<std::string> MpiSession::broadcast(const std::string& text, int root, Duration timeout) {
  auto gathered = all_gather(rank_ == root ? text : std::string(), timeout);
  if (!gathered.ok()) return gathered.status();
  return std::move(gathered.value()[static_cast<size_t>(root)]);
}

Status MpiSession::finalize(Duration timeout) {
  if (!state_->owns_mpi || state_->finalized || lost() || !is_open()) return {};
  MPI_Request request = MPI_REQUEST_NULL;
  {
    const auto guard = lock();
    MPI_Ibarrier(state_->world, &request);
  }
  if (auto status = complete(request, *this, "finalize", timeout); !status.ok()) return status;
  const auto guard = lock();
  state_->finalized = true;
  MPI_Comm_free(&state_->world);
  MPI_Finalize();
  return {};
}

}  // namespace fleet::transport
