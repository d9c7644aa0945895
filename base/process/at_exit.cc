#include "base/process/at_exit.h"

#include <cstdlib>
#include <mutex>
#include <unistd.h>
#include <utility>

namespace fleet {

struct AtExit::Cell {
  const pid_t process = getpid();
  std::mutex mutex;
  std::function<void()> work;
};

AtExit::AtExit(std::function<void()> work) : cell_(std::make_shared<Cell>()) {
  cell_->work = std::move(work);
  const auto run = [](int, void* registered) {
    const std::unique_ptr<std::shared_ptr<Cell>> held(
        static_cast<std::shared_ptr<Cell>*>(registered));
    Cell& cell = **held;
    if (cell.process != getpid()) return;
    const std::lock_guard lock(cell.mutex);
    if (const auto run_once = std::exchange(cell.work, nullptr)) run_once();
  };
  on_exit(run, new std::shared_ptr<Cell>(cell_));
}

AtExit::~AtExit() {
  const std::lock_guard lock(cell_->mutex);
  cell_->work = nullptr;
}

}  // namespace fleet
