// The arithmetic of workers that train alone and exchange differences now and then: GEO and
// elastic averaging, on one parameter each. Spans of one call have the same length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fleet::strategies {

// GEO, before the exchange: difference = (w - old) / workers, old += difference. The server adds
// the difference to its value.
template <class T>
void geo_difference(std::span<const T> w, std::span<T> old, uint32_t workers,
                    std::span<T> difference) {
  const T n = static_cast<T>(workers);
  for (size_t i = 0; i < w.size(); ++i) {
    difference[i] = (w[i] - old[i]) / n;
    old[i] += difference[i];
  }
}

// GEO, when the server's value has come: w += W - old, old = W. With one worker, w is then W.
template <class T>
void geo_receive(std::span<const T> pulled, std::span<T> w, std::span<T> old) {
  for (size_t i = 0; i < w.size(); ++i) {
    w[i] += pulled[i] - old[i];
    old[i] = pulled[i];
  }
}

// EASGD (arXiv 1412.6651, algorithm 1): difference = alpha (x - centre), x -= difference. The
// server adds the difference to the centre.
template <class T>
void easgd_difference(std::span<T> x, std::span<const T> centre, double alpha,
                      std::span<T> difference) {
  const T a = static_cast<T>(alpha);
  for (size_t i = 0; i < x.size(); ++i) {
    difference[i] = a * (x[i] - centre[i]);
    x[i] -= difference[i];
  }
}

// 0 stands for beta / N with the paper's beta = 0.9.
inline double easgd_alpha(double asked, uint32_t workers) {
  return asked > 0 ? asked : 0.9 / static_cast<double>(workers);
}

}  // namespace fleet::strategies
