// What the loop's thread of an asynchronous worker meets ends the wait of the trainer's thread.
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <new>
#include <stdexcept>

#include "base/error.h"
#include "strategies/parameter_server/process_environment.h"
#include "strategies/parameter_server/worker/background_exchange.h"
#include "strategies/parameter_server/worker/shared_loop.h"

namespace fleet::strategies {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ParameterServerConfig config() {
  ParameterServerConfig config;
  config.servers = {{"127.0.0.1", 1}};  // nobody is asked
  config.job_id = "link";
  config.secret = transport::Secret::of_text("a secret of the test", "test");
  return config;
}

template <class Exception>
std::string message_of(const Exception& exception) {
  BackgroundExchange link(config(), {}, loops_of_process({}, transport::TransportChoice::kTcp),
                          Logger(LogLevel::kOff));
  try {
    link.request(transport::Phase::kReceiving, "lookup",
                 [&](ServerClient&, const transport::DoneHandler&) { throw exception; });
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(BackgroundClient, WhateverTheLoopsThreadThrowsEndsTheWait) {
  EXPECT_THAT(message_of(std::bad_alloc()),
              AllOf(HasSubstr("no memory left"), HasSubstr("worker 0 in phase receiving")));
  EXPECT_THAT(message_of(std::runtime_error("out of luck")), HasSubstr("out of luck"));
  EXPECT_THAT(message_of(5), HasSubstr("none of the standard's"));
  EXPECT_THAT(message_of(Error(ErrorCode::kInput, {.what = "a wrong file"})),
              HasSubstr("a wrong file"));
}

TEST(ProcessEnvironment, ThrowsWhatAHandlerOfTheControlLoopThrows) {
  ProcessEnvironment process(transport::TransportChoice::kTcp);
  const NodeEnvironment environment = process.node();
  environment.control_loop->post([] { throw std::bad_alloc(); });
  const TimePoint end = environment.data_loop->now() + std::chrono::seconds(10);
  try {
    environment.data_loop->run_until([] { return false; }, end);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no memory left"));
  }
}

TEST(SharedLoop, TellsWhatAHandlerThrows) {
  std::promise<Status> told;
  SharedLoop shared("data");
  shared.set_on_exception([&](const Status& what) { told.set_value(what); });
  shared.loop().post([] { throw std::bad_alloc(); });
  EXPECT_THAT(told.get_future().get().text().what, HasSubstr("no memory left"));
  // The loop goes on.
  bool ran = false;
  shared.on_loop([&] { ran = true; });
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace fleet::strategies
