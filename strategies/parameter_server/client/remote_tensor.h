// Variables of a worker, and where their parts live on the servers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fluid/core/value.h"
#include "strategies/parameter_server/client/server_client.h"

namespace fleet::strategies {

// A part of a variable of the worker, and where it lives.
struct RemotePart {
  RemoteVariable remote;
  uint64_t offset = 0;  // in bytes, from the start of the worker's variable
  uint64_t bytes = 0;
  int64_t stride = 1;  // rows of the worker's variable from one row of the part to the next
  bool operator==(const RemotePart&) const = default;
};

// A variable of the worker that goes to servers (a gradient, a difference) or comes from them.
struct RemoteTensor {
  std::string name;
  fluid::DType dtype = fluid::DType::kFloat32;
  fluid::Shape shape;
  std::vector<RemotePart> parts;
  bool rows = false;     // of a gradient: it is of rows
  bool growing = false;  // of a growing table

  uint64_t bytes() const { return static_cast<uint64_t>(shape.numel()) * fluid::dtype_size(dtype); }
  // Whatever programs call it.
  bool same_place(const RemoteTensor& other) const {
    return dtype == other.dtype && shape == other.shape && rows == other.rows &&
           parts == other.parts;
  }
};

// Memory of a variable on a server, as a request reads or writes it.
struct RemoteMemory {
  RemoteVariable remote;
  std::byte* memory = nullptr;
  uint64_t bytes = 0;
};

// The rows of a part, by their numbers in it, of the rows of a whole gradient.
fluid::SelectedRows rows_of_part(const RemoteTensor& gradient, const RemotePart& part,
                                 const fluid::SelectedRows& rows);

// The tensor of a value, which becomes one where it is not.
fluid::Tensor& dense(fluid::Value& value);

}  // namespace fleet::strategies
