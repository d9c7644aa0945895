// Programs and tensors of the numeric golden files (tests/golden/numeric/README.md).
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "fluid/executor/executor.h"
#include "fluid/io/safetensors.h"
#include "fluid/ops/op_schema.h"

namespace fleet::fluid::golden {

using Json = nlohmann::json;

// Where the files are: FLEET_NUMERIC_GOLDEN, else the project's own copy.
std::filesystem::path directory();
// The .json files of a family's cases, sorted; none when the folder is absent.
std::vector<std::filesystem::path> cases(const std::string& family);
std::vector<std::filesystem::path> cases_in(const std::filesystem::path& directory,
                                            const std::string& family);
Json load(const std::filesystem::path& path);

// The attributes that our schema of the op knows, with element types by name.
AttributeMap attributes(const OpSchema& schema, const Json& json);
DType dtype_of_code(int64_t code);

// The attributes that our schema of the op does not know, as "<op>: <name> = <value>", except those
// whose value means nothing here (the table of neutral attributes in numeric_support.cc).
std::set<std::string> unknown_attributes(const OpSchema& schema, const Json& json);

// Everything that a file's description names and this project does not know: ops and attributes.
std::set<std::string> unknown_in(const Json& json);

// Appends the file's ops as they stand; variables that are not in the block yet are made without
// a known shape.
void append_ops(Block& block, const Json& ops);

// Element i of a tensor of any type; not a number for a type that no file has.
double element(const Tensor& tensor, int64_t i);

// Empty when the largest difference is within rtol times the largest expected value and the
// non-finite elements are equal; else what differs.
std::string difference(const Tensor& got, const Tensor& expected, double rtol);

}  // namespace fleet::fluid::golden
