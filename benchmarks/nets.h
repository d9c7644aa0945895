// The nets that benchmarks train: whole steps of forward, backward and SGD, on batches that stay.
// torch/torch_steps.cc has the same nets in LibTorch.
#pragma once

#include <string>
#include <vector>

#include "fluid/executor/executor.h"
#include "fluid/layers/layers.h"
#include "fluid/program/program.h"

namespace fleet::benchmarks {

struct Net {
  fluid::Program main;
  fluid::Program startup;
  std::string cost;
  std::vector<fluid::Feed> feeds;  // in turn
  size_t steps = 0;

  void train(fluid::Executor& executor) {
    executor.run(main, feeds[steps++ % feeds.size()], {cost});
  }
};

// `name` is one of:
//   mlp          32-128-128-2, tanh
//   quick_start  64-128-128-10, tanh
//   mlp_2048     784-2048-2048-10, tanh
//   lenet        20-50-500-10 on 1 x 28 x 28
//   resnet20     3 stages of 3 blocks, 16/32/64 channels, 1 x 1 projections, on 3 x 32 x 32
//   ctr_dense    273-400-400-400-2, relu
//   ctr_dnn_one_table  13 dense features and one id in each of 26 slots, of a million: embeddings
//                of 10 values (sparse gradient), joined, then 400-400-400-2, relu; 64 batches that
//                take turns
//   ctr_dnn_26_tables  the same with a table for each slot
//   ctr_dnn_growing    the same with one table that grows
//   ids_1e7, ids_1e8  a row of 8 values of a table that grows for each id; the loss is their mean.
//                Batches with so many ids in all take turns, and no two ids are equal
//   lstm         32 steps of 128 inputs and 128 units, the last state to 10 classes
//   lstm_ragged  the same with sequences of 8 to 64 steps, in 16 batches that take turns
//   lm_vocab30k  sentences of 20 of 30000 words: embedding (sparse gradient) and LSTM of 128, the
//                next word at each
//   transformer  2 encoder layers, 128 wide, 4 heads, inner 512, 64 positions, mean to 10 classes
// Every one but ids_1e… ends in softmax and cross entropy. Throws for another name.
//
// Appends the net, up to its loss, to the calling thread's default programs.
fluid::Variable append_net(const std::string& name);
// What it is fed with, in turn.
std::vector<fluid::Feed> make_batches(const std::string& name, int64_t rows);
// With the ops of SGD, in programs of its own.
Net make_net(const std::string& name, int64_t rows);
// Sums of bags of 1 to 39 ids, of a million, of a table of `width` values each, and, with
// `backward`, the table's sparse gradient for a gradient of the sums that is fed. 32 batches of
// `bags` take turns.
Net make_bags(int64_t width, int64_t bags, bool backward);

}  // namespace fleet::benchmarks
