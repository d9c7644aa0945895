#include "transpiler/split_method.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <tuple>

#include "base/hash.h"

namespace fleet::transpiler {
namespace {

// Null for another name.
const PSDispatcher* built_in(std::string_view name) {
  static const RoundRobin kRoundRobin;
  static const HashName kHashName;
  static const Balanced kBalanced;
  if (name == "RoundRobin") return &kRoundRobin;
  if (name == "HashName") return &kHashName;
  return name == "Balanced" ? &kBalanced : nullptr;
}

}  // namespace

std::vector<int> RoundRobin::dispatch(std::span<const ServerPart> parts,
                                      std::span<const std::string> servers) const {
  std::vector<int> dispatched(parts.size());
  for (size_t i = 0; i < dispatched.size(); ++i)
    dispatched[i] = static_cast<int>(i % servers.size());
  return dispatched;
}

std::vector<int> HashName::dispatch(std::span<const ServerPart> parts,
                                    std::span<const std::string> servers) const {
  std::vector<int> dispatched;
  for (const ServerPart& part : parts) {
    dispatched.push_back(static_cast<int>(mix64(fnv1a(part.name)) % servers.size()));
  }
  return dispatched;
}

std::vector<int> Balanced::dispatch(std::span<const ServerPart> parts,
                                    std::span<const std::string> servers) const {
  struct Load {
    int64_t step_bytes = 0;
    int64_t bytes = 0;
  };
  std::vector<size_t> largest_first(parts.size());
  std::iota(largest_first.begin(), largest_first.end(), size_t{0});
  std::stable_sort(largest_first.begin(), largest_first.end(), [&parts](size_t a, size_t b) {
    return std::tie(parts[a].step_bytes, parts[a].bytes) >
           std::tie(parts[b].step_bytes, parts[b].bytes);
  });
  std::vector<Load> loads(servers.size());
  std::vector<int> dispatched(parts.size());
  for (const size_t i : largest_first) {
    const bool by_bytes = parts[i].step_bytes == 0;
    const auto least =
        std::min_element(loads.begin(), loads.end(), [by_bytes](const Load& a, const Load& b) {
          return by_bytes ? std::tie(a.bytes, a.step_bytes) < std::tie(b.bytes, b.step_bytes)
                          : std::tie(a.step_bytes, a.bytes) < std::tie(b.step_bytes, b.bytes);
        });
    least->step_bytes += parts[i].step_bytes;
    least->bytes += parts[i].bytes;
    dispatched[i] = static_cast<int>(least - loads.begin());
  }
  return dispatched;
}

SplitMethod::SplitMethod(std::shared_ptr<const PSDispatcher> dispatcher)
    : name_(dispatcher->name()) {
  const PSDispatcher* known = built_in(name_);
  const PSDispatcher& given = *dispatcher;
  if (known == nullptr || typeid(*known) != typeid(given)) own_ = std::move(dispatcher);
}

const PSDispatcher* SplitMethod::dispatcher() const {
  return own_ ? own_.get() : built_in(name_);
}

std::span<const std::string_view> split_method_names() {
  static constexpr std::array<std::string_view, 3> kNames = {"RoundRobin", "HashName", "Balanced"};
  return kNames;
}

}  // namespace fleet::transpiler
