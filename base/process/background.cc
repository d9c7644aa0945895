#include "base/process/background.h"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace fleet {
namespace {

class BackgroundThread final : public Background {
 public:
  ~BackgroundThread() override {
    BackgroundThread::stop();
    BackgroundThread::finish();
  }

  void start(std::function<void()> work) override {
    finish();
    thread_ = std::thread(std::move(work));
  }

  void finish() override {
    if (thread_.joinable()) thread_.join();
  }

  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
  }

  bool rest(Duration time) override {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, time, [this] { return stops_; });
  }

 private:
  std::thread thread_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool stops_ = false;
};

}  // namespace

std::unique_ptr<Background> make_background_thread() {
  return std::make_unique<BackgroundThread>();
}

}  // namespace fleet
