#include "lockstep/train/evaluator.h"

#include <cstring>

#include "test/catch.h"
#include "test/train/plain_source.h"
#include "test/train/small_run.h"
#include "test/train/world.h"

using namespace lockstep;
using testing::world;

namespace {

constexpr Weights kRaw[] = {Weights::raw};

Config config_for_evaluation() {
  Config config = small_config();
  config.data.bad_records = BadRecordRule::skip;
  return config;
}

// An evaluation of `data` with batches of `batch` a rank.
struct Evaluation : SmallRank {
  Evaluation(const DataSource& data, int64_t batch, Purpose purpose = Purpose::evaluate)
      : SmallRank(config_for_evaluation(), purpose, batch), evaluator(context, data) {
    for (const CheckpointArray& a : run.arrays()) {
      for (int64_t i = 0; i < a.shape.elements(); ++i) {
        a.data[i] = random_unit_float(fnv1a64(a.path), static_cast<uint64_t>(i)) * 0.1F - 0.05F;
      }
    }
  }

  Evaluator evaluator;
};

std::string bytes_of(const Buffer& buffer) { return {buffer.as<char>(), buffer.bytes()}; }

}  // namespace

TEST_CASE("every sample counts once, whatever the batch and the number of ranks") {
  const PlainSource data(21);
  Evaluation alone(data, 1);
  const EvaluationResult expected = alone.evaluator.run(kRaw)[0];
  CHECK(expected.examples == 21);
  CHECK(expected.top1 > 0);
  CHECK(expected.top1 < 21);
  CHECK(expected.top5 == 21);  // of three classes
  CHECK(expected.top1_fraction() == Approx(static_cast<double>(expected.top1) / 21));
  for (const int64_t batch : {4, 7, 50}) {
    INFO(batch);
    Evaluation other(data, batch);
    const EvaluationResult result = other.evaluator.run(kRaw)[0];
    CHECK(result.examples == 21);
    CHECK(result.top1 == expected.top1);
    CHECK(result.top5 == expected.top5);
    CHECK(result.loss == expected.loss);
  }
}

TEST_CASE("evaluating changes no byte of the state, and twice gives the same") {
  const PlainSource data(21);
  Evaluation e(data, 4, Purpose::train);
  const ModelState& state = e.run.model.state();
  std::vector<const Buffer*> arenas = {&state.parameters, &state.statistics, &state.gradients,
                                       &state.average_parameters, &state.average_statistics};
  for (const Buffer& slot : state.slots) arenas.push_back(&slot);
  std::vector<std::string> before;
  for (const Buffer* arena : arenas) before.push_back(bytes_of(*arena));
  const Weights both[] = {Weights::raw, Weights::average};
  const auto first = e.evaluator.run(both), second = e.evaluator.run(both);
  for (size_t i = 0; i < arenas.size(); ++i) CHECK(bytes_of(*arenas[i]) == before[i]);
  REQUIRE(first.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(first[i].weights == both[i]);
    CHECK(first[i].top1 == second[i].top1);
    CHECK(first[i].loss == second[i].loss);
  }
  CHECK(first[0].loss != first[1].loss);  // raw and average weights differ here
}

TEST_CASE("when one rank wants to stop, all leave the evaluation at the same batch") {
  const PlainSource data(2000);
  Evaluation e(data, 1);
  int questions = 0;
  const bool last = world().rank() == world().size() - 1;
  CHECK(e.evaluator.run(kRaw, [&] { return ++questions == 2 && last; }).empty());
  CHECK(questions == 2);
  Evaluation other(data, 50);
  CHECK(other.evaluator.run(kRaw, [] { return false; })[0].examples == 2000);
}

TEST_CASE("bad records are left out and counted, on the rank that met them") {
  const PlainSource data(21, {5, 20});
  Evaluation e(data, 4);
  const EvaluationResult result = e.evaluator.run(kRaw)[0];
  CHECK(result.examples == 19);
  int64_t met = 0;
  for (const BadRecordNote& note : e.evaluator.bad_records()) {
    CHECK_THAT(note.message, ContainsSubstring(fmt::format("record {}", note.index)));
    met += 1;
  }
  world().all_reduce_sum(std::span(&met, 1), {"the bad records"});
  CHECK(met == 2);
}
