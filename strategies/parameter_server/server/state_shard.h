// The state of one slice on a server: how it is updated and read.
//
// A shard belongs to the thread that applies its updates; values that were read may be used and
// dropped by any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fluid/core/scope.h"
#include "fluid/tables/lookup/shared_table.h"
#include "strategies/parameter_server/protocol/server_calls.h"

namespace fleet::strategies {

// Reads a version while updates go on, without pinning its memory: it is told what is about to
// change. Calls come one at a time, from whichever thread changes the value.
class VersionReader {
 public:
  virtual ~VersionReader() = default;

  // The version, and where it is.
  virtual void begin(const std::byte* value) = 0;
  // The same values are there now, and what was before is no longer to be read.
  virtual void moved(const std::byte* value) = 0;
  // Rows of these numbers, in any order and some perhaps twice, are about to change; null: all.
  virtual void before_change(const std::vector<int64_t>* rows) = 0;
  // In place of begin(): there is no version, as an update failed.
  virtual void lost(const Status& why) = 0;
};

// What a stage of an update changes of the value.
enum class ValueChange : uint8_t {
  kNothing,
  kNamedRows,  // those that a sparse gradient names
  kAll,
};

struct StateShardSpec {
  std::string value;     // the slice; a tensor, or a growing table
  std::string gradient;  // its reduced gradient
  // Other variables that an update writes, such as moments and beta powers.
  std::vector<std::string> state;
  // By stage of an update; those that are missing change all.
  std::vector<ValueChange> changes = {};
};

// Who reads a value that is updated. Any thread.
class VersionReaders {
 public:
  // Until the end of its life an update goes on: whoever comes meanwhile is shown what it made.
  class Update {
   public:
    Update(VersionReaders& readers, const fluid::Tensor& value) : readers_(readers), value_(value) {
      readers_.begin_update();
    }
    ~Update() { readers_.end_update(std::as_const(value_).raw(), done_); }
    Update(const Update&) = delete;
    Update& operator=(const Update&) = delete;
    void done() { done_ = true; }

   private:
    VersionReaders& readers_;
    const fluid::Tensor& value_;
    bool done_ = false;
  };

  void show(const std::shared_ptr<VersionReader>& reader, const fluid::Tensor& value);
  void moved(const std::byte* value);
  void before_change(const std::vector<int64_t>* rows);

 private:
  std::vector<std::shared_ptr<VersionReader>> living();
  void begin_update();
  void end_update(const std::byte* value, bool done);

  std::mutex mutex_;
  bool updating_ = false;
  std::vector<std::weak_ptr<VersionReader>> readers_;
  std::vector<std::shared_ptr<VersionReader>> waiting_;
};

// A slice whose variables live in a scope, under their program names. An update runs in place
// unless a reader has pinned what it would overwrite; then it goes on in a spare copy, which takes
// the variable's place in the scope.
class StateShard {
 public:
  // Runs the optimizer (the stage that the update says) on the scope's variables, in place.
  using Rule = std::function<void(const StepUpdate&)>;

  // The scope must outlive the shard, hold every variable of the spec, as a tensor but for the
  // gradient, and be changed by nobody else.
  StateShard(StateShardSpec spec, fluid::Scope& scope, Rule rule, int stages = 1);

  // Where the reduced gradient is put before apply: a tensor, or selected rows.
  fluid::Value& gradient() { return *gradient_; }
  // An update of several stages waits for an exchange between servers after each but the last.
  int stages() const { return stages_; }
  // Gives what an update changes memory that nobody else uses, so that the next apply() may run in
  // another thread.
  void own();
  // Runs the stage.
  void apply(const StepUpdate& update);
  // The rows of a growing table, which is the value; null for a tensor, which the others below are
  // for.
  const std::shared_ptr<fluid::tables::SharedTable>& table() const { return table_; }
  // The value as it is. Holding it pins the memory: later updates write elsewhere.
  fluid::Tensor read() const { return table_ ? fluid::Tensor() : *slots_.front().tensor; }
  // Shows the reader the version that is there, or the next one while an update goes on in another
  // thread. Tells it of changes as long as it lives.
  void show(const std::shared_ptr<VersionReader>& reader) {
    readers_.show(reader, *slots_.front().tensor);
  }
  // The value, for others to change all of it: what was read stays as it is.
  fluid::Tensor& writable();

 private:
  struct Slot {
    fluid::Tensor* tensor;
    fluid::Tensor spare;
  };

  std::shared_ptr<fluid::tables::SharedTable> table_;
  std::vector<Slot> slots_;  // the value first, unless it is a table
  std::vector<ValueChange> changes_;
  VersionReaders readers_;
  const std::byte* place_ = nullptr;  // of the value, as the last call of own() left it
  fluid::Value* gradient_;
  Rule rule_;
  int stages_;
};

// Makes `tensor` the only user of its memory, so that it can be changed while others read what it
// was; `spare` is where the copy goes and what was displaced stays. Nothing happens when nobody
// shares it.
void detach(fluid::Tensor& tensor, fluid::Tensor& spare);

}  // namespace fleet::strategies
