// Places by name, and those of a process that a launcher gave a GPU.
#pragma once

#include <string>
#include <vector>

#include "fluid/core/place.h"

namespace fleet::fluid {

// "cpu"; "gpu", which is the GPU that the launcher gave this process (the first of
// FLAGS_selected_gpus; without it 0); or "gpu:2". "cuda" is another word for gpu. Throws UsageError
// for anything else; whether there is such a GPU is what an executor of that place finds out.
Place place_named(const std::string& text);

// As Paddle's: of these GPUs; without any, of those in FLAGS_selected_gpus, and without that of all
// that this build and machine have. Throws UsageError for a variable that is no list of numbers.
std::vector<Place> cuda_places(const std::vector<int>& ids = {});

}  // namespace fleet::fluid
