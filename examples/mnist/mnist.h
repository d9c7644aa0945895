// MNIST's images for the trainers of this folder, and how they are trained and judged.
#pragma once

#include "examples/quick_start/options.h"
#include "fluid/fluid.h"

namespace mnist {

struct Net {
  fluid::Variable cost;        // mean cross entropy, [1]
  fluid::Variable prediction;  // class probabilities, [rows, 10]
};

// Makes a net from image [rows, 1, 28, 28] and label [rows, 1].
using MakeNet = Net (*)(const fluid::Variable& image, const fluid::Variable& label);

// Trains on the first 9 000 of the 10 000 images in options.data_dir (t10k-images-idx3-ubyte.gz,
// t10k-labels-idx1-ubyte.gz), with Adam; the last 1 000 test. The role of this process decides
// whether that is a local, a parameter-server or a collective run.
int train(const quick_start::Options& options, MakeNet make_net);

}  // namespace mnist
