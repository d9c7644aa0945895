#include "strategies/collective/device_ranks.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/core/device_memory.h"
#include "transport/nccl/cuda_queue.h"

namespace fleet::strategies {
namespace {

using transport::CollectiveCommunicator;

constexpr std::string_view kHas = "NCCL ";
constexpr transport::CollectiveLabel kLabel{.phase = "connecting devices"};

Result<DeviceLibrary> opened(const fluid::Place& place, const DeviceRanksOptions& options) {
  try {
    return options.open(place);
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

transport::NcclId told_id(transport::Nccl& nccl, CollectiveCommunicator& host, TimePoint deadline) {
  transport::NcclId id{};
  const auto made = host.rank() == 0 ? nccl.unique_id(id) : transport::NcclResult::kSuccess;
  // Rank 0's failure is told as no text, so that nobody waits for it.
  const bool gives = host.rank() == 0 && made == transport::NcclResult::kSuccess;
  const auto all = transport::all_gather_texts(
                       host, gives ? std::string_view(id.data(), id.size()) : std::string_view(),
                       kLabel, deadline)
                       .value();
  if (all.front().size() == id.size()) {
    std::copy(all.front().begin(), all.front().end(), id.begin());
    return id;
  }
  throw_error(ErrorCode::kInternal,
              {.what = "rank 0 could not make an id of NCCL",
               .where = "ncclGetUniqueId",
               .expected = "ncclSuccess",
               .got = host.rank() == 0 ? nccl.explain(made, nullptr) : "an error at rank 0",
               .fix = "see rank 0's log; NCCL_DEBUG=INFO shows NCCL's own words, and "
                      "NCCL_SOCKET_IFNAME names the network"});
}

}  // namespace

Result<DeviceLibrary> open_device_library(const fluid::Place& place) {
  auto nccl = transport::load_nccl();
  if (!nccl.ok()) return nccl.status();
  return DeviceLibrary{
      std::move(nccl).value(),
      transport::make_cuda_queue(place.device, fluid::work_stream(place))};
}

std::unique_ptr<CollectiveCommunicator> connect_devices(CollectiveCommunicator& host,
                                                        const fluid::Place& place,
                                                        const DeviceRanksOptions& options,
                                                        const Logger& logger) {
  const TimePoint deadline = steady_clock().now() + options.timeout;
  auto library = opened(place, options);
  const std::string mine =
      library.ok() ? str_cat(kHas, library.value().nccl->version())
                   : str_cat(library.status().text().what, " (", library.status().text().got, ")");
  const auto texts = transport::all_gather_texts(host, mine, kLabel, deadline).value();
  if (const auto found = obstacles(texts); !found.empty()) {
    logger.info("collective", "gradients on devices are summed over host memory",
                {{"why", join(found, "; ")}});
    return nullptr;
  }
  auto [nccl, queue] = std::move(library).value();
  const transport::NcclId id = told_id(*nccl, host, deadline);
  logger.info("collective",
              "gradients on devices are summed by NCCL, whose traffic is neither authenticated nor "
              "encrypted; use a network that you trust",
              {{"version", str_cat(nccl->version())},
               {"path", nccl->path()},
               {"sums", options.nccl.ordered ? "ordered" : "fast"}});
  return transport::make_nccl_communicator(std::move(nccl), std::move(queue), id, host.rank(),
                                           host.size(), deadline, options.nccl)
      .value();
}

}  // namespace fleet::strategies
