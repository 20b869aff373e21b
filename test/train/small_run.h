// A run small enough for a test of everything around the model: cifar10_cnn on 8 x 8 pixels and 3 classes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/backend/deferred_backend.h"
#include "lockstep/train/compiled_model.h"
#include "lockstep/train/model_arrays.h"
#include "lockstep/train/optimizer.h"

namespace lockstep {

inline Config small_config(const std::string& directory = {}) {
  Config config;
  config.model.name = "cifar10_cnn";
  config.model.classes = 3;
  config.model.image_size = 8;
  config.model.dropout = 0;
  config.data.format = "synthetic";
  config.data.augment = "none";
  config.train.batch_size = 4;
  config.train.epochs = 1;
  config.optimizer = {.name = "sgd", .lr = 0.01};
  config.schedule.name = ScheduleKind::constant;
  config.checkpoint.directory = directory;
  config.checkpoint.every_seconds = 0;
  return config;
}

// Configuration, backend and compiled model of one rank.
struct SmallRun {
  explicit SmallRun(Config c, Purpose purpose = Purpose::train, int64_t evaluation_batch = 4)
      : config(std::move(c)), model(config, {config.train.batch_size, evaluation_batch}, purpose, *backend, *stream) {}

  Config config;
  std::unique_ptr<Backend> backend = config.device.deferred ? make_deferred_backend(make_backend("cpu", {.threads = 1}))
                                                            : make_backend("cpu", {.threads = 1});
  std::unique_ptr<Stream> stream = backend->make_stream();
  CompiledModel model;

  std::vector<CheckpointArray> arrays() const {
    return model_arrays(model.parameters(), model.layout(), model.state(), parse_optimizer(config.optimizer.name));
  }
  // Every value of the state by path: what a checkpoint holds.
  std::vector<std::pair<std::string, std::vector<float>>> values() const {
    std::vector<std::pair<std::string, std::vector<float>>> all;
    for (const CheckpointArray& a : arrays()) {
      all.emplace_back(a.path, std::vector<float>(a.data, a.data + a.shape.elements()));
    }
    return all;
  }
  // Gives every value of the state one of its own.
  void fill(float first) const {
    for (const CheckpointArray& a : arrays()) {
      for (int64_t i = 0; i < a.shape.elements(); ++i) a.data[i] = first + static_cast<float>(i % 97) / 64;
      first += 1;
    }
  }
};

}  // namespace lockstep
