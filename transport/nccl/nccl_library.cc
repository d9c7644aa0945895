#include <cstring>
#include <dlfcn.h>
#include <nccl.h>
#include <vector>

#include "base/clock.h"
#include "base/strings.h"
#include "transport/nccl/nccl.h"

namespace fleet::transport {
namespace {

constexpr const char* kFix =
    "install NCCL 2.14 or newer where the loader finds it (ldconfig, LD_LIBRARY_PATH)";
// The first that can be told not to block.
constexpr int kOldest = 21400;
constexpr Duration kFinalizeFor = std::chrono::seconds(30);
constexpr int kShrinkAfterError = 1;  // NCCL_SHRINK_ABORT

static_assert(static_cast<int>(NcclResult::kRemoteError) == ncclRemoteError);
static_assert(static_cast<int>(NcclResult::kInProgress) == ncclInProgress);
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

// ncclEncryptionConfig_t of 2.32.
struct EncryptionConfig {
  size_t size = sizeof(EncryptionConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 23200;
  int mode = 1;  // NCCL_ENCRYPTION_MODE_PSK
  const char* psk = nullptr;
};

// What a name of nccl.h has for a type.
template <class Function>
using Pointer = Function*;

// Filled by dlsym; empty where an older library lacks the function.
struct Table {
  Pointer<decltype(ncclGetVersion)> get_version;
  Pointer<decltype(ncclGetErrorString)> get_error_string;
  Pointer<decltype(ncclGetLastError)> get_last_error;
  Pointer<decltype(ncclGetUniqueId)> get_unique_id;
  Pointer<decltype(ncclCommInitRankConfig)> init;
  Pointer<decltype(ncclCommGetAsyncError)> async_error;
  Pointer<decltype(ncclCommAbort)> abort;
  Pointer<decltype(ncclCommFinalize)> finalize;
  Pointer<decltype(ncclCommDestroy)> destroy;
  Pointer<decltype(ncclGroupStart)> group_start;
  Pointer<decltype(ncclGroupEnd)> group_end;
  Pointer<decltype(ncclSend)> send;
  Pointer<decltype(ncclRecv)> receive;
  Pointer<decltype(ncclAllReduce)> all_reduce;
  Pointer<decltype(ncclReduceScatter)> reduce_scatter;
  Pointer<decltype(ncclBroadcast)> broadcast;
  Pointer<decltype(ncclAllGather)> all_gather;
  // Newer than the oldest library, and maybe than nccl.h: 2.28, 2.27, 2.32.
  ncclResult_t (*revoke)(ncclComm_t comm, int flags);
  ncclResult_t (*shrink)(ncclComm_t comm, int* without, int count, ncclComm_t* made,
                         ncclConfig_t* config, int flags);
  ncclResult_t (*set_encryption)(const EncryptionConfig* config);
};

NcclResult from(ncclResult_t result) {
  return static_cast<NcclResult>(result);
}

ncclDataType_t data_type(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return ncclFloat32;
    case ElementType::kFloat64:
      return ncclFloat64;
    case ElementType::kInt64:
      return ncclInt64;
    case ElementType::kFloat16:
      return ncclFloat16;
    case ElementType::kBFloat16:
      return ncclBfloat16;
  }
  return ncclFloat32;
}

cudaStream_t stream_of(NcclStream stream) {
  return static_cast<cudaStream_t>(stream);
}

class Library final : public Nccl {
 public:
  Library(const Table& table, int version, std::string path)
      : table_(table), version_(version), path_(std::move(path)) {}

  int version() const override { return version_; }
  std::string path() const override { return path_; }
  std::string explain(NcclResult result, ncclComm* comm) const override {
    const std::string text = table_.get_error_string(static_cast<ncclResult_t>(result));
    const char* const last = comm == nullptr ? nullptr : table_.get_last_error(comm);
    return last == nullptr || *last == '\0' ? text : str_cat(text, ": ", last);
  }

  Status encrypt(const std::string& key) override {
    if (table_.set_encryption == nullptr) {
      return cannot_encrypt(str_cat("version ", version_, " without ncclSetEncryption"));
    }
    const EncryptionConfig config{.psk = key.c_str()};
    const ncclResult_t result = table_.set_encryption(&config);
    if (result == ncclSuccess) return {};
    return cannot_encrypt(
        str_cat(table_.get_error_string(result), ": ", table_.get_last_error(nullptr)));
  }
  NcclResult unique_id(NcclId& id) override {
    ncclUniqueId made;
    const ncclResult_t result = table_.get_unique_id(&made);
    std::memcpy(id.data(), made.internal, id.size());
    return from(result);
  }
  NcclResult init(ncclComm*& comm, int ranks, const NcclId& id, int rank) override {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclUniqueId given;
    std::memcpy(given.internal, id.data(), id.size());
    return from(table_.init(&comm, ranks, given, rank, &config));
  }
  NcclResult async_error(ncclComm* comm, NcclResult& state) override {
    ncclResult_t found = ncclSuccess;
    const ncclResult_t result = table_.async_error(comm, &found);
    state = from(found);
    return from(result);
  }
  NcclResult revoke(ncclComm* comm) override {
    return table_.revoke == nullptr ? NcclResult::kSuccess : from(table_.revoke(comm, 0));
  }
  bool can_shrink() const override { return table_.revoke != nullptr && table_.shrink != nullptr; }
  // The new communicator has the settings of the old one: it does not block.
  NcclResult shrink(ncclComm* comm, std::span<const int> without, ncclComm*& made) override {
    std::vector<int> lost(without.begin(), without.end());
    return from(table_.shrink(comm, lost.data(), static_cast<int>(lost.size()), &made, nullptr,
                              kShrinkAfterError));
  }
  NcclResult abort(ncclComm* comm) override { return from(table_.abort(comm)); }
  // Whoever destroys a communicator that does not block has finalized it before, which waits for
  // ranks of this machine.
  NcclResult destroy(ncclComm* comm) override {
    const TimePoint deadline = steady_clock().now() + kFinalizeFor;
    ncclResult_t state = table_.finalize(comm);
    while (state == ncclInProgress && steady_clock().now() < deadline) {
      const ncclResult_t asked = table_.async_error(comm, &state);
      if (asked != ncclSuccess) state = asked;
    }
    return from(state == ncclSuccess ? table_.destroy(comm) : state);
  }

