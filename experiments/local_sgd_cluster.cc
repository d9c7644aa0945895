#include "experiments/local_sgd_cluster.h"

#include <utility>
#include <vector>

#include "experiments/batches.h"

namespace fleet::experiments {
namespace {

struct Worker {
  Worker(const Weights& initial, const strategies::LocalSgdOptions& options, Batches own)
      : weights(initial), velocity(initial.size(), 0.0f), schedule(options), batches(own) {}

  Weights weights;
  Weights velocity;
  strategies::LocalSgdSchedule schedule;
  Batches batches;
};

void momentum_step(Worker& worker, const Weights& gradient, float momentum, float rate) {
  for (size_t i = 0; i < gradient.size(); ++i) {
    worker.velocity[i] = momentum * worker.velocity[i] + gradient[i];
    worker.weights[i] -= rate * worker.velocity[i];
  }
}

Weights mean_of(const std::vector<Worker>& workers) {
  Weights mean(workers[0].weights.size(), 0.0f);
  for (const Worker& worker : workers) {
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += worker.weights[i];
  }
  for (float& value : mean) value /= static_cast<float>(workers.size());
  return mean;
}

void average(std::vector<Worker>& workers, double rate) {
  const Weights mean = mean_of(workers);
  double loss = 0;
  for (const Worker& worker : workers) loss += worker.schedule.local_loss();
  loss /= static_cast<double>(workers.size());
  for (Worker& worker : workers) {
    worker.weights = mean;
    worker.schedule.averaged(loss, rate);
  }
}

}  // namespace

LocalSgdOutcome run_local_sgd(Model& model, const ClassificationData& data,
                              const LocalSgdRun& run) {
  const Weights initial = model.initial(run.seed);
  std::vector<Worker> workers;
  workers.reserve(static_cast<size_t>(run.workers));
  for (int i = 0; i < run.workers; ++i) {
    workers.emplace_back(initial, run.schedule,
                         Batches(data.train_rows(), run.batch_size, run.seed, i, run.workers));
  }
  const int64_t batches = run.epochs * (data.train_rows() / run.batch_size);
  const int64_t steps = (batches + run.workers - 1) / run.workers;
  Weights gradient(model.parameters());
  for (int64_t step = 0; step < steps; ++step) {
    const double rate = stepped_rate(run.rate, step, steps);
    bool due = false;
    for (Worker& worker : workers) {
      const double loss = model.gradient(worker.weights, worker.batches.next(), gradient);
      momentum_step(worker, gradient, static_cast<float>(run.momentum), static_cast<float>(rate));
      due = worker.schedule.step(loss);
    }
    if (due) average(workers, rate);
  }
  const Weights mean = mean_of(workers);
  return {.test_error = model.test_error(mean),
          .train_loss = model.train_loss(mean),
          .averages = workers[0].schedule.averages(),
          .steps = steps};
}

}  // namespace fleet::experiments
