// Small checkpoints for the tests of this layer.
#pragma once

#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/io/file.h"
#include "lockstep/tensor/parameter_table.h"

namespace lockstep {

// A two-layer model with batch norm, its momentum and its averages, every value telling where it comes from.
class SmallModel {
 public:
  SmallModel() {
    table_.add({.name = "conv.weight", .shape = Shape{4, 3, 2, 2}});
    table_.add({.name = "bn.running_mean", .shape = Shape{4}, .kind = ParameterKind::running_mean});
    table_.add({.name = "fc.weight", .shape = Shape{10, 4}});
    table_.add({.name = "fc.bias", .shape = Shape{10}, .kind = ParameterKind::bias});
    values_.reserve(16);
    for (const Parameter& parameter : table_.all()) add("/model/", parameter);
    for (const Parameter& parameter : table_.all()) add("/ema/", parameter);
    for (const Parameter& parameter : table_.all()) {
      if (parameter.trained()) add("/optimizer/momentum/", parameter);
    }
  }

  const ParameterTable& table() const { return table_; }
  std::vector<std::vector<float>>& values() { return values_; }

  CheckpointContents contents(int64_t step) const {
    return {.meta = {.step = step,
                     .epoch = 3,
                     .samples_seen = step * 64,
                     .world_size = 2,
                     .global_batch = 64,
                     .seed = 17,
                     .model = "small"},
            .arrays = arrays_,
            .training = {{"best_top1", 0.75}, {"position", int64_t{7'000'000'000}}},
            .config = "[model]\nname = \"small\"\n",
            .classes = {"cat", "\xc3\xbc"}};
  }

  // Writes a checkpoint of `step` and returns its path.
  std::string write(int64_t step, const std::string& path) const {
    write_file_atomically(path, build_checkpoint(contents(step), path).bytes(), {});
    return path;
  }

 private:
  void add(const std::string& group, const Parameter& parameter) {
    std::vector<float> values(static_cast<size_t>(parameter.shape.elements()));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(arrays_.size() * 1000 + i) + 0.25F;
    }
    values_.push_back(std::move(values));
    arrays_.push_back({group + parameter.name, parameter.shape, values_.back().data()});
  }

  ParameterTable table_;
  std::vector<std::vector<float>> values_;  // reserved: arrays_ points into it
  std::vector<CheckpointArray> arrays_;
};

}  // namespace lockstep
