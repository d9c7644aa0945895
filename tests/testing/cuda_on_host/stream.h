// The streams of the host's device: work is done at once, or recorded.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace fleet::testing {

using Work = std::vector<std::function<void()>>;

// Does it, or adds it to what is recorded.
void put_on_stream(std::function<void()> work);
// Null: work is done again.
void record_stream(Work* work);

void run_again(const Work& work);
// Calls of run_again, since the process began.
uint64_t recorded_runs();

}  // namespace fleet::testing
