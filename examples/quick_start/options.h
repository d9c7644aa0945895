// Flags that the trainers of the examples share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace quick_start {

// What a trainer learns from, and so which flags it has.
enum class Input {
  kDigits,  // --data_dir, or --synthetic rows
  kFiles,   // --data_dir
  kMadeUp,  // rows of its own
  kClicks,  // --data_dir with files of records, read over and over instead of for so many steps
};

struct Options {
  int steps = 1001;
  int batch_size = 64;  // rows of the whole step, over all workers
  int shards = 0;       // logical shards of a step; 0: one for each worker
  uint64_t seed = 1;    // of the initial values and of the order of the rows
  double learning_rate = 0.2;
  bool synthetic = false;          // random rows instead of the digits
  std::string data_dir;            // where digits.csv.gz is
  std::string model_dir;           // parameters are saved here at the end
  std::string init_from;           // parameters are loaded from here at the start
  std::string checkpoint_dir;      // what training goes on from is saved here
  int64_t checkpoint_every = 100;  // steps between two checkpoints
  std::string metrics_file;        // a JSON report is written here
  bool progress = false;
  std::string place = "cpu";         // where a trainer computes: fluid::place_named
  std::string role_maker = "cloud";  // or "mpi_symetric"
  // How a job of several processes trains; a process alone trains locally.
  std::string strategy = "default";
  bool sparse = false;      // gradients of the embedding are of rows
  std::string amp = "off";  // or "float16", "bfloat16": mixed precision
  // Of clicks:
  int epochs = 1;                // times that the files are read
  int threads = 1;               // that read; with asynchronous strategies as many train
  bool hogwild = false;          // alone, as many train on one set of parameters
  int64_t table_rows = 0;        // ids are hashed to as many
  std::string table = "sliced";  // or "distributed": its rows are spread over the servers; or
                                 // "growing": rows of any id
  std::string shuffle_dir;       // workers give each other records here
  std::string hidden = {};       // widths of the hidden layers, "400,400,400"
  int print_period = 100;        // batches from one line of progress to the next
  // Not flags:
  Input input = Input::kDigits;
  bool has_embedding = false;  // and so --sparse
  bool has_amp = false;        // and so --amp
};

// Reads the command line; `defaults` are the values of flags that are not given. Nothing when
// there is nothing left to do (--help, --version, or a mistake that was reported); `exit_code`
// then says how to leave.
std::optional<Options> parse_options(int argc, char** argv, const char* summary, int& exit_code,
                                     const Options& defaults = {});

}  // namespace quick_start
