#include "lockstep/data/probe_samples.h"

#include <algorithm>
#include <vector>

#include "data/sample_pipeline.h"

namespace lockstep {
namespace {

// Memory for the input of one sample.
struct Place {
  explicit Place(const LoaderOptions& options)
      : image(static_cast<size_t>(3 * options.image_size * options.image_size)),
        ids(static_cast<size_t>(options.max_ids)),
        values(static_cast<size_t>(options.max_ids)) {}
  SamplePlace place() {
    if (image.empty()) return {.ids = ids.data(), .values = values.data()};
    return {.image = image.data()};
  }

  std::vector<float> image;
  std::vector<int32_t> ids;
  std::vector<float> values;
};

}  // namespace

void probe_samples(const DataSource& source, const LoaderOptions& options, int64_t samples) {
  LoaderOptions strict = options;
  strict.bad_records = BadRecords::fail;
  SamplePipeline pipeline(source, strict);
  const Sampler sampler({.size = source.size(),
                         .seed = options.seed,
                         .shuffle = options.shuffle,
                         .shuffle_block = options.shuffle_block});
  const int64_t first = options.training
                            ? options.start_position + options.rank * options.batch_size * options.accumulate
                            : std::min(options.rank * options.batch_size, source.size());
  const int64_t left = options.training ? options.batch_size : source.size() - first;
  const auto sample_at = [&](int64_t position) {
    return options.training ? sampler.at(position) : SampleRef{.epoch = 0, .index = position};
  };
  SamplePipeline::Workspace workspace;
  Place place(options);
  int64_t good = 0;
  const int64_t count = std::min({samples, options.batch_size, left});
  for (int64_t i = 0; i < count; ++i) {
    try {
      pipeline.fill(sample_at(first + i), workspace, place.place());
      ++good;
    } catch (const BadRecord&) {
      if (options.bad_records == BadRecords::fail) throw;
    }
  }
  // For a bad first record, the pipeline searches for a good one, and throws after many bad ones in a row.
  if (good == 0 && count > 0) SamplePipeline(source, options).fill(sample_at(first), workspace, place.place());
}

}  // namespace lockstep
