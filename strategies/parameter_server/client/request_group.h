// Several requests that are over together.
#pragma once

#include <memory>
#include <utility>

#include "transport/rpc/channel.h"

namespace fleet::strategies {

class RequestGroup {
 public:
  // `on_done` runs once, with the first failure; may be empty.
  explicit RequestGroup(transport::DoneHandler on_done)
      : pending_(std::make_shared<Pending>(Pending{1, {}, std::move(on_done)})) {}
  // The end of one more.
  transport::DoneHandler add() {
    ++pending_->requests;
    return [pending = pending_](const Status& status) { one_over(*pending, status); };
  }
  // There are no more.
  void begun() { one_over(*pending_, {}); }

 private:
  struct Pending {
    size_t requests = 0;  // and one until all have begun
    Status status;
    transport::DoneHandler on_done;
  };
  static void one_over(Pending& pending, const Status& status) {
    if (!status.ok() && pending.status.ok()) pending.status = status;
    if (--pending.requests == 0 && pending.on_done) pending.on_done(pending.status);
  }

  std::shared_ptr<Pending> pending_;
};

}  // namespace fleet::strategies
