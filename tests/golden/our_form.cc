#include "tests/golden/our_form.h"

#include <set>
#include <vector>

#include "base/strings.h"
#include "fluid/ops/op_schema.h"
#include "tests/golden/golden_config.h"
#include "tests/golden/golden_fleet.h"
#include "tests/golden/golden_net.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::golden {
namespace {

using fluid::Operator;
using fluid::Program;
using fluid::VarDesc;
using nlohmann::json;
using transpiler::DistributeTranspiler;
using transpiler::ProgramPair;

// With the attributes alone that are not the op's defaults.
std::string text_of(Operator op) {
  const auto* schema = fluid::OpTable::standard().find(op.type);
  if (schema != nullptr && schema->normalize) {
    for (const auto& [name, value] : schema->normalize({})) {
      if (op.attrs.contains(name) && op.attrs.at(name) == value) op.attrs.erase(name);
    }
  }
  return op.to_string();
}

std::string text_of(const VarDesc& var) {
  std::string text = str_cat(var.name, ": ", fluid::var_kind_name(var.kind));
  if (var.typed) {
    text +=
        str_cat(" ", fluid::dtype_name(var.dtype), " [", join(var.shape.to_vector(), ", "), "]");
  }
  if (var.persistable) text += ", persistable";
  if (var.is_parameter) text += ", parameter";
  return text;
}

class Description {
 public:
  void known(const Program& program) {
    for (int32_t i = 0; i < program.block_count(); ++i) {
      for (const auto& op : program.block(i).ops()) known_.insert(text_of(*op));
      for (const VarDesc* var : program.block(i).vars()) known_.insert(text_of(*var));
    }
  }

  void forget() { known_.clear(); }

  void add(const std::string& title, const Program& program) {
    text_ += str_cat("== ", title, "\n");
    for (int32_t i = 0; i < program.block_count(); ++i) add_ops(program.block(i));
  }
  void add_vars(const Program& program) {
    for (int32_t i = 0; i < program.block_count(); ++i) {
      std::set<std::string> vars;
      for (const VarDesc* var : program.block(i).vars()) {
        if (var->typed && !known_.contains(text_of(*var))) vars.insert(text_of(*var));
      }
      for (const std::string& var : vars) text_ += str_cat("  var ", var, "\n");
    }
  }

  std::string take() { return std::move(text_); }

 private:
  void add_ops(const fluid::Block& block) {
    text_ += str_cat("block ", block.index());
    if (block.parent() >= 0) text_ += str_cat(" in ", block.parent());
    text_ += "\n";
    std::vector<std::string> same;
    const auto end_same = [&] {
      if (!same.empty()) text_ += str_cat("  as before: ", join(same, " "), "\n");
      same.clear();
    };
    for (const auto& op : block.ops()) {
      const std::string text = text_of(*op);
      if (known_.contains(text)) {
        same.push_back(op->type);
      } else {
        end_same();
        text_ += str_cat("  ", text, "\n");
      }
    }
    end_same();
  }

  std::set<std::string> known_;
  std::string text_;
};

ProgramPair of_worker(const DistributeTranspiler& transpiler) {
  return {transpiler.get_trainer_program(), transpiler.get_trainer_startup_program()};
}

void add_pair(Description& to, const std::string& process, const ProgramPair& pair) {
  to.add(process + ", main", pair.main);
  to.add_vars(pair.main);
  to.add(process + ", startup", pair.startup);
}

void describe_fleet(Description& to, const json& config, const BuiltNet& net) {
  const auto strategy = fleet_strategy(config);
  auto cluster = fleet_cluster(config);
  const auto programs = [&] {
    return fleet_programs(*strategy, *strategy->transpiler_config(), net.main, net.startup,
                          cluster);
  };
  add_pair(to, "worker 0", programs());
  cluster.role = role_maker::Role::kServer;
  to.forget();
  for (cluster.index = 0; cluster.index < cluster.server_num; ++cluster.index) {
    add_pair(to, str_cat("server ", cluster.index), programs());
  }
}

void describe_transpiled(Description& to, const json& config, const BuiltNet& net) {
  DistributeTranspiler transpiler(load_config(config.value("transpiler_config", json::object())));
  transpiler.transpile(load_options(config, net.main, net.startup));
  add_pair(to, "worker 0", of_worker(transpiler));
  if (!config.contains("pservers")) return;
  to.forget();
  int index = 0;
  for (const json& server : config.at("pservers")) {
    add_pair(to, str_cat("server ", index++),
             transpiler.get_pserver_programs(server.get<std::string>()));
  }
}

}  // namespace

std::string describe_our_form(const json& golden) {
  const BuiltNet net = build_net(golden);
  Description description;
  if (golden.at("kind") == "layers") {
    description.add("local, main", net.main);
    return description.take();
  }
  description.known(net.main);
  description.known(net.startup);
  if (golden.at("kind") == "fleet") {
    describe_fleet(description, golden.at("config"), net);
  } else {
    describe_transpiled(description, golden.at("config"), net);
  }
  return description.take();
}

}  // namespace fleet::golden
