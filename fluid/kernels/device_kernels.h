// The seam to devices other than the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "fluid/kernels/kernel_table.h"

namespace fleet::fluid {

// Of the build's devices; emulated ones (fluid/core/device_memory.h) have no kernels but their own.
void register_device_kernels(KernelTable& table);

// Throws Error (not supported) for a place that this build or this machine cannot run on.
void check_place(const Place& place);

// Makes the place's device that of the calling thread; kernels and streams want it so.
void enter_place(const Place& place);

// The place's work stream (fluid/core/device_memory.h) as one thread uses it, with handles of
// libraries and scratch memory of its own; null where there is none (CPU). Destroyed by
// destroy_stream, which waits for it.
void* create_stream(const Place& place);
void destroy_stream(const Place& place, void* stream) noexcept;
// Waits for what was put on the stream.
void synchronize_stream(const Place& place, void* stream);

// From now on, what is put on the stream is recorded and not done; other threads go on. False where
// a device cannot.
bool begin_recording(const Place& place, void* stream);
// What was recorded since; null when the device could not.
std::shared_ptr<void> end_recording(const Place& place, void* stream);
// Puts all of it on the stream, as step `step`.
void run_recorded(const Place& place, void* recorded, void* stream, uint64_t step);
// Whether the devices' kernels of an op that draws random numbers draw those of the step when their
// work is repeated.
bool redraws_when_repeated(std::string_view op);

// convert_half (fluid/kernels/half/convert.h) on a device with streams.
void convert_half_on_device(const Tensor& from, Tensor& to, void* stream);

// So many words, each 0, in host memory that kernels on the place's streams may write
// (KernelContext::nonfinite_word). What they wrote is there when their stream was waited for.
std::shared_ptr<uint32_t> make_shared_words(const Place& place, size_t count);

// When the stream comes to it: sets such a word to word_of_nonfinite() (functions/nonfinite_word.h)
// of an element of a float32 or float64 tensor on the device that is not finite, if there is one.
void note_nonfinite_on_device(const Tensor& tensor, uint32_t* word, void* stream);

}  // namespace fleet::fluid
