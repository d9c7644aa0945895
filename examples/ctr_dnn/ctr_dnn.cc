// Predicts clicks: 26 categories, whose ids look rows of one table up, and 13 numbers go through
// three hidden layers. The table has a height, to which ids are hashed, or grows. Files are in the
// format of Criteo's logs; fleet-make-criteo writes some.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "examples/quick_start/fleet_job.h"
#include "examples/quick_start/report.h"
#include "fleet/util.h"
#include "fluid/fluid.h"

namespace {

namespace data = fluid::data;
namespace layers = fluid::layers;

using Clock = std::chrono::steady_clock;

constexpr int64_t kEmbedding = 10;

struct Net {
  std::vector<fluid::Variable> inputs;
  fluid::Variable cost;  // mean cross entropy, [1]
  layers::Auc auc;
};

bool grows(const quick_start::Options& options) {
  return options.table == "growing";
}

std::vector<int64_t> widths(const std::string& text) {
  std::vector<int64_t> all;
  for (const std::string& word : fleet::split(text, ',')) {
    const auto width = fleet::parse_int(word);
    if (!width || *width < 1) {
      fleet::throw_error(fleet::ErrorCode::kInvalidArgument,
                         {.what = "a hidden layer has no width",
                          .where = "--hidden",
                          .expected = "numbers with commas between them, as 400,400,400",
                          .got = text,
                          .fix = "see --help"});
    }
    all.push_back(*width);
  }
  return all;
}

// The rows of the ids of each slot.
std::vector<fluid::Variable> look_up(const std::vector<fluid::Variable>& slots,
                                     const quick_start::Options& options) {
  const fluid::ParamAttr table = {.name = "ids",
                                  .initializer = fluid::initializer::Uniform{-0.05, 0.05}};
  if (grows(options)) return layers::sparse_embedding(slots, kEmbedding, {.param_attr = table});
  std::vector<fluid::Variable> rows;
  rows.reserve(slots.size());
  for (const fluid::Variable& ids : slots) {
    rows.push_back(layers::embedding(ids, {options.table_rows, kEmbedding},
                                     {.is_sparse = true,
                                      .is_distributed = options.table == "distributed",
                                      .param_attr = table}));
  }
  return rows;
}

Net ctr_dnn(const quick_start::Options& options) {
  Net net;
  const auto numbers = layers::data("dense_input", {data::kCriteoDense});
  std::vector<fluid::Variable> slots;
  for (int i = 1; i <= data::kCriteoCategories; ++i) {
    slots.push_back(
        layers::data(fleet::str_cat("C", i), {1}, fluid::DType::kInt64, {.lod_level = 1}));
  }
  net.inputs = {numbers};
  net.inputs.insert(net.inputs.end(), slots.begin(), slots.end());
  std::vector<fluid::Variable> features = {numbers};
  for (const fluid::Variable& rows : look_up(slots, options)) {
    features.push_back(layers::sequence_pool(rows, "sum"));
  }
  auto top = layers::concat(features, 1);
  for (const int64_t width : widths(options.hidden)) {
    top = layers::fc(top, width, {.act = "relu"});
  }
  const auto prediction = layers::fc(top, 2, {.act = "softmax"});
  const auto label = layers::data("label", {1}, fluid::DType::kInt64);
  net.inputs.push_back(label);
  net.cost = layers::mean(layers::cross_entropy(prediction, label));
  net.auc = layers::auc(prediction, label);
  return net;
}

// The records of the files that a glob names.
std::unique_ptr<data::DatasetBase> clicks(const std::string& kind, const std::string& glob,
                                          const Net& net, const quick_start::Options& options) {
  auto dataset = data::DatasetFactory().create_dataset(kind);
  dataset->set_filelist({options.data_dir + "/" + glob});
  dataset->set_use_var(fluid::use_vars(net.inputs));
  data::CriteoOptions format;
  if (!grows(options)) {
    format.ids = data::CategoryIds::kHashed;
    format.buckets = static_cast<uint64_t>(options.table_rows);
  }
  dataset->set_parser(std::make_shared<data::CriteoParser>(format));
  dataset->set_batch_size(std::max(1, options.batch_size / fleet::worker_num()));
  dataset->set_thread(options.threads);
  return dataset;
}

// What this worker trains on.
void load(data::DatasetBase& dataset, const quick_start::Options& options) {
  if (!options.shuffle_dir.empty()) {
    return fleet::util::global_shuffle(dataset, options.seed, options.shuffle_dir);
  }
  dataset.set_filelist(fleet::split_files(dataset.filelist()));
  dataset.load_into_memory();
}

// The losses of this worker's batches, now and then, which are logged as well.
struct Curve {
  std::vector<std::pair<uint64_t, double>> points;
  uint64_t before = 0;  // batches of the epochs that are over
  fleet::Logger logger = fleet::Logger(fleet::LogLevel::kInfo);

