#include "transport/rpc/pending_sessions.h"

#include <algorithm>

namespace fleet::transport {

std::string source_of(const std::string& peer_name) {
  const bool with_port = peer_name.starts_with("tcp ");
  return with_port ? peer_name.substr(0, peer_name.rfind(':')) : peer_name;
}

std::shared_ptr<Session> PendingSessions::add(std::shared_ptr<Session> session,
                                              std::string source) {
  std::shared_ptr<Session> victim;
  if (sessions_.size() >= most_) victim = remove(choose_victim());
  const uint64_t id = session->id();
  sources_[source].insert(id);
  sessions_.emplace(id, std::pair(std::move(session), std::move(source)));
  return victim;
}

uint64_t PendingSessions::choose_victim() const {
  const auto better = [this](const auto& a, const auto& b) {
    const bool stranger = !proven_.contains(a.first);
    if (stranger != !proven_.contains(b.first)) return !stranger;
    if (a.second.size() != b.second.size()) return a.second.size() < b.second.size();
    return *a.second.begin() > *b.second.begin();
  };
  return *std::max_element(sources_.begin(), sources_.end(), better)->second.begin();
}

std::shared_ptr<Session> PendingSessions::remove(uint64_t id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return nullptr;
  auto [session, source] = std::move(found->second);
  sessions_.erase(found);
  const auto others = sources_.find(source);
  others->second.erase(id);
  if (others->second.empty()) sources_.erase(others);
  return session;
}

void PendingSessions::prove(uint64_t id) {
  const auto found = sessions_.find(id);
  if (found != sessions_.end()) proven_.insert(found->second.second);
}

std::map<uint64_t, std::shared_ptr<Session>> PendingSessions::take_all() {
  std::map<uint64_t, std::shared_ptr<Session>> all;
  for (auto& [id, waiting] : sessions_) all.emplace(id, std::move(waiting.first));
  sessions_.clear();
  sources_.clear();
  return all;
}

std::optional<uint64_t> RateLimit::take(TimePoint now) {
  if (now - since_ >= interval_) {
    const auto whole = static_cast<uint64_t>((now - since_) / interval_);
    used_ -= std::min(used_, whole);
    since_ = now;
  }
  if (used_ >= burst_) {
    ++skipped_;
    return std::nullopt;
  }
  ++used_;
  return std::exchange(skipped_, 0);
}

}  // namespace fleet::transport