  NcclResult group_start() override { return from(table_.group_start()); }
  NcclResult group_end() override { return from(table_.group_end()); }
  NcclResult send(const void* bytes, size_t size, int peer, ncclComm* comm,
                  NcclStream stream) override {
    return from(table_.send(bytes, size, ncclInt8, peer, comm, stream_of(stream)));
  }
  NcclResult receive(void* bytes, size_t size, int peer, ncclComm* comm,
                     NcclStream stream) override {
    return from(table_.receive(bytes, size, ncclInt8, peer, comm, stream_of(stream)));
  }
  NcclResult all_reduce(const void* in, void* out, size_t count, ElementType type, ncclComm* comm,
                        NcclStream stream) override {
    return from(
        table_.all_reduce(in, out, count, data_type(type), ncclSum, comm, stream_of(stream)));
  }
  NcclResult reduce_scatter(const void* in, void* out, size_t count, ElementType type,
                            ncclComm* comm, NcclStream stream) override {
    return from(
        table_.reduce_scatter(in, out, count, data_type(type), ncclSum, comm, stream_of(stream)));
  }
  NcclResult broadcast(void* bytes, size_t size, int root, ncclComm* comm,
                       NcclStream stream) override {
    return from(table_.broadcast(bytes, bytes, size, ncclInt8, root, comm, stream_of(stream)));
  }
  NcclResult all_gather(const void* in, void* out, size_t bytes, ncclComm* comm,
                        NcclStream stream) override {
    return from(table_.all_gather(in, out, bytes, ncclInt8, comm, stream_of(stream)));
  }

 private:
  Status cannot_encrypt(std::string got) const {
    return Status(ErrorCode::kNotSupported,
                  {.what = "NCCL does not encrypt",
                   .where = path_,
                   .expected = "NCCL 2.32 or newer, built with TLS_BACKEND=OPENSSL3",
                   .got = std::move(got),
                   .fix = "install such a library where the loader finds it, or ask for "
                          "device_sums = \"host\", whose connections are encrypted"});
  }

  Table table_;
  int version_;
  std::string path_;
};

std::string text_of(int version) {
  return str_cat(version / 10000, '.', version / 100 % 100, '.', version % 100);
}

Status refused(std::string what, const std::string& library, std::string got) {
  return Status(ErrorCode::kNotSupported, {.what = std::move(what),
                                           .where = library,
                                           .expected = "the library of NCCL 2.14 or newer",
                                           .got = std::move(got),
                                           .fix = kFix});
}

// False for a name that the library lacks.
template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

// The name that is missing; null when none is.
const char* fill(void* library, Table& table) {
  (void)find(library, "ncclCommRevoke", table.revoke);
  (void)find(library, "ncclCommShrink", table.shrink);
  (void)find(library, "ncclSetEncryption", table.set_encryption);
#define FLEET_FIND(member, name) \
  if (!find(library, #name, table.member)) return #name
  FLEET_FIND(get_version, ncclGetVersion);
  FLEET_FIND(get_error_string, ncclGetErrorString);
  FLEET_FIND(get_last_error, ncclGetLastError);
  FLEET_FIND(get_unique_id, ncclGetUniqueId);
  FLEET_FIND(init, ncclCommInitRankConfig);
  FLEET_FIND(async_error, ncclCommGetAsyncError);
  FLEET_FIND(abort, ncclCommAbort);
  FLEET_FIND(finalize, ncclCommFinalize);
  FLEET_FIND(destroy, ncclCommDestroy);
  FLEET_FIND(group_start, ncclGroupStart);
  FLEET_FIND(group_end, ncclGroupEnd);
  FLEET_FIND(send, ncclSend);
  FLEET_FIND(receive, ncclRecv);
  FLEET_FIND(all_reduce, ncclAllReduce);
  FLEET_FIND(reduce_scatter, ncclReduceScatter);
  FLEET_FIND(broadcast, ncclBroadcast);
  FLEET_FIND(all_gather, ncclAllGather);
#undef FLEET_FIND
  return nullptr;
}

}  // namespace

// Never unloaded once it is in use: it has threads.
Result<std::shared_ptr<Nccl>> load_nccl(const std::string& library) {
  void* const opened = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) return refused("NCCL cannot be loaded", library, ::dlerror());
  Table table{};
  const char* const missing = fill(opened, table);
  int version = 0;
  if (table.get_version != nullptr) (void)table.get_version(&version);
  if (missing != nullptr || version < kOldest) {
    ::dlclose(opened);
    const std::string what = version > 0 ? "NCCL " + text_of(version) : "a library";
    return refused("this library is no NCCL, or one that is too old", library,
                   missing == nullptr ? what : str_cat(what, " without ", missing));
  }
  Dl_info info{};
  const bool known = ::dladdr(reinterpret_cast<void*>(table.get_version), &info) != 0;
  return std::shared_ptr<Nccl>(
      std::make_shared<Library>(table, version, known ? info.dli_fname : library));
}

}  // namespace fleet::transport