  void add(const fluid::DatasetProgress& now) {
    const double loss = now.fetched[0].item<double>();
    points.emplace_back(before + now.batches, loss);
    logger.info("ctr_dnn", "progress",
                {{"batches", before + now.batches},
                 {"samples_per_s", std::llround(now.samples_per_second)},
                 {"loss", loss},
                 {"auc", now.fetched[1].item<double>()}});
  }
};

nlohmann::json tables_json(fluid::Executor& exe) {
  const auto now = fleet::table_statistics(exe, "ids");
  return {{"ids",
           {{"rows", now.rows},
            {"bytes", now.bytes},
            {"hits", now.hits},
            {"misses", now.misses},
            {"admitted", now.admitted},
            {"refused", now.refused},
            {"evicted", now.evicted}}}};
}

void write_metrics(const std::string& file, const nlohmann::json& metrics) {
  if (file.empty() || std::ofstream(file) << metrics.dump(1) << "\n" << std::flush) return;
  fleet::throw_error(fleet::ErrorCode::kInput, {.what = "the report cannot be written",
                                                .where = file,
                                                .expected = "a writable file",
                                                .got = {},
                                                .fix = "correct --metrics_file"});
}

struct Training {
  fluid::DatasetResult last;  // epoch
  Curve curve;
  double seconds = 0;
  uint64_t samples = 0;
  double seconds_to_first_step = 0;
};

Training train_epochs(fluid::Executor& exe, const Net& net, const quick_start::Options& options,
                      Clock::time_point start) {
  Training training;
  auto dataset = clicks("InMemoryDataset", "part-*", net, options);
  if (options.epochs > 0) load(*dataset, options);
  training.seconds_to_first_step = std::chrono::duration<double>(Clock::now() - start).count();
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    dataset->local_shuffle(options.seed + static_cast<uint64_t>(epoch));
    training.last =
        exe.train_from_dataset(fluid::default_main_program(), *dataset,
                               {.fetch_list = {net.cost, net.auc.auc},
                                .fetch_info = {"loss", "auc"},
                                .print_period = options.print_period,
                                .fetch_handler = [&](const auto& now) { training.curve.add(now); },
                                .hogwild = options.hogwild});
    training.seconds += training.last.seconds;
    training.samples += training.last.samples;
    training.curve.before += training.last.batches;
  }
  return training;
}

int train(const quick_start::Options& options) {
  const auto start = Clock::now();
  fluid::default_startup_program().set_random_seed(options.seed);
  const Net net = ctr_dnn(options);
  fluid::optimizer::Adam adam({.learning_rate = options.learning_rate, .lazy_mode = true});

  fleet::init(quick_start::make_role_maker(options));
  auto optimizer = fleet::distributed_optimizer(adam, quick_start::make_strategy(options));
  optimizer.minimize(net.cost);
  if (fleet::is_server()) return fleet::run_server();
  fleet::init_worker();

  fluid::Executor exe(fluid::place_named(options.place), {.logical_shards = options.shards});
  exe.run(fluid::default_startup_program());
  if (!options.init_from.empty()) fluid::io::load_persistables(exe, options.init_from);

  const Training trained = train_epochs(exe, net, options, start);

  // Saving gathers what only servers have.
  if (!options.model_dir.empty()) fluid::io::save_persistables(exe, options.model_dir);
  for (const auto& state : net.auc.states) fleet::util::set_zero(state.name(), exe.scope());
  fleet::barrier_worker();
  auto test = clicks("QueueDataset", "test-*", net, options);
  test->set_filelist(fleet::util::get_file_shard(test->filelist()));
  exe.infer_from_dataset(fluid::default_main_program(), *test,
                         {.print_period = options.print_period});
  const double auc =
      fleet::util::get_global_auc(exe.scope(), net.auc.states[2].name(), net.auc.states[3].name());
  const double own_rate =
      trained.seconds > 0 ? static_cast<double>(trained.samples) / trained.seconds : 0;
  const double rate = fleet::all_reduce_worker(std::vector{own_rate})[0];
  const nlohmann::json tables = grows(options) ? tables_json(exe) : nlohmann::json::object();
  fleet::stop_worker();
  if (!fleet::is_first_worker()) return 0;
  const double loss = trained.last.batches == 0 ? 0 : trained.last.fetched[0].item<double>();
  std::printf("%s: %d epochs, %.0f samples/s, last loss %.6f, test AUC %.6f\n",
              fleet::mode().c_str(), options.epochs, rate, loss, auc);
  const Curve& curve = trained.curve;
  nlohmann::json losses = nlohmann::json::array();
  for (const auto& [batch, value] : curve.points) losses.push_back({batch, value});
  write_metrics(options.metrics_file,
                {{"mode", fleet::mode()},
                 {"strategy", options.strategy},
                 {"processes", std::max(1, fleet::worker_num() + fleet::server_num())},
                 {"cores", std::thread::hardware_concurrency()},
                 {"steps", curve.before},
                 {"steps_per_s",
                  trained.seconds > 0 ? static_cast<double>(curve.before) / trained.seconds : 0},
                 {"samples_per_s", rate},
                 {"first_loss", curve.points.empty() ? loss : curve.points.front().second},
                 {"last_loss", loss},
                 {"auc", auc},
                 {"seconds_to_first_step", trained.seconds_to_first_step},
                 {"loss", losses},
                 {"tables", tables}});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return quick_start::run_trainer(train, argc, argv,
                                  "Predicts clicks in the format of Criteo's logs.",
                                  {.batch_size = 1000,
                                   .learning_rate = 0.001,
                                   .table_rows = 100003,
                                   .hidden = "400,400,400",
                                   .input = quick_start::Input::kClicks});
}
