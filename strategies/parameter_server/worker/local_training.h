// Workers that train alone, and exchange differences with the servers now and then: GEO and EASGD.
// Each trainer thread of a process is a worker of its own.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "fluid/core/scope.h"
#include "strategies/parameter_server/worker/background_client.h"
#include "strategies/parameter_server/worker/rows/local_rows.h"

namespace fleet::strategies {

// Any thread, each with a scope of its own. A scope must live until it was left, or the worker has
// stopped: what it trained since its last exchange is lost otherwise.
class LocalTraining {
 public:
  // `options` as they were given.
  LocalTraining(BackgroundClient& client, const AsyncOptions& options, uint32_t workers);

  // The scope's parameters are the servers' now: what the first exchange measures from.
  void begin(fluid::Scope& scope);
  // A thread's scope goes on from where another one is; its growing tables begin without rows.
  void begin_from(fluid::Scope& scope, const fluid::Scope& other);
  // By table of a lookup, the rows that the scope trains; empty in scopes that do not train.
  std::vector<std::shared_ptr<KeptRows>> kept_rows(fluid::Scope& scope,
                                                   const RemoteGrowingTables& tables);
  // A local step is over; exchanges when it is time, and takes values that have come meanwhile.
  void step(fluid::Scope& scope);
  // Exchanges what the last steps changed.
  void exchange_now(fluid::Scope& scope);
  // GEO: the scope's parameters become the servers'; nothing is under way.
  void take_values(fluid::Scope& scope);
  // Local steps of a process with one scope, by which it exchanges; behind begin(), those that were
  // over before.
  std::vector<double> counts() const;
  void set_counts(std::span<const double> counts);
  // Exchanges what the last steps changed; the scope is not used any more.
  void leave(fluid::Scope& scope);
  // The same, and `heir` goes on from there, once the caller has copied the scope's values into it.
  // With GEO they are the servers' then.
  void leave_to(fluid::Scope& scope, fluid::Scope& heir);
  void leave_all();
  // Throws UsageError (kPrecondition) when scopes were gone before they were left, with steps that
  // no server knows of.
  void check_lost() const;

 private:
  using Ids = std::vector<uint64_t>;
  struct Trainer {
    uint64_t steps = 0;
    uint64_t exchanged = 0;                   // the step of the last exchange
    std::weak_ptr<const void> life;           // of the scope
    BackgroundClient::Ticket under_way;       // GEO: an exchange whose values were not taken
    std::vector<std::vector<std::byte>> old;  // by parameter: GEO's last snapshot of the server
    std::map<std::string, std::shared_ptr<LocalRows>> rows;  // by growing table
  };
  // A growing table, and the numbers of its gradients, by server.
  struct Table {
    RemoteGrowingTables place;
    std::vector<uint32_t> gradients;
  };

  void define();
  void define_tables(const ServerClient& client);
  void begin_rows(fluid::Scope& scope, const fluid::Scope& like, Trainer& trainer) const;
  void forget_gone();
  Trainer& trainer_of(fluid::Scope& scope);
  void exchange(fluid::Scope& scope, Trainer& trainer);
  template <class T, class Fill>
  void send(size_t index, const Fill& fill);
  template <class Differences>
  void send_rows(const Table& table, const std::vector<Ids>& ids, const Differences& differences);
  void send_geo(fluid::Scope& scope, Trainer& trainer);
  void receive_geo(fluid::Scope& scope, Trainer& trainer);
  void exchange_easgd(fluid::Scope& scope, const Trainer& trainer);
  void exchange_rows(const Trainer& trainer);
  void send_rows_of(const fluid::Scope& scope);
  std::vector<std::vector<float>> rows_on_servers(const Table& table, const std::vector<Ids>& ids);
  fluid::Tensor& parameter(fluid::Scope& scope, size_t index) const;

  BackgroundClient& client_;
  const AsyncOptions options_;
  const uint32_t trainers_;  // workers times threads

  mutable std::mutex mutex_;  // guards what follows; a trainer belongs to its thread
  bool defined_ = false;
  std::vector<RemoteTensor> parameters_;
  std::vector<uint32_t> gradients_;  // their numbers
  std::vector<uint32_t> values_;
  std::vector<Table> tables_;
  std::map<fluid::Scope*, Trainer> scopes_;
  uint64_t lost_ = 0;  // steps of scopes that were gone before their changes left
};

}  // namespace fleet::strategies
