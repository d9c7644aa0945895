#include "strategies/collective/device_ranks.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/core/device_memory.h"
#include "transport/nccl/cuda_queue.h"
#include "transport/shared_collective/arena_exchange.h"

namespace fleet::strategies {
namespace {

using transport::CollectiveCommunicator;
using transport::NcclId;
using transport::NcclResult;
using transport::NcclRing;

constexpr std::string_view kHas = "NCCL ";
constexpr std::string_view kYes = "yes";
constexpr std::string_view kId = "id ";
constexpr transport::CollectiveLabel kLabel{.phase = "connecting devices"};

// What a rank has, once it has opened it.
struct Opened {
  std::shared_ptr<transport::Nccl> nccl;
  std::unique_ptr<transport::DeviceQueue> arrays;
  std::vector<NcclRing> rings;
};

Result<Opened> opened(const fluid::Place& place, const DeviceRanksOptions& options) {
  try {
    auto library = options.open(place);
    if (!library.ok()) return library.status();
    Opened all{library.value().nccl, library.value().make_queue(), {}};
    if (!options.encryption_key.empty()) {
      if (const Status status = all.nccl->encrypt(options.encryption_key); !status.ok()) {
        return status;
      }
    }
    for (int i = 0; i < options.communicators; ++i) {
      all.rings.push_back({.queue = library.value().make_queue()});
    }
    return all;
  } catch (const Error& error) {
    return Status(error.code(), error.text());
  }
}

// Texts of all ranks that differ from the first one, or say that there is nothing.
std::vector<std::string> obstacles(const std::vector<std::string>& texts) {
  std::vector<std::string> found;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const bool fits = texts[rank].starts_with(kHas) && texts[rank] == texts.front();
    if (!fits) found.push_back(str_cat("rank ", rank, ": ", texts[rank]));
  }
  return found;
}

// What the ranks say to each other while they connect.
class Talk {
 public:
  Talk(CollectiveCommunicator& host, TimePoint deadline) : host_(host), deadline_(deadline) {}

  TimePoint deadline() const { return deadline_; }
  std::vector<std::string> tell(std::string_view mine) {
    return transport::all_gather_texts(host_, mine, kLabel, deadline_).value();
  }
  bool all_say_yes(bool mine) {
    const auto all = tell(mine ? kYes : "no");
    return std::all_of(all.begin(), all.end(), [](const auto& text) { return text == kYes; });
  }

 private:
  CollectiveCommunicator& host_;
  TimePoint deadline_;
};

// ---- groups

std::vector<int> groups_of_machines(const std::vector<std::string>& machines,
                                    const Logger& logger) {
  std::vector<int> groups;
  std::set<std::string> seen;
  for (size_t rank = 0; rank < machines.size(); ++rank) {
    if (rank > 0 && machines[rank] == machines[rank - 1]) {
      ++groups.back();
      continue;
    }
    if (!seen.insert(machines[rank]).second) {
      logger.warning("collective", "ranks are not summed machine by machine",
                     {{"why", str_cat("rank ", rank, " does not follow those of its machine")}});
      return {};
    }
    groups.push_back(1);
  }
  return groups;
}

std::vector<int> equal_groups(int ranks, int of, const Logger& logger) {
  if (ranks % of == 0) return std::vector<int>(static_cast<size_t>(ranks / of), of);
  logger.warning("collective", "ranks are not summed in groups",
                 {{"why", str_cat(ranks, " ranks do not divide into groups of ", of)}});
  return {};
}

// The same at all ranks; empty where all sum at once.
std::vector<int> groups_of(Talk& talk, int ranks, const DeviceRanksOptions& options,
                           const Logger& logger) {
  if (!options.hierarchical) return {};
  std::vector<int> groups;
  if (options.group_ranks > 1) {
    groups = equal_groups(ranks, options.group_ranks, logger);
  } else {
    const std::string own = options.machine.empty() ? transport::this_machine() : options.machine;
    groups = groups_of_machines(talk.tell(own), logger);
  }
  const auto count = static_cast<int>(groups.size());
  if (count <= 1 || count == ranks) return {};
  const int shards = options.logical_shards == 0 ? ranks : options.logical_shards;
  if (options.nccl.ordered && !transport::groups_are_nodes({ranks, shards}, groups)) {
    logger.warning("collective",
                   "ordered sums are not made group by group: the shard tree has other branches",
                   {{"shards", str_cat(shards)}, {"ranks_of_groups", join(groups, ",")}});
    return {};
  }
  return groups;
}

// ---- ids

// Which ids a start needs.
struct IdsNeeded {
  const transport::NcclRanks& ranks;
  size_t rings;
  bool whole;  // of all ranks

