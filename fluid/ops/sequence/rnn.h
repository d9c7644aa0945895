// Recurrent nets over sequences (fluid/ops/sequence/sequence.h). With is_reverse they read each
// sequence from its end.
//
//   lstm       Input [rows, 4 d] (already multiplied by the input's weights), H0?, C0?
//              [sequences, d], Weight [d, 4 d], Bias [1, 4 d or 7 d] -> Hidden, Cell [rows, d],
//              BatchGate, BatchCellPreAct (saved for the gradient, by steps). The four parts of
//              4 d are candidate, input gate, forget gate, output gate; the further 3 d of Bias are
//              the peepholes of input, forget and output gate (use_peepholes):
//                c = f c_prev + i a;  h = o cell_activation(c)
//              with i and f looking at c_prev through their peepholes, o at c
//              (Hochreiter and Schmidhuber 1997; Gers and Schmidhuber 2000).
//   lstm_grad  all of those, Hidden@GRAD, Cell@GRAD? -> Input@GRAD, Weight@GRAD, Bias@GRAD,
//   H0@GRAD,
//              C0@GRAD (each optional)
//   gru        Input [rows, 3 d], H0?, Weight [d, 2 d] and [d, d] one after the other in memory,
//              Bias? [1, 3 d] -> Hidden [rows, d], BatchGate, BatchResetHiddenPrev, BatchHidden.
//              The three parts are update gate u, reset gate r and candidate:
//                c = activation(x + (r h_prev) W);  h = (1 - u) h_prev + u c, or with origin_mode
//                u h_prev + (1 - u) c  (Cho et al. 2014)
//   gru_grad   all of those, Hidden@GRAD -> Input@GRAD, Weight@GRAD, Bias@GRAD, H0@GRAD
// Activations: sigmoid, tanh, relu, identity.
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct LstmAttrs {
  bool use_peepholes = true;
  bool is_reverse = false;
  std::string gate_activation = "sigmoid";
  std::string cell_activation = "tanh";
  std::string candidate_activation = "tanh";
  bool paddle_form = false;  // a gradient that arrives at Cell is ignored
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(use_peepholes), CEREAL_NVP(is_reverse), CEREAL_NVP(gate_activation),
       CEREAL_NVP(cell_activation), CEREAL_NVP(candidate_activation), CEREAL_NVP(paddle_form));
  }
};

struct GruAttrs {
  std::string activation = "tanh";
  std::string gate_activation = "sigmoid";
  bool is_reverse = false;
  bool origin_mode = false;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(activation), CEREAL_NVP(gate_activation), CEREAL_NVP(is_reverse),
       CEREAL_NVP(origin_mode));
  }
};

void add_rnn_ops(OpTable& table);

}  // namespace fleet::fluid
