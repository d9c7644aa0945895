// Ids and secrets that nobody can guess.
#pragma once

#include <cstddef>
#include <string>

namespace fleet {

// Random bytes of the kernel as hexadecimal digits, two a byte.
std::string random_hex(size_t bytes);

// The secret of a job whose user gave none: 32 random bytes.
std::string make_job_secret();

}  // namespace fleet
