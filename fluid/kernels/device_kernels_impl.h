// The devices of this build, as device_kernels.h has them: no_cuda/ for builds without the toolkit,
// cuda/ for builds with it.
#pragma once

#include "fluid/kernels/device_kernels.h"

namespace fleet::fluid::built_in {

void check_place(const Place& place);
void enter_place(const Place& place);
void* create_stream(const Place& place);
void destroy_stream(const Place& place, void* stream) noexcept;
void synchronize_stream(const Place& place, void* stream);
bool begin_recording(const Place& place, void* stream);
std::shared_ptr<void> end_recording(const Place& place, void* stream);
void run_recorded(const Place& place, void* recorded, void* stream, uint64_t step);
bool redraws_when_repeated(std::string_view op);
std::shared_ptr<uint32_t> make_shared_words(const Place& place, size_t count);
void note_nonfinite(const Tensor& tensor, uint32_t* word, void* stream);

}  // namespace fleet::fluid::built_in
