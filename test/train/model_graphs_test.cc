#include "lockstep/train/model_graphs.h"

#include <memory>

#include "test/catch.h"
#include "test/train/small_run.h"

using namespace lockstep;

TEST_CASE("label smoothing, dropout and statistics of the batch belong to training alone") {
  Config config = small_config();
  config.train.label_smoothing = 0.1;
  CHECK(model_options(config, 8, true).label_smoothing == 0.1);
  CHECK(model_options(config, 8, true).training);
  CHECK(model_options(config, 8, false).label_smoothing == 0);
  CHECK_FALSE(model_options(config, 8, false).training);
  CHECK(model_options(config, 8, false).batch_size == 8);
  CHECK(model_options(config, 8, false).classes == 3);
}

TEST_CASE("rates of 0 are marked in both graphs, of which the evaluation's may lack a head") {
  Config config = small_config();
  config.model.name = "inception_v3";
  config.model.image_size = 299;
  config.optimizer.lr_factors = {"AuxLogits*=0", "fc=0"};
  const Graph training = training_graph(config, 2);
  const Graph evaluation = evaluation_graph(config, 1, training.parameters);
  const auto zero_rate = [](const Graph& graph, const char* name) {
    return graph.parameters[graph.parameters.find(name)].zero_rate;
  };
  CHECK(zero_rate(training, "fc.weight"));
  CHECK(zero_rate(evaluation, "fc.weight"));
  CHECK(zero_rate(training, "AuxLogits.fc.weight"));
  CHECK_FALSE(zero_rate(training, "Mixed_7c.branch1x1.conv.weight"));
  CHECK_FALSE(zero_rate(evaluation, "Mixed_7c.branch1x1.conv.weight"));
}

TEST_CASE("batch norms are synchronized over the ranks that train together only if that is asked for") {
  const std::unique_ptr<Backend> backend = make_backend("cpu", {.threads = 1});
  Config config = small_config();
  CHECK(training_options(config, 3, *backend).synchronized_ranks == 1);
  config.train.sync_batch_norm = true;
  CHECK(training_options(config, 3, *backend).synchronized_ranks == 3);
}
