#include "app/cli/benchmark_lines.h"

#include <nlohmann/json.hpp>

#include "test/catch.h"

using namespace lockstep;

namespace {

const BenchmarkOptions kOptions{.model = "inception3", .batches = 20, .warm_up = 2, .display_every = 10};

std::vector<std::string> told(BenchmarkLines& lines, int64_t steps, double seconds) {
  std::vector<std::string> all;
  for (int64_t step = 1; step <= steps; ++step) {
    for (const std::string& line : lines.step(step, seconds, 7.3854)) all.push_back(line);
  }
  return all;
}

}  // namespace

TEST_CASE("rates of steps are counted as in tf_cnn_benchmarks") {
  // Rates 100, 50, 25 of 100 images: mean time 7/3 s.
  const double seconds[] = {1, 2, 4};
  const ImageRate rate = image_rate(seconds, 100);
  CHECK(rate.mean == Approx(300.0 / 7));
  CHECK(rate.uncertainty == Approx(18.00206));  // sqrt(((125/3)^2 + (25/3)^2 + (100/3)^2) / 3) / sqrt(3)
  CHECK(rate.jitter == Approx(1.4826 * 25));    // distances from 50: 50, 0, 25
}

TEST_CASE("the banner of a benchmark") {
  const BenchmarkLines lines(kOptions, {.ranks = 2, .batch = 8, .samples = 1000});
  const std::vector<std::string> expected = {
      "Lockstep:    0.1.0",
      "Model:       inception3",
      "Dataset:     imagenet (synthetic)",
      "Mode:        training",
      "Batch size:  16 global",
      "             8 per device",
      "Num batches: 20",
      "Num epochs:  0.32",
      "Devices:     ['mpi/cpu:0', 'mpi/cpu:1']",
      "Data format: NCHW",
      "Optimizer:   sgd",
      "Variables:   allreduce",
      "==========",
  };
  CHECK(lines.banner() == expected);
}

TEST_CASE("the banner names a single rank of a forward pass") {
  BenchmarkOptions options = kOptions;
  options.forward_only = true;
  const std::vector<std::string> banner =
      BenchmarkLines(options, {.batch = 4, .samples = 100, .gpu = true, .imagenet = false}).banner();
  CHECK(banner[2] == "Dataset:     cifar10 (synthetic)");
  CHECK(banner[3] == "Mode:        forward only");
  CHECK(banner[8] == "Devices:     ['/gpu:0']");
  CHECK(banner[12] == "Input:       one batch, which stays on the device");
  options.batch_on_device = false;
  CHECK(BenchmarkLines(options, {.gpu = true}).banner()[12] == "Input:       a batch uploaded in each step");
}

TEST_CASE("step lines come after the warm-up, for the first step and every tenth") {
  BenchmarkLines lines(kOptions, {.ranks = 2, .batch = 8, .samples = 1000});
  const std::vector<std::string> expected = {
      "Done warm up",
      "Step\tImg/sec\ttotal_loss",
      "1\timages/sec: 32.0 +/- 0.0 (jitter = 0.0)\t7.385",
      "10\timages/sec: 32.0 +/- 0.0 (jitter = 0.0)\t7.385",
      "20\timages/sec: 32.0 +/- 0.0 (jitter = 0.0)\t7.385",
  };
  CHECK(told(lines, 22, 0.5) == expected);
  const std::string dashes = "----------------------------------------------------------------";
  CHECK(lines.total() == std::vector<std::string>{dashes, "total images/sec: 32.00", dashes});
  const auto json = nlohmann::json::parse(lines.json());
  CHECK(json["images_per_second"] == 32.0);
  CHECK(json["step_seconds"].size() == 20);
  CHECK(json["global_batch"] == 16);
}

TEST_CASE("the efficiency is the rate of all ranks over the sum of their own") {
  BenchmarkLines lines(kOptions, {.ranks = 2, .batch = 8, .samples = 1000});
  told(lines, 22, 0.5);
  CHECK(lines.efficiency().empty());
  CHECK_FALSE(nlohmann::json::parse(lines.json()).contains("efficiency"));
  lines.set_alone({.rank_seconds = {0.4, 0.5}, .buckets = {{100, 0, 0.25}, {20, 7, 0.5}}});  // 20 and 16 a second
  const std::string expected = "efficiency: 88.9 % of 36.00 images/sec, the ranks' own when they exchange nothing";
  CHECK(lines.efficiency() == std::vector{expected});
  const auto json = nlohmann::json::parse(lines.json());
  CHECK(json["efficiency"].get<double>() == Approx(32.0 / 36));
  CHECK(json["alone"]["images_per_second"].get<double>() == Approx(36));
  CHECK(json["alone"]["rank_seconds"] == std::vector{0.4, 0.5});
  CHECK(json["alone"]["buckets"][1] == nlohmann::json{{"gradients", 20}, {"others", 7}, {"ready_seconds", 0.5}});
}

TEST_CASE("a single rank has lines on buckets, but none on efficiency") {
  BenchmarkLines lines(kOptions, {.batch = 8, .samples = 1000});
  told(lines, 22, 0.5);
  lines.set_alone({.rank_seconds = {0.5}, .buckets = {{100, 5, 0.25}}});
  CHECK(lines.efficiency().empty());
  CHECK(nlohmann::json::parse(lines.json())["alone"]["buckets"].size() == 1);
}

TEST_CASE("steps of the warm-up do not count") {
  BenchmarkLines lines(kOptions, {.batch = 8, .samples = 1000});
  lines.step(1, 100, 0);
  lines.step(2, 100, 0);
  lines.step(3, 1, 0);
  CHECK(lines.total()[1] == "total images/sec: 8.00");
}
