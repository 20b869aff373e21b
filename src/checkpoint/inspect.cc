#include "lockstep/checkpoint/inspect.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep {
namespace {

struct Statistics {
  float min = std::numeric_limits<float>::infinity();
  float max = -std::numeric_limits<float>::infinity();
  double norm = 0;  // Euclidean, of the finite values
  int64_t not_finite = 0;
};

Statistics statistics_of(std::span<const float> values) {
  Statistics statistics;
  double squares = 0;
  for (const float value : values) {
    if (!std::isfinite(value)) {
      ++statistics.not_finite;
      continue;
    }
    statistics.min = std::min(statistics.min, value);
    statistics.max = std::max(statistics.max, value);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  statistics.norm = std::sqrt(squares);
  return statistics;
}

using Output = std::back_insert_iterator<std::string>;

void print_meta(const CheckpointReader& file, Output out) {
  const CheckpointMeta& meta = file.meta();
  fmt::format_to(out, "step {}, epoch {}, {} samples seen\n", meta.step, meta.epoch, meta.samples_seen);
  fmt::format_to(out, "model {}, global batch {} on {} rank{}, seed {}\n", meta.model, meta.global_batch,
                 meta.world_size, meta.world_size == 1 ? "" : "s", meta.seed);
  fmt::format_to(out, "created {}\n", meta.created);
  for (const auto& [name, value] : file.training()) {
    std::visit([&](auto number) { fmt::format_to(out, "training {} = {}\n", name, number); }, value);
  }
}

// "/model/fc.weight" -> "/model"; "/optimizer/momentum/fc.weight" -> "/optimizer/momentum".
std::string group_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

void print_groups(const std::vector<CheckpointReader::Array>& arrays, Output out) {
  std::map<std::string, std::pair<int64_t, int64_t>> groups;  // arrays, elements
  for (const CheckpointReader::Array& array : arrays) {
    auto& [count, elements] = groups[group_of(array.path)];
    ++count;
    elements += array.shape.elements();
  }
  for (const auto& [group, size] : groups) {
    fmt::format_to(out, "{}: {} arrays, {} values, {} bytes\n", group, size.first, size.second,
                   size.second * static_cast<int64_t>(sizeof(float)));
  }
}

// Prints the arrays; returns the number of values that are not finite.
int64_t print_arrays(const CheckpointReader& file, const std::vector<CheckpointReader::Array>& arrays, bool verify,
                     Output out) {
  int64_t not_finite = 0;
  std::vector<float> values;
  for (const CheckpointReader::Array& array : arrays) {
    fmt::format_to(out, "  {} {}", array.path, array.shape.to_string());
    if (verify) {
      values.resize(static_cast<size_t>(array.shape.elements()));
      file.read(array.path, values);
      const Statistics statistics = statistics_of(values);
      fmt::format_to(out, " min {:.6g} max {:.6g} norm {:.6g}", statistics.min, statistics.max, statistics.norm);
      if (statistics.not_finite > 0) fmt::format_to(out, " NOT FINITE {}", statistics.not_finite);
      not_finite += statistics.not_finite;
    }
    fmt::format_to(out, "\n");
  }
  return not_finite;
}

}  // namespace

Inspection inspect_checkpoint(const std::string& path, bool verify) {
  Inspection report;
  const Output out(report.text);
  try {
    const CheckpointReader file = CheckpointReader::open(path);
    std::vector<CheckpointReader::Array> arrays;
    for (const char* group : {"/model", "/ema", "/optimizer"}) {
      std::ranges::move(file.arrays(group), std::back_inserter(arrays));
    }
    fmt::format_to(out, "{}: Lockstep checkpoint, format version {}, {} bytes\n", path, kCheckpointVersion,
                   file.file_bytes());
    print_meta(file, out);
    print_groups(arrays, out);
    const int64_t not_finite = print_arrays(file, arrays, verify, out);
    if (not_finite > 0) fmt::format_to(out, "{}: {} values are not finite\n", path, not_finite);
    report.whole = not_finite == 0;
    if (report.whole) fmt::format_to(out, "whole: the checksum is right{}\n", verify ? ", every array was read" : "");
  } catch (const Error& error) {
    fmt::format_to(out, "{}\n", error.what());
    report.whole = false;
  }
  return report;
}

}  // namespace lockstep
