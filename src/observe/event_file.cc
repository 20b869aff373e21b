#include "lockstep/observe/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/io/crc32c.h"
#include "lockstep/io/file.h"
#include "lockstep/io/protobuf_writer.h"

namespace lockstep {
namespace {

// Field numbers of tensorflow's event.proto and summary.proto.
namespace field {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr int kSummaryValue = 1, kValueTag = 1, kValueSimple = 2, kValueHistogram = 5;
constexpr int kHistogramMin = 1, kHistogramMax = 2, kHistogramCount = 3, kHistogramSum = 4, kHistogramSquares = 5;
constexpr int kHistogramLimits = 6, kHistogramBuckets = 7;
constexpr int kSessionStatus = 1;
constexpr int kValueTensor = 8, kValueMetadata = 9;
constexpr int kTensorType = 1, kTensorShape = 2, kTensorFloats = 5, kTensorStrings = 8;
constexpr int kShapeDimension = 2, kDimensionSize = 1;
constexpr int kMetadataPlugin = 1, kPluginName = 1, kPluginContent = 2;
// Of tensorboard's hparams/plugin_data.proto, hparams/api.proto and protobuf's struct.proto.
constexpr int kSessionStartInfo = 3, kSessionEndInfo = 4;
constexpr int kStartParameter = 1, kStartTime = 5, kEndStatus = 1, kEndTime = 2;
constexpr int kMapKey = 1, kMapValue = 2;
constexpr int kValueNumber = 2, kValueString = 3, kValueBoolean = 4;
}  // namespace field

constexpr int64_t kSessionStart = 1;
constexpr int64_t kFloat = 1, kString = 7;  // types of tensors
constexpr int64_t kSuccess = 1;             // status of a run

ProtobufWriter event(int64_t step) {
  return ProtobufWriter().float64(field::kWallTime, wall_seconds()).integer(field::kStep, step);
}

// The name starts with the time, because TensorBoard reads the files of a directory in the order of their names. Whole
// seconds and then the host are what Weights & Biases looks for.
std::string new_file_name() {
  char host[256] = "localhost";
  ::gethostname(host, sizeof host - 1);
  constexpr int64_t kMicroseconds = 1'000'000;
  const auto time = static_cast<int64_t>(wall_seconds() * kMicroseconds);
  return fmt::format("events.out.tfevents.{:010}.{}.{:06}.{}", time / kMicroseconds, host, time % kMicroseconds,
                     ::getpid());
}

struct Histogram {
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double count = 0, sum = 0, squares = 0;
  std::vector<double> limits, buckets;  // the upper edge of each bucket, and the number of values in it
};

std::optional<Histogram> histogram_of(std::span<const float> values) {
  constexpr size_t kBuckets = 64;
  Histogram histogram;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    const double v = value;
    histogram.min = std::min(histogram.min, v);
    histogram.max = std::max(histogram.max, v);
    histogram.count += 1;
    histogram.sum += v;
    histogram.squares += v * v;
  }
  if (histogram.count == 0) return std::nullopt;
  const double width = (histogram.max - histogram.min) / kBuckets;
  histogram.buckets.resize(width > 0 ? kBuckets : 1);
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    const auto bucket = width > 0 ? static_cast<size_t>((value - histogram.min) / width) : 0;
    histogram.buckets[std::min(bucket, histogram.buckets.size() - 1)] += 1;
  }
  for (size_t i = 1; i < histogram.buckets.size(); ++i) {
    histogram.limits.push_back(histogram.min + width * static_cast<double>(i));
  }
  histogram.limits.push_back(histogram.max);
  return histogram;
}

ProtobufWriter encode(const Histogram& histogram) {
  return ProtobufWriter()
      .float64(field::kHistogramMin, histogram.min)
      .float64(field::kHistogramMax, histogram.max)
      .float64(field::kHistogramCount, histogram.count)
      .float64(field::kHistogramSum, histogram.sum)
      .float64(field::kHistogramSquares, histogram.squares)
      .packed(field::kHistogramLimits, histogram.limits)
      .packed(field::kHistogramBuckets, histogram.buckets);
}

// Returns an event with one value of a plugin: a tensor of one element, and the data of the plugin itself.
std::string plugin_event(int64_t step, std::string_view tag, const ProtobufWriter& tensor,
                         const ProtobufWriter& plugin) {
  const ProtobufWriter value =
      ProtobufWriter()
          .text(field::kValueTag, tag)
          .message(field::kValueTensor, tensor)
          .message(field::kValueMetadata, ProtobufWriter().message(field::kMetadataPlugin, plugin));
  return event(step).message(field::kSummary, ProtobufWriter().message(field::kSummaryValue, value)).data();
}

