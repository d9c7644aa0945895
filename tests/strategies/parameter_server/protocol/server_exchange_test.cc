#include "strategies/parameter_server/protocol/server_exchange.h"

#include <algorithm>
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "strategies/parameter_server/protocol/sync_server.h"

namespace fleet::strategies {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using transport::FrameHeader;
using transport::Message;

// A server whose only exchange puts one vector together: server i makes `counts[i]` floats of it.
class Side {
 public:
  Side(uint32_t self, std::vector<size_t> counts) : self_(self), counts_(std::move(counts)) {
    size_t total = 0;
    for (const size_t count : counts_) total += count;
    whole_ = fluid::Tensor(fluid::DType::kFloat32, fluid::Shape{static_cast<int64_t>(total)});
    std::fill_n(whole_.data<float>(), total, -1.0F);
    StepExchange exchange;
    for (uint32_t i = 0; i < counts_.size(); ++i) {
      exchange.parts.push_back({str_cat("part", i), i, counts_[i] * sizeof(float)});
    }
    exchange.made = [this](size_t part) { return make(static_cast<uint32_t>(part)); };
    exchange.place = [this](size_t part) { return place(part); };
    exchange.run = [this] { ++runs; };
    const auto servers = static_cast<uint32_t>(counts_.size());
    exchange_ =
        std::make_unique<ServerExchange>(self, servers, std::vector<StepExchange>{exchange},
                                         [this](uint32_t server, std::vector<Message> frames) {
                                           for (auto& frame : frames)
                                             sent.emplace_back(server, std::move(frame));
                                         });
  }

  ServerExchange& exchange() { return *exchange_; }
  std::vector<float> values() const {
    const auto all = whole_.values<float>();
    return {all.begin(), all.end()};
  }

  // The frame as a connection of `server` brings it.
  Status bring(uint32_t server, const Message& message, uint64_t session, uint64_t step) {
    FrameHeader header = message.header;
    header.payload_bytes = message.payload.size;
    auto target = exchange_->prepare(server, session, header, step);
    if (!target.refusal.ok()) return target.refusal;
    if (!target.discarded) {
      std::memcpy(target.memory.data(), message.payload.data, message.payload.size);
    }
    return exchange_->take(server, session, header, target.memory, step);
  }

  int runs = 0;
  float base = 0.0F;
  std::vector<std::pair<uint32_t, Message>> sent;

 private:
  fluid::Tensor make(uint32_t part) const {
    EXPECT_EQ(part, self_);
    fluid::Tensor made(fluid::DType::kFloat32, fluid::Shape{static_cast<int64_t>(counts_[part])});
    for (size_t i = 0; i < counts_[part]; ++i) {
      made.data<float>()[i] = base + 10.0F * static_cast<float>(part) + static_cast<float>(i % 7);
    }
    return made;
  }
  transport::MutableBytes place(size_t part) {
    size_t before = 0;
    for (size_t i = 0; i < part; ++i) before += counts_[i];
    return std::as_writable_bytes(std::span(whole_.data<float>() + before, counts_[part]));
  }

