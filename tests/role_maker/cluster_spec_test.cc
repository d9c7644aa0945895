#include "role_maker/cluster_spec.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace fleet::role_maker {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ClusterSpec server_job() {
  ClusterSpec spec;
  spec.mode = Mode::kParameterServer;
  spec.worker_num = 2;
  spec.server_num = 1;
  spec.server_endpoints = {"127.0.0.1:6170"};
  spec.job_id = "job";
  return spec;
}

TEST(ClusterSpecTest, ADefaultOneIsAValidLocalJob) {
  const ClusterSpec spec;
  EXPECT_NO_THROW(spec.validate());
  EXPECT_TRUE(spec.is_first_worker());
  EXPECT_FALSE(spec.is_distributed());
  EXPECT_EQ(spec.process_name(), "worker/0");
  EXPECT_EQ(spec.current_endpoint(), "");
}

TEST(ClusterSpecTest, ValidationNamesWhatDoesNotFit) {
  using Change = void (*)(ClusterSpec&);
  const std::vector<std::pair<const char*, Change>> changes = {
      {"worker_num", [](ClusterSpec& s) { s.worker_num = 0; }},
      {"server_num", [](ClusterSpec& s) { s.server_num = 0; }},
      {"server_num", [](ClusterSpec& s) { s.mode = Mode::kCollective; }},
      {"server_endpoints", [](ClusterSpec& s) { s.server_num = 2; }},
      {"server_endpoints", [](ClusterSpec& s) { s.server_endpoints = {"nowhere"}; }},
      {"worker_endpoints", [](ClusterSpec& s) { s.worker_endpoints = {"a:1"}; }},
      {"worker_endpoints",
       [](ClusterSpec& s) {
         s.worker_endpoints = {"a:1", "a:1"};
       }},
      {"index", [](ClusterSpec& s) { s.index = 2; }},
      {"index", [](ClusterSpec& s) { s.index = -1; }},
      {"job_id", [](ClusterSpec& s) { s.job_id.clear(); }}};
  EXPECT_NO_THROW(server_job().validate());
  for (const auto& [field, change] : changes) {
    ClusterSpec spec = server_job();
    change(spec);
    try {
      spec.validate();
      ADD_FAILURE() << "no error about " << field;
    } catch (const UsageError& error) {
      EXPECT_EQ(error.code(), ErrorCode::kEnvironment);
      EXPECT_EQ(error.text().where, field) << error.what();
      EXPECT_FALSE(error.text().fix.empty());
    }
  }
}

TEST(ClusterSpecTest, PrintsValuesWithOriginsAndHidesTheSecret) {
  ClusterSpec spec = server_job();
  spec.job_secret = "do not show";
  spec.origins["worker_num"] = "PADDLE_TRAINERS_NUM";
  const std::string text = spec.to_string();
  EXPECT_THAT(text, HasSubstr("PADDLE_TRAINERS_NUM"));
  EXPECT_THAT(text, HasSubstr("127.0.0.1:6170"));
  EXPECT_THAT(text, HasSubstr("parameter_server"));
  EXPECT_THAT(text, Not(HasSubstr("do not show")));
}

TEST(EndpointTest, AWrongOneIsAnErrorOfTheEnvironmentThatNamesTheVariable) {
  EXPECT_EQ(parse_endpoint("[::1]:65535", "LIST"), (Endpoint{"::1", 65535}));
  try {
    parse_endpoint("::1:80", "LIST");
    FAIL() << "it was read";
  } catch (const UsageError& error) {
    EXPECT_EQ(error.code(), ErrorCode::kEnvironment);
    EXPECT_EQ(error.text().where, "LIST");
  }
}

TEST(EndpointTest, BlanksMakeNoOtherEndpoint) {
  ClusterSpec spec = server_job();
  spec.server_num = 2;
  spec.server_endpoints = {"[::1]:80", " [::1]:80"};
  EXPECT_THROW(spec.validate(), UsageError);
}

TEST(JobIdTest, DependsOnTheWholeCluster) {
  const ClusterSpec base = server_job();
  ClusterSpec other = base;
  other.index = 1;
  EXPECT_EQ(derived_job_id(base), derived_job_id(other));
  other.server_endpoints = {"127.0.0.1:6171"};
  EXPECT_NE(derived_job_id(base), derived_job_id(other));
}

}  // namespace
}  // namespace fleet::role_maker
