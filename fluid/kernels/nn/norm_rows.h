// What layer_norm and group_norm normalise: rows of runs of elements, for every device.
#pragma once

#include <cstdint>

#include "fluid/core/shape.h"
#include "fluid/kernels/functions/host_device.h"

namespace fleet::fluid {

class PrepareContext;
enum class DType : uint8_t;

struct NormRows {
  int64_t count = 0;
  int64_t runs = 1;
  int64_t length = 0;            // of a run
  int64_t run_stride = 0;        // elements from run to run
  int64_t groups = 1;            // rows of one image
  int64_t image = 0;             // elements from image to image
  int64_t group = 0;             // elements from row to row of an image
  int64_t width = 0;             // elements of Scale and Bias
  int64_t channels = 0;          // of a group
  int64_t missing = 0;           // of them in the last group of an image
  bool channel_per_run = false;  // otherwise one per element of a run

  FLEET_HOST_DEVICE int64_t missing_in(int64_t row) const {
    return row % groups == groups - 1 ? missing : 0;
  }
  FLEET_HOST_DEVICE int64_t runs_of(int64_t row) const {
    return runs - (channel_per_run ? missing_in(row) : 0);
  }
  FLEET_HOST_DEVICE int64_t length_of(int64_t row) const {
    return length - (channel_per_run ? 0 : missing_in(row));
  }
  FLEET_HOST_DEVICE int64_t size(int64_t row) const { return runs_of(row) * length_of(row); }
  FLEET_HOST_DEVICE int64_t start(int64_t row) const {
    return row / groups * image + row % groups * group;
  }
  // First element of Scale for a run.
  FLEET_HOST_DEVICE int64_t channel(int64_t row, int64_t run) const {
    return row % groups * channels + (channel_per_run ? run : 0);
  }
};

struct RowNorm {
  NormRows rows;
  Shape statistics;  // of Mean and Variance
  float epsilon = 0;
};

// Throw ProgramError for inputs that do not fit.
RowNorm layer_norm_of(const PrepareContext& context);
RowNorm group_norm_of(const PrepareContext& context);
// That Scale and Bias, where they are given, have the type and rows.width elements.
void check_norm_vectors(const PrepareContext& context, const NormRows& rows, DType dtype);

}  // namespace fleet::fluid
