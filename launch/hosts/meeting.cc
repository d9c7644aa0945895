#include "launch/hosts/meeting.h"

#include <map>
#include <utility>

#include "base/strings.h"
#include "launch/process/posted_calls.h"
#include "transport/link/asio_loop.h"
#include "transport/link/asio_network.h"
#include "transport/rpc/channel.h"
#include "transport/rpc/server.h"

namespace fleet::launch {
namespace {

using transport::ConstBytes;
using transport::FrameHeader;
using transport::Session;

// Why a launcher is refused whose place another connection has.
constexpr ErrorCode kTaken = ErrorCode::kAddressInUse;

transport::MemberId member(size_t host) {
  return {transport::PeerRole::kLauncher, static_cast<uint32_t>(host)};
}

transport::Hello hello_of(const MeetingOptions& options) {
  transport::Hello hello;
  hello.job_id = options.job_id;
  hello.member = member(options.host);
  hello.incarnation = transport::make_incarnation();
  hello.lane = transport::LaneKind::kControl;
  return hello;
}

transport::Message message_of(const std::string& line) {
  transport::Message message;
  message.header.verb = transport::Verb::kFirstApplicationVerb;
  const auto* bytes = reinterpret_cast<const std::byte*>(line.data());
  message.control.assign(bytes, bytes + line.size());
  return message;
}

std::string_view line_of(ConstBytes control) {
  return {reinterpret_cast<const char*>(control.data()), control.size()};
}

}  // namespace

// What is behind it belongs to its thread, but for `calls_`.
class MeetingPoint::Side : private transport::ServerHandler {
 public:
  Side(const MeetingOptions& options, MeetingPoint& point, EventLoop& loop)
      : point_(point), calls_(loop), thread_("meeting") {
    Status listens;
    thread_.run_there([&] {
      transport::ServerOptions server;
      server.endpoint = options.endpoint;
      server.hello = hello_of(options);
      server.secret = options.secret;
      const transport::ServerLane lane{&thread_.loop(), this};
      server_ = std::make_unique<transport::Server>(network_, lane, lane, std::move(server));
      listens = server_->listen();
    });
    if (listens.ok()) return;
    thread_.run_there([this] { server_.reset(); });
    ErrorText text = listens.text();
    text.fix =
        "end the process that holds it (ss -ltnp), or give another --launcher_port on all nodes";
    throw_error(listens.code(), std::move(text));
  }
  ~Side() override {
    thread_.run_there([this] {
      server_.reset();
      sessions_.clear();
    });
  }

  void send(size_t host, const Order& order) {
    thread_.loop().post([this, host, line = to_line(order)] {
      const auto found = sessions_.find(host);
      if (found != sessions_.end()) found->second->send(message_of(line));
    });
  }
  void drop(size_t host) {
    thread_.loop().post([this, host] {
      const auto found = sessions_.find(host);
      if (found == sessions_.end()) return;
      const std::shared_ptr<Session> session = found->second;
      sessions_.erase(found);
      session->close();
      lose(host, "its connection was ended");
    });
  }

 private:
  Status admit(const transport::Hello& peer) override {
    const bool known = peer.member.role == transport::PeerRole::kLauncher && peer.member.index > 0;
    if (known && !sessions_.contains(peer.member.index)) return {};
    return Status(kTaken, {.what = "two launchers say that they are those of the same host",
                           .where = peer.member.to_string(),
                           .expected = "one launcher for each host",
                           .got = "another one",
                           .fix = "give each launcher a --node_ip or --node_rank of its own"});
  }
  Loop* on_open(Session& session) override {
    sessions_[session.peer().member.index] = session.shared_from_this();
    return nullptr;
  }
  transport::PayloadTarget prepare_payload(Session&, const FrameHeader&, ConstBytes) override {
    return transport::PayloadTarget::discard();
  }
  void on_frame(Session& session, const FrameHeader&, ConstBytes control,
                transport::MutableBytes) override {
    const auto report = parse_report(line_of(control));
    if (!report) return;
    calls_.post([this, host = size_t{session.peer().member.index}, report = *report] {
      point_.there_.insert(host);
      point_.events_.on_report(host, report);
    });
  }
  void on_closed(Session& session, const Status& why) override {
    const size_t host = session.peer().member.index;
    const auto found = sessions_.find(host);
    if (found == sessions_.end() || found->second.get() != &session) return;
    sessions_.erase(found);
    lose(host, why.ok() ? "its launcher has left" : why.text().what);
  }
  void lose(size_t host, const std::string& why) {
    calls_.post([this, host, why] {
      point_.there_.erase(host);
      point_.events_.on_lost(host, why);
    });
  }

  MeetingPoint& point_;
  PostedCalls calls_;
  transport::AsioNetwork network_{transport::TransportChoice::kTcp};
  std::map<size_t, std::shared_ptr<Session>> sessions_;
  std::unique_ptr<transport::Server> server_;
  transport::LoopThread thread_;
};

MeetingPoint::MeetingPoint(const MeetingOptions& options, Events events, EventLoop& loop)
    : events_(std::move(events)), side_(std::make_unique<Side>(options, *this, loop)) {}

MeetingPoint::~MeetingPoint() = default;

void MeetingPoint::send(size_t host, const Order& order) {
  side_->send(host, order);
}

void MeetingPoint::drop(size_t host) {
  side_->drop(host);
}

class MeetingLine::Side {
 public:
  Side(const MeetingOptions& options, Events events, EventLoop& loop)
      : events_(std::move(events)), calls_(loop), thread_("meeting") {
    thread_.run_there([&] {
      transport::ChannelOptions channel;
      channel.endpoint = options.endpoint;
      channel.hello = hello_of(options);
      channel.hello.callee = member(0);
      channel.secret = options.secret;
      channel.tell_unreachable = false;
      channel_ = std::make_unique<transport::Channel>(thread_.loop(), network_, std::move(channel),
                                                      channel_events());
      channel_->start();
    });
  }
  ~Side() {
    thread_.run_there([this] { channel_.reset(); });
  }

  void tell(const Report& report) {
    thread_.loop().post([this, line = to_line(report)] { channel_->notify(message_of(line)); });
  }

 private:
  transport::ChannelEvents channel_events() {
    using Told = void(const std::string&);
    const auto post = [this](const std::function<Told>& event) {
      return [this, &event](const Status& why) {
        calls_.post([&event, text = why.text().what] { event(text); });
      };
    };
    transport::ChannelEvents events;
    events.on_open = [this](const transport::Hello&) {
      calls_.post([this] { events_.on_connected(); });
    };
    events.on_lost = post(events_.on_lost);
    events.on_attempt_failed = post(events_.on_failed);
    events.on_refused = [this](const Status& why) {
      const bool for_good = why.code() != kTaken;
      calls_.post([this, for_good, text = why.to_string()] { events_.on_refused(text, for_good); });
    };
    events.on_notice = [this](const FrameHeader&, ConstBytes control) {
      const auto order = parse_order(line_of(control));
      if (order) calls_.post([this, order = *order] { events_.on_order(order); });
    };
    return events;
  }

  const Events events_;
  PostedCalls calls_;
  transport::AsioNetwork network_{transport::TransportChoice::kTcp};
  std::unique_ptr<transport::Channel> channel_;
  transport::LoopThread thread_;
};

MeetingLine::MeetingLine(const MeetingOptions& options, Events events, EventLoop& loop)
    : side_(std::make_unique<Side>(options, std::move(events), loop)) {}

MeetingLine::~MeetingLine() = default;

void MeetingLine::tell(const Report& report) {
  side_->tell(report);
}

}  // namespace fleet::launch
