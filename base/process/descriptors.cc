#include "base/process/descriptors.h"

#include <algorithm>
#include <sys/resource.h>

#include "base/strings.h"

namespace fleet {
namespace {

constexpr rlim_t kMost = 1U << 20;

rlimit limit_now() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit : rlimit{kMost, kMost};
}

}  // namespace

void raise_descriptor_limit() {
  rlimit limit = limit_now();
  const rlim_t wanted = std::min(limit.rlim_max, kMost);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Status provide_descriptors(uint64_t needed, std::string who) {
  raise_descriptor_limit();
  const rlim_t given = limit_now().rlim_cur;
  if (given >= needed) return {};
  return Status(
      ErrorCode::kInput,
      {.what = "this process may not have as many open files and sockets as it needs",
       .where = std::move(who),
       .expected = str_cat(needed, " file descriptors for a job of this size"),
       .got = str_cat("a hard limit of ", given),
       .fix = str_cat("raise it before the start: ulimit -Hn ", needed,
                      " as root, LimitNOFILE=", needed,
                      " in a systemd unit, or --ulimit nofile=", needed, " of a container")});
}

}  // namespace fleet
