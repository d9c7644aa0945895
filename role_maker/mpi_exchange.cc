#include <chrono>

#include "role_maker/group_exchange.h"
#include "transport/mpi_session/mpi_session.h"

namespace fleet::role_maker {
namespace {

constexpr Duration kTimeout = std::chrono::minutes(1);

class MpiExchange : public GroupExchange {
 public:
  int rank() const override { return session_.rank(); }
  int size() const override { return session_.size(); }
  Result<std::vector<std::string>> all_gather(const std::string& mine) override {
    return session_.all_gather(mine, kTimeout);
  }

 private:
  transport::MpiSession& session_ = transport::MpiSession::get();
};

}  // namespace

std::unique_ptr<GroupExchange> mpi_exchange() {
  return std::make_unique<MpiExchange>();
}

}  // namespace fleet::role_maker
