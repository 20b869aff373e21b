#include "lockstep/train/step_work.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "test/catch.h"
#include "test/train/job.h"
#include "test/train/log_capture.h"
#include "test/train/plain_source.h"

using namespace lockstep;
using testing::world;

TEST_CASE("with gradients of 16 bits on the wire training learns as with 32, the same on all ranks") {
  const PlainSource data(12);
  const auto losses_with = [&](WireType wire, bool deferred) {
    const SharedDirectory directory;
    Config config = config_in(directory);
    config.train.epochs = 0;
    config.train.steps = 60;
    config.train.audit_every = 10;
    config.comm.gradient_dtype = wire;
    config.comm.bucket_mb = 0.01;
    config.device.deferred = deferred;
    config.optimizer = {.name = "adamw", .lr = 1e-3, .epsilon = 1e-8};
    Job job(config, data);
    job.trainer->run();
    return world().is_root() ? field<double>(directory, "train", "loss") : std::vector<double>();
  };
  const auto plain = losses_with(WireType::float32, false);
  for (const WireType wire : {WireType::bf16, WireType::fp16}) {
    INFO(word(wire));
    const auto losses = losses_with(wire, false);
    CHECK(losses_with(wire, true) == losses);  // on a device, through host memory
    if (!world().is_root()) continue;
    CHECK(losses.back() < 0.75 * losses.front());
    for (size_t i = 0; i < 5; ++i) CHECK(losses[i] == Approx(plain[i]).epsilon(0.02));
    CHECK((losses == plain) == (world().size() == 1));
  }
}

TEST_CASE("micro-batches that are added up train as one batch does, dropout and clipping included") {
  const PlainSource data(29);
  const auto train = [&](int64_t batch, int64_t accumulate) {
    const SharedDirectory directory;
    Config config = config_in(directory);
    config.model.dropout = 0.3;
    config.optimizer.momentum = 0.9;
    config.train.clip_norm = 0.5;
    config.train.batch_size = batch;
    config.train.accumulate = accumulate;
    config.train.epochs = 0;
    config.train.steps = 6;
    config.comm.bucket_mb = 0.05;  // several buckets
    Job job(config, data);
    CHECK(job.trainer->run() == RunEnd::finished);
    CHECK(job.trainer->progress().position == 6 * 4 * world().size());
    return std::pair(job.run.values(), field<double>(directory, "train", "loss"));
  };
  const auto [whole, whole_losses] = train(4, 1);
  for (const int64_t accumulate : {2, 4}) {
    INFO(accumulate << " micro-batches");
    const auto [parts, losses] = train(4 / accumulate, accumulate);
    if (world().is_root()) {  // which writes them: the others may look too early
      REQUIRE(losses.size() == whole_losses.size());
      for (size_t i = 0; i < losses.size(); ++i) CHECK(losses[i] == Approx(whole_losses[i]).epsilon(1e-5));
    }
    for (size_t i = 0; i < whole.size(); ++i) {
      INFO(whole[i].first);
      REQUIRE(parts[i].first == whole[i].first);
      double distance = 0, norm = 0;
      for (size_t k = 0; k < whole[i].second.size(); ++k) {
        const double a = whole[i].second[k], b = parts[i].second[k];
        distance += (a - b) * (a - b);
        norm += a * a;
      }
      CHECK(std::sqrt(distance) <= 1e-5 * std::sqrt(norm) + 1e-12);
    }
  }
}

namespace {

// What a run leaves behind on this rank: every value of its state, and on rank 0 its losses and its files.
struct Traces {
  std::vector<std::pair<std::string, std::vector<float>>> values;
  std::vector<double> losses, evaluations;
  std::vector<int64_t> saved;
};

Traces traces_of(const Config& config, const SharedDirectory& directory, const DataSource& data,
                 const DataSource& validation) {
  Job job(config, data, &validation);
  CHECK(job.trainer->run() == RunEnd::finished);
  Traces traces{.values = job.run.values()};
  if (world().is_root()) {
    traces.losses = field<double>(directory, "train", "loss");
    traces.evaluations = field<double>(directory, "eval", "loss");
    traces.saved = field<int64_t>(directory, "checkpoint", "step");
  }
  return traces;
}

}  // namespace

TEST_CASE("a host that is two steps ahead, with the step captured or not, gets the same bits") {
  const PlainSource data(37), validation(9);
  const int64_t accumulate = GENERATE(1, 2, 4);
  const auto run = [&](bool deferred, GraphCapture graph) {
    const SharedDirectory directory;
    Config config = config_in(directory);
    config.device.deferred = deferred;
    config.device.graph = graph;
    config.model.dropout = 0.3;
    config.train.epochs = 0;
    config.train.steps = 11;
    config.train.accumulate = accumulate;
    config.train.clip_norm = 0.5;
    config.train.audit_every = 4;
    config.schedule = {.name = ScheduleKind::cosine, .warmup_epochs = 0.3};
    config.optimizer = {.name = "adamw", .lr = 1e-3, .epsilon = 1e-8};
    config.eval.every_steps = 5;
    config.checkpoint.every_steps = 3;
    return traces_of(config, directory, data, validation);
  };
  const Traces plain = run(false, GraphCapture::automatic);
  for (const GraphCapture graph : {GraphCapture::off, GraphCapture::automatic}) {
    INFO("device.graph = " << word(graph));
    const Traces late = run(true, graph);
    CHECK(late.values == plain.values);
    CHECK(late.losses == plain.losses);
    CHECK(late.evaluations == plain.evaluations);
    if (world().is_root()) CHECK(late.saved.back() == 11);
  }
}

TEST_CASE("a step that cannot be captured is enqueued as before, with one warning and the same bits") {
  const PlainSource data(37);
  const int64_t accumulate = GENERATE(1, 3);
  std::string text;
  const auto values = [&](bool refuses) {
    const SharedDirectory directory;
    Config config = config_in(directory);
    config.device.deferred = true;
    config.train.epochs = 0;
    config.train.steps = 7;
    config.train.accumulate = accumulate;
    config.comm.bucket_mb = 0.01;
    Job job(config, data);
    if (refuses) {
      // Where work is captured, which is so from the third step on, the host must not wait.
      job.communicator.before_sum = [&](std::string_view, std::span<float>) { job.run.stream->wait(); };
    }
    const LogCapture log;
    CHECK(job.trainer->run() == RunEnd::finished);
    text = log.text();
    return job.run.values();
  };
  const auto captured = values(false);
  CHECK_THAT(text, !ContainsSubstring("cannot be captured"));
  CHECK(values(true) == captured);
  if (world().size() > 1) return;  // with MPI between ranks nothing is captured
  if (accumulate > 1) return;      // a warning is printed once a process
  const size_t first = text.find("the step cannot be captured");
  REQUIRE(first != std::string::npos);
  CHECK_THAT(text.substr(first), ContainsSubstring("the host waits for a stream while work is captured"));
  CHECK(text.find("cannot be captured", first + 20) == std::string::npos);
}