  uint32_t self_;
  std::vector<size_t> counts_;
  fluid::Tensor whole_;
  std::unique_ptr<ServerExchange> exchange_;
};

TEST(ServerExchange, PutsTheSameWholeTogetherOnEveryServer) {
  const std::vector<size_t> counts{2, 1, 3};
  std::vector<std::unique_ptr<Side>> sides;
  for (uint32_t i = 0; i < 3; ++i) sides.push_back(std::make_unique<Side>(i, counts));
  for (auto& side : sides) {
    side->exchange().begin(0, 1);
    EXPECT_FALSE(side->exchange().complete(0));
  }
  for (uint32_t from = 0; from < 3; ++from) {
    for (const auto& [to, frame] : sides[from]->sent) {
      EXPECT_TRUE(sides[to]->bring(from, frame, 100 + from, 1).ok());
    }
  }
  for (auto& side : sides) {
    EXPECT_TRUE(side->exchange().complete(0));
    EXPECT_THAT(side->values(), ElementsAre(0, 1, 10, 20, 21, 22));
  }
}

TEST(ServerExchange, MovesPartsOfManyPiecesInAnyOrder) {
  const std::vector<size_t> counts{150'000, 3};
  Side a(0, counts);
  Side b(1, counts);
  a.exchange().begin(0, 1);
  b.exchange().begin(0, 1);
  ASSERT_EQ(a.sent.size(), 3U);
  EXPECT_FALSE(a.sent.back().second.header.has(transport::kFlagMore));
  for (size_t i = a.sent.size(); i-- > 0;) {
    EXPECT_FALSE(b.exchange().complete(0));
    EXPECT_THAT(b.exchange().missing(0), ElementsAre(0));
    EXPECT_TRUE(b.bring(0, a.sent[i].second, 7, 1).ok());
  }
  EXPECT_TRUE(a.bring(1, b.sent[0].second, 7, 1).ok());
  EXPECT_THAT(b.exchange().missing(0), IsEmpty());
  EXPECT_EQ(a.values(), b.values());
}

TEST(ServerExchange, TakesAPartOnceHoweverOftenItComes) {
  Side a(0, {1, 1});
  Side b(1, {1, 1});
  b.exchange().begin(0, 1);
  const Message part = b.sent[0].second;
  EXPECT_TRUE(a.bring(1, part, 7, 1).ok());
  Message altered = part;
  const float other = 99.0F;
  altered.payload.data = reinterpret_cast<const std::byte*>(&other);
  EXPECT_TRUE(a.bring(1, altered, 8, 1).ok());
  a.exchange().begin(0, 1);
  EXPECT_THAT(a.values(), ElementsAre(0, 10));
  a.exchange().next_step();
  EXPECT_TRUE(a.bring(1, part, 8, 2).ok()) << "a part of a step that is over is dropped";
  EXPECT_FALSE(a.exchange().complete(0));
}

TEST(ServerExchange, KeepsWhatAConnectionThatWasReplacedGoesOnWriting) {
  Side a(0, {1, 1});
  Side b(1, {1, 1});
  b.exchange().begin(0, 1);
  const Message part = b.sent[0].second;
  FrameHeader header = part.header;
  header.payload_bytes = part.payload.size;
  const auto slow = a.exchange().prepare(1, 7, header, 1);
  ASSERT_FALSE(slow.discarded);
  EXPECT_TRUE(a.bring(1, part, 8, 1).ok());
  a.exchange().begin(0, 1);
  EXPECT_TRUE(a.exchange().complete(0));
  std::memset(slow.memory.data(), 0x7f, slow.memory.size());
  EXPECT_TRUE(a.exchange().take(1, 7, header, slow.memory, 1).ok());
  EXPECT_THAT(a.values(), ElementsAre(0, 10));
}

TEST(ServerExchange, RefusesWhatIsNotItsSenders) {
  Side a(0, {1, 1, 1});
  Side b(1, {1, 1, 1});
  b.exchange().begin(0, 1);
  const Message part = b.sent[0].second;
  EXPECT_THAT(a.bring(2, part, 7, 1).to_string(), HasSubstr("wrong server"));
  EXPECT_THAT(a.bring(1, part, 7, 0).to_string(), HasSubstr("ahead"));
  Message other = part;
  other.header.variable = 3;
  EXPECT_THAT(a.bring(1, other, 7, 1).to_string(), HasSubstr("no exchange"));
  other = part;
  other.header.piece = 1;
  EXPECT_FALSE(a.bring(1, other, 7, 1).ok());
  other = part;
  other.payload.size = 2;
  EXPECT_THAT(a.bring(1, other, 7, 1).to_string(), HasSubstr("size"));
  EXPECT_FALSE(a.exchange().complete(0));
}

// Server 0 of two, whose exchanges have one number of each; writes down what the core asks for.
class StagedServer final : private SyncServerSink {
 public:
  StagedServer(const std::vector<uint32_t>& stages, uint32_t exchanges)
      : stages_(stages),
        exchange_(0, 2, make_exchanges(exchanges),
                  [this](uint32_t, const std::vector<Message>& frames) {
                    log.push_back(str_cat("tell ", frames.front().header.variable / 2));
                  }),
        core(options(), *this) {}

  // The other server's number for the exchange, in the step that is collected.
  void hear(uint32_t exchange) {
    FrameHeader header;
    header.verb = transport::Verb::kPush;
    header.step = core.step() + 1;
    header.variable = 2 * exchange + 1;
    header.payload_bytes = sizeof(float);
    const auto target = exchange_.prepare(1, 9, header, header.step);
    ASSERT_TRUE(target.refusal.ok()) << target.refusal.to_string();
    ASSERT_TRUE(exchange_.take(1, 9, header, target.memory, header.step).ok());
  }
  std::vector<std::string> take() { return std::exchange(log, {}); }

  bool offloads = false;
  std::vector<std::string> log;

 private:
  std::vector<StepExchange> make_exchanges(uint32_t count) {
    std::vector<StepExchange> exchanges(count);
    for (uint32_t i = 0; i < count; ++i) {
      exchanges[i].parts = {{"mine", 0, sizeof(float)}, {"theirs", 1, sizeof(float)}};
      exchanges[i].made = [](size_t) { return fluid::Tensor::scalar(1.0F); };
      exchanges[i].place = [this](size_t part) {
        return std::as_writable_bytes(std::span(&numbers_[part], 1));
      };
      exchanges[i].run = [this, i] { log.push_back(str_cat("use ", i)); };
    }
    return exchanges;
  }
  SyncServerOptions options() {
    SyncServerOptions options;
    options.slices.assign(stages_.size(), {sizeof(float), fluid::DType::kFloat32});
    gradients_.assign(stages_.size(), fluid::Tensor::scalar(0.0F));
    for (fluid::Value& gradient : gradients_) options.gradients.push_back(&gradient);
    options.stages = stages_;
    options.exchange = &exchange_;
    return options;
  }

  void begin_step(uint64_t step) override { log.push_back(str_cat("rate ", step)); }
  bool update(uint32_t slice, const StepUpdate& update) override {
    const auto stage = static_cast<uint32_t>(update.stage);
    if (stage + 1 < stages_[slice]) {
      log.push_back(str_cat("stage ", stage, " of ", slice, " from ", update.shards));
      return true;
    }
    log.push_back(offloads ? str_cat("begin ", slice)
                           : str_cat("update ", slice, " from ", update.shards));
    return !offloads;
  }
  void answer(const ServerAnswer& answer) override {
    log.push_back(str_cat("answer ", answer.request, " with ", answer.variable));
  }
  void step_closed(uint64_t step) override { log.push_back(str_cat("closed ", step)); }
  void all_complete() override {}

  const std::vector<uint32_t> stages_;
  float numbers_[2] = {};
  std::vector<fluid::Value> gradients_;
  ServerExchange exchange_;

 public:
  SyncServer core;
};

void push(SyncServer& server, uint32_t slice, uint64_t step) {
  const PieceKey key{step, slice, 0, 0, 1};
  const auto target = server.prepare_push({0, 1}, key, sizeof(float));
  ASSERT_TRUE(target.refusal.ok());
  ASSERT_TRUE(server.push({0, 1}, key, target.memory).ok());
}

TEST(SyncServerExchange, GoesOnWithASliceWhenItsExchangesAreOver) {
  StagedServer server({1, 2, 3}, 2);
  push(server.core, 1, 1);
  push(server.core, 0, 1);
  EXPECT_THAT(server.take(), ElementsAre("rate 1", "stage 0 of 1 from 1", "update 0 from 1"));
  push(server.core, 2, 1);
  EXPECT_THAT(server.take(), ElementsAre("stage 0 of 2 from 1", "tell 0"));
  ASSERT_TRUE(server.core.barrier(0, 1, 3).ok());
  EXPECT_THAT(server.core.missing_servers(), ElementsAre(1));
  EXPECT_EQ(server.core.step(), 0U) << "a step waits for its exchanges";
  server.hear(0);
  server.core.exchange_advanced();
  EXPECT_THAT(server.take(),
              ElementsAre("use 0", "update 1 from 1", "stage 1 of 2 from 1", "tell 1"));
  server.core.exchange_advanced();
  EXPECT_THAT(server.take(), IsEmpty());
  server.hear(1);
  server.core.exchange_advanced();
  EXPECT_THAT(server.take(), ElementsAre("use 1", "update 2 from 1", "closed 1"));
  EXPECT_EQ(server.core.step(), 1U);
  push(server.core, 2, 2);
  EXPECT_THAT(server.take(), ElementsAre("rate 2", "stage 0 of 2 from 1"));
}

TEST(SyncServerExchange, TakesPartWithoutSlicesOfItsOwn) {
  StagedServer server({}, 1);
  EXPECT_THAT(server.take(), IsEmpty()) << "not before the others can have begun the step";
  ASSERT_TRUE(server.core.barrier(0, 1, 0).ok());
  EXPECT_THAT(server.take(), ElementsAre("rate 1", "tell 0"));
  server.hear(0);
  server.core.exchange_advanced();
  EXPECT_THAT(server.take(), ElementsAre("use 0", "closed 1"));
}

TEST(SyncServerExchange, CountsASliceThatNobodyContributedTo) {
  StagedServer server({2, 2}, 1);
  server.hear(0);
  push(server.core, 0, 1);
  EXPECT_THAT(server.take(), ElementsAre("rate 1", "stage 0 of 0 from 1"));
  ASSERT_TRUE(server.core.barrier(0, 1, 1).ok());
  EXPECT_THAT(server.take(), ElementsAre("stage 0 of 1 from 0", "tell 0", "use 0",
                                         "update 0 from 1", "update 1 from 0", "closed 1"));
}

TEST(SyncServerUpdate, WaitsForUpdatesInOtherThreads) {
  StagedServer server({1, 1}, 0);
  server.offloads = true;
  const auto get = [](uint64_t request, uint64_t step, uint32_t variable) {
    GetCall call;
    call.session = 1;
    call.request = request;
    call.step = step;
    call.variables = {variable};
    return call;
  };
  push(server.core, 1, 1);
  push(server.core, 0, 1);
  EXPECT_THAT(server.take(), ElementsAre("rate 1", "begin 1", "begin 0"));
  ASSERT_TRUE(server.core.get(get(5, 1, 0)).ok());
  ASSERT_TRUE(server.core.get(get(6, 0, 1)).ok());
  ASSERT_TRUE(server.core.barrier(0, 1, 2).ok());
  EXPECT_THAT(server.take(), IsEmpty()) << "neither answers nor the end of the step";
  server.core.updated(0);
  EXPECT_THAT(server.take(), IsEmpty()) << "slice 1 may be changing";
  server.core.updated(1);
  EXPECT_THAT(server.take(), ElementsAre("answer 6 with 1", "answer 5 with 0", "closed 1"));
}

}  // namespace
}  // namespace fleet::strategies
