#include "base/wait_list.h"

#include <algorithm>
#include <condition_variable>
#include <optional>
#include <utility>

#include "base/strings.h"

namespace fleet {

struct WaitList::Entry {
  std::string name;
  Loop* loop = nullptr;
  Lines lines;
  bool alive = true;  // on the loop's thread
};

struct WaitList::State {
  std::mutex mutex;
  std::vector<std::shared_ptr<Entry>> entries;
};

namespace {

struct Answers {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::optional<std::vector<std::string>>> lines;
  size_t missing = 0;

  void put(size_t i, std::vector<std::string> answer) {
    const std::lock_guard guard(mutex);
    lines[i] = std::move(answer);
    --missing;
    changed.notify_all();
  }
};

}  // namespace

WaitList::WaitList() : state_(std::make_shared<State>()) {}

WaitList::Watch& WaitList::Watch::operator=(Watch&& other) noexcept {
  if (this == &other) return *this;
  drop();
  state_ = std::move(other.state_);
  entry_ = std::move(other.entry_);
  return *this;
}

void WaitList::Watch::drop() {
  if (!entry_) return;
  const std::lock_guard guard(state_->mutex);
  entry_->alive = false;
  std::erase(state_->entries, entry_);
  entry_.reset();
}

WaitList::Watch WaitList::watch(std::string name, Loop& loop, Lines lines) {
  Watch watch;
  watch.state_ = state_;
  watch.entry_ = std::make_shared<Entry>();
  watch.entry_->name = std::move(name);
  watch.entry_->loop = &loop;
  watch.entry_->lines = std::move(lines);
  const std::lock_guard guard(state_->mutex);
  state_->entries.push_back(watch.entry_);
  return watch;
}

WaitList::Watch WaitList::watch(std::string name, Lines lines) {
  Watch watch;
  watch.state_ = state_;
  watch.entry_ = std::make_shared<Entry>();
  watch.entry_->name = std::move(name);
  watch.entry_->lines = std::move(lines);
  const std::lock_guard guard(state_->mutex);
  state_->entries.push_back(watch.entry_);
  return watch;
}

std::vector<std::string> WaitList::ask(Duration limit) {
  const auto answers = std::make_shared<Answers>();
  std::vector<std::string> names;
  {
    const std::lock_guard guard(state_->mutex);
    const auto& entries = state_->entries;
    answers->lines.resize(entries.size());
    answers->missing = entries.size();
    for (size_t i = 0; i < entries.size(); ++i) {
      const auto& entry = entries[i];
      names.push_back(entry->name);
      if (entry->loop == nullptr) {
        answers->put(i, entry->lines());
        continue;
      }
      entry->loop->post([entry, answers, i] {
        answers->put(i, entry->alive ? entry->lines() : std::vector<std::string>());
      });
    }
  }
  std::unique_lock guard(answers->mutex);
  answers->changed.wait_for(guard, limit, [&] { return answers->missing == 0; });
  std::vector<std::string> all;
  for (size_t i = 0; i < names.size(); ++i) {
    const auto& answer = answers->lines[i];
    if (!answer) {
      all.push_back(names[i] + ": busy, its thread does not wait");
    } else if (answer->empty()) {
      all.push_back(names[i] + ": waits for nothing");
    }
    if (answer) {
      for (const std::string& line : *answer) all.push_back(str_cat(names[i], ": ", line));
    }
  }
  return all;
}

}  // namespace fleet
