// The matrix products of the benchmarks' nets, one thread, against those of oneDNN and OpenBLAS.

#include <algorithm>
#include <cmath>
#include <dnnl.hpp>
#include <functional>
#include <map>
#include <memory>
#include <omp.h>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "base/strings.h"
#include "benchmarks/harness/harness.h"
#include "fluid/kernels/cpu/math/gemm.h"

#ifdef FLEET_BENCH_OPENBLAS
// Its header is in a package that running it does not need.
extern "C" {
void openblas_set_num_threads(int threads);
void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                 const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc);
}
#endif

namespace fleet::benchmarks {
namespace {

using fluid::GemmShape;

constexpr int kRounds = 7;
constexpr double kSeconds = 0.02;  // of a product

struct Product {
  GemmShape shape;
  int64_t count = 1;  // in a step

  double flops() const {
    return 2 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
           static_cast<double>(shape.k);
  }
};

// The products of a step of a net.
class Products {
 public:
  // A layer of `in` inputs and `out` outputs: forward, gradient of its weight, and of its input
  // where that is no data.
  Products& layer(int64_t rows, int64_t in, int64_t out, int64_t count, int64_t of_data = 0) {
    add({.m = rows, .n = out, .k = in}, count);
    add({.m = in, .n = out, .k = rows, .transpose_a = true}, count);
    add({.m = rows, .n = in, .k = out, .transpose_b = true}, count - of_data);
    return *this;
  }
  // A convolution, image by image: columns [taps, positions] of what its windows see.
  Products& conv(int64_t images, int64_t taps, int64_t positions, int64_t out, bool of_data) {
    add({.m = out, .n = positions, .k = taps}, images);
    add({.m = out, .n = taps, .k = positions, .transpose_b = true}, images);
    add({.m = taps, .n = positions, .k = out, .transpose_a = true}, of_data ? 0 : images);
    return *this;
  }
  // The recurrent part of an LSTM: a state of `rows` rows, `steps` times, the gradient of its
  // weight once for all steps.
  Products& lstm(int64_t rows, int64_t units, int64_t steps) {
    add({.m = rows, .n = 4 * units, .k = units}, steps);
    add({.m = rows, .n = units, .k = 4 * units, .transpose_b = true}, steps);
    add({.m = units, .n = 4 * units, .k = rows * steps, .transpose_a = true}, 1);
    return *this;
  }
  // Scores and mixed values of heads, with their gradients.
  Products& attention(int64_t positions, int64_t width, int64_t heads) {
    add({.m = positions, .n = positions, .k = width, .transpose_b = true}, 2 * heads);
    add({.m = positions, .n = width, .k = positions}, 2 * heads);
    add({.m = positions, .n = width, .k = positions, .transpose_a = true}, 2 * heads);
    return *this;
  }
  const std::vector<Product>& all() const { return products_; }

 private:
  void add(const GemmShape& shape, int64_t count) {
    if (count > 0) products_.push_back({shape, count});
  }

  std::vector<Product> products_;
};

// Sizes are those of nets.h.
const std::vector<std::pair<std::string, Products>>& nets() {
  static const std::vector<std::pair<std::string, Products>> kNets = {
      {"mlp", Products()
                  .layer(32, 32, 128, 1, 1)
                  .layer(32, 128, 128, 1)
                  .layer(32, 128, 2, 1)
                  .layer(128, 32, 128, 1, 1)
                  .layer(128, 128, 128, 1)
                  .layer(128, 128, 2, 1)},
      {"ctr",
       Products().layer(1000, 273, 400, 1, 1).layer(1000, 400, 400, 2).layer(1000, 400, 2, 1)},
      {"lenet", Products()
                    .conv(64, 25, 576, 20, true)
                    .conv(64, 500, 64, 50, false)
                    .layer(64, 800, 500, 1)
                    .layer(64, 500, 10, 1)},
      {"lstm", Products().layer(1024, 128, 512, 1, 1).lstm(32, 128, 32).layer(32, 128, 10, 1)},
      {"transformer", Products()
                          .layer(1024, 128, 128, 8, 3)
                          .layer(1024, 128, 512, 2)
                          .layer(1024, 512, 128, 2)
                          .attention(64, 32, 128)
                          .layer(16, 128, 10, 1)},
      {"lm", Products().layer(320, 128, 512, 1).lstm(16, 128, 20).layer(320, 128, 30000, 1)}};
  return kNets;
}

struct Operands {
  std::vector<float> a, b, c;

