#include "lockstep/checkpoint/inspect.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

#include "lockstep/base/printable.h"
#include "lockstep/checkpoint/checkpoint.h"

namespace lockstep {
namespace {

struct Statistics {
  float min = std::numeric_limits<float>::infinity();
  float max = -std::numeric_limits<float>::infinity();
  double norm = 0;  // Euclidean norm of the finite values
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
    squares += static_cast<double>(value) * value;
  }
  statistics.norm = std::sqrt(squares);
  return statistics;
}

using Output = std::back_insert_iterator<std::string>;

void print_meta(const CheckpointReader& file, Output out) {
  const CheckpointMeta& meta = file.meta();
  fmt::format_to(out, "step {}, epoch {}, {} samples seen\n", meta.step, meta.epoch, meta.samples_seen);
  fmt::format_to(out, "model {}, global batch {} on {} rank{}, seed {}\n", printable(meta.model), meta.global_batch,
                 meta.world_size, meta.world_size == 1 ? "" : "s", meta.seed);
  fmt::format_to(out, "created {}\n", printable(meta.created));
  for (const auto& entry : file.training()) {
    std::visit([&](auto number) { fmt::format_to(out, "training {} = {}\n", printable(entry.first), number); },
               entry.second);
  }
}

constexpr size_t kShownClasses = 20;

void print_classes(const std::vector<std::string>& classes, Output out) {
  if (classes.empty()) return;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(classes.size(), kShownClasses); ++i) shown.push_back(printable(classes[i]));
  fmt::format_to(out, "{} classes: {}{}\n", classes.size(), fmt::join(shown, ", "),
                 shown.size() < classes.size() ? ", ..." : "");
}

// Returns "/optimizer/momentum" for "/optimizer/momentum/fc.weight".
std::string group_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

void print_groups(const std::vector<CheckpointReader::Array>& arrays, Output out) {
  std::map<std::string, std::pair<int64_t, int64_t>> groups;  // arrays, elements
  for (const CheckpointReader::Array& array : arrays) {
    auto& [count, elements] = groups[group_of(array.path)];
    ++count;
    elements += array.shape.elements();
  }
  for (const auto& [group, size] : groups) {
    fmt::format_to(out, "{}: {} arrays, {} values, {} bytes\n", printable(group), size.first, size.second,
                   size.second * sizeof(float));
  }
}

std::vector<float> values_of(const CheckpointReader& file, const CheckpointReader::Array& array) {
  std::vector<float> values(array.shape.elements());
  file.read(array.path, values);
  return values;
}

// Returns the number of non-finite values.
int64_t print_arrays(const CheckpointReader& file, const std::vector<CheckpointReader::Array>& arrays, bool verify,
                     Output out) {
  int64_t not_finite = 0;
  for (const CheckpointReader::Array& array : arrays) {
    fmt::format_to(out, "  {} {}", printable(array.path), array.shape.to_string());
    if (verify) {
      const Statistics statistics = statistics_of(values_of(file, array));
      fmt::format_to(out, " min {:.6g} max {:.6g} norm {:.6g}", statistics.min, statistics.max, statistics.norm);
      if (statistics.not_finite > 0) fmt::format_to(out, " NOT FINITE {}", statistics.not_finite);
      not_finite += statistics.not_finite;
    }
    fmt::format_to(out, "\n");
  }
  return not_finite;
}

constexpr const char* kGroups[] = {"/model", "/ema", "/optimizer"};

std::vector<CheckpointReader::Array> all_arrays(const CheckpointReader& file) {
  std::vector<CheckpointReader::Array> arrays;
  for (const char* group : kGroups) std::ranges::move(file.arrays(group), std::back_inserter(arrays));
  return arrays;
}

struct Difference {
  double largest = 0, norm = 0, first_norm = 0;
  bool same_bits = false;
};

Difference difference_of(std::span<const float> a, std::span<const float> b) {
  Difference d{.same_bits = std::memcmp(a.data(), b.data(), a.size_bytes()) == 0};
  for (size_t i = 0; i < a.size(); ++i) {
    const double delta = std::abs(static_cast<double>(a[i]) - b[i]);
    d.largest = std::max(d.largest, delta);
    d.norm += delta * delta;
    d.first_norm += static_cast<double>(a[i]) * a[i];
  }
  d.norm = std::sqrt(d.norm);
  d.first_norm = std::sqrt(d.first_norm);
  return d;
}

// Returns the number of arrays that differ, including those that are in only one file.
int64_t print_differences(const CheckpointReader& first, const CheckpointReader& second, Output out) {
  int64_t different = 0;
  std::map<std::string, CheckpointReader::Array> others;
  for (const auto& array : all_arrays(second)) others.emplace(array.path, array);
  for (const auto& array : all_arrays(first)) {
    const auto other = others.extract(array.path);
    if (!other || other.mapped().shape != array.shape) {
      const std::string there = other ? fmt::format("{} in {}", other.mapped().shape.to_string(), second.path())
                                      : fmt::format("not in {}", second.path());
      fmt::format_to(out, "  {} {}: {}\n", printable(array.path), array.shape.to_string(), there);
      ++different;
      continue;
    }
    const Difference d = difference_of(values_of(first, array), values_of(second, array));
    if (d.same_bits) continue;
    ++different;
    fmt::format_to(out, "  {} {}: largest difference {:.6g}, norm {:.6g} of {:.6g}\n", printable(array.path),
                   array.shape.to_string(), d.largest, d.norm, d.first_norm);
  }
  for (const auto& [path, array] : others) {
    fmt::format_to(out, "  {} {}: not in {}\n", printable(path), array.shape.to_string(), first.path());
    ++different;
  }
  return different;
}

// `print` returns whether all files are complete.
Inspection inspection_of(const std::function<bool(Output out)>& print) {
  Inspection report;
  const Output out(report.text);
  try {
    report.whole = print(out);
  } catch (const Error& error) {
    fmt::format_to(out, "{}\n", error.what());
  }
  return report;
}

}  // namespace

Inspection compare_checkpoints(const CheckpointPair& paths) {
  return inspection_of([&](Output out) {
    const CheckpointReader first = CheckpointReader::open(paths.first);
    const CheckpointReader second = CheckpointReader::open(paths.second);
    for (const CheckpointReader* file : {&first, &second}) {
      fmt::format_to(out, "{}: {}, step {}, {} samples seen\n", file->path(), printable(file->meta().model),
                     file->meta().step, file->meta().samples_seen);
    }
    const int64_t different = print_differences(first, second, out);
    fmt::format_to(out, "{} of {} arrays differ; the others are equal to the bit\n", different,
                   std::max(all_arrays(first).size(), all_arrays(second).size()));
    return true;
  });
}

Inspection inspect_checkpoint(const std::string& path, bool verify) {
  return inspection_of([&](Output out) {
    const CheckpointReader file = CheckpointReader::open(path);
    const std::vector<CheckpointReader::Array> arrays = all_arrays(file);
    fmt::format_to(out, "{}: Lockstep checkpoint, format version {}, {} bytes\n", path, file.version(),
                   file.file_bytes());
    print_meta(file, out);
    print_classes(file.classes(), out);
    print_groups(arrays, out);
    const int64_t not_finite = print_arrays(file, arrays, verify, out);
    if (not_finite > 0) {
      fmt::format_to(out, "{}: {} values are not finite\n", path, not_finite);
    } else {
      fmt::format_to(out, "whole: the checksum is right{}\n", verify ? ", every array was read" : "");
    }
    return not_finite == 0;
  });
}

}  // namespace lockstep
