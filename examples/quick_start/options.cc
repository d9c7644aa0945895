#include "examples/quick_start/options.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <iostream>
#include <vector>

#include "base/error.h"
#include "base/strings.h"

namespace quick_start {
namespace {

namespace po = boost::program_options;

// Of jobs with servers, then of collective ones.
const std::vector<std::string> kStrategies = {"default",    "sync",     "async", "half_async",
                                              "ssp",        "dc_asgd",  "geo",   "easgd",
                                              "all_reduce", "local_sgd"};

void add_click_flags(Options& options, po::options_description& all) {
  auto add = all.add_options();
  add("epochs", po::value(&options.epochs)->default_value(options.epochs),
      "times that the files are read; 0 only tests, what --init_from gives for instance");
  add("threads", po::value(&options.threads)->default_value(options.threads),
      "threads that read; with asynchronous strategies as many train, and CPU_NUM says so too");
  add("hogwild", po::bool_switch(&options.hogwild),
      "alone: that many threads train on one set of parameters without a lock");
  add("table_rows", po::value(&options.table_rows)->default_value(options.table_rows),
      "rows of the table of embeddings, to which ids are hashed, unless it grows");
  add("table", po::value(&options.table)->default_value(options.table),
      "sliced over servers, distributed, which spreads its rows in turns, or growing: rows of any "
      "id, made when training first looks them up");
  add("shuffle_dir", po::value(&options.shuffle_dir),
      "spread the records at random over the workers, which give each other records in this "
      "folder");
  add("hidden", po::value(&options.hidden)->default_value(options.hidden),
      "widths of the hidden layers");
  add("print_period", po::value(&options.print_period)->default_value(options.print_period),
      "batches from one line of progress to the next");
}

po::options_description flags(Options& options) {
  po::options_description all("Options");
  auto add = all.add_options();
  if (options.input == Input::kClicks) {
    add_click_flags(options, all);
  } else {
    add("steps", po::value(&options.steps)->default_value(options.steps), "steps to train");
  }
  add("batch_size", po::value(&options.batch_size)->default_value(options.batch_size),
      "rows of a whole step, over all workers");
  add("shards", po::value(&options.shards)->default_value(options.shards),
      "logical shards of a step; 0: one for each worker");
  add("seed", po::value(&options.seed)->default_value(options.seed),
      "seed of the initial values and of the order of the rows");
  add("learning_rate",
      po::value(&options.learning_rate)
          ->default_value(options.learning_rate, fleet::str_cat(options.learning_rate)),
      "step size of the optimizer; with async and dc_asgd 0.05 unless it is given");
  if (options.input == Input::kDigits) {
    add("synthetic", po::bool_switch(&options.synthetic),
        "random rows (batch 128, x[32], 2 classes, rate 0.01) instead of the digits");
  }
  if (options.input != Input::kMadeUp) {
    auto* folder = po::value(&options.data_dir);
    if (!options.data_dir.empty()) folder->default_value(options.data_dir);
    add("data_dir", folder, "folder of the data");
  }
  add("model_dir", po::value(&options.model_dir), "save the parameters here at the end");
  add("init_from", po::value(&options.init_from), "load the parameters from here at the start");
  if (options.input == Input::kDigits) {
    add("checkpoint_dir", po::value(&options.checkpoint_dir),
        "save checkpoints here, and go on from the newest one that is there");
    add("checkpoint_every",
        po::value(&options.checkpoint_every)->default_value(options.checkpoint_every),
        "steps from one checkpoint to the next");
  }
  add("metrics_file", po::value(&options.metrics_file), "write a JSON report here");
  add("place", po::value(&options.place)->default_value(options.place),
      "where the trainer computes: cpu, gpu (the one that launch gave it) or gpu:N");
  add("progress", po::bool_switch(&options.progress), "show a progress line");
  add("role_maker", po::value(&options.role_maker)->default_value(options.role_maker),
      "who tells this process its role: cloud or mpi_symetric");
  add("strategy", po::value(&options.strategy)->default_value(options.strategy),
      "how several processes train: sync, async, half_async, ssp, dc_asgd, geo or easgd with "
      "servers, all_reduce or local_sgd without");
  if (options.has_embedding) {
    add("sparse", po::bool_switch(&options.sparse),
        "gradients of the embedding are of rows, and servers keep it; needs --model_dir, as it is "
        "evaluated from what is saved");
  }
  if (options.has_amp) {
    add("amp", po::value(&options.amp)->default_value(options.amp),
        "mixed precision: off, float16 or bfloat16; with servers bfloat16 alone");
  }
  add("help", "print this text");
  add("version", "print the version");
  return all;
}

void check(const Options& options, const po::variables_map& given) {
  const auto require = [](bool holds, const char* flag, const char* expected, auto got) {
    if (holds) return;
    fleet::throw_error(fleet::ErrorCode::kInvalidArgument,
                       {.what = "a flag has a value that cannot be used",
                        .where = std::string("--") + flag,
                        .expected = expected,
                        .got = fleet::str_cat(got),
                        .fix = "see --help"});
  };
  require(options.steps > 0, "steps", "a number above 0", options.steps);
  require(options.epochs >= 0, "epochs", "0 or more", options.epochs);
  require(options.threads > 0, "threads", "a number above 0", options.threads);
  require(options.print_period > 0, "print_period", "a number above 0", options.print_period);
  require(options.input != Input::kClicks || options.table_rows > 0, "table_rows",
          "a number above 0", options.table_rows);
  require(options.batch_size > 0, "batch_size", "a number above 0", options.batch_size);
  require(options.shards >= 0, "shards", "0 or more", options.shards);
  require(options.checkpoint_every > 0, "checkpoint_every", "a number above 0",
          options.checkpoint_every);
  require(options.learning_rate > 0, "learning_rate", "a number above 0", options.learning_rate);
  require(options.role_maker == "cloud" || options.role_maker == "mpi_symetric", "role_maker",
          "cloud or mpi_symetric", options.role_maker);
  require(std::find(kStrategies.begin(), kStrategies.end(), options.strategy) != kStrategies.end(),
          "strategy", ("one of " + fleet::join(kStrategies, ", ")).c_str(),
          options.strategy + fleet::did_you_mean(options.strategy, kStrategies));
  require(options.table == "sliced" || options.table == "distributed" || options.table == "growing",
          "table", "sliced, distributed or growing", options.table);
  require(options.amp == "off" || options.amp == "float16" || options.amp == "bfloat16", "amp",
          "off, float16 or bfloat16", options.amp);
  require(!options.sparse || !options.model_dir.empty(), "model_dir",
          "a folder, where there is --sparse", "nothing");
  const bool reads_files = options.input != Input::kMadeUp && !options.synthetic;
  require(!reads_files || given.count("data_dir") != 0, "data_dir", "the folder of the data",
          "nothing");
}

// Servers that apply each gradient when it comes move by the sum of what their workers send, not by
// its mean: a quarter of the rate is that of four workers in step.
void apply_strategy(Options& options, const po::variables_map& given) {
  const bool adds_up = options.strategy == "async" || options.strategy == "dc_asgd";
  if (given["learning_rate"].defaulted() && adds_up) options.learning_rate /= 4;
}

// Defaults of --synthetic, which stand where no flag says otherwise.
void apply_synthetic(Options& options, const po::variables_map& given) {
  if (given["batch_size"].defaulted()) options.batch_size = 128;
  if (given["learning_rate"].defaulted()) options.learning_rate = 0.01;
}

std::string mend(const po::unknown_option& error, const po::options_description& all) {
  std::vector<std::string> known;
  for (const auto& option : all.options()) known.push_back("--" + option->long_name());
  return fleet::str_cat("unknown flag '", error.get_option_name(), "'",
                        fleet::did_you_mean(error.get_option_name(), known));
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, const char* summary, int& exit_code,
                                     const Options& defaults) {
  constexpr int kUsage = 2;
  Options options = defaults;
  if (options.input == Input::kDigits) options.data_dir = FLEET_QUICK_START_DATA;
  const po::options_description all = flags(options);
  exit_code = 0;
  try {
    po::variables_map given;
    const auto parsed =
        po::command_line_parser(argc, argv)
            .options(all)
            .style(po::command_line_style::unix_style & ~po::command_line_style::allow_guessing)
            .run();
    po::store(parsed, given);
    const auto loose = po::collect_unrecognized(parsed.options, po::include_positional);
    if (!loose.empty()) throw po::error("'" + loose.front() + "' belongs to no flag");
    if (given.count("help") != 0) {
      std::cout << summary << "\n\n" << all << "\nExample: " << argv[0] << " --steps 200\n";
      return std::nullopt;
    }
    if (given.count("version") != 0) {
      std::cout << FLEET_VERSION << "\n";
      return std::nullopt;
    }
    po::notify(given);
    apply_strategy(options, given);
    if (options.synthetic) apply_synthetic(options, given);
    check(options, given);
    return options;
  } catch (const po::unknown_option& error) {
    std::cerr << "error: " << mend(error, all) << "\n  fix: see --help\n";
  } catch (const po::error& error) {
    std::cerr << "error: " << error.what() << "\n  fix: see --help\n";
  } catch (const fleet::Error& error) {
    std::cerr << "error: " << error.what() << "\n";
  }
  exit_code = kUsage;
  return std::nullopt;
}

}  // namespace quick_start
