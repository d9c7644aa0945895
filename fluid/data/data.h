// Everything about reading data.
#pragma once

#include "fluid/data/data_loader.h"
#include "fluid/data/dataset.h"
#include "fluid/data/files.h"
#include "fluid/data/formats/datasets/dataset_factory.h"
#include "fluid/data/formats/datasets/in_memory_dataset.h"
#include "fluid/data/formats/datasets/queue_dataset.h"
#include "fluid/data/formats/file_list.h"
#include "fluid/data/formats/parsers/criteo.h"
#include "fluid/data/formats/parsers/csv_parser.h"
#include "fluid/data/formats/parsers/libsvm.h"
#include "fluid/data/formats/parsers/multi_slot.h"
#include "fluid/data/formats/record_cache.h"
#include "fluid/data/sampler.h"
