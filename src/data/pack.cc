#include "lockstep/data/pack.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>

#include "data/image/encode.h"
#include "data/image/exif.h"
#include "data/image/resample.h"
#include "data/source/example_writer.h"
#include "data/source/packed_classes.h"
#include "lockstep/base/log.h"
#include "lockstep/data/image/decode.h"
#include "lockstep/data/sampler.h"
#include "lockstep/io/crc32c.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

using namespace std::string_view_literals;

// The buffers of one thread, reused for each picture.
struct Workspace {
  Sample sample;
  Image image;
  std::vector<uint8_t> turned;
  TransformScratch scratch;
  std::vector<float> resized;
  std::vector<uint8_t> pixels;
};

struct Encoded {
  std::string bytes;
  OutputSize size;
  bool shrunk = false;
};

std::string_view format_of(std::string_view encoded) { return encoded.starts_with("\x89PNG"sv) ? "PNG" : "JPEG"; }

OutputSize packed_size(const OutputSize& size, int64_t short_side) {
  const int64_t shorter = std::min(size.height, size.width);
  if (shorter <= short_side) return size;
  const double scale = static_cast<double>(short_side) / static_cast<double>(shorter);
  const auto side = [&](int64_t length) { return std::llround(static_cast<double>(length) * scale); };
  return {.height = side(size.height), .width = side(size.width)};
}

// Owned by pack_images() for one call; write_files() runs on several threads.
class Packer {
 public:
  Packer(const DataSource& source, const PackOptions& options)
      : source_(source),
        options_(options),
        class_names_(source.class_names()),
        order_(epoch_order({.size = source.size(), .seed = options.seed, .shuffle = options.shuffle}, 0)) {
    summary_.files = (source.size() + options.records_per_file - 1) / options.records_per_file;
  }

  PackSummary run() {
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < std::max(1, options_.threads); ++i) threads.emplace_back([this] { write_files(); });
    }
    if (error_) std::rethrow_exception(error_);
    std::ranges::sort(summary_.left_out);
    return std::move(summary_);
  }

 private:
  void write_files() {
    try {
      Workspace workspace;
      for (int64_t file = next_++; file < summary_.files && !failed_; file = next_++) write_file(file, workspace);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
      failed_ = true;
    }
  }

  void write_file(int64_t number, Workspace& workspace) {
    const int64_t begin = number * options_.records_per_file;
    const int64_t end = std::min(begin + options_.records_per_file, source_.size());
    std::string content;
    PackSummary part;
    for (int64_t i = begin; i < end && !failed_; ++i) {
      const int64_t index = order_[i];
      try {
        append_picture(index, workspace, content, part);
      } catch (const BadRecord& bad) {
        if (options_.bad_records == BadRecords::fail) throw;
        part.left_out.emplace_back(bad.what());
      }
    }
    if (failed_) return;
    const std::string path =
        fmt::format("{}/{}-{:05}-of-{:05}", options_.directory, options_.name, number, summary_.files);
    write_text_atomically(path, content, ExitCode::data);
    const std::lock_guard lock(mutex_);
    summary_.records += part.records;
    summary_.shrunk += part.shrunk;
    summary_.bytes += std::ssize(content);
    std::ranges::move(part.left_out, std::back_inserter(summary_.left_out));
    log_info("{}: {} records, {:.1f} MB", path, part.records, static_cast<double>(content.size()) / 1e6);
  }

  void append_picture(int64_t index, Workspace& workspace, std::string& content, PackSummary& part) {
    source_.read(index, workspace.sample);
    const Encoded picture = encode(index, workspace);
    const auto label = static_cast<size_t>(workspace.sample.label);
    append_tfrecord(serialize_example({.encoded = picture.bytes,
                                       .format = format_of(picture.bytes),
                                       .class_name = label < class_names_.size() ? class_names_[label] : ""sv,
                                       .label = workspace.sample.label,
                                       .height = picture.size.height,
                                       .width = picture.size.width}),
                    content);
    ++part.records;
    part.shrunk += picture.shrunk ? 1 : 0;
  }

  Encoded encode(int64_t index, Workspace& workspace) const {
    const Sample& sample = workspace.sample;
    if (sample.kind == Sample::Kind::encoded) return encode_again(index, workspace);
    if (sample.kind != Sample::Kind::u8) {
      fail(ExitCode::config, "{}: {} cannot be packed as pictures", source_.where(index),
           sample.kind == Sample::Kind::f32 ? "pixels that are floating-point numbers" : "ids and values");
    }
    return shrink({.u8 = reinterpret_cast<const uint8_t*>(sample.bytes.data()),
                   .channels = sample.channels,
                   .height = sample.height,
                   .width = sample.width,
                   .layout = ImageView::Layout::planar},
                  workspace);
  }

  Encoded encode_again(int64_t index, Workspace& workspace) const {
    const Sample& sample = workspace.sample;
    Image& image = workspace.image;
    try {
      decode_image(sample.bytes, image, {}, {.max_pixels = options_.max_pixels});
    } catch (const BadRecord& bad) {
      throw BadRecord(fmt::format("{}: {}", source_.where(index), bad.what()), bad.where());
    }
    if (std::min(image.height, image.width) <= options_.short_side) {
      return {.bytes = {reinterpret_cast<const char*>(sample.bytes.data()), sample.bytes.size()},
              .size = {.height = image.height, .width = image.width}};
    }
    if (options_.apply_orientation) make_upright(exif_orientation(sample.bytes), image, workspace.turned);
    return shrink({.u8 = image.pixels.data(), .height = image.height, .width = image.width}, workspace);
  }

  Encoded shrink(const ImageView& view, Workspace& workspace) const {
    const OutputSize from = {.height = view.height, .width = view.width};
    const OutputSize to = packed_size(from, options_.short_side);
    const auto plane = static_cast<size_t>(to.height * to.width);
    workspace.resized.resize(3 * plane);
    resample(
        view,
        {.rows = {.extent = from.height, .target = to.height}, .columns = {.extent = from.width, .target = to.width}},
        to, workspace.scratch, workspace.resized.data());
    workspace.pixels.resize(3 * plane);
    for (size_t c = 0; c < 3; ++c) {
      for (size_t i = 0; i < plane; ++i) {
        const float value = std::clamp(workspace.resized[c * plane + i], 0.0F, 255.0F);
        workspace.pixels[3 * i + c] = static_cast<uint8_t>(value + 0.5F);
      }
    }
    const RgbView rgb = {.pixels = workspace.pixels, .height = to.height, .width = to.width};
    return {.bytes = options_.lossless ? encode_as_png(rgb) : encode_as_jpeg(rgb, options_.quality),
            .size = to,
            .shrunk = to != from};
  }

  const DataSource& source_;
  const PackOptions& options_;
  const std::vector<std::string> class_names_;
  const std::vector<int64_t> order_;
  std::atomic<int64_t> next_ = 0;  // file
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  PackSummary summary_;  // its number of files is fixed from the start
  std::exception_ptr error_;
};

}  // namespace

PackSummary pack_images(const DataSource& source, const PackOptions& options) {
  require(options.short_side > 0 && options.records_per_file > 0, "a short side of {} and {} records in a file",
          options.short_side, options.records_per_file);
  make_directories(options.directory, ExitCode::config);
  for (const std::string& name : list_directory(options.directory, ExitCode::config)) {
    if (name.starts_with(options.name + "-")) {
      fail(ExitCode::config, "{}/{} is there already; remove it or give another directory", options.directory, name);
    }
  }
  write_class_names(options.directory, source.class_names());
  return Packer(source, options).run();
}

}  // namespace lockstep
