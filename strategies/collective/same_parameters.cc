#include "strategies/collective/same_parameters.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <string_view>

#include "base/hash.h"
#include "base/strings.h"

namespace fleet::strategies {
namespace {

using transport::CollectiveCommunicator;

std::vector<uint32_t> checksums(const std::vector<NamedParameter>& parameters) {
  std::vector<uint32_t> sums;
  sums.reserve(parameters.size());
  for (const auto& [name, value] : parameters) {
    const fluid::Tensor host = value->on_host();
    sums.push_back(crc32c({host.raw(), host.bytes()}));
  }
  return sums;
}

// 0 of none.
uint64_t digest_of(const std::vector<uint32_t>& sums) {
  if (sums.empty()) return 0;
  uint64_t digest = 1;
  for (const uint32_t sum : sums) digest = mix64(digest ^ sum);
  return std::max<uint64_t>(1, digest);
}

// The i-th of the checksums in a rank's text; nothing where it has fewer.
std::string_view checksum_in(const std::string& text, size_t i) {
  const size_t at = i * sizeof(uint32_t);
  return at < text.size() ? std::string_view(text).substr(at, sizeof(uint32_t)) : "";
}

// The rank whose value most ranks have; of equally many, the first.
size_t usual_rank(const std::vector<uint64_t>& digests) {
  std::map<uint64_t, int64_t> ranks;
  for (const uint64_t digest : digests) ++ranks[digest];
  ranks[0] = -1;
  const auto usual = std::max_element(digests.begin(), digests.end(),
                                      [&](uint64_t a, uint64_t b) { return ranks[a] < ranks[b]; });
  return static_cast<size_t>(usual - digests.begin());
}

[[noreturn]] void refuse(const std::string& parameter, const std::vector<std::string>& others,
                         size_t usual) {
  throw_error(
      ErrorCode::kPrecondition,
      {.what = "the ranks begin with different parameters",
       .where = str_cat("parameter ", parameter),
       .expected = str_cat("the value that rank ", usual, " has"),
       .got = str_cat("another one at rank", others.size() > 1 ? "s " : " ", join(others, ", ")),
       .fix = "run the startup program at every rank, and load the same files at each of "
              "them"});
}

}  // namespace

void require_same_parameters(const std::vector<NamedParameter>& parameters,
                             CollectiveCommunicator& communicator,
                             const GradientReducerOptions& options) {
  const transport::CollectiveLabel label{.phase = "comparing parameters"};
  const std::vector<uint32_t> sums = checksums(parameters);
  const uint64_t mine = digest_of(sums);
  std::vector<uint64_t> digests(static_cast<size_t>(communicator.size()));
  auto token = communicator.all_gather(std::as_bytes(std::span(&mine, 1)),
                                       std::as_writable_bytes(std::span(digests)), label);
  wait_for(token, options);
  const size_t usual = usual_rank(digests);
  const bool same = std::all_of(digests.begin(), digests.end(), [&](uint64_t digest) {
    return digest == 0 || digest == digests[usual];
  });
  if (same) return;

  // Only now, which parameter it is.
  std::string text(sums.size() * sizeof(uint32_t), '\0');
  if (!sums.empty()) std::memcpy(text.data(), sums.data(), text.size());
  const auto all =
      all_gather_texts(communicator, text, label, steady_clock().now() + options.timeout).value();
  for (size_t i = 0; i * sizeof(uint32_t) < all[usual].size(); ++i) {
    std::vector<std::string> ranks;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const bool differs = checksum_in(all[rank], i) != checksum_in(all[usual], i);
      if (digests[rank] != 0 && differs) ranks.push_back(str_cat(rank));
    }
    if (!ranks.empty())
      refuse(i < parameters.size() ? parameters[i].name : str_cat("number ", i), ranks, usual);
  }
}

}  // namespace fleet::strategies
