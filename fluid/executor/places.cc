#include "fluid/executor/places.h"

#include <optional>

#include "base/environment.h"
#include "base/error.h"
#include "base/strings.h"
#include "fluid/core/device_memory.h"

namespace fleet::fluid {
namespace {

constexpr int kMostDevices = 1024;

std::optional<int> parse_device(std::string_view text) {
  const auto number = parse_int(text);
  if (!number || *number < 0 || *number >= kMostDevices) return std::nullopt;
  return static_cast<int>(*number);
}

std::vector<int> selected_gpus() {
  std::vector<int> devices;
  const auto listed = Environment::of_process().get("FLAGS_selected_gpus");
  if (!listed || trim(*listed).empty()) return devices;
  for (const std::string& entry : split(*listed, ',')) {
    const auto device = parse_device(trim(entry));
    if (!device) {
      throw_error(ErrorCode::kEnvironment, {.what = "a variable has a value that cannot be used",
                                            .where = "FLAGS_selected_gpus",
                                            .expected = "numbers of GPUs, separated by commas",
                                            .got = "'" + *listed + "'",
                                            .fix = "correct or unset FLAGS_selected_gpus"});
    }
    devices.push_back(*device);
  }
  return devices;
}

}  // namespace

Place place_named(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const bool gpu = kind == "gpu" || kind == "cuda";
  if (text == "cpu") return CPUPlace();
  if (gpu && colon == std::string::npos) {
    const std::vector<int> selected = selected_gpus();
    return CUDAPlace(selected.empty() ? 0 : selected.front());
  }
  const auto device = gpu ? parse_device(text.substr(colon + 1)) : std::nullopt;
  if (device) return CUDAPlace(*device);
  throw_error(
      ErrorCode::kInvalidArgument,
      {.what = "no such place" + did_you_mean(kind, std::vector<std::string>{"cpu", "gpu", "cuda"}),
       .where = "place",
       .expected = "cpu, gpu or gpu:N",
       .got = "'" + text + "'",
       .fix = "name the CPU, or a GPU by its number"});
}

std::vector<Place> cuda_places(const std::vector<int>& ids) {
  std::vector<int> devices = ids.empty() ? selected_gpus() : ids;
  if (devices.empty()) {
    for (int device = 0; device < device_count(); ++device) devices.push_back(device);
  }
  std::vector<Place> places;
  places.reserve(devices.size());
  for (const int device : devices) places.push_back(CUDAPlace(device));
  return places;
}

}  // namespace fleet::fluid