  bool grouped() const { return !ranks.groups.empty(); }
  size_t first() const { return grouped() ? static_cast<size_t>(ranks.place().first) : 0; }
};

// What this rank tells: the first one of a group its group's, and rank 0 those of the first ranks
// of groups and of all ranks as well, one for each ring. Empty when the library fails.
std::string own_ids(transport::Nccl& nccl, const IdsNeeded& needed, NcclResult& result) {
  size_t kinds =
      needed.grouped() && static_cast<size_t>(needed.ranks.rank) == needed.first() ? 1 : 0;
  if (needed.ranks.rank == 0) kinds += (needed.grouped() ? 1 : 0) + (needed.whole ? 1 : 0);
  std::string ids(kId);
  for (size_t i = 0; i < kinds * needed.rings; ++i) {
    NcclId id{};
    result = nccl.unique_id(id);
    if (result != NcclResult::kSuccess) return {};
    ids.append(id.data(), id.size());
  }
  return ids;
}

NcclId id_at(const std::string& text, size_t place) {
  NcclId id{};
  const size_t begin = kId.size() + place * id.size();
  std::copy_n(text.begin() + static_cast<ptrdiff_t>(begin), id.size(), id.begin());
  return id;
}

void share_ids(transport::Nccl& nccl, Talk& talk, const IdsNeeded& needed,
               std::vector<NcclRing>& rings) {
  NcclResult result = NcclResult::kSuccess;
  // A failure is told as no text, so that nobody waits for it.
  const auto texts = talk.tell(own_ids(nccl, needed, result));
  const auto without = std::find(texts.begin(), texts.end(), std::string());
  if (without != texts.end()) {
    const auto rank = without - texts.begin();
    throw_error(ErrorCode::kInternal,
                {.what = str_cat("rank ", rank, " could not make an id of NCCL"),
                 .where = "ncclGetUniqueId",
                 .expected = "ncclSuccess",
                 .got = rank == needed.ranks.rank ? nccl.explain(result, nullptr)
                                                  : str_cat("an error at rank ", rank),
                 .fix = "see that rank's log; NCCL_DEBUG=INFO shows NCCL's own words, and "
                        "NCCL_SOCKET_IFNAME names the network"});
  }
  for (size_t i = 0; i < needed.rings; ++i) {
    if (needed.grouped()) {
      rings[i].inner = id_at(texts[needed.first()], i);
      rings[i].outer = id_at(texts[0], needed.rings + i);
    }
    if (needed.whole) rings[i].id = id_at(texts[0], (needed.grouped() ? 2 : 0) * needed.rings + i);
  }
}

// ---- ranks that are left

void check_left(const RanksLeft& left, const CollectiveCommunicator& host) {
  const auto& old = left.old_ranks;
  const bool in_order =
      std::adjacent_find(old.begin(), old.end(), std::greater_equal<>()) == old.end();
  const bool fits = left.failed != nullptr && static_cast<int>(old.size()) == host.size() &&
                    in_order && old.front() >= 0 && old.back() < left.failed->size() &&
                    old[static_cast<size_t>(host.rank())] == left.failed->rank();
  if (fits) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "the ranks that are left do not fit their communicator",
               .where = "rebuild_devices, RanksLeft.old_ranks",
               .expected = str_cat("the old ranks of ", host.size(),
                                   " ranks in order, with this one's at place ", host.rank()),
               .got = left.failed == nullptr ? "no communicator that failed" : join(old, ","),
               .fix = "name the ranks that the communicator of host memory has"});
}

std::vector<int> lost_ranks(const RanksLeft& left) {
  std::vector<int> lost;
  for (int rank = 0; rank < left.failed->size(); ++rank) {
    if (!std::binary_search(left.old_ranks.begin(), left.old_ranks.end(), rank)) {
      lost.push_back(rank);
    }
  }
  return lost;
}

// Of what failed, nothing is under way any more.
void stop(CollectiveCommunicator& failed, TimePoint deadline) {
  failed.abort(Status(ErrorCode::kPeerLost, {.what = "ranks were lost",
                                             .where = "rebuild_devices",
                                             .expected = "all ranks",
                                             .got = "those that are left",
                                             .fix = {}}));
  (void)failed.barrier(kLabel).wait(deadline);
}

// ---- the start