// Begins a tensor of one element.
ProtobufWriter tensor_of(int64_t type) {
  const ProtobufWriter size = ProtobufWriter().integer(field::kDimensionSize, 1);
  return ProtobufWriter()
      .integer(field::kTensorType, type)
      .message(field::kTensorShape, ProtobufWriter().message(field::kShapeDimension, size));
}

std::string hparams_event(const std::string& tag, int part, const ProtobufWriter& message) {
  const ProtobufWriter content = ProtobufWriter().message(part, message);
  const ProtobufWriter plugin =
      ProtobufWriter().text(field::kPluginName, "hparams").text(field::kPluginContent, content.data());
  return plugin_event(0, "_hparams_/" + tag, tensor_of(kFloat).float32(field::kTensorFloats, 0), plugin);
}

struct EncodeValue {
  ProtobufWriter operator()(bool value) const { return ProtobufWriter().integer(field::kValueBoolean, value ? 1 : 0); }
  ProtobufWriter operator()(double value) const { return ProtobufWriter().float64(field::kValueNumber, value); }
  ProtobufWriter operator()(const std::string& value) const {
    return ProtobufWriter().text(field::kValueString, value);
  }
};

}  // namespace

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

EventFile::EventFile(std::string directory, int64_t resumed_step) : directory_(std::move(directory)) {
  if (directory_.empty()) return;
  open();
  go_back(resumed_step);
}

void EventFile::open() {
  path_ = directory_ + "/" + new_file_name();
  try {
    file_ = open_for_appending(path_, ExitCode::checkpoint);
  } catch (const Error& error) {
    file_.reset();
    log_warning("TensorBoard events cannot be written: {}", error.what());
  }
  append_record(event(0).text(field::kFileVersion, "brain.Event:2").data());
}

// A SessionLog START event makes TensorBoard discard the data from its step on.
void EventFile::go_back(int64_t step) {
  write(event(step + 1)
            .message(field::kSessionLog, ProtobufWriter().integer(field::kSessionStatus, kSessionStart))
            .data());
}

std::string encode_scalars(int64_t step, const EventScalars& values) {
  ProtobufWriter summary;
  for (const auto& [tag, value] : values) {
    summary.message(
        field::kSummaryValue,
        ProtobufWriter().text(field::kValueTag, tag).float32(field::kValueSimple, static_cast<float>(value)));
  }
  return event(step).message(field::kSummary, summary).data();
}

std::string encode_histogram(int64_t step, const std::string& tag, std::span<const float> values) {
  const std::optional<Histogram> histogram = histogram_of(values);
  if (!histogram) return {};
  const ProtobufWriter value =
      ProtobufWriter().text(field::kValueTag, tag).message(field::kValueHistogram, encode(*histogram));
  return event(step).message(field::kSummary, ProtobufWriter().message(field::kSummaryValue, value)).data();
}

std::string encode_text(int64_t step, const std::string& tag, std::string_view markdown) {
  return plugin_event(step, tag, tensor_of(kString).text(field::kTensorStrings, markdown),
                      ProtobufWriter().text(field::kPluginName, "text"));
}

std::string encode_hyperparameters(const Hyperparameters& values) {
  ProtobufWriter start;
  for (const auto& [name, value] : values) {
    start.message(
        field::kStartParameter,
        ProtobufWriter().text(field::kMapKey, name).message(field::kMapValue, std::visit(EncodeValue(), value)));
  }
  start.float64(field::kStartTime, wall_seconds());
  return hparams_event("session_start_info", field::kSessionStartInfo, start);
}

std::string encode_run_end() {
  return hparams_event("session_end_info", field::kSessionEndInfo,
                       ProtobufWriter().integer(field::kEndStatus, kSuccess).float64(field::kEndTime, wall_seconds()));
}

void EventFile::write(std::string_view event) {
  if (!file_) return;
  if (!is_at(file_, path_)) {
    log_warning("{}: was deleted or moved during the run; a new file is started", path_);
    open();
  }
  append_record(event);
}

void EventFile::append_record(std::string_view event) {
  if (!file_) return;
  std::string record;
  append_tfrecord(event, record);
  errno = 0;
  if (::write(file_.get(), record.data(), record.size()) == static_cast<ssize_t>(record.size())) return;
  // Readers stop at a torn record, so nothing may be written after it.
  log_warning("{}: TensorBoard events end here ({})", path_, errno == 0 ? "disk full" : errno_text(errno));
  file_.reset();
}

}  // namespace lockstep
