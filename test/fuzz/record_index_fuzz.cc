// The cached index of a TFRecord file. Read as it is, and dressed up as the index that belongs to the file: its magic,
// path, sizes and checksum right, its bounds the input's.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "data/source/record_index.h"
#include "lockstep/base/random.h"
#include "lockstep/data/source/formats.h"
#include "lockstep/io/crc32c.h"
#include "test/fuzz/targets.h"

namespace lockstep::fuzz {
namespace {

constexpr size_t kFileBytes = 1 << 20;  // from here on indexes are kept
constexpr size_t kRecords = 16;

void append(std::string& text, const void* data, size_t bytes) { text.append(static_cast<const char*>(data), bytes); }

// A TFRecord file of kRecords records of zeros.
std::string record_file() {
  constexpr uint64_t kLength = kFileBytes / kRecords - kRecordHeaderBytes - kRecordFooterBytes;
  const std::string data(kLength, '\0');
  const uint32_t of_length = mask_crc32c(crc32c(std::as_bytes(std::span(&kLength, 1))));
  const uint32_t of_data = mask_crc32c(crc32c(std::as_bytes(std::span(data))));
  std::string record;
  append(record, &kLength, sizeof kLength);
  append(record, &of_length, sizeof of_length);
  record += data;
  append(record, &of_data, sizeof of_data);
  std::string file;
  for (size_t i = 0; i < kRecords; ++i) file += record;
  return file;
}

// The data file of every input: in memory, and gone with the process.
const std::string& data_path() {
  static const std::string records = record_file();
  static const MemoryFile file(std::as_bytes(std::span(records)));
  return file.path();
}

// The directory that its index is looked for in, in memory; removed with the object.
class Scene {
 public:
  Scene() : directory_("/dev/shm/lockstep-fuzz-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(directory_);
  }
  ~Scene() {
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  Scene(const Scene&) = delete;
  Scene& operator=(const Scene&) = delete;

  const std::string& directory() const { return directory_; }
  const std::string& data() const { return data_path(); }
  std::string index() const { return fmt::format("{}/{:016x}.index", directory_, fnv1a64(data())); }

 private:
  std::string directory_;
};

// The head of an index, as src/data/source/record_index.cc has it.
struct Head {
  std::array<char, 8> magic = {'L', 'S', 'R', 'I', 'D', 'X', '0', '1'};
  int64_t file_bytes = 0;
  int64_t modified_ns = 0;
  int64_t path_bytes = 0;
  int64_t bounds = 0;
};

// The input's first byte says whether the number of bounds is its own or theirs.
std::string dressed_up(Bytes input, const Scene& scene) {
  const InputFile file(scene.data());
  Head head;
  head.file_bytes = file.size_bytes();
  head.modified_ns = file.modified_ns();
  head.path_bytes = static_cast<int64_t>(scene.data().size());
  const bool own_count = !input.empty() && input[0] == std::byte{'#'};
  Bytes bounds = input.subspan(std::min<size_t>(input.size(), 1));
  head.bounds = static_cast<int64_t>(bounds.size() / sizeof(int64_t));
  if (own_count && bounds.size() >= sizeof head.bounds) {
    std::memcpy(&head.bounds, bounds.data(), sizeof head.bounds);
    bounds = bounds.subspan(sizeof head.bounds);
  } else {
    bounds = bounds.first(bounds.size() / sizeof(int64_t) * sizeof(int64_t));
  }
  std::string text;
  append(text, &head, sizeof head);
  text += scene.data();
  append(text, bounds.data(), bounds.size());
  const uint32_t crc = crc32c(std::as_bytes(std::span(text)));
  append(text, &crc, sizeof crc);
  return text;
}

void read_through(std::string_view index, const Scene& scene) {
  std::ofstream(scene.index(), std::ios::binary) << index;
  DataSourceOptions options;
  options.format = "tfrecord";
  options.files = {scene.data()};
  options.cache_directory = scene.directory();
  const auto source = open_data_source(options);
  Sample sample;
  const int64_t last = source->size() - 1;
  for (const int64_t i : std::set<int64_t>{0, last / 2, last}) {  // all would take most of the time
    expect_answer([&] { source->read(i, sample); });
  }
}

}  // namespace

void record_index(Bytes input) {
  const Scene scene;  // not kept: a process that ends in a hurry would leave it in memory
  expect_answer([&] { read_through(as_text(input), scene); });
  expect_answer([&] { read_through(dressed_up(input, scene), scene); });
}

}  // namespace lockstep::fuzz
