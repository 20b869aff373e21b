// Prepares one sample of a batch: reads, decodes and transforms the record, and handles bad records.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/activity.h"
#include "lockstep/data/image/decode.h"
#include "lockstep/data/loader.h"

namespace lockstep {

// Where the input of a sample is stored: an image, or a row of ids and values.
struct SamplePlace {
  float* image = nullptr;           // [3,S,S], or
  uint8_t* pixels = nullptr;        // [S,S,3] and
  ImageChanges* changes = nullptr;  // what remains to be done with them
  int32_t* ids = nullptr;           // [max_ids], like values
  float* values = nullptr;
};

// Owned by the loader. Any of its threads may call fill(), each with its own workspace.
class SamplePipeline {
 public:
  struct Workspace {
    Sample sample;
    Image image;
    std::vector<uint8_t> turned;
    TransformScratch scratch;
    Activity activity{"loader thread"};
  };
  // Which record filled the place.
  struct Filled {
    int64_t index = 0;
    int32_t label = 0;
  };

  SamplePipeline(const DataSource& source, const LoaderOptions& options);

  // Writes the model's input for `sample`. Throws BadRecord for a bad record. Under BadRecords::skip, notes it instead;
  // training then uses the next good record of the data set, with the augmentation of that one, and evaluation returns
  // nullopt: the sample does not count.
  std::optional<Filled> fill(SampleRef sample, Workspace& workspace, const SamplePlace& to);

  // Writes what represents no sample: black, or no ids.
  void clear(const SamplePlace& to) const;

  std::vector<BadRecordNote> bad_records() const;

 private:
  int32_t prepare(SampleRef sample, Workspace& workspace, const SamplePlace& to) const;
  void write_ids(int64_t index, const Sample& sample, const SamplePlace& to) const;
  ImageView view_pixels(SampleRef ref, Workspace& workspace) const;
  void note(int64_t index, const std::string& message);

  const DataSource& source_;
  const std::optional<Transform> transform_;  // of images
  const int64_t image_elements_;
  const int64_t max_ids_;
  const int64_t vocabulary_;
  const BadRecords policy_;
  const bool training_;
  const bool apply_orientation_;
  const DecodeLimits limits_;
  mutable std::mutex mutex_;
  std::map<int64_t, BadRecordNote> notes_;
};

}  // namespace lockstep
