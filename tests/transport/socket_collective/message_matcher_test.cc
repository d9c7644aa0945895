#include "transport/socket_collective/message_matcher.h"

#include <cstring>
#include <gtest/gtest.h>
#include <string>

namespace fleet::transport {
namespace {

constexpr uint64_t kEarly = 4096;

OperationId operation(uint64_t sequence, uint64_t count = 8) {
  return {sequence, CollectiveKind::kAllReduce, ElementType::kFloat32, count};
}

MessageId message(uint64_t sequence, uint32_t number, uint64_t bytes) {
  return {operation(sequence), number, bytes};
}

// Rank 0 of three, and what rank 1 sends it.
class Matcher : public ::testing::Test {
 protected:
  // As a connection would: its bytes are all of `fill`.
  void deliver(const MessageId& id, uint64_t request, char fill, bool asked_for = false) {
    ASSERT_TRUE(matcher_.compare(1, id).ok());
    if (id.bytes > 0) {
      const PayloadTarget target = matcher_.target(1, id, asked_for);
      ASSERT_TRUE(target.refusal.ok()) << target.refusal.to_string();
      if (!target.discarded) std::memset(target.memory.data(), fill, target.memory.size());
    }
    const Status taken = matcher_.arrived(1, id, request);
    ASSERT_TRUE(taken.ok()) << taken.to_string();
  }
  void post(uint64_t sequence, std::string& memory) {
    const auto number = matcher_.post(
        sequence, 1, std::as_writable_bytes(std::span(memory.data(), memory.size())), open_);
    ASSERT_TRUE(number.ok()) << number.status().to_string();
  }
  std::vector<uint64_t> answers() {
    std::vector<uint64_t> requests;
    for (const DueAnswer& due : matcher_.take_answers()) requests.push_back(due.request);
    return requests;
  }

