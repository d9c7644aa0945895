// Everything about reading data.
#pragma once

#include "fluid/data/data_loader.h"
#include "fluid/data/dataset.h"
#include "fluid/data/files.h"
#include "fluid/data/sampler.h"
