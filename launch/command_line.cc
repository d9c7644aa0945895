#include "launch/command_line.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/process/usable_cores.h"
#include "base/strings.h"
#include "launch/process/gpus.h"

namespace fleet::launch {
namespace {

namespace po = boost::program_options;

constexpr int kMostProcesses = 4096;
constexpr int kMostRestarts = 100000;

void describe_restarts(po::options_description_easy_init& add) {
  add("max_restarts", po::value<int>()->value_name("N"),
      "start a job that fails again, up to N times, from its newest checkpoint (default 0)");
  add("restart_window", po::value<double>()->value_name("SECONDS"),
      "--max_restarts counts those of the last SECONDS (default: all)");
  add("host_wait", po::value<double>()->value_name("SECONDS"),
      "time for a host that was lost to come back before the job is started again (default 60)");
  add("launcher_port", po::value<int>()->value_name("P"),
      "where launchers of several nodes meet on the first one, for --max_restarts (default 6169; "
      "with --nnodes --master_port)");
  add("resume", po::value<std::string>()->value_name("latest|none|FOLDER"),
      "the checkpoint that the program begins with, where it asks for one (default latest)");
}

void describe_hosts(po::options_description_easy_init& add) {
  add("hosts", po::value<std::string>()->value_name("LIST"),
      "start this launcher on each of these hosts over ssh, in this folder and with the same "
      "options; in place of --cluster_node_ips");
  add("ssh", po::value<std::string>()->value_name("COMMAND"),
      "what reaches a host of --hosts (default ssh -o BatchMode=yes -o ConnectTimeout=10)");
  add("orders_from_stdin", po::bool_switch(), "what --hosts starts; not for use by hand");
}

po::options_description describe_options(Launcher launcher) {
  po::options_description options("Options");
  auto add = options.add_options();
  if (launcher == Launcher::kParameterServer) {
    add("worker_num", po::value<int>()->value_name("N"),
        "number of workers, on all nodes together (default 2)");
    add("server_num", po::value<int>()->value_name("M"),
        "number of servers, on all nodes together (default 2)");
    add("cluster_node_ips", po::value<std::string>()->value_name("LIST"),
        "the nodes of the job, comma separated; start launch_ps with the same options on each");
    add("node_ip", po::value<std::string>()->value_name("IP"), "which of them this one is");
    add("start_port", po::value<int>()->value_name("P"),
        "servers listen on P, P+1 … (default: ports that are free; 6170 on several nodes)");
    add("endpoints", po::value<std::string>()->value_name("LIST"),
        "the servers' host:port, comma separated, in place of --start_port");
  } else {
    add("nproc_per_node", po::value<std::string>()->value_name("N"),
        "number of ranks on this node (default: one for each GPU, or 2 where there is none), or "
        "auto: one for each core");
    add("cluster_node_ips", po::value<std::string>()->value_name("LIST"),
        "the nodes of the job, comma separated; start launch with the same options on each");
    add("node_ip", po::value<std::string>()->value_name("IP"), "which of them this one is");
    add("started_port", po::value<int>()->value_name("P"),
        "on several nodes the ranks of each listen on P, P+1 … (default 6170)");
    add("nnodes", po::value<std::string>()->value_name("N"),
        "number of nodes, each with its own --node_rank, in place of --cluster_node_ips");
    add("node_rank", po::value<int>()->value_name("R"), "which of them this one is, from 0");
    add("master_addr", po::value<std::string>()->value_name("HOST"), "the host of node 0");
    add("master_port", po::value<int>()->value_name("P"),
        "ranks meet on node 0 at port P + 1 (default 29500)");
    add("standalone", po::bool_switch(), "one node, which is the default");
    add("gpus", po::value<std::string>()->value_name("LIST|all"),
        "a rank for each of these GPUs of the node, comma separated, as CUDA_VISIBLE_DEVICES names "
        "them; the program finds its own as CUDAPlace(FLAGS_selected_gpus)");
    add("selected_gpus", po::value<std::string>()->value_name("LIST|all"), "the same");
    add("collectives", po::value<std::string>()->value_name("mpi|sockets"),
        "what ranks exchange tensors over: MPI, under mpirun (default on one node), or sockets, "
        "without MPI");
  }
  describe_hosts(add);
  add("end_with_stdin", po::bool_switch(), "end the job when stdin is closed");
  add("log_dir", po::value<std::string>()->value_name("DIR"),
      "folder of workerlog.i and serverlog.i (default logs)");
  add("tee", po::bool_switch(), "show the output of all processes, prefixed by rank");
  add("progress", po::bool_switch(),
      "show step, loss, speed, who is slowest and what is left as one line; a table at the end");
  add("json", po::bool_switch(), "the same on stdout, as a line of JSON a second");
  add("print_config", po::bool_switch(), "print processes and environment before they start");
  add("heartbeat_timeout", po::value<double>()->value_name("SECONDS"),
      "end the job when a process stays stopped for so long (default 10)");
  add("stall_deadline", po::value<double>()->value_name("SECONDS"),
      "end the job when a process lives but does not advance for so long (default 1800)");
  add("save_grace", po::value<double>()->value_name("SECONDS"),
      "time for workers that make checkpoints to save after SIGTERM (default 60)");
  if (launcher == Launcher::kParameterServer) {
    add("server_grace", po::value<double>()->value_name("SECONDS"),
        "time for servers to end after the last worker (default 5)");
  }
  describe_restarts(add);
  add("on_nonfinite", po::value<std::string>()->value_name("stop|warn"),
      "end the job when a loss or a parameter is not finite, or say it and go on (default stop)");
  add("insecure", po::bool_switch(), "no job secret: peers prove nothing (tests only)");
  add("help", po::bool_switch(), "print this text and leave");
  add("version", po::bool_switch(), "print the version and leave");
  return options;
}

std::string make_help(Launcher launcher, const po::options_description& options) {
  std::ostringstream out;
  if (launcher == Launcher::kParameterServer) {
    out << "launch_ps: runs a program as the workers and parameter servers of one job.\n\n"
           "Usage: launch_ps [options] program [arguments of the program]\n\n"
        << options << "\nExample:\n  launch_ps --worker_num 2 --server_num 2 ./distributed_train\n";
  } else {
    out << "launch: runs a program as the ranks of one collective job, through Open MPI or\n"
           "over sockets.\n\n"
           "Usage: launch [options] program [arguments of the program]\n\n"
        << options
        << "\nExample:\n  launch --nproc_per_node 2 ./distributed_train\n"
           "  launch --cluster_node_ips 10.0.0.1,10.0.0.2 --node_ip 10.0.0.1 ./distributed_train\n";
  }
  return std::move(out).str();
}

[[noreturn]] void wrong(const std::string& what, const std::string& where,
                        const std::string& expected, const std::string& got,
                        const std::string& fix) {
  throw_error(ErrorCode::kInvalidArgument,
              {.what = what, .where = where, .expected = expected, .got = got, .fix = fix});
}

// An option as it is described: torchrun writes --nproc-per-node.
std::string spelled(const std::string& argument) {
  if (!argument.starts_with("--")) return argument;
  std::string text = argument;
  const auto end = text.begin() + static_cast<long>(std::min(text.find('='), text.size()));
  std::replace(text.begin() + 2, end, '-', '_');
  return text;
}

// How many of the arguments are the launcher's own.
size_t count_own(const po::options_description& options,
                 const std::vector<std::string>& arguments) {
  size_t i = 0;
  while (i < arguments.size() && arguments[i].starts_with("--") && arguments[i] != "--") {
    const bool joined = arguments[i].find('=') != std::string::npos;
    const auto* option = options.find_nothrow(spelled(arguments[i]).substr(2), false);
    const bool takes_next = option && !joined && option->semantic()->max_tokens() > 0;
    i += takes_next ? 2 : 1;
  }
  return std::min(i, arguments.size());
}

// Options that the command line leaves open, from variables of the scheduler.
std::vector<std::string> scheduled_options(const po::variables_map& values,
                                           const po::options_description& options,
                                           const Environment& environment) {
  const bool sky = environment.get("SKYPILOT_NUM_NODES").value_or("1") != "1";
  const bool listed = values.count("cluster_node_ips") > 0 || values.count("hosts") > 0;
  const bool chosen = listed || values.count("nnodes") > 0;
  std::vector<std::string> found;
  if (sky && !chosen) {
    if (environment.has("PET_NNODES")) {
      wrong("two schedulers say where this node is", "SKYPILOT_NUM_NODES and PET_NNODES",
            "variables of one of them", "both", "unset those of the other");
    }
    const std::string text = environment.get("SKYPILOT_NODE_IPS").value_or("");
    const auto ips = split(trim(text), '\n');
    const auto rank = parse_int(environment.get("SKYPILOT_NODE_RANK").value_or(""));
    if (!rank || *rank < 0 || static_cast<size_t>(*rank) >= ips.size()) {
      wrong("SkyPilot's variables do not say which node this is",
            "SKYPILOT_NODE_RANK and SKYPILOT_NODE_IPS", "a rank, and an address for each rank",
            str_cat("rank '", environment.get("SKYPILOT_NODE_RANK").value_or(""), "', ", ips.size(),
                    " addresses"),
            "run in a task of several nodes, or give --cluster_node_ips and --node_ip");
    }
    return {"--cluster_node_ips=" + join(ips, ","), "--node_ip=" + ips[static_cast<size_t>(*rank)]};
  }
  struct Default {
    const char* option;
    const char* variable;
  };
  static constexpr Default kDefaults[] = {{"nnodes", "PET_NNODES"},
                                          {"node_rank", "PET_NODE_RANK"},
                                          {"nproc_per_node", "PET_NPROC_PER_NODE"},
                                          {"master_addr", "PET_MASTER_ADDR"},
                                          {"master_port", "PET_MASTER_PORT"}};
  for (const auto& [option, variable] : kDefaults) {
    const auto value = environment.get(variable);
    const bool of_nodes = std::string_view(option) != "nproc_per_node";
    const bool given = values.count(option) > 0 || (of_nodes && listed);
    if (!value || given || options.find_nothrow(option, false) == nullptr) continue;
    found.push_back(str_cat("--", option, "=", *value));
  }
  return found;
}

po::variables_map parse_own(Launcher launcher, const po::options_description& options,
                            const std::vector<std::string>& own, const Environment& environment) {
  po::variables_map values;
  try {
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    const auto store = [&](const std::vector<std::string>& arguments) {
      po::store(po::command_line_parser(arguments).options(options).style(style).run(), values);
    };
    std::vector<std::string> arguments;
    arguments.reserve(own.size());
    for (size_t i = 0; i < own.size(); ++i) arguments.push_back(spelled(own[i]));
    store(arguments);
    store(scheduled_options(values, options, environment));
    po::notify(values);
  } catch (const po::unknown_option& error) {
    std::vector<std::string> names;
    for (const auto& option : options.options()) names.push_back("--" + option->long_name());
    const std::string flag = error.get_option_name();
    wrong("unknown option '" + flag + "'" + did_you_mean(flag, names), "", "", "",
          launcher_name(launcher) +
              " --help lists the options; those of the program follow its name");
  } catch (const po::error& error) {
    wrong(error.what(), "", "", "", launcher_name(launcher) + " --help lists the options");
  }
  return values;
}

int read_count(const po::variables_map& values, const std::string& option, int standard) {
  if (values.count(option) == 0) return standard;
  const int count = values[option].as<int>();
  if (count >= 1 && count <= kMostProcesses) return count;
  wrong("wrong number of processes", "--" + option, str_cat("1 to ", kMostProcesses),
        str_cat(count), "give a number in that range");
}

Duration read_seconds(const po::variables_map& values, const std::string& option,
                      Duration standard) {
  if (values.count(option) == 0) return standard;
  const double value = values[option].as<double>();
  if (value >= 0 && value <= 1e6) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
  }
  wrong("wrong time", "--" + option, "seconds, 0 to 1000000", str_cat(value),
        "give a number in that range");
}

std::vector<std::string> read_list(const po::variables_map& values, const std::string& option) {
  std::vector<std::string> items;
  if (values.count(option) == 0) return items;
  for (const std::string& item : split(values[option].as<std::string>(), ',')) {
    items.emplace_back(trim(item));
  }
  if (items.empty()) {
    wrong("an empty list", "--" + option, "values separated by commas", "''",
          "give at least one value, or leave the option out");
  }
  return items;
}

// A count follows from a list of as many items, and must not contradict it.
int agree(const po::variables_map& values, const std::string& count_option,
          const std::string& list_option, size_t items, int count) {
  if (items == 0) return count;
  if (values.count(count_option) > 0 && static_cast<size_t>(count) != items) {
    wrong("two options disagree", "--" + count_option + " and --" + list_option,
          str_cat(count, " items"), str_cat(items, " items"),
          "give one of them, or make them agree");
  }
  return static_cast<int>(items);
}

int read_port(const po::variables_map& values, const std::string& option, int standard,
              int processes) {
  const int port = values.count(option) > 0 ? values[option].as<int>() : standard;
  if (port >= 1 && port + processes - 1 <= 65535) return port;
  wrong("the ports are out of range", "--" + option,
        str_cat("1 to ", 65536 - processes, " for ", processes, " of them"), str_cat(port),
        "give a lower port");
}

// Hosts as ssh has them, user@host; nodes are their addresses.
void read_hosts(const po::variables_map& values, CommandLine& line) {
  line.hosts = read_list(values, "hosts");
  if (values.count("ssh") > 0) line.ssh = values["ssh"].as<std::string>();
  if (line.hosts.empty() && values.count("ssh") > 0) {
    wrong("--ssh goes with --hosts", "--ssh", "--hosts beside it", "no hosts",
          "leave it out, or name hosts");
  }
  if (trim(line.ssh).empty()) {
    wrong("an empty command", "--ssh", "a program, and options of it", "''", "leave it out");
  }
  if (line.hosts.empty()) return;
  for (const char* option : {"cluster_node_ips", "node_ip", "nnodes", "node_rank", "master_addr",
                             "master_port", "standalone"}) {
    if (values.count(option) == 0 || values[option].defaulted()) continue;
    wrong("two options exclude each other", str_cat("--hosts and --", option), "one of them",
          "both", "leave one out");
  }
  line.nodes.clear();
  for (std::string& host : line.hosts) {
    const size_t user = host.find('@') + 1;
    line.nodes.push_back(bare_host(host.substr(user)));
    host = host.substr(0, user) + line.nodes.back();
  }
  line.node_ip = line.nodes.front();
}

// The own options but for those that the launcher with --hosts sees to itself.
std::vector<std::string> options_of_hosts(const std::vector<std::string>& own) {
  static const std::set<std::string> kValues = {"--hosts", "--ssh", "--max_restarts",
                                                "--restart_window", "--host_wait"};
  static const std::set<std::string> kFlags = {"--progress", "--json", "--end_with_stdin"};
  std::vector<std::string> kept;
  for (size_t i = 0; i < own.size(); ++i) {
    const std::string option = spelled(own[i]);
    const std::string name = option.substr(0, option.find('='));
    if (kValues.contains(name)) {
      i += name == option ? 1 : 0;
    } else if (!kFlags.contains(name)) {
      kept.push_back(option);
    }
  }
  return kept;
}

void read_nodes(const po::variables_map& values, CommandLine& line) {
  read_hosts(values, line);
  auto nodes = read_list(values, "cluster_node_ips");
  for (std::string& node : nodes) node = bare_host(node);
  if (!nodes.empty()) line.nodes = nodes;
  const bool named = values.count("node_ip") > 0;
  if (named) line.node_ip = bare_host(values["node_ip"].as<std::string>());
  if (named && nodes.empty()) line.nodes = {line.node_ip};
  if (!named && line.nodes.size() == 1) line.node_ip = line.nodes.front();
  if (std::set<std::string>(line.nodes.begin(), line.nodes.end()).size() != line.nodes.size()) {
    wrong("a node is named twice", line.hosts.empty() ? "--cluster_node_ips" : "--hosts",
          "each node once", join(line.nodes, ","), "correct the list");
  }
  if (!named && line.nodes.size() > 1 && line.hosts.empty()) {
    wrong("which node is this?", "--node_ip", "one of " + join(line.nodes, ", "), "nothing",
          "give --node_ip, another one on each node");
  }
  if (std::find(line.nodes.begin(), line.nodes.end(), line.node_ip) == line.nodes.end()) {
    wrong("this node is not one of the job's", "--node_ip", "one of " + join(line.nodes, ", "),
          line.node_ip, "make --node_ip and --cluster_node_ips agree");
  }
}

// One of two words; as it is where the option is not given.
void read_word(const po::variables_map& values, const std::string& option,
               const std::vector<std::string>& known, std::string& word) {
  if (values.count(option) == 0) return;
  word = values[option].as<std::string>();
  if (std::find(known.begin(), known.end(), word) != known.end()) return;
  wrong("an option has a value that cannot be used" + did_you_mean(word, known), "--" + option,
        join(known, " or "), "'" + word + "'", "give one of them");
}

int read_ranks(const po::variables_map& values) {
  if (values.count("nproc_per_node") == 0) return 2;
  const std::string text = values["nproc_per_node"].as<std::string>();
  if (text == "auto" || text == "cpu") return usable_cores();
  const auto count = parse_int(text);
  if (count && *count >= 1 && *count <= kMostProcesses) return static_cast<int>(*count);
  wrong("wrong number of processes", "--nproc_per_node",
        str_cat("1 to ", kMostProcesses, ", or auto"), "'" + text + "'",
        "give a number in that range");
}

// torchrun's way to say where this node is.
void read_numbered_nodes(const po::variables_map& values, CommandLine& line) {
  const auto given = [&values](const char* option) { return values.count(option) > 0; };
  const std::string text = given("nnodes") ? values["nnodes"].as<std::string>() : "1";
  const auto count = parse_int(text);
  if (!count || *count < 1 || *count > kMostProcesses) {
    wrong("wrong number of nodes", "--nnodes", str_cat("1 to ", kMostProcesses), "'" + text + "'",
          "give one number; jobs whose nodes come and go are not available");
  }
  for (const char* option : {"node_rank", "master_addr", "master_port"}) {
    if (given(option) && line.nodes.size() > 1) {
      wrong("two options exclude each other", str_cat("--", option, " and --cluster_node_ips"),
            "one of them", "both", "leave one out");
    }
  }
  if (*count == 1) return;
  if (values["standalone"].as<bool>() || line.nodes.size() > 1) {
    wrong("two options exclude each other",
          line.nodes.size() > 1 ? "--nnodes and --cluster_node_ips" : "--nnodes and --standalone",
          "one of them", "both", "leave one out");
  }
  NumberedNodes nodes{.count = static_cast<int>(*count)};
  nodes.rank = given("node_rank") ? values["node_rank"].as<int>() : -1;
  if (nodes.rank < 0 || nodes.rank >= nodes.count) {
    wrong("which node is this?", "--node_rank", str_cat("0 to ", nodes.count - 1),
          given("node_rank") ? str_cat(nodes.rank) : "nothing",
          "give --node_rank, another one on each node");
  }
  if (!given("master_addr")) {
    wrong("where is node 0?", "--master_addr", "a host that all nodes reach", "nothing",
          "give the same --master_addr on each node");
  }
  nodes.master.host = bare_host(values["master_addr"].as<std::string>());
  nodes.master.port = static_cast<uint16_t>(read_port(values, "master_port", 29500, 2));
  line.numbered = nodes;
}

// A rank for each GPU that is named, or that there is when nothing says how many ranks to start.
// Where there are enough for the ranks, each has one of the first.
void read_gpus(const po::variables_map& values, const Environment& environment, CommandLine& line) {
  const bool both = values.count("gpus") > 0 && values.count("selected_gpus") > 0;
  if (both) {
    wrong("two options say the same", "--gpus and --selected_gpus", "one of them", "both",
          "leave one out");
  }
  const std::string option = values.count("gpus") > 0 ? "gpus" : "selected_gpus";
  line.workers = read_ranks(values);
  if (values.count("hosts") > 0) return;  // the launcher of each host has GPUs of its own
  const auto visible = visible_gpus(environment);
  if (values.count(option) > 0) {
    line.gpus = select_gpus(values[option].as<std::string>(), "--" + option, visible);
  } else if (visible) {
    line.gpus = *visible;
    const auto ranks = static_cast<size_t>(line.workers);
    if (values.count("nproc_per_node") > 0) line.gpus.resize(ranks <= visible->size() ? ranks : 0);
  }
  line.workers = agree(values, "nproc_per_node", option, line.gpus.size(), line.workers);
}

void read_collective(const po::variables_map& values, const Environment& environment,
                     CommandLine& line) {
  read_gpus(values, environment, line);
  line.servers = 0;
  read_nodes(values, line);
  read_numbered_nodes(values, line);
  if (line.nodes.size() > 1 || values.count("started_port") > 0) {
    line.start_port = read_port(values, "started_port", kStartPort, line.workers);
  }
  if (line.several_nodes()) line.collectives = "sockets";
  read_word(values, "collectives", {"mpi", "sockets"}, line.collectives);
  if (line.several_nodes() && line.collectives == "mpi") {
    wrong("launch starts ranks over MPI on one node only", "--collectives", "sockets",
          "'mpi' on several nodes", "leave it out, or start the ranks with mpirun and a hostfile");
  }
}

// Every server's host is a node, so that some launcher starts it.
void check_hosts(const CommandLine& line) {
  if (line.nodes.size() == 1) return;
  for (const Endpoint& endpoint : line.endpoints) {
    if (std::find(line.nodes.begin(), line.nodes.end(), endpoint.host) != line.nodes.end()) {
      continue;
    }
    wrong("a server is on no node of the job", "--endpoints and --cluster_node_ips",
          "hosts among " + join(line.nodes, ", "), endpoint.to_string(),
          "make the two options agree");
  }
}

void read_parameter_server(const po::variables_map& values, CommandLine& line) {
  line.workers = read_count(values, "worker_num", 2);
  line.servers = read_count(values, "server_num", 2);
  for (const std::string& text : read_list(values, "endpoints")) {
    line.endpoints.push_back(Endpoint::parse(text, "--endpoints").value());
  }
  read_nodes(values, line);
  check_hosts(line);
  line.servers = agree(values, "server_num", "endpoints", line.endpoints.size(), line.servers);
  line.supervision.server_grace =
      read_seconds(values, "server_grace", line.supervision.server_grace);
  if (values.count("start_port") == 0) return;
  const int port = values["start_port"].as<int>();
  if (!line.endpoints.empty()) {
    wrong("two options exclude each other", "--start_port and --endpoints", "one of them", "both",
          "leave one out");
  }
  if (port < 1 || port + line.servers - 1 > 65535) {
    wrong("the ports are out of range", "--start_port",
          str_cat("1 to ", 65536 - line.servers, " for ", line.servers, " servers"), str_cat(port),
          "leave it out to get free ports");
  }
  line.start_port = port;
}

// What a job that fails is started again by.
void read_restarts(const po::variables_map& values, CommandLine& line) {
  if (values.count("resume") > 0) {
    line.resume = values["resume"].as<std::string>();
    if (line.resume.empty()) {
      wrong("an empty value", "--resume", "latest, none or a checkpoint's folder", "''",
            "name one, or leave the option out");
    }
  }
  if (values.count("max_restarts") > 0) line.restarts.most = values["max_restarts"].as<int>();
  if (line.restarts.most < 0 || line.restarts.most > kMostRestarts) {
    wrong("wrong number of restarts", "--max_restarts", str_cat("0 to ", kMostRestarts),
          str_cat(line.restarts.most), "give a number in that range");
  }
  if (values.count("restart_window") > 0) {
    line.restarts.window = read_seconds(values, "restart_window", {});
    if (*line.restarts.window < std::chrono::seconds(1)) {
      wrong("wrong time", "--restart_window", "1 second or more",
            str_cat(values["restart_window"].as<double>()), "give a longer time");
    }
    if (line.restarts.most == 0) {
      wrong("--restart_window goes with --max_restarts", "--restart_window",
            "--max_restarts N beside it", "no restarts", "leave it out, or give --max_restarts");
    }
  }
  line.host_wait = read_seconds(values, "host_wait", line.host_wait);
  line.launcher_port = read_port(values, "launcher_port",
                                 line.numbered ? line.numbered->master.port : kStartPort - 1, 1);
}

Duration standard_heartbeat(const Environment& environment, Duration standard) {
  const auto text = environment.get("FLEET_HEARTBEAT_TIMEOUT_MS");
  const auto value = text ? parse_int(*text) : std::nullopt;
  return value && *value > 0 ? Duration(std::chrono::milliseconds(*value)) : standard;
}

}  // namespace