  explicit Operands(const GemmShape& s)
      : a(random(s.m * s.k)), b(random(s.k * s.n)), c(static_cast<size_t>(s.m * s.n)) {}

 private:
  static std::vector<float> random(int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    const RandomKey key = RandomKey::of(1, "gemm");
    for (size_t i = 0; i < values.size(); ++i) values[i] = uniform_float(key, i) - 0.5f;
    return values;
  }
};

// A product, computed by somebody.
using Way = std::function<void()>;

Way ours(const GemmShape& shape, Operands& of) {
  const std::shared_ptr<fluid::cpu::Gemm<float>> gemm = fluid::cpu::fastest_gemm<float>(shape);
  const auto scratch = std::make_shared<fluid::Scratch>();
  return [=, &of] { gemm->run(of.a.data(), of.b.data(), of.c.data(), *scratch, Tiles()); };
}

dnnl::matmul::primitive_desc matmul_of(const dnnl::engine& engine, const dnnl::memory::desc& a,
                                       const dnnl::memory::desc& b, const dnnl::memory::desc& c) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, c};
#else
  return {dnnl::matmul::desc(a, b, c), engine};
#endif
}

Way onednn_matmul(const GemmShape& s, Operands& of) {
  using dnnl::memory;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto matrix = [&](int64_t rows, int64_t columns, bool transposed) {
    return memory::desc({rows, columns}, memory::data_type::f32,
                        transposed ? memory::dims{1, rows} : memory::dims{columns, 1});
  };
  const memory::desc a = matrix(s.m, s.k, s.transpose_a);
  const memory::desc b = matrix(s.k, s.n, s.transpose_b);
  const memory::desc c = matrix(s.m, s.n, false);
  const dnnl::matmul multiply(matmul_of(engine, a, b, c));
  const std::unordered_map<int, memory> arguments = {
      {DNNL_ARG_SRC, memory(a, engine, of.a.data())},
      {DNNL_ARG_WEIGHTS, memory(b, engine, of.b.data())},
      {DNNL_ARG_DST, memory(c, engine, of.c.data())}};
  return [multiply, arguments, stream = dnnl::stream(engine)]() mutable {
    multiply.execute(stream, arguments);
    stream.wait();
  };
}

Way onednn_sgemm(const GemmShape& s, Operands& of) {
  return [s, &of] {
    dnnl_sgemm(s.transpose_a ? 'T' : 'N', s.transpose_b ? 'T' : 'N', s.m, s.n, s.k, 1, of.a.data(),
               s.transpose_a ? s.m : s.k, of.b.data(), s.transpose_b ? s.k : s.n, 0, of.c.data(),
               s.n);
  };
}

#ifdef FLEET_BENCH_OPENBLAS
Way openblas_sgemm(const GemmShape& s, Operands& of) {
  constexpr int kRowMajor = 101;
  const auto turned = [](bool transposed) { return transposed ? 112 : 111; };
  const auto whole = [](int64_t number) { return static_cast<int>(number); };
  return [=, &of] {
    cblas_sgemm(kRowMajor, turned(s.transpose_a), turned(s.transpose_b), whole(s.m), whole(s.n),
                whole(s.k), 1, of.a.data(), whole(s.transpose_a ? s.m : s.k), of.b.data(),
                whole(s.transpose_b ? s.k : s.n), 0, of.c.data(), whole(s.n));
  };
}
#endif

std::vector<std::pair<std::string, Way>> peers(const GemmShape& shape, Operands& of) {
  return {{"oneDNN's matmul", onednn_matmul(shape, of)},
          {"oneDNN's sgemm", onednn_sgemm(shape, of)},
#ifdef FLEET_BENCH_OPENBLAS
          {"OpenBLAS", openblas_sgemm(shape, of)}
#endif
  };
}

