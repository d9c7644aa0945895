#include "launch/hosts/death_notice.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "base/archive.h"
#include "base/strings.h"
#include "launch/hosts/job_secret.h"
#include "role_maker/cluster_spec.h"
#include "transport/coordinator/membership.h"
#include "transport/link/asio_loop.h"
#include "transport/link/asio_network.h"
#include "transport/rpc/channel.h"

namespace fleet::launch {
namespace {

std::string job_id_of(const Job& job, int workers, const std::vector<Endpoint>& servers) {
  if (const auto id = job.common.get("FLEET_JOB_ID")) return *id;
  role_maker::ClusterSpec spec;
  spec.mode = role_maker::Mode::kParameterServer;
  spec.worker_num = workers;
  spec.server_num = static_cast<int>(servers.size());
  spec.server_endpoints = to_strings(servers);
  return role_maker::derived_job_id(spec);
}

}  // namespace

// The connection. Its channel and what it counts belong to the loop's thread.
class DeathNotice::Line {
 public:
  explicit Line(transport::ChannelOptions options) : thread_("notices") {
    transport::ChannelEvents events;
    // Where it is refused, the coordinator has ended, and with it the job.
    events.on_attempt_failed = [this](const Status& why) {
      if (transport::is_connection_refused(why)) channel_->fail_all(why);
    };
    thread_.run_there([&] {
      channel_ = std::make_unique<transport::Channel>(thread_.loop(), network_, std::move(options),
                                                      std::move(events));
      channel_->start();
    });
  }
  ~Line() {
    thread_.run_there([this] { channel_.reset(); });
  }

  void send(const transport::Verdict& verdict) {
    {
      const std::lock_guard lock(mutex_);
      ++under_way_;
    }
    thread_.loop().post([this, verdict] {
      transport::Request request;
      request.frames.emplace_back();
      request.frames.back().header.verb = transport::Verb::kAbort;
      request.frames.back().control = encode(verdict);
      request.on_done = [this](const Status&) {
        const std::lock_guard lock(mutex_);
        --under_way_;
        changed_.notify_all();
      };
      channel_->submit(std::move(request));
    });
  }

  void finish(Duration limit) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [this] { return under_way_ == 0; });
  }

 private:
  transport::AsioNetwork network_{transport::TransportChoice::kTcp};
  std::unique_ptr<transport::Channel> channel_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  int under_way_ = 0;
  transport::LoopThread thread_;
};

DeathNotice::DeathNotice(const Job& job, int workers, std::vector<Endpoint> servers)
    : job_(job), workers_(workers), servers_(std::move(servers)) {}

DeathNotice::~DeathNotice() = default;

void DeathNotice::tell(Role role, int index, const std::string& how) {
  if (role == Role::kServer && index == 0) return;
  if (!line_) {
    auto secret = job_secret(job_.common);
    if (!secret.ok()) return;
    transport::ChannelOptions options;
    options.endpoint = servers_.front();
    options.hello.job_id = job_id_of(job_, workers_, servers_);
    options.hello.member = {transport::PeerRole::kLauncher, 0};
    options.hello.lane = transport::LaneKind::kControl;
    options.hello.callee = transport::MemberId{transport::PeerRole::kServer, 0};
    options.secret = std::move(secret).value();
    options.tell_unreachable = false;
    line_ = std::make_unique<Line>(std::move(options));
  }
  const auto culprit =
      role == Role::kServer ? transport::PeerRole::kServer : transport::PeerRole::kWorker;
  line_->send({.culprit = {culprit, static_cast<uint32_t>(index)},
               .code = ErrorCode::kPeerLost,
               .reason = str_cat("its launcher says that it ", how)});
}

void DeathNotice::finish(Duration limit) {
  if (line_) line_->finish(limit);
}

}  // namespace fleet::launch
