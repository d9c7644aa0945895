#include "base/archive.h"

namespace fleet {

void BinaryInput::fail(std::string what) {
  throw Error(ErrorCode::kBadFrame,
              {.what = std::move(what), .where = {}, .expected = {}, .got = {}, .fix = {}});
}

void BinaryInput::read(void* data, size_t bytes) {
  if (bytes > rest_.size()) fail("the bytes end too early");
  if (bytes != 0) std::memcpy(data, rest_.data(), bytes);
  rest_ = rest_.subspan(bytes);
}

size_t BinaryInput::read_count(size_t element_bytes) {
  uint32_t count = 0;
  read(&count, sizeof count);
  if (count > rest_.size() / element_bytes) fail("a count is larger than the bytes that follow");
  return count;
}

BinaryInput::Nested::Nested(BinaryInput& input) : input_(input) {
  if (++input_.depth_ > kMaxDepth) {
    --input_.depth_;
    fail("values are nested too deeply");
  }
}

}  // namespace fleet
