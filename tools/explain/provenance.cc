#include "tools/explain/provenance.h"

#include <utility>

#include "base/hash.h"
#include "base/strings.h"

namespace fleet::explain {
namespace {

using fluid::Program;

// Of types and outputs only: roles, and names of what an op reads, change between passes.
uint64_t form_of(const Program& program) {
  std::string text;
  for (int32_t i = 0; i < program.block_count(); ++i) {
    text += '\n';
    for (const auto& op : program.block(i).ops()) {
      text += op->type;
      for (const auto& [slot, names] : op->outputs) {
        for (const std::string& name : names) {
          text += ' ';
          text += name;
        }
      }
      text += ';';
    }
  }
  return fnv1a(text);
}

ProgramStory story_of_given(const Program& program) {
  ProgramStory story;
  for (int32_t i = 0; i < program.block_count(); ++i) {
    auto& block = story.emplace_back(program.block(i).op_count());
    for (size_t k = 0; i == 0 && k < block.size(); ++k) block[k].local = static_cast<int>(k);
  }
  return story;
}

bool has_ops(const Program& program) {
  return program.block_count() > 1 || program.global_block().op_count() > 0;
}

}  // namespace

PassHistory::PassHistory(const Program& main, const Program& startup) {
  remember(startup, true, story_of_given(startup));
  remember(main, false, story_of_given(main));
}

void PassHistory::set_process(std::string process, bool startup) {
  process_ = std::move(process);
  empty_is_startup_ = startup;
}

void PassHistory::remember(const Program& program, bool startup, ProgramStory story) {
  known_.push_back({form_of(program), startup, std::move(story)});
}

const PassHistory::Known* PassHistory::find(const Program& program) const {
  const uint64_t form = form_of(program);
  for (auto known = known_.rbegin(); known != known_.rend(); ++known) {
    if (known->form == form) return &*known;
  }
  return nullptr;
}

ProgramStory PassHistory::story_of(const Program& program) const {
  const Known* known = find(program);
  return known == nullptr ? ProgramStory() : known->story;
}

void PassHistory::observe(const transpiler::PassEvent& event) {
  if (event.finished) {
    end(event);
  } else {
    begin(event.program);
  }
}

void PassHistory::begin(const Program& program) {
  const Known* known = find(program);
  startup_ = has_ops(program) && known != nullptr ? known->startup : empty_is_startup_;
  before_.clear();
  for (int32_t i = 0; i < program.block_count(); ++i) {
    const auto& ops = program.block(i).ops();
    for (size_t k = 0; k < ops.size(); ++k) {
      OpBefore before{.story = {}, .op = ops[k]};
      if (known != nullptr) before.story = known->story[static_cast<size_t>(i)][k];
      before_.emplace(ops[k].identity(), std::move(before));
    }
  }
}

void PassHistory::end(const transpiler::PassEvent& event) {
  const std::string name(event.pass);
  ExplainedPass pass{.program = process_ + (startup_ ? ", startup" : ", main"),
                     .name = name,
                     .purpose = std::string(event.purpose)};
  size_t found = 0;
  ProgramStory story;
  for (int32_t i = 0; i < event.program.block_count(); ++i) {
    auto& block = story.emplace_back();
    for (const auto& op : event.program.block(i).ops()) {
      const auto before = before_.find(op.identity());
      if (before == before_.end() || before->second.op->type != op->type) {
        block.push_back({Origin::kAdded, -1, name, pass.purpose});
        ++pass.added;
        continue;
      }
      ++found;
      OpStory now = before->second.story;
      if (before->second.op.get() != op.get() && *before->second.op != *op) {
        ++pass.changed;
        if (now.origin == Origin::kKept) now = {Origin::kChanged, now.local, name, pass.purpose};
      }
      block.push_back(std::move(now));
    }
  }
  pass.removed = before_.size() - found;
  passes_.push_back(std::move(pass));
  remember(event.program, startup_, std::move(story));
}

}  // namespace fleet::explain
