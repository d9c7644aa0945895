#include "fluid/core/device_memory.h"

#include <atomic>

#include "fluid/core/device_memory_impl.h"

namespace fleet::fluid {
namespace {

std::atomic<EmulatedDevices*> g_emulated = nullptr;

class FeedCopierAtOnce final : public FeedCopier {
 public:
  explicit FeedCopierAtOnce(const Place& place) : place_(place) {}
  void copy(void* to, const void* from, size_t bytes) override {
    copy_device_memory(to, place_, from, {}, bytes);
  }

 private:
  Place place_;
};

class PointReached final : public DevicePoint {
 public:
  explicit PointReached(const Place& place) : place_(place) {}
  void wait() override {}
  void copy_to_host(void* to, const void* from, size_t bytes) override {
    copy_device_memory(to, {}, from, place_, bytes);
  }

 private:
  Place place_;
};

}  // namespace

std::unique_ptr<FeedCopier> make_feed_copier_at_once(const Place& place) {
  return std::make_unique<FeedCopierAtOnce>(place);
}

std::unique_ptr<DevicePoint> point_reached(const Place& place) {
  return std::make_unique<PointReached>(place);
}

void emulate_devices(EmulatedDevices* devices) {
  g_emulated = devices;
}

EmulatedDevices* emulated_devices() {
  return g_emulated;
}

int device_count() {
  const EmulatedDevices* emulated = emulated_devices();
  return emulated != nullptr ? emulated->count() : built_in::device_count();
}

Allocator& device_allocator(const Place& place) {
  if (EmulatedDevices* emulated = emulated_devices()) return emulated->allocator(place);
  return built_in::device_allocator(place);
}

void* work_stream(const Place& place) {
  return emulated_devices() != nullptr ? nullptr : built_in::work_stream(place);
}

std::unique_ptr<FeedCopier> make_feed_copier(const Place& place) {
  if (emulated_devices() != nullptr) return make_feed_copier_at_once(place);
  return built_in::make_feed_copier(place);
}

std::unique_ptr<FeedCopier> make_value_copier(const Place& place) {
  if (emulated_devices() != nullptr) return make_feed_copier_at_once(place);
  return built_in::make_value_copier(place);
}

std::unique_ptr<HostCopier> make_host_copier(const Place& place) {
  if (EmulatedDevices* emulated = emulated_devices()) return emulated->host_copier(place);
  return built_in::make_host_copier(place);
}

std::unique_ptr<DevicePoint> mark_device(const Place& place) {
  if (emulated_devices() != nullptr) return point_reached(place);
  return built_in::mark_device(place);
}

void copy_device_memory(void* to, const Place& to_place, const void* from, const Place& from_place,
                        size_t bytes) {
  if (EmulatedDevices* emulated = emulated_devices()) {
    return emulated->copy(to, to_place, from, from_place, bytes);
  }
  built_in::copy_device_memory(to, to_place, from, from_place, bytes);
}

}  // namespace fleet::fluid
