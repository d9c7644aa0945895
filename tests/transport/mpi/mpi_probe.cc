// One rank of the tests of MPI: runs what its first argument names and prints a line for each fact
// that the test looks at. Exit code 0 when every check of this rank held.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>

#include "role_maker/role_maker.h"
#include "tests/transport/collective/reference.h"
#include "transport/mpi/mpi_communicator.h"

namespace fleet::transport {
namespace {

using namespace testing_reference;

constexpr Duration kPatience = std::chrono::seconds(30);
TimePoint soon() {
  return steady_clock().now() + kPatience;
}

std::unique_ptr<CollectiveCommunicator> open(CommunicatorOptions options = {}) {
  return std::move(make_mpi_communicator(MpiSession::get(), kPatience, options).value());
}

// So that small arrays take the way of large ones too.
CommunicatorOptions in_pieces(size_t bytes, int window) {
  return {.direct_limit_bytes = 0,
          .doubling_limit_bytes = 0,
          .piece_bytes = bytes,
          .least_piece_bytes = 0,
          .window = window};
}

void require(bool fact, std::string_view what) {
  if (fact) return;
  std::printf("WRONG: %.*s\n", static_cast<int>(what.size()), what.data());
  std::exit(1);
}

template <class T>
void check_reductions(CollectiveCommunicator& comm, int shards, size_t count) {
  const ShardLayout layout(comm.size(), shards);
  const auto expected = sum_of_contributions<T>(layout, count);
  if (sizeof(T) > 2) require(same_bits(expected, local_sum<T>(shards, count)), "a local sum");
  auto parts = contributions<T>(layout, comm.rank(), count);
  std::vector<T> out(count);
  auto token = comm.all_reduce(layout, kType<T>, pointers(parts), out.data(), count, {});
  require(token.wait(soon()).ok() && same_bits(out, expected), "all_reduce");

  const auto ranks = static_cast<size_t>(comm.size());
  std::vector<size_t> counts(ranks, count / (ranks + 1));
  counts[0] = count - counts[0] * (ranks - 1);
  const auto rank = static_cast<size_t>(comm.rank());
  const auto begin = std::accumulate(counts.begin(), counts.begin() + comm.rank(), size_t{0});
  std::vector<T> piece(counts[rank]);
  token = comm.reduce_scatter(layout, kType<T>, pointers(parts), piece.data(), counts, {});
  require(token.wait(soon()).ok(), "reduce_scatter");
  const auto at = expected.begin() + static_cast<long>(begin);
  require(same_bits(piece, std::vector<T>(at, at + static_cast<long>(counts[rank]))),
          "the bits of reduce_scatter");

  token = comm.all_reduce(layout, kType<T>, pointers(parts), parts[0].data(), count, {});
  require(token.wait(soon()).ok() && same_bits(parts[0], expected), "all_reduce in place");
}

int reductions() {
  for (const auto& options : {CommunicatorOptions{}, in_pieces(256, 2), in_pieces(64, 1),
                              in_pieces(1 << 20, 8), CommunicatorOptions{.direct_ranks = 0},
                              CommunicatorOptions{.direct_ranks = 0, .doubling_limit_bytes = 0}}) {
    const auto comm = open(options);
    for (int shards = comm->size(); shards <= 2 * comm->size() + 1; ++shards) {
      for (const size_t count : {0, 1, 5, 63, 64, 1000, 4099}) {
        check_reductions<float>(*comm, shards, count);
      }
      check_reductions<double>(*comm, shards, 777);
      check_reductions<int64_t>(*comm, shards, 777);
      check_reductions<Float16>(*comm, shards, 777);
      check_reductions<BFloat16>(*comm, shards, 777);
    }
    require(comm->barrier({}).wait(soon()).ok(), "barrier");
  }
  check_reductions<float>(*open(), MpiSession::get().size(), 1'500'007);
  std::printf("reductions ok\n");
  return 0;
}

int exchanges() {
  MpiSession& session = MpiSession::get();
  const auto comm = open();
  for (int root = 0; root < comm->size(); ++root) {
    std::vector<int> values(1000, comm->rank());
    require(comm->broadcast(std::as_writable_bytes(std::span(values)), root, {}).wait(soon()).ok(),
            "broadcast");
    require(values == std::vector<int>(1000, root), "the root's bytes");
  }
  std::vector<int> all(static_cast<size_t>(comm->size()));
  const int mine = comm->rank() * comm->rank();
  require(comm->all_gather(std::as_bytes(std::span(&mine, 1)),
                           std::as_writable_bytes(std::span(all)), {})
              .wait(soon())
              .ok(),
          "all_gather");
  for (int i = 0; i < comm->size(); ++i) require(all[static_cast<size_t>(i)] == i * i, "order");

  const auto texts =
      session.all_gather(std::string(static_cast<size_t>(session.rank()), 'x'), kPatience);
  for (size_t i = 0; i < texts.value().size(); ++i) {
    require(texts.value()[i].size() == i, "the texts of all ranks");
  }
  const auto word = session.broadcast(session.rank() == 1 ? "hello" : "no", 1, kPatience);
  require(word.value() == "hello", "the root's text");
  std::printf("exchanges ok\n");
  return 0;
}

// Ranks call different operations; each is told what the other calls.
int different(std::string_view what) {
  const auto comm = open();
  const ShardLayout layout(comm->size(), comm->size());
  require(comm->barrier({}).wait(soon()).ok(), "a barrier that all call");
  const bool last = comm->rank() == comm->size() - 1;
  std::vector<float> values(1000);
  const void* part = values.data();
  const size_t count = what == "different_count" && last ? 500 : 1000;
  CollectiveToken token;
  if (what == "different_kind" && last) {
    token = comm->broadcast(std::as_writable_bytes(std::span(values)), comm->rank(), {});
  } else {
    token = comm->all_reduce(layout, ElementType::kFloat32, {&part, 1}, values.data(), count, {});
  }
  const Status status = token.wait(steady_clock().now() + std::chrono::seconds(10));
  std::printf("rank %d: %s\n", comm->rank(), status.to_string().c_str());
  return 3;
}

// Buckets that overlap, finished in another order than they were started in.
int overlap() {
  const auto comm = open({.direct_limit_bytes = 1000,
                          .doubling_limit_bytes = 1000,
                          .piece_bytes = 512,
                          .least_piece_bytes = 512});
  const ShardLayout layout(comm->size(), comm->size());
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::vector<std::vector<float>> values;
    std::vector<CollectiveToken> tokens;
    for (const size_t count : {10, 3000, 100, 7000, 1}) {
      values.push_back(shard_values<float>(comm->rank(), count));
      const void* part = values.back().data();
      tokens.push_back(comm->all_reduce(layout, ElementType::kFloat32, {&part, 1},
                                        values.back().data(), count, {}));
    }
    for (size_t i = tokens.size(); i-- > 0;) {
      require(tokens[i].wait(soon()).ok(), "an overlapped all_reduce");
      require(same_bits(values[i], local_sum<float>(comm->size(), values[i].size())), "its bits");
    }
  }
  std::printf("overlap ok\n");
  return 0;
}

// The last rank leaves by a signal in step 3; the others find it out and end by returning.
int missing(int signal) {
  const auto comm = open();
  const ShardLayout layout(comm->size(), comm->size());
  std::vector<float> values(200'000, 1);
  const void* part = values.data();
  for (int step = 0;; ++step) {
    if (step == 3 && comm->rank() == comm->size() - 1) raise(signal);
    auto token = comm->all_reduce(layout, ElementType::kFloat32, {&part, 1}, values.data(),
                                  values.size(), {.phase = "backward", .step = step});
    const Status status = token.wait(steady_clock().now() + std::chrono::seconds(1));
    if (status.ok()) continue;
    std::printf("rank %d: %s\n", comm->rank(), status.to_string().c_str());
    const Status again = comm->barrier({}).wait(soon());
    require(again.code() == ErrorCode::kPeerLost, "a broken communicator stays broken");
    require(MpiSession::get().lost(), "the session knows");
    return 3;
  }
}

// The last rank comes so late that the others have made a roll call, and then all go on.
int late() {
  const auto comm = open();
  if (comm->rank() == comm->size() - 1) std::this_thread::sleep_for(std::chrono::milliseconds(700));
  const TimePoint deadline = steady_clock().now() + std::chrono::seconds(1);
  require(comm->barrier({}).wait(deadline).ok(), "the barrier that one comes late to");
  for (int i = 0; i < 20; ++i) require(comm->barrier({}).wait(soon()).ok(), "a barrier");
  std::printf("late ok\n");
  return 0;
}

int symetric() {
  role_maker::MPISymetricRoleMaker maker;
  maker.generate_role();
  const auto& spec = maker.cluster_spec();
  std::printf("rank %d is %s of %s job %s secret %zu\n", MpiSession::get().rank(),
              spec.process_name().c_str(), spec.server_endpoints[0].c_str(), spec.job_id.c_str(),
              spec.job_secret.size());
  return 0;
}

int plain() {
  role_maker::PaddleCloudRoleMaker maker;
  const auto& spec = maker.cluster_spec();
  std::printf("%s %s of %d\n", std::string(to_string(spec.mode)).c_str(),
              spec.process_name().c_str(), spec.worker_num);
  return 0;
}

int run(std::string_view what) {
  if (what == "reductions") return reductions();
  if (what == "exchanges") return exchanges();
  if (what == "overlap") return overlap();
  if (what.starts_with("different_")) return different(what);
  if (what == "killed") return missing(SIGKILL);
  if (what == "stopped") return missing(SIGSTOP);
  if (what == "late") return late();
  if (what == "symetric") return symetric();
  if (what == "plain") return plain();
  return 2;
}

}  // namespace
}  // namespace fleet::transport

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    return fleet::transport::run(argc > 1 ? argv[1] : "");
  } catch (const fleet::Error& error) {
    std::printf("ERROR: %s\n", error.what());
    return 1;
  }
}
