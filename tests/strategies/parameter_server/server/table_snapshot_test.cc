// A server goes on answering while it writes a table's file, and answers for the file when it is
// whole.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <gmock/gmock.h>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>

#include "fluid/io/table_files.h"
#include "strategies/parameter_server/server/sync_parameter_server.h"
#include "strategies/parameter_server/server/update_pool.h"
#include "tests/transport/support.h"

namespace fleet::strategies {
namespace {

using namespace std::chrono_literals;  // NOLINT: durations of tests
using namespace transport::testing;    // NOLINT: the helpers of the transport's tests
using ::testing::HasSubstr;

constexpr int64_t kRows = 5;
constexpr int64_t kWidth = 3;

// What a server offloads, held until the test lets it go on.
struct Offloaded {
  std::function<void()> work;
  std::function<void()> done;
};

// Hands everything on, and knows the session that opened last.
struct Handler final : transport::ServerHandler {
  explicit Handler(transport::ServerHandler& to) : inner(to) {}
  transport::PayloadTarget prepare_payload(transport::Session& peer,
                                           const transport::FrameHeader& header,
                                           transport::ConstBytes control) override {
    return inner.prepare_payload(peer, header, control);
  }
  Loop* on_open(transport::Session& peer) override {
    session = &peer;
    return inner.on_open(peer);
  }
  void on_frame(transport::Session& peer, const transport::FrameHeader& header,
                transport::ConstBytes control, transport::MutableBytes payload) override {
    inner.on_frame(peer, header, control, payload);
  }
  void on_closed(transport::Session& peer, const Status& why) override {
    inner.on_closed(peer, why);
  }
  transport::ServerHandler& inner;
  transport::Session* session = nullptr;
};

// One server that keeps every second row of a table, from row 1 on, and a worker.
class TableSnapshots : public ::testing::Test {
 protected:
  TableSnapshots()
      : world_(1),
        server_loop_(world_.add_loop("server")),
        client_loop_(world_.add_loop("client")),
        folder_(make_folder()),
        lanes_(config(folder_), model(), events(), quiet()),
        handler_{lanes_},
        server_(world_, {&server_loop_, &handler_}, {&server_loop_, &handler_},
                seeded(server_options()), quiet()),
        client_(client_loop_, world_, seeded(client_options()), quiet()) {
    EXPECT_TRUE(server_.listen().ok());
    client_.start();
  }
  ~TableSnapshots() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  static std::string make_folder() {
    std::string folder = ::testing::TempDir() + "tables-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
    return folder;
  }
  static ParameterServerConfig config(const std::string& folder) {
    ParameterServerConfig config;
    config.save_folders = {folder + "/allowed", folder + "/model"};
    config.worker_num = 2;
    config.servers = {server_options().endpoint};
    return config;
  }
  ServerModel model() {
    std::vector<float> values(kRows * kWidth);
    std::iota(values.begin(), values.end(), 0.0F);
    table_ = fluid::Tensor::from(values, {kRows, kWidth});
    ServerModel model;
    model.parameter_index.entries = {{.name = "table",
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
    events.offload = [this](std::function<void()> work, std::function<void()> done) {
      offloaded_ = Offloaded{std::move(work), std::move(done)};
    };
    return events;
  }
  template <class Options>
  Options seeded(Options options) {
    options.random = seeded_random(world_);
    return options;
  }

  // The table as file 0 of a folder.
  transport::Request save(const std::string& folder, transport::DoneHandler done) {
    transport::Request request = simple(transport::Verb::kSnapshot, std::move(done));
    request.frames.back().control = encode(TableSnapshot{.table = "table", .folder = folder});
    return request;
  }
  // The table gets this value from the worker.
  static transport::Request assign(const std::vector<float>& values, transport::DoneHandler done) {
    transport::Request request = simple(transport::Verb::kInit, std::move(done));
    const auto bytes = std::as_bytes(std::span(values));
    request.frames.back().payload = {bytes.data(), bytes.size(), nullptr};
    return request;
  }
  bool run(const PendingRequests& pending) {
    return world_.run_until([&pending] { return pending.done(); }, world_.now() + 10s);
  }
  bool run_until_offloaded() {
    return world_.run_until([this] { return offloaded_.has_value(); }, world_.now() + 10s);
  }

  transport::SimWorld world_;
  transport::SimLoop& server_loop_;
  transport::SimLoop& client_loop_;
  fluid::Tensor table_;
  std::optional<Offloaded> offloaded_;
  std::string folder_;
  SyncParameterServer lanes_;
  Handler handler_;
  transport::Server server_;
  Client client_;
};

TEST_F(TableSnapshots, AreWrittenOffTheLoopAndAnsweredWhenTheFileIsThere) {
  const std::string path = folder_ + "/model/table_0";
  PendingRequests saved;
  client_.submit(0, 0, save(folder_ + "/model", saved.track()));
  ASSERT_TRUE(run_until_offloaded());
  EXPECT_FALSE(table_.buffer().unique()) << "the file has a copy of its own";
  // The write has not begun: other requests are answered, and what they change is not in the file.
  PendingRequests read;
  std::vector<std::byte> values(table_.bytes());
  client_.submit(0, 0, get(0, values, read.track()));
  ASSERT_TRUE(run(read));
  EXPECT_TRUE(read.status().ok()) << read.status().to_string();
  EXPECT_TRUE(std::equal(values.begin(), values.end(), std::as_const(table_).raw()));
  const fluid::Tensor before = table_.clone();
  PendingRequests assigned;
  const std::vector<float> other(kRows * kWidth, -1.0F);
  client_.submit(0, 0, assign(other, assigned.track()));
  ASSERT_TRUE(run(assigned));
  EXPECT_EQ(table_.data<float>()[0], -1);
  EXPECT_FALSE(saved.done());
  EXPECT_FALSE(std::filesystem::exists(path));

  offloaded_->work();
  EXPECT_TRUE(std::filesystem::exists(path));
  world_.run_until([] { return false; }, world_.now() + 1s);
  EXPECT_FALSE(saved.done());
  offloaded_->done();
  ASSERT_TRUE(run(saved));
  EXPECT_TRUE(saved.status().ok()) << saved.status().to_string();
  const fluid::Tensor rows = fluid::io::load_table_rows(folder_ + "/model", "table", 1, 2, kRows);
  EXPECT_TRUE(std::equal(rows.raw(), rows.raw() + rows.bytes(), before.raw()));
}

TEST_F(TableSnapshots, ThatCannotBeWrittenAreToldOf) {
  std::filesystem::create_directories(folder_ + "/model/table_0");
  PendingRequests saved;
  client_.submit(0, 0, save(folder_ + "/model", saved.track()));
  ASSERT_TRUE(run_until_offloaded());
  offloaded_->work();
  offloaded_->done();
  ASSERT_TRUE(run(saved));
  EXPECT_THAT(saved.status().to_string(), HasSubstr("table_0"));
}

// The worker asks again over its next connection.
TEST_F(TableSnapshots, OfALostConnectionAreAnsweredOverTheNext) {
  PendingRequests saved;
  client_.submit(0, 0, save(folder_ + "/model", saved.track()));
  ASSERT_TRUE(run_until_offloaded());
  const Offloaded first = *std::exchange(offloaded_, std::nullopt);
  world_.cut(server_loop_, client_loop_);
  ASSERT_TRUE(run_until_offloaded());
  first.work();
  first.done();
  EXPECT_FALSE(saved.done());
  offloaded_->work();
  offloaded_->done();
  ASSERT_TRUE(run(saved));
  EXPECT_TRUE(saved.status().ok()) << saved.status().to_string();
}

// What becomes of a frame that names the folder.
TEST_F(TableSnapshots, AreWrittenInFoldersOfTheServersConfigurationOnly) {
  namespace fs = std::filesystem;
  fs::create_directories(folder_ + "/allowed/deep");
  fs::create_directories(folder_ + "/outside");
  fs::create_directory_symlink(folder_ + "/outside", folder_ + "/allowed/link");
  fs::create_directory_symlink(folder_ + "/allowed/deep", folder_ + "/outside/back");
  fs::create_directory_symlink(folder_ + "/nowhere", folder_ + "/allowed/dangling");
  const auto outcome = [this](const std::string& folder) {
    PendingRequests saved;
    client_.submit(0, 0, save(folder, saved.track()));
    EXPECT_TRUE(run_until_offloaded());
    const Offloaded offloaded = *std::exchange(offloaded_, std::nullopt);
    offloaded.work();
    offloaded.done();
    EXPECT_TRUE(run(saved));
    return saved.status().to_string();
  };
  const auto count = [this] {
    const auto files = fs::recursive_directory_iterator(folder_);
    return std::count_if(begin(files), end(files),
                         [](const auto& e) { return e.is_regular_file(); });
  };
  for (const char* outside :
       {"", "/", "/outside", "/outside/new", "/allowed/..", "/allowed/../outside", "/allowed/link",
        "/allowed/link/new", "/allowed/new/../../outside", "/allowed_not", "/allowed/dangling",
        "/allowed/dangling/new"}) {
    const std::string refusal = outcome(folder_ + outside);
    EXPECT_NE(refusal, Status().to_string()) << outside;
    EXPECT_EQ(count(), 0) << outside;
  }
  EXPECT_FALSE(fs::exists(folder_ + "/outside/new"));
  EXPECT_FALSE(fs::exists(folder_ + "/nowhere"));
  const std::string refusal = outcome(folder_ + "/allowed/link");
  for (const char* word : {"/outside", "/allowed or ", "/model", "FLEET_SERVER_FOLDERS"}) {
    EXPECT_THAT(refusal, HasSubstr(word));
  }
  int files = 0;
  for (const char* inside : {"/allowed", "/allowed/deep", "/allowed/new/newer", "/model/.",
                             "/outside/../allowed/other", "/model/new/../here"}) {
    EXPECT_EQ(outcome(folder_ + inside), Status().to_string()) << inside;
    EXPECT_EQ(count(), ++files) << inside;
  }
}

// An error of the file system, which is none of ours, ends neither the thread nor the job.
TEST_F(TableSnapshots, WithANameThatNoFileSystemTakesAreToldOf) {
  PendingRequests saved;
  client_.submit(0, 0, save(folder_ + "/allowed/" + std::string(5000, 'n'), saved.track()));
  ASSERT_TRUE(run_until_offloaded());
  offloaded_->work();
  offloaded_->done();
  ASSERT_TRUE(run(saved));
  EXPECT_THAT(saved.status().to_string(), HasSubstr("File name too long"));
}

// An answer or a save that began in the middle of an initial value keeps what it began with, and
// the initial value loses nothing.
TEST_F(TableSnapshots, HoldWhatWasThereBeforeAnInitialValueHadCome) {
  ASSERT_TRUE(world_.run_until([this] { return handler_.session != nullptr; }, world_.now() + 10s));
  transport::FrameHeader header;
  header.verb = transport::Verb::kInit;
  header.flags = transport::kFlagMore;
  header.payload_bytes = static_cast<uint32_t>(table_.bytes());
  const fluid::Tensor before = table_.clone();
  const transport::PayloadTarget target = lanes_.prepare_payload(*handler_.session, header, {});
  ASSERT_TRUE(target.refusal.ok());
  EXPECT_NE(target.owner, nullptr);
  const fluid::Tensor saved = table_;
  std::fill(target.memory.begin(), target.memory.end(), std::byte{1});
  lanes_.on_frame(*handler_.session, header, {}, target.memory);
  EXPECT_TRUE(std::equal(saved.raw(), saved.raw() + saved.bytes(), before.raw()));
  EXPECT_TRUE(std::all_of(std::as_const(table_).raw(), std::as_const(table_).raw() + table_.bytes(),
                          [](std::byte byte) { return byte == std::byte{1}; }));
}

// Gets of rows of the same table.
class RowGets : public TableSnapshots {
 protected:
  // What becomes of the head of a get with `payload` bytes of numbers.
  Status refusal(const std::vector<RowsOfGet>& wanted, uint32_t payload) {
    EXPECT_TRUE(
        world_.run_until([this] { return handler_.session != nullptr; }, world_.now() + 10s));
    transport::FrameHeader header;
    header.verb = transport::Verb::kGet;
    header.flags = kFlagRows;
    header.variable = kListedVariables;
    header.payload_bytes = payload;
    return lanes_.prepare_payload(*handler_.session, header, encode(wanted)).refusal;
  }
  // The outcome of a get of these rows, whose values go to `values`.
  Status get(const std::vector<int64_t>& rows, uint32_t what, std::span<std::byte> values) {
    PendingRequests pending;
    transport::Request request = simple(transport::Verb::kGet, pending.track());
    transport::Message& message = request.frames.back();
    message.header.flags = kFlagRows;
    message.header.variable = kListedVariables;
    message.header.piece = what;
    message.control = encode(std::vector<RowsOfGet>{{0, rows.size()}});
    message.payload = {rows.data(), rows.size() * sizeof(int64_t), nullptr};
    request.reply_target = [values](const transport::FrameHeader&, transport::ConstBytes) {
      return transport::PayloadTarget::into(values);
    };
    client_.submit(0, 0, std::move(request));
    EXPECT_TRUE(run(pending));
    return pending.status();
  }
};

TEST_F(RowGets, AreAnsweredWithTheRowsThatTheyName) {
  std::vector<std::byte> values(2 * kWidth * sizeof(float));
  ASSERT_TRUE(get({1, 4}, 0, values).ok());
  for (const auto& [place, row] : std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 4}}) {
    EXPECT_EQ(std::memcmp(values.data() + place * kWidth * 4, table_.data<float>() + row * kWidth,
                          kWidth * 4),
              0);
  }
}

TEST_F(RowGets, OfWhatIsNotThereAreRefused) {
  EXPECT_TRUE(refusal({{0, kRows}}, 8 * kRows).ok());
  EXPECT_TRUE(refusal({{0, 0}}, 0).ok());
  EXPECT_THAT(refusal({{1, 1}}, 8).to_string(), HasSubstr("variable 1"));
  EXPECT_THAT(refusal({{0, 1}, {0, 1}}, 16).to_string(), HasSubstr("strictly ascending"));
  EXPECT_THAT(refusal({{0, kRows + 1}}, 8 * (kRows + 1)).to_string(), HasSubstr("5 at most"));
  EXPECT_THAT(refusal({{0, 2}}, 8).to_string(), HasSubstr("wrong size"));
  EXPECT_THAT(refusal({{0, ~uint64_t{0}}}, 8).to_string(), HasSubstr("5 at most"));
  EXPECT_THAT(refusal({}, 8).to_string(), HasSubstr("wrong size"));
  std::vector<std::byte> values(2 * kWidth * sizeof(float));
  for (const std::vector<int64_t>& rows : {std::vector<int64_t>{2, 2}, {3, 1}, {-1, 2}, {1, 5}}) {
    EXPECT_THAT(get(rows, 0, values).to_string(), HasSubstr("strictly ascending"));
  }
  EXPECT_THAT(get({1, 2}, 3, values).to_string(), HasSubstr("piece 3"));
}

TEST(UpdatePoolOutcome, IsWhateverTheWorkThrows) {
  EXPECT_TRUE(outcome_of([] {}).ok());
  EXPECT_THAT(outcome_of([] { throw std::bad_alloc(); }).to_string(), HasSubstr("memory"));
  EXPECT_THAT(outcome_of([] { throw std::runtime_error("broken"); }).to_string(),
              HasSubstr("broken"));
  EXPECT_FALSE(outcome_of([] { throw 3; }).ok());
}

}  // namespace
}  // namespace fleet::strategies