  MessageMatcher matcher_{0, 3, kEarly};
  size_t open_ = 0;
};

TEST_F(Matcher, BytesOfAPostedReceiveGoStraightToItsMemory) {
  ASSERT_TRUE(matcher_.begin(operation(1)).ok());
  std::string memory(10, '.');
  post(1, memory);
  EXPECT_EQ(open_, 1U);
  const PayloadTarget target = matcher_.target(1, message(1, 0, 10), false);
  EXPECT_EQ(static_cast<void*>(target.memory.data()), memory.data());
  ASSERT_TRUE(matcher_.arrived(1, message(1, 0, 10), 7).ok());
  EXPECT_EQ(open_, 0U);
  EXPECT_EQ(answers(), (std::vector<uint64_t>{7}));
}

TEST_F(Matcher, MessagesThatComeBeforeTheirOperationWaitAndMatchInOrder) {
  deliver(message(5, 1, 3), 11, 'b');
  deliver(message(5, 0, 3), 10, 'a');
  EXPECT_EQ(answers(), std::vector<uint64_t>());
  ASSERT_TRUE(matcher_.begin(operation(5)).ok());
  std::string first(3, '.');
  std::string second(3, '.');
  post(5, first);
  post(5, second);
  EXPECT_EQ(first, "aaa");
  EXPECT_EQ(second, "bbb");
  EXPECT_EQ(open_, 0U);
  EXPECT_EQ(answers(), (std::vector<uint64_t>{10, 11}));
  EXPECT_EQ(matcher_.early_bytes(1), 0U);
}

TEST_F(Matcher, AMessageThatComesAgainIsAnsweredAndChangesNothing) {
  ASSERT_TRUE(matcher_.begin(operation(1)).ok());
  deliver(message(1, 0, 3), 4, 'x');
  deliver(message(1, 0, 3), 4, 'y');
  std::string memory(3, '.');
  post(1, memory);
  EXPECT_EQ(memory, "xxx");
  EXPECT_EQ(answers(), (std::vector<uint64_t>{4}));
  deliver(message(1, 0, 3), 4, 'z');
  EXPECT_EQ(memory, "xxx");
  EXPECT_EQ(answers(), (std::vector<uint64_t>{4}));
  EXPECT_EQ(matcher_.received(), 1U);
}

TEST_F(Matcher, WhatAConnectionLeftHalfReadIsReadAgain) {
  const MessageId id = message(1, 0, 100);
  PayloadTarget half = matcher_.target(1, id, false);
  EXPECT_EQ(matcher_.early_bytes(1), MessageMatcher::early_cost(100));
  matcher_.interrupted(1);
  EXPECT_EQ(matcher_.early_bytes(1), 0U);
  ASSERT_TRUE(matcher_.begin(operation(1)).ok());
  std::string memory(100, '.');
  post(1, memory);
  deliver(id, 3, 'n');
  EXPECT_EQ(memory, std::string(100, 'n'));
}

TEST_F(Matcher, AReceivePostedWhileItsMessageIsReadGetsIt) {
  const MessageId id = message(1, 0, 4);
  const PayloadTarget target = matcher_.target(1, id, false);
  ASSERT_TRUE(matcher_.begin(operation(1)).ok());
  std::string memory(4, '.');
  post(1, memory);
  EXPECT_EQ(open_, 1U);
  std::memset(target.memory.data(), 'q', 4);
  ASSERT_TRUE(matcher_.arrived(1, id, 9).ok());
  EXPECT_EQ(memory, "qqqq");
  EXPECT_EQ(open_, 0U);
}

TEST_F(Matcher, AnOfferIsAnsweredWhenItsReceiveIsPosted) {
  const MessageId id = message(1, 0, 1 << 20);
  ASSERT_TRUE(matcher_.offered(1, id, 21).ok());
  EXPECT_EQ(answers(), std::vector<uint64_t>());
  EXPECT_EQ(matcher_.early_bytes(1), 0U);
  ASSERT_TRUE(matcher_.begin(operation(1)).ok());
  std::string memory(1 << 20, '.');
  post(1, memory);
  EXPECT_EQ(answers(), (std::vector<uint64_t>{21}));
  // The answer was lost, and the offer comes again.
  ASSERT_TRUE(matcher_.offered(1, id, 21).ok());
  EXPECT_EQ(answers(), (std::vector<uint64_t>{21}));
  deliver(id, 22, 'o', true);
  EXPECT_EQ(memory, std::string(1 << 20, 'o'));
  ASSERT_TRUE(matcher_.offered(1, id, 21).ok());
  EXPECT_EQ(answers(), (std::vector<uint64_t>{22, 21}));
}

TEST_F(Matcher, RefusesMoreThanItGranted) {
  deliver(message(1, 0, kEarly - MessageMatcher::early_cost(0)), 1, 'a');
  EXPECT_EQ(matcher_.early_bytes(1), kEarly);
  EXPECT_EQ(matcher_.target(1, message(1, 1, 1), false).refusal.code(), ErrorCode::kBadFrame);
  EXPECT_EQ(matcher_.arrived(1, message(2, 0, 0), 2).code(), ErrorCode::kBadFrame);
  EXPECT_EQ(matcher_.target(1, message(3, 0, ~uint64_t{0}), false).refusal.code(),
            ErrorCode::kBadFrame);
  // Each rank has a grant of its own.
  EXPECT_TRUE(matcher_.target(2, message(1, 0, 1), false).refusal.ok());
}

TEST_F(Matcher, RefusesAMessageThatItDidNotAskFor) {
  const PayloadTarget target = matcher_.target(1, message(1, 0, 10), true);
  EXPECT_EQ(target.refusal.code(), ErrorCode::kBadFrame);
}

TEST_F(Matcher, RefusesOffersWithoutEnd) {
  Status refused;
  for (uint32_t i = 0; refused.ok() && i < 1'000'000; ++i) {
    refused = matcher_.offered(1, message(1 + i % 7, i / 7, 10), i + 1);
  }
  EXPECT_EQ(refused.code(), ErrorCode::kBadFrame);
  EXPECT_EQ(matcher_.offered(2, message(1, 4'000'000'000U, 10), 1).code(), ErrorCode::kBadFrame);
}

TEST_F(Matcher, NamesBothWhenRanksCallDifferentOperations) {
  ASSERT_TRUE(matcher_.begin(operation(17, 1024)).ok());
  const MessageId theirs{operation(17, 512), 0, 8};
  const Status status = matcher_.compare(1, theirs);
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.text().got.find("operation 17, all_reduce of 1024 float32 at rank 0"),
            std::string::npos)
      << status.to_string();
  EXPECT_NE(status.text().got.find("operation 17, all_reduce of 512 float32 at rank 1"),
            std::string::npos)
      << status.to_string();
}

TEST_F(Matcher, NamesBothWhenTheOtherRankWasFirst) {
  ASSERT_TRUE(matcher_.offered(1, {{3, CollectiveKind::kBarrier, {}, 0}, 0, 0}, 1).ok());
  const Status status = matcher_.begin(operation(3, 4));
  EXPECT_NE(status.text().got.find("operation 3, barrier at rank 1"), std::string::npos)
      << status.to_string();
}

TEST_F(Matcher, NamesTheSizesOfAMessageThatDoesNotFitItsReceive) {
  ASSERT_TRUE(matcher_.begin(operation(1)).ok());
  std::string memory(10, '.');
  post(1, memory);
  EXPECT_NE(matcher_.compare(1, message(1, 0, 11)).text().got.find("11 bytes, not 10"),
            std::string::npos);
  deliver(message(1, 1, 5), 2, 'a');
  const auto second =
      matcher_.post(1, 1, std::as_writable_bytes(std::span(memory.data(), memory.size())), open_);
  EXPECT_NE(second.status().text().got.find("5 bytes, not 10"), std::string::npos);
}

TEST_F(Matcher, AnAbandonedReceiveTakesItsMessageAndDropsIt) {
  ASSERT_TRUE(matcher_.begin(operation(1)).ok());
  std::string memory(3, '.');
  post(1, memory);
  EXPECT_FALSE(matcher_.abandon(1, 1, 0));
  deliver(message(1, 0, 3), 5, 'x');
  EXPECT_EQ(memory, "...");
  EXPECT_EQ(answers(), (std::vector<uint64_t>{5}));
  EXPECT_EQ(matcher_.waiting_for(1), 0U);
}

TEST_F(Matcher, AnOperationOfLongAgoIsForgottenAndItsMessagesAnswered) {
  for (uint64_t sequence = 1; sequence <= 1000; ++sequence) {
    ASSERT_TRUE(matcher_.begin(operation(sequence)).ok());
    std::string memory(3, '.');
    post(sequence, memory);
    deliver(message(sequence, 0, 3), sequence, 'x');
    EXPECT_EQ(memory, "xxx");
    matcher_.end(sequence);
  }
  answers();
  deliver(message(2, 0, 3), 2, 'y');
  EXPECT_EQ(answers(), (std::vector<uint64_t>{2}));
  EXPECT_EQ(matcher_.received(), 1000U);
  EXPECT_EQ(matcher_.early_bytes(1), 0U);
}

TEST_F(Matcher, WhatWaitsForAnAnswerIsFoundWhenNothingGoesOn) {
  deliver(message(1, 0, 3), 5, 'x');
  ASSERT_TRUE(matcher_.offered(2, message(1, 0, 1 << 20), 6).ok());
  const auto waiting = matcher_.take_waiting();
  ASSERT_EQ(waiting.size(), 2U);
  EXPECT_EQ(waiting[0].request, 5U);
  EXPECT_EQ(waiting[1].rank, 2);
  EXPECT_TRUE(matcher_.take_waiting().empty());
}

}  // namespace
}  // namespace fleet::transport
