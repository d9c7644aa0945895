// What AsioLoop and the Asio links share. Not a public header: it names Boost.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <utility>

#include "transport/link/asio_loop.h"

namespace fleet::transport {

class AsioLoop::Impl {
 public:
  explicit Impl(int yields);

  boost::asio::io_context& context() { return context_; }
  TimerId call_at(TimePoint when, Handler handler);
  void cancel(TimerId timer);
  bool run_until(const std::function<bool()>& done, TimePoint deadline);

 private:
  using Key = std::pair<TimePoint, TimerId>;

  void arm();
  void fire();
  void run_one();

  // One thread drives it; another one registers a socket that it hands over (Link::rebind), so Asio
  // must lock its reactor.
  boost::asio::io_context context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_;
  boost::asio::steady_timer timer_;
  int yields_;
  std::map<Key, Handler> timers_;
  std::map<TimerId, TimePoint> when_;
  TimerId next_timer_ = 1;
  TimePoint armed_for_ = TimePoint::max();
};

}  // namespace fleet::transport
