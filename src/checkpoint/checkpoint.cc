#include "lockstep/checkpoint/checkpoint.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "checkpoint/header.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/printable.h"
#include "lockstep/io/crc64.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

constexpr ExitCode kBlame = ExitCode::checkpoint;

// No run reaches this count: it would take nine years at a sample per microsecond. It leaves room for additions.
constexpr int64_t kMostCount = int64_t{1} << 48;

// The integers of CheckpointMeta with their names in the file and their bounds.
struct MetaField {
  const char* name;
  int64_t CheckpointMeta::*member;
  int64_t least = 0, most = kMostCount;
};
constexpr MetaField kMetaFields[] = {
    {"step", &CheckpointMeta::step},
    {"epoch", &CheckpointMeta::epoch},
    {"samples_seen", &CheckpointMeta::samples_seen},
    {"world_size", &CheckpointMeta::world_size, 1},
    {"global_batch", &CheckpointMeta::global_batch},
    {"seed", &CheckpointMeta::seed, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()},
};

// Returns whether a run can have written this number under /training. Numbers of later versions may be anything finite.
bool is_possible(const std::string& name, const TrainingValue& value) {
  if (const double* number = std::get_if<double>(&value)) {
    return std::isfinite(*number) && (name != "loss_scale" || *number > 0);
  }
  const int64_t count = std::get<int64_t>(value);
  const bool counts = name == "position" || name == "updates" || name == "loss_scale_steady_steps" ||
                      name == "best_evaluation_position";
  return !counts || (count >= 0 && count <= kMostCount);
}

constexpr size_t kMostDepth = 16;         // of groups
constexpr size_t kMostObjects = 100'000;  // groups and data sets

// Finds the arrays of a file, whose groups may contain each other.
class ArrayFinder {
 public:
  explicit ArrayFinder(const Hdf5File& file) : file_(file), bytes_left_(file.most_bytes()) {}

  std::vector<CheckpointReader::Array> find() && {
    enter("/", 0);
    std::ranges::sort(found_, {}, &CheckpointReader::Array::path);
    return std::move(found_);
  }

 private:
  void enter(const std::string& group, size_t depth) {
    if (depth > kMostDepth) {
      fail(kBlame, "{}: its groups nest more than {} deep, down to {}; one may contain itself", file_.name(),
           kMostDepth, printable(group));
    }
    for (const Hdf5File::Entry& entry : file_.list(group)) {
      if (++objects_ > kMostObjects) fail(kBlame, "{}: holds more than {} objects", file_.name(), kMostObjects);
      const std::string path = group == "/" ? "/" + entry.name : group + "/" + entry.name;
      if (entry.kind == Hdf5File::Kind::group) enter(path, depth + 1);
      if (entry.kind == Hdf5File::Kind::dataset) add(path);
    }
  }

  void add(const std::string& path) {
    const Hdf5DatasetInfo info = file_.dataset(path).info();
    if (info.dims.size() > Shape::kMaxRank || info.type == Hdf5Type::string || info.type == Hdf5Type::other) return;
    const Shape shape{std::span<const int64_t>(info.dims)};
    bytes_left_ -= shape.elements() * static_cast<int64_t>(sizeof(float));  // io/hdf5.cc has checked the product
    if (bytes_left_ < 0) {
      fail(kBlame, "{}: declares arrays of more than {} bytes, the most that a file of its size may; the last is {} {}",
           file_.name(), file_.most_bytes(), printable(path), shape.to_string());
    }
    found_.push_back({path, shape});
  }

  const Hdf5File& file_;
  int64_t bytes_left_;
  size_t objects_ = 0;
  std::vector<CheckpointReader::Array> found_;
};

}  // namespace

Hdf5Image build_checkpoint(const CheckpointContents& contents, const std::string& name) {
  const size_t expected = estimate_checkpoint_bytes(contents);
  auto file = Hdf5File::create_in_memory(
      name, {.user_block_bytes = kUserBlockBytes, .expected_bytes = expected + expected / 16, .blame = kBlame});
  const std::vector<int64_t> one{1};
  for (const CheckpointArray& array : contents.arrays) {
    const std::vector<int64_t> dims(array.shape.begin(), array.shape.end());
    file.write<float>(array.path, dims.empty() ? one : dims, std::span(array.data, array.shape.elements()));
  }
  for (const auto& [key, value] : contents.training) {
    const auto write = [&, &key = key](auto number) {
      file.write<decltype(number)>("/training/" + key, one, std::span(&number, 1));
    };
    std::visit(write, value);
  }
  const std::string config = contents.config.empty() ? "\n" : contents.config;  // a data set has at least one byte
  const std::vector<int64_t> config_dims{static_cast<int64_t>(config.size())};
  file.write<uint8_t>("/config", config_dims, {reinterpret_cast<const uint8_t*>(config.data()), config.size()});
  if (!contents.classes.empty()) file.write_strings("/classes", contents.classes);

  file.write_attribute("/", "format", std::string(kCheckpointFormat));
  file.write_attribute("/", "format_version", kCheckpointVersion);
  for (const MetaField& field : kMetaFields) file.write_attribute("/", field.name, contents.meta.*field.member);
  file.write_attribute("/", "model", contents.meta.model);
  file.write_attribute("/", "created", contents.meta.created.empty() ? iso8601_utc_now() : contents.meta.created);
  file.write_attribute("/", "complete", int64_t{1});
  Hdf5Image image = std::move(file).finish();
  seal_checkpoint(image.bytes(), contents.meta.step);
  return image;
}

