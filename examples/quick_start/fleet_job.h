// --role_maker.
#pragma once

#include <memory>

#include "examples/quick_start/options.h"
#include "fleet/fleet.h"

namespace quick_start {

std::unique_ptr<role_maker::RoleMakerBase> make_role_maker(const Options& options);

}  // namespace quick_start
