#include "transport/sim/sim_loop.h"

#include <algorithm>
#include <utility>

#include "transport/sim/sim_world_impl.h"

namespace fleet::transport {

void SimWorld::Impl::run_event(Loop::TimerId id) {
  const uint32_t loop = events_.loop_of(id);
  if (loop != kNoLoop && loops[loop].alive && loops[loop].paused) {
    loops[loop].waiting.push_back(id);
    return;
  }
  const SimEvent event = events_.take(id);
  if (loop != kNoLoop && !loops[loop].alive) return;
  running = true;
  event.handler();
  running = false;
}

bool SimWorld::Impl::step(TimePoint deadline) {
  const auto next = events_.next(deadline);
  if (!next) return false;
  now_ = next->first;
  ++events_run_;
  last_loop_ = events_.loop_of(next->second);
  trace_ = mix64(trace_ ^ static_cast<uint64_t>(now_.time_since_epoch().count()) ^
                 (uint64_t{last_loop_} << 40));
  run_event(next->second);
  return true;
}

void SimWorld::Impl::resume(uint32_t loop) {
  loops[loop].paused = false;
  for (const Loop::TimerId id : std::exchange(loops[loop].waiting, {})) events_.again(now_, id);
}

// ---- SimWorld

SimWorld::SimWorld(uint64_t seed, SimFaults faults) : impl_(std::make_unique<Impl>(seed, faults)) {
  impl_->world = this;
}
SimWorld::~SimWorld() {
  impl_->clear();
}

SimLoop& SimWorld::add_loop(std::string name) {
  const auto index = static_cast<uint32_t>(impl_->loops.size());
  impl_->loops.emplace_back();
  impl_->loops.back().loop = std::make_unique<SimLoop>(*impl_, std::move(name), index);
  return *impl_->loops.back().loop;
}

TimePoint SimWorld::now() const {
  return impl_->now_;
}
uint64_t SimWorld::seed() const {
  return impl_->seed_;
}
void SimWorld::set_faults(const SimFaults& faults) {
  impl_->faults = faults;
}
uint64_t SimWorld::events_run() const {
  return impl_->events_run_;
}
const SimLoop* SimWorld::last_loop() const {
  const uint32_t last = impl_->last_loop_;
  return last == kNoLoop ? nullptr : impl_->loops[last].loop.get();
}
uint64_t SimWorld::trace_hash() const {
  return impl_->trace_;
}
uint64_t SimWorld::random(uint64_t below) {
  return impl_->random(below);
}

bool SimWorld::run_until(const std::function<bool()>& done, TimePoint deadline) {
  if (impl_->running) {
    throw_error(ErrorCode::kPrecondition, {.what = "a simulated handler may not wait",
                                           .where = "SimWorld::run_until",
                                           .expected = "a call from outside of handlers",
                                           .got = {},
                                           .fix = {}});
  }
  while (!done()) {
    if (!impl_->step(deadline)) {
      if (deadline != TimePoint::max()) impl_->now_ = std::max(impl_->now_, deadline);
      return false;
    }
  }
  return true;
}

bool SimWorld::run_for(Duration duration) {
  return run_until([] { return false; }, now() + duration);
}

void SimWorld::kill(const SimLoop& loop) {
  if (!impl_->loops[loop.index()].alive) return;
  impl_->close_links_of(loop.index());
  impl_->loops[loop.index()].alive = false;
  std::erase_if(impl_->listeners,
                [&](const auto& entry) { return entry.second.loop == loop.index(); });
}

void SimWorld::pause(const SimLoop& loop) {
  impl_->loops[loop.index()].paused = true;
}
void SimWorld::resume(const SimLoop& loop) {
  impl_->resume(loop.index());
}

void SimWorld::cut(const SimLoop& a, const SimLoop& b) {
  for (const auto& weak : impl_->connections) {
    const auto connection = weak.lock();
    if (!connection) continue;
    const SimPipe& pipe = *connection->forth;
    const bool between = (pipe.writer == a.index() && pipe.reader == b.index()) ||
                         (pipe.writer == b.index() && pipe.reader == a.index());
    if (between) impl_->break_connection(*connection);
  }
}

void SimWorld::partition(const SimLoop& a, const SimLoop& b) {
  impl_->parted_.insert({std::min(a.index(), b.index()), std::max(a.index(), b.index())});
}

void SimWorld::heal(const SimLoop& a, const SimLoop& b) {
  impl_->parted_.erase({std::min(a.index(), b.index()), std::max(a.index(), b.index())});
  // What still cannot pass is held again.
  for (const auto& handler : std::exchange(impl_->held, {})) handler();
}

// ---- SimLoop

SimLoop::SimLoop(SimWorld::Impl& world, std::string name, uint32_t index)
    : world_(world), name_(std::move(name)), index_(index) {}

TimePoint SimLoop::now() const {
  return world_.now_;
}
void SimLoop::post(Handler handler) {
  world_.schedule(index_, world_.now_, std::move(handler));
}
Loop::TimerId SimLoop::call_at(TimePoint when, Handler handler) {
  return world_.schedule(index_, when, std::move(handler));
}
void SimLoop::cancel(TimerId timer) {
  world_.cancel(timer);
}

bool SimLoop::run_until(const std::function<bool()>& done, TimePoint deadline) {
  return world_.world->run_until(done, deadline);
}

void SimLoop::poll() {
  world_.world->run_until([] { return false; }, now());
}

}  // namespace fleet::transport
