// Data sets and batches for the tests of the loader.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lockstep/data/loader.h"
#include "lockstep/data/source/formats.h"
#include "test/data/image_writer.h"
#include "test/data/record_writer.h"
#include "test/scratch.h"

namespace lockstep {

inline std::unique_ptr<DataSource> synthetic(int64_t samples, int64_t image_size = 4) {
  return open_data_source(
      {.format = "synthetic", .labels = {.classes = 10}, .synthetic = {.samples = samples, .image_size = image_size}});
}

struct BatchCopy {
  std::vector<float> images;
  std::vector<int32_t> labels;
  std::vector<float> weights;
  std::vector<int64_t> indices;
  int64_t first_position = 0;
  int64_t epoch = 0;
  bool operator==(const BatchCopy&) const = default;
};

inline BatchCopy copy(const Batch& batch, int64_t image_size) {
  const int64_t floats = batch.size * 3 * image_size * image_size;
  return {.images = {batch.images, batch.images + floats},
          .labels = {batch.labels, batch.labels + batch.size},
          .weights = {batch.weights, batch.weights + batch.size},
          .indices = {batch.indices, batch.indices + batch.size},
          .first_position = batch.first_position,
          .epoch = batch.epoch};
}

inline std::vector<BatchCopy> take(const DataSource& source, const LoaderOptions& options, int64_t calls) {
  Loader loader(source, options);
  std::vector<BatchCopy> batches;
  for (int64_t i = 0; i < calls; ++i) batches.push_back(copy(loader.next(), options.image_size));
  return batches;
}

// Gray-level images whose brightness is their index; those in `bad` are not images at all.
inline std::unique_ptr<DataSource> numbered(const ScratchDirectory& directory, int count, const std::set<int>& bad) {
  std::vector<std::string> records;
  for (int i = 0; i < count; ++i) {
    const auto level = static_cast<uint8_t>(i);
    records.push_back(image_example(bad.contains(i) ? "GIF89a..." : flat_png(2, 2, level, level, level), i));
  }
  write_file(directory / "train-00000", frame_records(records));
  return open_data_source({.format = "tfrecord", .files = {directory / "train-00000"}, .labels = {.classes = count}});
}

// Sparse samples of 0, 1, 2, ... ids: sample i has ids i, i - 1, ..., 1 with values of id / 2.
inline std::unique_ptr<DataSource> sparse(const ScratchDirectory& directory, int64_t count) {
  std::vector<std::string> records;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int64_t> ids;
    std::vector<float> values;
    for (int64_t id = i; id > 0; --id) {
      ids.push_back(id);
      values.push_back(static_cast<float>(id) / 2);
    }
    records.push_back(sparse_example(i % 2, ids, values));
  }
  write_file(directory / "sparse", frame_records(records));
  return open_data_source({.format = "sparse_tfrecord", .files = {directory / "sparse"}, .labels = {.classes = 2}});
}

}  // namespace lockstep