int64_t estimate_checkpoint_bytes(const CheckpointContents& contents) {
  constexpr int64_t kPerArrayBytes = 600;  // object header, link and chunk index
  constexpr int64_t kFixedBytes = 2048;
  int64_t bytes = kFixedBytes + contents.config.size();
  for (const CheckpointArray& array : contents.arrays) {
    bytes += array.shape.elements() * sizeof(float) + kPerArrayBytes;
  }
  size_t longest = 0;
  for (const std::string& name : contents.classes) longest = std::max(longest, name.size());
  return bytes + contents.classes.size() * longest + contents.training.size() * kPerArrayBytes;
}

CheckpointReader::CheckpointReader(std::string path, std::vector<std::byte> bytes)
    : path_(std::move(path)), bytes_(std::move(bytes)) {}

CheckpointReader CheckpointReader::open(const std::string& path) {
  CheckpointReader reader(path, read_regular_file(path, kBlame));
  const std::span<const std::byte> bytes(reader.bytes_);
  const CheckpointHeader header =
      parse_header(bytes.first(std::min(bytes.size(), kUserBlockBytes)), reader.file_bytes(), path);
  const uint64_t checksum = crc64(bytes.subspan(kUserBlockBytes));
  if (checksum != header.checksum) {
    fail(kBlame, "{}: damaged checkpoint, checksum {:016x} instead of {:016x}", path, checksum, header.checksum);
  }
  reader.file_.emplace(Hdf5File::open_image(bytes, path, kBlame));
  reader.read_meta(header);
  reader.check_training();
  reader.arrays_ = ArrayFinder(*reader.file_).find();
  return reader;
}

CheckpointReader CheckpointReader::open_weights(const std::string& path) {
  std::vector<std::byte> bytes = read_regular_file(path, kBlame);
  const std::span<const std::byte> start = std::as_bytes(std::span(kCheckpointFormat));
  if (bytes.size() >= start.size() && std::equal(start.begin(), start.end(), bytes.begin())) return open(path);
  CheckpointReader reader(path, std::move(bytes));
  reader.file_.emplace(Hdf5File::open_image(reader.bytes_, path, kBlame));
  reader.arrays_ = ArrayFinder(*reader.file_).find();
  return reader;
}

void CheckpointReader::read_meta(const CheckpointHeader& header) {
  if (file_->string_attribute("/", "format") != std::string(kCheckpointFormat)) {
    fail(kBlame, "{}: not a Lockstep checkpoint", path_);
  }
  if (file_->integer_attribute("/", "complete") != 1) fail(kBlame, "{}: incomplete checkpoint", path_);
  for (const MetaField& field : kMetaFields) {
    const std::optional<int64_t> value = file_->integer_attribute("/", field.name);
    if (!value) fail(kBlame, "{}: checkpoint without the attribute {}", path_, field.name);
    if (*value < field.least || *value > field.most) {
      fail(kBlame, "{}: damaged checkpoint, its attribute {} is {}, which no run can have written", path_, field.name,
           *value);
    }
    meta_.*field.member = *value;
  }
  if (meta_.step != header.step) {
    fail(kBlame, "{}: damaged checkpoint, its header tells step {} and its attribute step {}", path_, header.step,
         meta_.step);
  }
  version_ = header.version;
  meta_.model = file_->string_attribute("/", "model").value_or("");
  meta_.created = file_->string_attribute("/", "created").value_or("");
}

void CheckpointReader::check_training() const {
  for (const auto& [name, value] : training()) {
    if (is_possible(name, value)) continue;
    fail(kBlame, "{}: damaged checkpoint, /training/{} is {}, which no run can have written", path_, printable(name),
         std::visit([](auto number) { return fmt::format("{}", number); }, value));
  }
}

std::vector<CheckpointReader::Array> CheckpointReader::arrays(const std::string& group) const {
  const std::string start = group == "/" ? group : group + "/";
  std::vector<Array> found;
  std::ranges::copy_if(arrays_, std::back_inserter(found), [&](const Array& a) { return a.path.starts_with(start); });
  return found;
}

std::vector<std::string> CheckpointReader::optimizer_slots() const {
  std::vector<std::string> slots;
  if (!has("/optimizer")) return slots;
  for (const Hdf5File::Entry& entry : file_->list("/optimizer")) slots.push_back(entry.name);
  return slots;
}

void CheckpointReader::read(const std::string& path, std::span<float> to) const { file_->dataset(path).read(to); }

std::string CheckpointReader::config() const {
  const std::vector<uint8_t> text = file_->read<uint8_t>("/config");
  return {text.begin(), text.end()};
}

std::vector<std::string> CheckpointReader::classes() const {
  if (!has("/classes")) return {};
  return file_->dataset("/classes").read_strings();
}

std::map<std::string, TrainingValue> CheckpointReader::training() const {
  std::map<std::string, TrainingValue> values;
  if (!has("/training")) return values;
  for (const Hdf5File::Entry& entry : file_->list("/training")) {
    const Hdf5Dataset dataset = file_->dataset("/training/" + entry.name);
    if (dataset.info().elements() != 1) continue;  // a later version wrote it
    if (dataset.info().type == Hdf5Type::i64) {
      values[entry.name] = dataset.read<int64_t>()[0];
    } else {
      values[entry.name] = dataset.read<double>()[0];
    }
  }
  return values;
}

}  // namespace lockstep
