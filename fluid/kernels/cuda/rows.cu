#include "fluid/kernels/cuda/row_loops.h"
#include "fluid/kernels/cuda/row_sums_impl.h"

namespace fleet::fluid::cuda {
namespace {

template <class T>
struct MergeLoop {
  RowValues<T> from;
  T* out;
  __device__ void operator()(int64_t i) const {
    out[i] = sum_of_group(from, i / from.width, i % from.width);
  }
};

template <class T>
struct AddGroupLoop {
  RowValues<T> from;
  T* to;
  __device__ void operator()(int64_t i) const {
    const RowGroupArrays& groups = from.groups;
    const int64_t group = i / from.width;
    const int64_t k = i % from.width;
    T& sum = to[groups.rows[group] * from.width + k];
    if (groups.begin == nullptr) {
      sum += from.values[i];
      return;
    }
    T total = sum;
    for (int64_t at = groups.begin[group]; at < groups.begin[group + 1]; ++at) {
      total += from.values[groups.order[at] * from.width + k];
    }
    sum = total;
  }
};

template <class T>
struct ZeroLoop {
  const int64_t* positions;
  int64_t width;
  T* rows;
  __device__ void operator()(int64_t i) const {
    rows[positions[i / width] * width + i % width] = T{};
  }
};

template <class T>
struct PutLoop {
  const int64_t* positions;
  int64_t width;
  const T* from;
  T* to;
  __device__ void operator()(int64_t i) const {
    to[positions[i / width] * width + i % width] = from[i];
  }
};

struct NumberGroupLoop {
  const int64_t* rows;
  int32_t* place;
  __device__ void operator()(int64_t group) const {
    place[rows[group]] = static_cast<int32_t>(group);
  }
};

}  // namespace

template <class T>
void merge_rows(RawStream stream, const RowValues<T>& from, T* out) {
  launch_each(stream, "merge_rows", from.groups.count * from.width, MergeLoop<T>{from, out});
}

template <class T>
void add_groups(RawStream stream, const RowValues<T>& from, T* to) {
  launch_each(stream, "add_groups", from.groups.count * from.width, AddGroupLoop<T>{from, to});
}

template <class T>
void zero_rows(RawStream stream, const int64_t* positions, int64_t count, int64_t width, T* rows) {
  launch_each(stream, "zero_rows", count * width, ZeroLoop<T>{positions, width, rows});
}

template <class T>
void put_rows(RawStream stream, const int64_t* positions, int64_t count, int64_t width,
              const T* from, T* to) {
  launch_each(stream, "put_rows", count * width, PutLoop<T>{positions, width, from, to});
}

void number_groups(RawStream stream, const RowGroupArrays& groups, int64_t height, int32_t* place) {
  fill<int32_t>(stream, -1, place, height);
  launch_each(stream, "number_groups", groups.count, NumberGroupLoop{groups.rows, place});
}

#define FLEET_INSTANTIATE(T)                                    \
  template void merge_rows(RawStream, const RowValues<T>&, T*); \
  template void add_groups(RawStream, const RowValues<T>&, T*); \
  template void zero_rows(RawStream, const int64_t*, int64_t, int64_t, T*)
FLEET_INSTANTIATE(float);
FLEET_INSTANTIATE(double);
#undef FLEET_INSTANTIATE
#define FLEET_INSTANTIATE_PUT(T) \
  template void put_rows(RawStream, const int64_t*, int64_t, int64_t, const T*, T*)
FLEET_INSTANTIATE_PUT(int32_t);
FLEET_INSTANTIATE_PUT(int64_t);
FLEET_INSTANTIATE_PUT(float);
FLEET_INSTANTIATE_PUT(double);
#undef FLEET_INSTANTIATE_PUT

}  // namespace fleet::fluid::cuda
