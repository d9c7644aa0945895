#include "strategies/parameter_server/server/checkpoint/table_saves.h"

#include <algorithm>
#include <utility>

namespace fleet::strategies {

void TableSaves::begin(uint64_t session, std::shared_ptr<TableCheckpoint> file,
                       std::function<void(const Status& outcome)> finish) {
  const auto save = std::make_shared<Save>(Save{session, std::move(file), std::move(finish), true});
  saves_.push_back(save);
  if (run_) return take_turn(save);
  while (save->file->write_piece()) {
  }
  end(save);
}

void TableSaves::take_turn(const std::shared_ptr<Save>& save) {
  run_([save] { save->more = save->file->write_piece(); },
       [this, save] {
         if (save->more) {
           take_turn(save);
         } else {
           end(save);
         }
       });
}

void TableSaves::end(const std::shared_ptr<Save>& save) {
  std::erase(saves_, save);
  save->finish(save->file->outcome());
}

void TableSaves::drop_session(uint64_t session) {
  for (const auto& save : saves_) {
    if (save->session == session) save->file->drop();
  }
}

}  // namespace fleet::strategies
