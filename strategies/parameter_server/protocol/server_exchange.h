// What servers tell each other inside a step: variables that several of them make in parts, put
// together on each. Sockets and clock are elsewhere: frames of other servers go in, frames for them
// come out through a function.
//
// A part is named by its position among all parts of all exchanges, which is the same on every
// server. Parts are pushed to every other server as soon as they are made; a part that came before
// is dropped, whichever connection brings it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/buffer.h"
#include "fluid/core/tensor.h"
#include "strategies/parameter_server/protocol/wire.h"
#include "transport/session/session.h"

namespace fleet::strategies {

struct ExchangePart {
  std::string name;     // for messages
  uint32_t server = 0;  // who makes it
  uint64_t bytes = 0;
};

// One exchange of a step, as a server's program has it.
struct StepExchange {
  std::vector<ExchangePart> parts;
  // A part that this server has made; asked for when every stage before the exchange is done.
  std::function<fluid::Tensor(size_t part)> made;
  // Where a part of `bytes` bytes belongs; valid until the exchange is run.
  std::function<transport::MutableBytes(size_t part)> place;
  // Everything is in its place: compute what the next stages need.
  std::function<void()> run;
};

// One thread at a time. Statuses say what is wrong with a frame; the state is unchanged then.
class ServerExchange {
 public:
  using Send = std::function<void(uint32_t server, std::vector<transport::Message> frames)>;

  // `self` is the index of this server among `servers`. The memory of sent frames stays alive with
  // them.
  ServerExchange(uint32_t self, uint32_t servers, std::vector<StepExchange> exchanges, Send send);

  uint32_t count() const { return static_cast<uint32_t>(exchanges_.size()); }

  // A frame of another server; `step` is the one that this server collects.
  transport::PayloadTarget prepare(uint32_t server, uint64_t session,
                                   const transport::FrameHeader& header, uint64_t step);
  Status take(uint32_t server, uint64_t session, const transport::FrameHeader& header,
              transport::MutableBytes payload, uint64_t step);
  void drop_session(uint64_t session) { receiving_.erase(session); }

  // Puts the own parts in their places and sends them to everybody.
  void begin(uint32_t exchange, uint64_t step);
  bool complete(uint32_t exchange) const { return missing_[exchange] == 0; }
  void end(uint32_t exchange) { exchanges_[exchange].run(); }
  // The step is over: parts of the next one may come.
  void next_step();
  // Servers whose parts of the exchange are missing.
  std::vector<uint32_t> missing(uint32_t exchange) const;

 private:
  struct Place {
    uint32_t exchange;
    uint32_t part;
  };
  const ExchangePart& part_of(const Place& place) const {
    return exchanges_[place.exchange].parts[place.part];
  }
  Status check(uint32_t server, const transport::FrameHeader& header, uint64_t step) const;
  bool known(const transport::FrameHeader& header, uint64_t step) const;

  uint32_t self_;
  uint32_t servers_;
  std::vector<StepExchange> exchanges_;
  Send send_;
  std::vector<Place> places_;               // by number of the part
  std::vector<std::vector<bool>> arrived_;  // by number of the part and piece
  std::vector<size_t> missing_;             // pieces, by exchange
  std::unordered_map<uint64_t, Buffer> receiving_;
};

}  // namespace fleet::strategies
