#include "tests/testing/async_play_back.h"

#include "base/hash.h"
#include "base/strings.h"

namespace fleet::testing {

using fluid::ServerMode;
using strategies::AsyncEvent;
using strategies::DelayCompensation;

namespace {

bool adds_differences(const AsyncSimJob& job) {
  return sends_differences(job.options.mode);
}

}  // namespace

float async_initial_value(size_t variable, size_t element) {
  return static_cast<float>(mix64(variable * 1000 + element) % 1000) / 512.0F;
}

Vector async_gradient(uint32_t worker, uint64_t step, size_t variable, const Vector& at) {
  Vector gradient(at.size());
  for (size_t i = 0; i < at.size(); ++i) {
    const uint64_t draw = mix64(step * 7919 + worker * 104729ULL + variable * 31 + i * 1299709);
    gradient[i] = (static_cast<float>(draw % 2001) - 1000.0F) * 1e-3F + 0.1F * at[i];
  }
  return gradient;
}

std::string AsyncSlice::name() const {
  return str_cat("v", variable, ".", begin);
}

std::vector<AsyncSlice> slices_of(const AsyncSimJob& job) {
  std::vector<AsyncSlice> slices;
  std::vector<uint32_t> count(job.servers, 0);
  const auto add = [&](size_t variable, size_t begin, size_t size) {
    const auto server = static_cast<uint32_t>(slices.size() % job.servers);
    slices.push_back({variable, begin, size, server, count[server]++});
  };
  for (size_t v = 0; v < job.variables.size(); ++v) {
    const size_t n = job.variables[v];
    if (v % 2 == 0 || n < 2) {
      add(v, 0, n);
    } else {
      add(v, 0, n / 2);
      add(v, n / 2, n - n / 2);
    }
  }
  return slices;
}

void update_slice(const AsyncSimJob& job, float* value, const float* gradient, const float* backup,
                  size_t n) {
  const bool compensates = job.options.delay_compensation.form != DelayCompensation::kNone;
  for (size_t i = 0; i < n; ++i) {
    float g = gradient[i];
    if (compensates) g += g * g * (value[i] - backup[i]);
    value[i] = adds_differences(job) ? value[i] + g : value[i] - kAsyncRate * g;
  }
}

AsyncPlayBack::AsyncPlayBack(const AsyncSimJob& job, std::vector<AsyncWorkerRecord> workers)
    : job_(job), workers_(std::move(workers)), slices_(slices_of(job)), history_(slices_.size()) {
  for (size_t s = 0; s < slices_.size(); ++s) {
    Vector& value = history_[s].emplace_back();
    for (size_t i = 0; i < slices_[s].size; ++i) {
      value.push_back(async_initial_value(slices_[s].variable, slices_[s].begin + i));
    }
  }
}

std::string AsyncPlayBack::run(const std::vector<std::vector<AsyncEvent>>& logs) {
  for (uint32_t server = 0; server < logs.size(); ++server) {
    const std::string failure = run_server(server, logs[server]);
    if (!failure.empty()) return failure;
  }
  for (size_t w = 0; w < workers_.size(); ++w) {
    const std::string failure = strange_to(w);
    if (!failure.empty()) return failure;
  }
  return "";
}

// What a worker received is what servers gave it, in their order. Some of that it leaves out:
// answers that came again, and values that newer ones have overtaken.
std::string AsyncPlayBack::strange_to(size_t worker) const {
  std::map<size_t, size_t> next;  // by slice, among what was given
  for (const AsyncWorkerRecord::Seen& seen : workers_[worker].seen) {
    const auto given = given_.find({worker, seen.slice});
    const std::vector<size_t> none;
    const auto& versions = given == given_.end() ? none : given->second;
    size_t& at = next[seen.slice];
    while (at < versions.size() && history_[seen.slice][versions[at]] != seen.value) ++at;
    if (at == versions.size()) {
      return str_cat("worker ", worker, " received a value of slice ", seen.slice,
                     " that no server gave it then");
    }
    ++at;
  }
  return "";
}

size_t AsyncPlayBack::find(uint32_t server, uint32_t id) const {
  for (size_t s = 0; s < slices_.size(); ++s) {
    if (slices_[s].server == server && slices_[s].id == id) return s;
  }
  return 0;
}

std::string AsyncPlayBack::run_server(uint32_t server, const std::vector<AsyncEvent>& log) {
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> applied;
  std::map<std::pair<uint32_t, uint32_t>, Vector> backups;
  for (const AsyncEvent& event : log) {
    const size_t s = find(server, event.variable);
    const auto key = std::make_pair(event.worker, event.variable);
    if (event.kind == AsyncEvent::Kind::kGet) {
      backups[key] = history_[s].back();
      given_[{event.worker, s}].push_back(history_[s].size() - 1);
      continue;
    }
    uint64_t& clock = applied[key];
    if (event.clock != clock + event.merged) {
      return str_cat("server ", server, ": clock ", event.clock, " of worker ", event.worker,
                     " was applied to slice ", s, " after ", clock, ", ", event.merged, " merged");
    }
    history_[s].push_back(updated(s, event, clock, backups[key]));
    clock = event.clock;
  }
  return lost_in(server, applied);
}

Vector AsyncPlayBack::updated(size_t s, const AsyncEvent& event, uint64_t clock,
                              const Vector& backup) const {
  const AsyncSlice& slice = slices_[s];
  const auto& made = workers_[event.worker].made[slice.variable];
  Vector gradient(slice.size, 0.0F);
  for (uint64_t k = clock; k < event.clock; ++k) {
    for (size_t i = 0; i < slice.size; ++i) {
      const float g = made.at(k)[slice.begin + i];
      gradient[i] = k == clock ? g : gradient[i] + g;
    }
  }
  Vector value = history_[s].back();
  const Vector& old = backup.empty() ? value : backup;
  update_slice(job_, value.data(), gradient.data(), Vector(old).data(), slice.size);
  return value;
}

std::string AsyncPlayBack::lost_in(
    uint32_t server, std::map<std::pair<uint32_t, uint32_t>, uint64_t>& applied) const {
  for (const AsyncSlice& slice : slices_) {
    if (slice.server != server) continue;
    for (uint32_t w = 0; w < workers_.size(); ++w) {
      const uint64_t made = workers_[w].made[slice.variable].size();
      if (applied[{w, slice.id}] == made) continue;
      return str_cat("server ", server, " has ", applied[{w, slice.id}], " of the ", made,
                     " gradients that worker ", w, " made of ", slice.name());
    }
  }
  return "";
}

}  // namespace fleet::testing
