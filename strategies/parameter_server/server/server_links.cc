#include "strategies/parameter_server/server/server_links.h"

#include <utility>

namespace fleet::strategies {

ServerLinks::ServerLinks(const NodeEnvironment& environment, const ParameterServerConfig& config,
                         FailureHandler on_failure, Logger logger)
    : self_(config.index), on_failure_(std::move(on_failure)) {
  for (uint32_t server = 0; server < config.server_num(); ++server) {
    auto& channel = channels_.emplace_back();
    if (server == self_) continue;
    transport::ChannelOptions options;
    options.endpoint = config.servers[server];
    options.hello = make_hello(config, transport::PeerRole::kServer, environment.incarnation);
    options.hello.lane = transport::LaneKind::kData;
    options.hello.callee = transport::MemberId{transport::PeerRole::kServer, server};
    options.secret = config.secret;
    options.rpc_deadline = config.rpc_deadline;
    options.random = environment.random;
    channel = std::make_unique<transport::Channel>(*environment.data_loop, *environment.network,
                                                   std::move(options), transport::ChannelEvents{},
                                                   logger);
  }
}

void ServerLinks::start() {
  for (const auto& channel : channels_) {
    if (channel) channel->start();
  }
}

void ServerLinks::send(uint32_t server, std::vector<transport::Message> frames) {
  transport::Request request;
  request.frames = std::move(frames);
  request.on_done = [this, server](const Status& status) {
    if (!status.ok()) on_failure_(server, status);
  };
  channels_.at(server)->submit(std::move(request));
}

void ServerLinks::finish() {
  for (const auto& channel : channels_) {
    if (channel) channel->finish();
  }
}

}  // namespace fleet::strategies