void log_start(const transport::Nccl& nccl, const DeviceRanksOptions& options,
               const std::vector<int>& groups, std::string_view made, const Logger& logger) {
  const bool encrypts = !options.encryption_key.empty();
  logger.info("collective",
              encrypts ? "gradients on devices are summed by NCCL, whose TCP sockets are encrypted "
                         "by TLS; what it sends otherwise, over InfiniBand say, is not, and the "
                         "checksums of other messages do not cover it"
                       : "gradients on devices are summed by NCCL, whose traffic is neither "
                         "authenticated nor encrypted, nor covered by the checksums of other "
                         "messages; use a network that you trust",
              {{"version", str_cat(nccl.version())},
               {"path", nccl.path()},
               {"sums", options.nccl.ordered ? "ordered" : "fast"},
               {"communicators", str_cat(options.communicators)},
               {"ranks_of_groups", groups.empty() ? "none" : join(groups, ",")},
               {"made", made}});
}

class Starting {
 public:
  Starting(CollectiveCommunicator& host, const fluid::Place& place,
           const DeviceRanksOptions& options, const Logger& logger)
      : ranks_{.rank = host.rank(), .size = host.size()},
        place_(place),
        options_(options),
        logger_(logger),
        talk_(host, steady_clock().now() + options.timeout) {}

  std::unique_ptr<CollectiveCommunicator> start(const RanksLeft* left) {
    auto own = opened(place_, options_);
    const std::string mine =
        own.ok() ? str_cat(kHas, own.value().nccl->version(),
                           options_.encryption_key.empty() ? "" : " with a key")
                 : str_cat(own.status().text().what, " (", own.status().text().got, ")");
    if (const auto found = obstacles(talk_.tell(mine)); !found.empty()) {
      logger_.info("collective", "gradients on devices are summed over host memory",
                   {{"why", join(found, "; ")}});
      return nullptr;
    }
    ranks_.groups = groups_of(talk_, ranks_.size, options_, logger_);
    if (left != nullptr) {
      if (auto shrunk = shrink(std::move(own).value(), *left)) return shrunk;
      own = opened(place_, options_);
    }
    return make(std::move(own).value(), left == nullptr ? "anew" : "anew after a loss");
  }

 private:
  // Null where the ranks cannot, or one of them failed.
  std::unique_ptr<CollectiveCommunicator> shrink(Opened own, const RanksLeft& left) {
    stop(*left.failed, talk_.deadline());
    if (!talk_.all_say_yes(has_nccl_ranks(*left.failed, own.rings.size()))) return nullptr;
    share_ids(*own.nccl, talk_, {ranks_, own.rings.size(), false}, own.rings);
    // Half of the time is left for a start.
    const TimePoint now = steady_clock().now();
    auto made =
        transport::make_nccl_communicator(own.nccl, std::move(own.arrays), std::move(own.rings),
                                          ranks_, now + (talk_.deadline() - now) / 2, options_.nccl,
                                          {.failed = left.failed, .lost = lost_ranks(left)});
    if (!made.ok()) {
      logger_.warning("collective", "NCCL cannot shrink its communicator; it is started anew",
                      {{"why", made.status().to_string()}});
    }
    if (!talk_.all_say_yes(made.ok())) return nullptr;
    log_start(*own.nccl, options_, ranks_.groups, "from one that lost ranks", logger_);
    return std::move(made).value();
  }

  std::unique_ptr<CollectiveCommunicator> make(Opened own, std::string_view how) {
    share_ids(*own.nccl, talk_, {ranks_, own.rings.size(), true}, own.rings);
    log_start(*own.nccl, options_, ranks_.groups, how, logger_);
    return transport::make_nccl_communicator(own.nccl, std::move(own.arrays), std::move(own.rings),
                                             ranks_, talk_.deadline(), options_.nccl)
        .value();
  }

  transport::NcclRanks ranks_;
  const fluid::Place& place_;
  const DeviceRanksOptions& options_;
  const Logger& logger_;
  Talk talk_;
};

}  // namespace

Result<DeviceLibrary> open_device_library(const fluid::Place& place) {
  auto nccl = transport::load_nccl();
  if (!nccl.ok()) return nccl.status();
  return DeviceLibrary{std::move(nccl).value(), [place] {
                         return transport::make_cuda_queue(place.device, fluid::work_stream(place));
                       }};
}

std::unique_ptr<CollectiveCommunicator> connect_devices(CollectiveCommunicator& host,
                                                        const fluid::Place& place,
                                                        const DeviceRanksOptions& options,
                                                        const Logger& logger) {
  return Starting(host, place, options, logger).start(nullptr);
}

std::unique_ptr<CollectiveCommunicator> rebuild_devices(CollectiveCommunicator& host,
                                                        const fluid::Place& place,
                                                        const RanksLeft& left,
                                                        const DeviceRanksOptions& options,
                                                        const Logger& logger) {
  check_left(left, host);
  return Starting(host, place, options, logger).start(&left);
}

}  // namespace fleet::strategies