double seconds_of(const Way& way) {
  return 1 / rate_of(kSeconds, way).processor;
}

// Of several tries, which other processes disturb.
double least_seconds(const Way& way) {
  double least = seconds_of(way);
  for (int i = 0; i < 2; ++i) least = std::min(least, seconds_of(way));
  return least;
}

// A product by both sides, in the same memory.
class Contest {
 public:
  explicit Contest(const Product& product)
      : product_(product),
        operands_(std::make_unique<Operands>(product.shape)),
        ours_(ours(product.shape, *operands_)) {
    ours_();
    const std::vector<float> expected = operands_->c;
    double least = 0;
    for (const auto& [name, way] : peers(product.shape, *operands_)) {
      std::fill(operands_->c.begin(), operands_->c.end(), 0.0f);
      way();
      check(expected, name);
      const double seconds = least_seconds(way);
      if (peer_ && seconds >= least) continue;
      least = seconds;
      peer_ = way;
      name_ = name;
    }
  }

  const std::string& peer_name() const { return name_; }
  double flops() const { return static_cast<double>(product_.count) * product_.flops(); }
  double our_seconds() const { return static_cast<double>(product_.count) * seconds_of(ours_); }
  double peer_seconds() const { return static_cast<double>(product_.count) * seconds_of(peer_); }

 private:
  void check(const std::vector<float>& expected, const std::string& name) const {
    const float most = 1e-3f * std::sqrt(static_cast<float>(product_.shape.k));
    for (size_t i = 0; i < expected.size(); ++i) {
      if (std::fabs(expected[i] - operands_->c[i]) <= most) continue;
      throw_error(ErrorCode::kInternal, {.what = "two products differ", .where = name});
    }
  }

  Product product_;
  std::unique_ptr<Operands> operands_;
  Way ours_;
  Way peer_;
  std::string name_;
};

// Over all products of a step, as often as it has each.
double gigaflops(const std::vector<Contest>& contests, double (Contest::*seconds)() const) {
  double flops = 0;
  double all = 0;
  for (const Contest& contest : contests) {
    flops += contest.flops();
    all += (contest.*seconds)();
  }
  return 1e-9 * flops / all;
}

std::string peers_note(const std::vector<Contest>& contests) {
  std::map<std::string, int> won;
  for (const Contest& contest : contests) ++won[contest.peer_name()];
  std::vector<std::string> texts;
  texts.reserve(won.size() + 1);
  for (const auto& [name, count] : won) texts.push_back(str_cat(name, " for ", count));
#ifndef FLEET_BENCH_OPENBLAS
  texts.push_back(
      "without OpenBLAS, which is not installed (apt-get install libopenblas0-pthread)");
#endif
  return str_cat(instruction_set(), ", a processor second; ", contests.size(),
                 " products, the better of them for each: ", join(texts, ", "));
}

Row gemm(const Rounds& rounds, const Products& products) {
  omp_set_num_threads(1);
#ifdef FLEET_BENCH_OPENBLAS
  openblas_set_num_threads(1);
#endif
  std::vector<Contest> contests;
  for (const Product& product : products.all()) contests.emplace_back(product);
  Row row = {.unit = "GFLOP/s",
             .peer = "oneDNN or OpenBLAS",
             .target = 0.97,
             .note = peers_note(contests)};
  row.take(rounds.pairs(
      kRounds, [&] { return gigaflops(contests, &Contest::our_seconds); },
      [&] { return gigaflops(contests, &Contest::peer_seconds); }));
  return row;
}

std::vector<Benchmark> all() {
  std::vector<Benchmark> rows;
  for (const auto& [name, products] : nets()) {
    rows.push_back(
        {"gemm_" + name, [&of = products](const Rounds& rounds) { return gemm(rounds, of); }});
  }
  return rows;
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  return fleet::benchmarks::bench_main(argc, argv,
                                       "Matrix products of nets against those of other libraries.",
                                       fleet::benchmarks::all());
}
