#include "lockstep/train/decay_loss.h"

#include "test/catch.h"
#include "test/train/small_run.h"

using namespace lockstep;

namespace {

// Half the decay times the squares of the weights, summed plainly.
double expected(const SmallRun& run, bool all) {
  double squares = 0;
  const ParameterTable& table = run.model.parameters();
  for (ParameterId id = 0; id < table.size(); ++id) {
    if (!table[id].trained() || (table[id].is_norm_or_bias() && !all)) continue;
    for (const float w : run.model.parameter(id)) squares += static_cast<double>(w) * static_cast<double>(w);
  }
  return run.config.optimizer.weight_decay / 2 * squares;
}

Config decaying(bool deferred, bool all) {
  Config config = small_config();
  config.device.deferred = deferred;
  config.optimizer.weight_decay = 0.125;
  config.optimizer.decay_norm_and_bias = all;
  return config;
}

}  // namespace

TEST_CASE("the loss by weight decay is that of the weights as they are") {
  const bool all = GENERATE(false, true);
  const SmallRun run(decaying(false, all));
  DecayLoss loss(run.config, run.model, *run.stream);
  for (const float first : {0.5F, 2.0F}) {
    run.fill(first);
    CHECK(loss.value() == Approx(expected(run, all)).epsilon(1e-12));
  }
}

TEST_CASE("on a device the loss by weight decay is that of the weights at the call before, in the stream's order") {
  const bool all = GENERATE(false, true);
  const SmallRun run(decaying(true, all));
  run.fill(0.5F);
  DecayLoss loss(run.config, run.model, *run.stream);
  const double before = expected(run, all);
  run.stream->wait();
  run.fill(2);
  CHECK(loss.value() == Approx(before).epsilon(1e-12));
  const double now = expected(run, all);
  CHECK(now > before);
  run.stream->wait();
  run.fill(3);
  CHECK(loss.value() == Approx(now).epsilon(1e-12));
}

TEST_CASE("without weight decay nothing is added") {
  SmallRun run(small_config());
  run.config.optimizer.weight_decay = 0;
  run.fill(1);
  CHECK(DecayLoss(run.config, run.model, *run.stream).value() == 0);
}
