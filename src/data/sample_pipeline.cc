#include "data/sample_pipeline.h"

#include <algorithm>

#include "data/image/exif.h"
#include "lockstep/base/log.h"

namespace lockstep {
namespace {

constexpr int64_t kMaxBadInARow = 100;  // after this many, the data set is considered bad
constexpr size_t kMaxWarnings = 20;     // others are counted, and listed at the end

// Names the record that is being read and decoded in the report of a stalled rank.
class BusyWith {
 public:
  BusyWith(Activity& activity, const DataSource& source, int64_t index) : activity_(activity) {
    activity_.begin([&source, index] { return source.where(index); });
  }
  ~BusyWith() { activity_.end(); }
  BusyWith(const BusyWith&) = delete;
  BusyWith& operator=(const BusyWith&) = delete;

 private:
  Activity& activity_;
};

std::optional<Transform> image_transform(const LoaderOptions& options) {
  if (options.image_size == 0) return std::nullopt;
  return Transform({.augment = options.augment,
                    .normalize = options.normalize,
                    .transform_input = options.transform_input,
                    .image_size = options.image_size,
                    .seed = options.seed,
                    .training = options.training,
                    .jpeg_scaling = options.jpeg_scaling});
}

}  // namespace

SamplePipeline::SamplePipeline(const DataSource& source, const LoaderOptions& options)
    : source_(source),
      transform_(image_transform(options)),
      image_elements_(3 * options.image_size * options.image_size),
      max_ids_(options.max_ids),
      vocabulary_(options.vocabulary),
      policy_(options.bad_records),
      training_(options.training),
      apply_orientation_(options.apply_orientation),
      limits_{.max_pixels = options.max_pixels} {}

std::optional<SamplePipeline::Filled> SamplePipeline::fill(SampleRef sample, Workspace& workspace,
                                                           const SamplePlace& to) {
  const int64_t attempts = std::min(kMaxBadInARow, source_.size());
  for (int64_t attempt = 0; attempt < attempts; ++attempt) {
    const int64_t index = (sample.index + attempt) % source_.size();
    const BusyWith busy(workspace.activity, source_, index);
    try {
      const int32_t label = prepare({.epoch = sample.epoch, .index = index}, workspace, to);
      return Filled{.index = index, .label = label};
    } catch (const BadRecord& bad) {
      if (policy_ == BadRecords::fail) throw;
      note(index, bad.what());
      if (!training_) return std::nullopt;
    }
  }
  fail(ExitCode::data, "{}: this record and all {} after it are bad; data.bad_records = \"skip\" gives up here",
       source_.where(sample.index), attempts - 1);
}

void SamplePipeline::clear(const SamplePlace& to) const {
  if (to.image != nullptr) std::fill_n(to.image, image_elements_, 0.0F);
  if (to.pixels != nullptr) {
    std::fill_n(to.pixels, image_elements_, uint8_t{0});
    *to.changes = {};
  }
  if (to.ids == nullptr) return;
  std::fill_n(to.ids, max_ids_, -1);
  std::fill_n(to.values, max_ids_, 0.0F);
}

int32_t SamplePipeline::prepare(SampleRef sample, Workspace& workspace, const SamplePlace& to) const {
  source_.read(sample.index, workspace.sample);
  const bool sparse = workspace.sample.kind == Sample::Kind::sparse;
  require(sparse == !transform_.has_value(), "{}: images and sparse samples are mixed up", source_.where(sample.index));
  if (sparse) {
    write_ids(sample.index, workspace.sample, to);
  } else if (to.pixels != nullptr) {
    transform_->apply(view_pixels(sample, workspace), sample, workspace.scratch, to.pixels, *to.changes);
  } else {
    transform_->apply(view_pixels(sample, workspace), sample, workspace.scratch, to.image);
  }
  return static_cast<int32_t>(workspace.sample.label);
}

// An input that does not fit the model is an error like a label out of range: configuration and data do not match.
void SamplePipeline::write_ids(int64_t index, const Sample& sample, const SamplePlace& to) const {
  if (std::ssize(sample.ids) > max_ids_) {
    fail(ExitCode::data, "{}: has {} ids; model.max_ids allows {}", source_.where(index), sample.ids.size(), max_ids_);
  }
  clear(to);
  for (size_t i = 0; i < sample.ids.size(); ++i) {
    if (sample.ids[i] < 0 || sample.ids[i] >= vocabulary_) {
      fail(ExitCode::data, "{}: id {} is outside the allowed range 0..{}; set model.vocabulary to fit the data",
           source_.where(index), sample.ids[i], vocabulary_ - 1);
    }
    to.ids[i] = static_cast<int32_t>(sample.ids[i]);
    to.values[i] = sample.values[i];
  }
}

ImageView SamplePipeline::view_pixels(SampleRef ref, Workspace& workspace) const {
  const Sample& sample = workspace.sample;
  if (sample.kind == Sample::Kind::encoded) {
    try {
      const int orientation = apply_orientation_ ? exif_orientation(sample.bytes) : 1;
      ChooseWindow choose;
      if (orientation == 1) {
        choose = [&](int64_t height, int64_t width) { return transform_->source_window(height, width, ref); };
      }
      decode_image(sample.bytes, workspace.image, choose, limits_);
      make_upright(orientation, workspace.image, workspace.turned);
    } catch (const BadRecord& bad) {
      throw BadRecord(fmt::format("{}: {}", source_.where(ref.index), bad.what()), bad.where());
    }
    const Image& image = workspace.image;
    return {.u8 = image.pixels.data(), .height = image.height, .width = image.width, .window = image.window};
  }
  ImageView view = {
      .channels = sample.channels, .height = sample.height, .width = sample.width, .layout = ImageView::Layout::planar};
  if (sample.kind == Sample::Kind::u8) {
    view.u8 = reinterpret_cast<const uint8_t*>(sample.bytes.data());
  } else {
    view.f32 = reinterpret_cast<const float*>(sample.bytes.data());
  }
  return view;
}

void SamplePipeline::note(int64_t index, const std::string& message) {
  const std::lock_guard lock(mutex_);
  BadRecordNote& entry = notes_[index];
  if (entry.times++ > 0) return;
  entry.index = index;
  entry.message = message;
  if (notes_.size() <= kMaxWarnings) log_warning("skipped a bad record: {}", message);
}

std::vector<BadRecordNote> SamplePipeline::bad_records() const {
  const std::lock_guard lock(mutex_);
  std::vector<BadRecordNote> notes;
  for (const auto& [index, entry] : notes_) notes.push_back(entry);
  return notes;
}

}  // namespace lockstep
