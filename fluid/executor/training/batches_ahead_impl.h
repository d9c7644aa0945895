// The batches of a data set, read ahead by a thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "fluid/data/formats/datasets/dataset_base.h"
#include "fluid/executor/executor.h"

namespace fleet::fluid {

// Any thread, but construct and destroy.
class BatchesAhead {
 public:
  struct Batch {
    uint64_t number = 0;  // from 0 on
    uint64_t samples = 0;
    Feed feed;
    std::string position;  // of the batch behind it
  };

  // At most `ahead` batches are held. `names` are those of the data set's variables.
  BatchesAhead(std::unique_ptr<data::DatasetBatches> batches, std::vector<std::string> names,
               size_t ahead);
  ~BatchesAhead() { end(); }
  BatchesAhead(const BatchesAhead&) = delete;
  BatchesAhead& operator=(const BatchesAhead&) = delete;

  // The next batch; none at the end, and after stop(). What reading throws is thrown once, behind
  // the batches before it; there are none after that.
  std::optional<Batch> take();
  // The batch that take() gives next, if it is here; it stays as it is until then. By the one
  // thread that takes batches.
  const Batch* peek();
  // Waits until so many batches are here, at most `ahead`, or no more will come; how many there
  // are. Throws what reading threw when there is none.
  int wait_for(int count);
  // There are no more batches.
  void stop();
  // The same, and the thread has ended. Not by several threads at once.
  void end();

  // After end().
  data::DatasetBatches& source() { return *batches_; }

 private:
  using Lock = std::unique_lock<std::mutex>;

  void read();
  bool put(Batch batch);
  void rethrow(Lock& lock);

  std::unique_ptr<data::DatasetBatches> batches_;
  const std::vector<std::string> names_;
  const size_t ahead_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable room_;
  std::condition_variable come_;
  std::deque<Batch> held_;
  std::exception_ptr failure_;
  bool ended_ = false;  // the thread reads no more
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace fleet::fluid
