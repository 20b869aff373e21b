// Measures how many images the loader prepares per second of processor time; see scripts/bench/loader.py.
#include <fmt/format.h>
#include <sys/resource.h>

#include <string>

#include "lockstep/base/parse_number.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/source/formats.h"

namespace {

double cpu_seconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int run(const std::string& pattern, int64_t image_size, int64_t passes) {
  using namespace lockstep;
  constexpr int64_t kBatch = 32;
  const auto source = open_data_source({.format = "tfrecord", .files = list_inputs("tfrecord", {pattern})});
  Loader loader(*source, {.batch_size = kBatch,
                          .image_size = image_size,
                          .augment = Augment::torchvision,
                          .normalize = Normalize::torchvision,
                          .jpeg_scaling = true});
  loader.next();  // opens files and allocates memory
  const double start = cpu_seconds();
  const int64_t calls = (passes * source->size() + kBatch - 1) / kBatch;
  for (int64_t i = 0; i < calls; ++i) loader.next();
  fmt::print("{:.2f}\n", static_cast<double>(calls * kBatch) / (cpu_seconds() - start));
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const auto number = [&](int i) { return i < count ? lockstep::parse_number<int64_t>(arguments[i]).value_or(0) : 0; };
  if (count != 4 || number(2) < 1 || number(3) < 1) {
    fmt::print(stderr, "usage: {} TFRECORDS IMAGE_SIZE PASSES\n", arguments[0]);
    return 2;
  }
  try {
    return run(arguments[1], number(2), number(3));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", arguments[0], error.what());
    return 1;
  }
}