std::string launcher_name(Launcher launcher) {
  return launcher == Launcher::kCollective ? "launch" : "launch_ps";
}

CommandLine parse_command_line(Launcher launcher, const std::vector<std::string>& arguments,
                               const Environment& environment) {
  const po::options_description options = describe_options(launcher);
  const size_t own = count_own(options, arguments);
  const po::variables_map values =
      parse_own(launcher, options, {arguments.begin(), arguments.begin() + static_cast<long>(own)},
                environment);
  CommandLine line;
  line.launcher = launcher;
  line.help = values["help"].as<bool>();
  line.version = values["version"].as<bool>();
  line.help_text = make_help(launcher, options);
  if (line.help || line.version) return line;

  if (launcher == Launcher::kParameterServer) {
    read_parameter_server(values, line);
  } else {
    read_collective(values, environment, line);
  }
  if (values.count("log_dir") > 0) line.log_dir = values["log_dir"].as<std::string>();
  line.print_config = values["print_config"].as<bool>();
  line.insecure = values["insecure"].as<bool>();
  read_restarts(values, line);
  read_word(values, "on_nonfinite", {"stop", "warn"}, line.on_nonfinite);
  line.supervision.tee = values["tee"].as<bool>();
  line.orders_from_stdin = values["orders_from_stdin"].as<bool>();
  line.supervision.ends_with_stdin = values["end_with_stdin"].as<bool>();
  line.options_of_hosts =
      options_of_hosts({arguments.begin(), arguments.begin() + static_cast<long>(own)});
  line.supervision.progress = values["progress"].as<bool>();
  line.supervision.json = values["json"].as<bool>();
  if (line.supervision.json && line.supervision.tee) {
    wrong("two options exclude each other", "--json and --tee", "one of them",
          "both write on stdout", "leave one out");
  }
  if (values.count("stall_deadline") > 0) {
    line.stall_deadline = read_seconds(values, "stall_deadline", {});
    if (*line.stall_deadline < std::chrono::seconds(1)) {
      wrong("wrong time", "--stall_deadline", "1 second or more",
            str_cat(values["stall_deadline"].as<double>()), "give the longest time of a step");
    }
  }
  line.supervision.save_grace = read_seconds(values, "save_grace", line.supervision.save_grace);
  line.supervision.heartbeat_timeout =
      read_seconds(values, "heartbeat_timeout",
                   standard_heartbeat(environment, line.supervision.heartbeat_timeout));

  size_t first = own;
  const bool marked = first < arguments.size() && arguments[first] == "--";
  if (marked) ++first;
  line.command.assign(arguments.begin() + static_cast<long>(first), arguments.end());
  if (line.command.empty() || line.command.front().empty()) {
    wrong("no program was given", "", "the program after the options", "",
          launcher_name(launcher) + " --help shows an example");
  }
  if (!marked && line.command.front().starts_with("-")) {
    wrong("unknown option '" + line.command.front() + "'", "", "options that begin with --", "",
          "write -- before a program whose name begins with a dash");
  }
  return line;
}

}  // namespace fleet::launch
