#include "app/cli/benchmark_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// The factor between the median absolute deviation and the standard deviation of a normal distribution.
constexpr double kNormalDeviations = 1.4826;
constexpr size_t kDashes = 64;

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string labelled(const std::string& label, const std::string& text) { return fmt::format("{:<13}{}", label, text); }

std::string devices(const BenchmarkFacts& facts) {
  const char* kind = facts.gpu ? "gpu" : "cpu";
  std::string text;
  for (int rank = 0; rank < facts.ranks; ++rank) {
    text += fmt::format("{}'{}/{}:{}'", rank ? ", " : "", facts.ranks > 1 ? "mpi" : "", kind, rank);
  }
  return "[" + text + "]";
}

}  // namespace

ImageRate image_rate(std::span<const double> step_seconds, int64_t images_a_step) {
  require(!step_seconds.empty(), "the rate of no steps");
  const auto images = static_cast<double>(images_a_step);
  std::vector<double> rates;
  for (const double seconds : step_seconds) rates.push_back(images / seconds);
  const double middle = median(rates), average = mean(rates);
  std::vector<double> squares, distances;
  for (const double rate : rates) {
    squares.push_back((rate - average) * (rate - average));
    distances.push_back(std::abs(rate - middle));
  }
  return {.mean = images / mean(step_seconds),
          .uncertainty = std::sqrt(mean(squares) / static_cast<double>(rates.size())),
          .jitter = kNormalDeviations * median(distances)};
}

BenchmarkLines::BenchmarkLines(const BenchmarkOptions& options, const BenchmarkFacts& facts)
    : options_(options), facts_(facts) {}

std::vector<std::string> BenchmarkLines::banner() const {
  const int64_t global = facts_.batch * facts_.ranks;
  const double epochs = static_cast<double>(options_.batches * global) / static_cast<double>(facts_.samples);
  std::vector<std::string> lines = {
      labelled("Lockstep:", LOCKSTEP_VERSION),
      labelled("Model:", options_.model),
      labelled("Dataset:", facts_.imagenet ? "imagenet (synthetic)" : "cifar10 (synthetic)"),
      labelled("Mode:", options_.forward_only ? "forward only" : "training"),
      labelled("Batch size:", fmt::format("{} global", global)),
      labelled("", fmt::format("{} per device", facts_.batch)),
      labelled("Num batches:", fmt::format("{}", options_.batches)),
      labelled("Num epochs:", fmt::format("{:.2f}", epochs)),
      labelled("Devices:", devices(facts_)),
      labelled("Data format:", options_.data_format),
      labelled("Optimizer:", options_.optimizer),
      labelled("Variables:", "allreduce")};
  if (facts_.gpu) {
    lines.push_back(labelled(
        "Input:", options_.batch_on_device ? "one batch, which stays on the device" : "a batch uploaded in each step"));
  }
  lines.emplace_back("==========");
  return lines;
}

std::vector<std::string> BenchmarkLines::start() const {
  return {"Done warm up", options_.forward_only ? "Step\tImg/sec" : "Step\tImg/sec\ttotal_loss"};
}

bool BenchmarkLines::shown(int64_t step) const {
  const int64_t timed = step - options_.warm_up;
  return timed == 1 || (timed > 0 && timed % options_.display_every == 0);
}

std::vector<std::string> BenchmarkLines::step(int64_t step, double seconds, double total_loss) {
  std::vector<std::string> lines;
  if (step <= options_.warm_up) return step == options_.warm_up ? start() : lines;
  seconds_.push_back(seconds);
  if (!shown(step)) return lines;
  const ImageRate rate = image_rate(seconds_, facts_.batch * facts_.ranks);
  std::string line = fmt::format("{}\timages/sec: {:.1f} +/- {:.1f} (jitter = {:.1f})", step - options_.warm_up,
                                 rate.mean, rate.uncertainty, rate.jitter);
  if (!options_.forward_only) line += fmt::format("\t{:.3f}", total_loss);
  lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> BenchmarkLines::total() const {
  const std::string dashes(kDashes, '-');
  const ImageRate rate = image_rate(seconds_, facts_.batch * facts_.ranks);
  return {dashes, fmt::format("total images/sec: {:.2f}", rate.mean), dashes};
}

double BenchmarkLines::alone_rate() const {
  double rate = 0;
  for (const double seconds : alone_.rank_seconds) rate += static_cast<double>(facts_.batch) / seconds;
  return rate;
}

std::vector<std::string> BenchmarkLines::efficiency() const {
  if (alone_.rank_seconds.size() < 2) return {};
  const double together = image_rate(seconds_, facts_.batch * facts_.ranks).mean;
  return {fmt::format("efficiency: {:.1f} % of {:.2f} images/sec, the ranks' own when they exchange nothing",
                      100 * together / alone_rate(), alone_rate())};
}

std::string BenchmarkLines::json() const {
  const ImageRate rate = image_rate(seconds_, facts_.batch * facts_.ranks);
  nlohmann::ordered_json json{{"version", LOCKSTEP_VERSION},
                              {"model", options_.model},
                              {"mode", options_.forward_only ? "forward only" : "training"},
                              {"device", facts_.gpu ? "gpu" : "cpu"},
                              {"batch_on_device", facts_.gpu && options_.batch_on_device},
                              {"ranks", facts_.ranks},
                              {"global_batch", facts_.batch * facts_.ranks},
                              {"batches", options_.batches},
                              {"optimizer", options_.optimizer},
                              {"images_per_second", rate.mean},
                              {"uncertainty", rate.uncertainty},
                              {"jitter", rate.jitter},
                              {"step_seconds", seconds_}};
  if (!alone_.rank_seconds.empty()) {
    json["efficiency"] = rate.mean / alone_rate();
    auto buckets = nlohmann::ordered_json::array();
    for (const BucketTime& b : alone_.buckets) {
      buckets.push_back({{"gradients", b.gradients}, {"others", b.others}, {"ready_seconds", b.ready_seconds}});
    }
    json["alone"] = {
        {"images_per_second", alone_rate()}, {"rank_seconds", alone_.rank_seconds}, {"buckets", std::move(buckets)}};
  }
  return json.dump(2) + "\n";
}

}  // namespace lockstep
