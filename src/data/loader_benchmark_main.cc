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

using namespace lockstep;

int run(const std::string& pattern, int64_t passes, LoaderOptions options) {
  constexpr int64_t kBatch = 32;
  const auto source = open_data_source({.format = "tfrecord", .files = list_inputs("tfrecord", {pattern})});
  options.batch_size = kBatch;
  options.normalize = Normalize::torchvision;
  options.jpeg_scaling = true;
  Loader loader(*source, options);
  loader.next();  // opens files and allocates memory
  const double start = cpu_seconds();
  const int64_t calls = (passes * source->size() + kBatch - 1) / kBatch;
  for (int64_t i = 0; i < calls; ++i) loader.next();
  fmt::print("{:.2f}\n", static_cast<double>(calls * kBatch) / (cpu_seconds() - start));
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const auto number = [&](int i) { return i < count ? parse_number<int64_t>(arguments[i]).value_or(0) : 0; };
  const auto augment = parse_augment(count > 4 ? arguments[4] : "torchvision");
  const bool bytes = count == 6 && std::string_view(arguments[5]) == "bytes";
  if (count < 4 || count > 6 || number(2) < 1 || number(3) < 1 || !augment || (count == 6 && !bytes)) {
    fmt::print(stderr, "usage: {} TFRECORDS IMAGE_SIZE PASSES [AUGMENT [bytes]]\n", arguments[0]);
    return 2;
  }
  try {
    return run(arguments[1], number(3), {.image_size = number(2), .augment = *augment, .pixels = bytes});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", arguments[0], error.what());
    return 1;
  }
}
