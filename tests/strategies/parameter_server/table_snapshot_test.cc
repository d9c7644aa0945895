// A server goes on answering while it writes a table's file, and answers for the file when it is
// whole.
#include <filesystem>
#include <gmock/gmock.h>
#include <numeric>
#include <optional>
#include <utility>

#include "fluid/io/table_files.h"
#include "strategies/parameter_server/synchronous/parameter_server.h"
#include "tests/transport/support.h"

namespace fleet::strategies {
namespace {

using namespace std::chrono_literals;  // NOLINT: durations of tests
using namespace transport::testing;    // NOLINT: the helpers of the transport's tests
using ::testing::HasSubstr;

constexpr int64_t kRows = 5;
constexpr int64_t kWidth = 3;

// What a server does aside, held until the test lets it go on.
struct Aside {
  std::function<void()> work;
  std::function<void()> done;
};

// One server that keeps every second row of a table, from row 1 on, and a worker.
class TableSnapshots : public ::testing::Test {
 protected:
  TableSnapshots()
      : world_(1),
        server_loop_(world_.add_loop("server")),
        client_loop_(world_.add_loop("client")),
        lanes_(config(), model(), events(), quiet()),
        server_(world_, {&server_loop_, &lanes_}, {&server_loop_, &lanes_},
                seeded(server_options()), quiet()),
        client_(client_loop_, world_, seeded(client_options()), quiet()) {
    folder_ = ::testing::TempDir() + "tables-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
    EXPECT_TRUE(server_.listen().ok());
    client_.start();
  }
  ~TableSnapshots() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  static ParameterServerConfig config() {
    ParameterServerConfig config;
    config.worker_num = 2;
    config.servers = {server_options().endpoint};
    return config;
  }
  ServerModel model() {
    std::vector<float> values(kRows * kWidth);
    std::iota(values.begin(), values.end(), 0.0F);
    table_ = fluid::Tensor::from(values, {kRows, kWidth});
    ServerModel model;
    model.catalogue.entries = {{.name = "table",
                                .shape = {kRows, kWidth},
                                .origin = "table",
                                .origin_shape = {2 * kRows, kWidth},
                                .offset = kWidth,
                                .row_stride = 2}};
    model.tensors = {&table_};
    model.saved_tables = {"table"};
    return model;
  }
  ServingEvents events() {
    ServingEvents events;
    events.run_aside = [this](std::function<void()> work, std::function<void()> done) {
      aside_ = Aside{std::move(work), std::move(done)};
    };
    return events;
  }
  template <class Options>
  Options seeded(Options options) {
    options.random = seeded_random(world_);
    return options;
  }

  transport::Request save(const std::string& path, transport::DoneHandler done) {
    transport::Request request = simple(transport::Verb::kSnapshot, std::move(done));
    request.frames.back().control = encode(TableSnapshot{.table = "table", .path = path});
    return request;
  }
  bool run(const transport::PendingRequests& pending) {
    return world_.run_until([&pending] { return pending.done(); }, world_.now() + 10s);
  }
  bool run_until_aside() {
    return world_.run_until([this] { return aside_.has_value(); }, world_.now() + 10s);
  }

  transport::SimWorld world_;
  transport::SimLoop& server_loop_;
  transport::SimLoop& client_loop_;
  fluid::Tensor table_;
  std::optional<Aside> aside_;
  ParameterServer lanes_;
  transport::Server server_;
  transport::Client client_;
  std::string folder_;
};

TEST_F(TableSnapshots, AreWrittenAsideAndAnsweredWhenTheFileIsThere) {
  const std::string path = folder_ + "/table_0";
  transport::PendingRequests saved;
  client_.submit(0, 0, save(path, saved.track()));
  ASSERT_TRUE(run_until_aside());
  // The write has not begun: other requests are answered, and what they change is not in the file.
  transport::PendingRequests read;
  std::vector<std::byte> values(table_.bytes());
  client_.submit(0, 0, get(0, values, read.track()));
  ASSERT_TRUE(run(read));
  EXPECT_TRUE(read.status().ok()) << read.status().to_string();
  EXPECT_TRUE(std::equal(values.begin(), values.end(), std::as_const(table_).raw()));
  const fluid::Tensor before = table_.clone();
  table_.data<float>()[0] = -1;
  EXPECT_FALSE(saved.done());
  EXPECT_FALSE(std::filesystem::exists(path));

  aside_->work();
  EXPECT_TRUE(std::filesystem::exists(path));
  world_.run_until([] { return false; }, world_.now() + 1s);
  EXPECT_FALSE(saved.done());
  aside_->done();
  ASSERT_TRUE(run(saved));
  EXPECT_TRUE(saved.status().ok()) << saved.status().to_string();
  const fluid::Tensor rows = fluid::io::load_table_rows(folder_, "table", 1, 2, kRows);
  EXPECT_TRUE(std::equal(rows.raw(), rows.raw() + rows.bytes(), before.raw()));
}

TEST_F(TableSnapshots, ThatCannotBeWrittenAreToldOf) {
  std::filesystem::create_directory(folder_ + "/table_0");
  transport::PendingRequests saved;
  client_.submit(0, 0, save(folder_ + "/table_0", saved.track()));
  ASSERT_TRUE(run_until_aside());
  aside_->work();
  aside_->done();
  ASSERT_TRUE(run(saved));
  EXPECT_THAT(saved.status().to_string(), HasSubstr("table_0"));
}

// The worker asks again over its next connection.
TEST_F(TableSnapshots, OfALostConnectionAreAnsweredOverTheNext) {
  const std::string path = folder_ + "/table_0";
  transport::PendingRequests saved;
  client_.submit(0, 0, save(path, saved.track()));
  ASSERT_TRUE(run_until_aside());
  const Aside first = *std::exchange(aside_, std::nullopt);
  world_.cut(server_loop_, client_loop_);
  ASSERT_TRUE(run_until_aside());
  first.work();
  first.done();
  EXPECT_FALSE(saved.done());
  aside_->work();
  aside_->done();
  ASSERT_TRUE(run(saved));
  EXPECT_TRUE(saved.status().ok()) << saved.status().to_string();
}

}  // namespace
}  // namespace fleet::strategies
