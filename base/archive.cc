#include "base/archive.h"

namespace fleet {

BinaryOutput::BinaryOutput() : OutputArchive(this) {}
BinaryOutput::~BinaryOutput() = default;

void BinaryOutput::write(const void* data, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  bytes_.insert(bytes_.end(), begin, begin + bytes);
}

BinaryInput::BinaryInput(std::span<const std::byte> bytes) : InputArchive(this), rest_(bytes) {}
BinaryInput::~BinaryInput() = default;

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

void CEREAL_SAVE_FUNCTION_NAME(BinaryOutput& out, const std::string& text) {
  out(static_cast<uint32_t>(text.size()));
  out.write(text.data(), text.size());
}

void CEREAL_LOAD_FUNCTION_NAME(BinaryInput& in, std::string& text) {
  text.resize(in.read_count(1));
  in.read(text.data(), text.size());
}

}  // namespace fleet
