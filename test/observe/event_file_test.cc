#include "lockstep/observe/event_file.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <vector>

#include "lockstep/io/crc32c.h"
#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;
using namespace std::string_literals;

namespace {

uint32_t checksum(const std::string& bytes) { return mask_crc32c(crc32c(std::as_bytes(std::span(bytes)))); }

template <class T>
T number_at(const std::string& bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// The records of the directory's only file, their checksums compared.
std::vector<std::string> records_in(const std::string& directory) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) paths.push_back(entry.path().string());
  REQUIRE(paths.size() == 1);
  CHECK_THAT(paths[0], Catch::Matchers::Matches(R"(.*/events\.out\.tfevents\.\d{10}\.[^/]+\.\d{6}\.\d+)"));
  const std::string bytes = read_file(paths[0]);
  std::vector<std::string> records;
  for (size_t at = 0; at < bytes.size();) {
    const auto length = number_at<uint64_t>(bytes, at);
    CHECK(number_at<uint32_t>(bytes, at + 8) == checksum(bytes.substr(at, 8)));
    records.push_back(bytes.substr(at + 12, length));
    CHECK(number_at<uint32_t>(bytes, at + 12 + length) == checksum(records.back()));
    at += 16 + length;
  }
  return records;
}

// An event without its wall time, which takes the first nine bytes.
std::string timeless(const std::string& event) {
  CHECK(event.at(0) == '\x09');
  return event.substr(9);
}

}  // namespace

TEST_CASE("an event file begins with its version and the step from which on it counts") {
  const ScratchDirectory directory;
  { const EventFile events(directory / "tensorboard", 41); }
  const auto records = records_in(directory / "tensorboard");
  REQUIRE(records.size() == 2);
  CHECK(timeless(records[0]) == "\x10\x00\x1a\x0d"s + "brain.Event:2");
  CHECK(timeless(records[1]) == "\x10\x2a\x3a\x02\x08\x01"s);
}

TEST_CASE("scalars of a step are one event") {
  const ScratchDirectory directory;
  {
    EventFile events(directory.path(), 0);
    events.write(encode_scalars(7, {{"a", 1.0}, {"b", -2.0}}));
  }
  const auto records = records_in(directory.path());
  REQUIRE(records.size() == 3);
  CHECK(timeless(records[2]) == "\x10\x07\x2a\x14\x0a\x08\x0a\x01"s + "a\x15\x00\x00\x80\x3f"s + "\x0a\x08\x0a\x01"s +
                                    "b\x15\x00\x00\x00\xc0"s);
}

TEST_CASE("a histogram counts the finite values between the least and the most") {
  const ScratchDirectory directory;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  {
    EventFile events(directory.path(), 0);
    events.write(encode_histogram(7, "a", std::vector<float>{0.0F, 1.0F, 64.0F, 64.0F, kInfinity, -kInfinity, NAN}));
    events.write(encode_histogram(8, "constant", std::vector<float>{2.0F, 2.0F}));
    CHECK(encode_histogram(9, "nothing", std::vector<float>{NAN}).empty());
  }
  const auto records = records_in(directory.path());
  REQUIRE(records.size() == 4);
  // Of the event: step and summary; of that one value: its tag and the histogram.
  const std::string event = timeless(records[2]);
  const size_t at = event.find("\x0a\x01"s + "a\x2a"s);
  REQUIRE(at != std::string::npos);
  const std::string histogram = event.substr(at + 6);  // after a length of two bytes
  const auto field = [&](size_t i) { return number_at<double>(histogram, 9 * i + 1); };
  CHECK(field(0) == 0);             // least
  CHECK(field(1) == 64);            // most
  CHECK(field(2) == 4);             // count
  CHECK(field(3) == 129);           // sum
  CHECK(field(4) == 1 + 2 * 4096);  // of squares
  const size_t limits = 45 + 3, buckets = limits + 64 * 8 + 3;
  REQUIRE(histogram.size() == buckets + 64 * 8);
  CHECK(number_at<double>(histogram, limits) == 1);
  CHECK(number_at<double>(histogram, limits + 63 * 8) == 64);
  CHECK(number_at<double>(histogram, buckets) == 1);
  CHECK(number_at<double>(histogram, buckets + 8) == 1);
  CHECK(number_at<double>(histogram, buckets + 63 * 8) == 2);
}

TEST_CASE("going back is a session that starts after the step") {
  const ScratchDirectory directory;
  {
    EventFile events(directory.path(), 0);
    events.go_back(41);
  }
  const auto records = records_in(directory.path());
  REQUIRE(records.size() == 3);
  CHECK(timeless(records[2]) == "\x10\x2a\x3a\x02\x08\x01"s);
}

TEST_CASE("without a directory, or without the right to write there, events are left out") {
  EventFile none("", 0), never_opened;
  none.write(encode_scalars(1, {{"a", 1.0}}));
  never_opened.write(encode_scalars(1, {{"a", 1.0}}));
  never_opened.go_back(0);
  EventFile impossible("/proc/nowhere", 0);
  impossible.write(encode_scalars(1, {{"a", 1.0}}));
}
