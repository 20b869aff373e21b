// An HDF5 file of images and labels.
#include <algorithm>

#include "lockstep/data/source/formats.h"
#include "test/fuzz/targets.h"

namespace lockstep::fuzz {

void hdf5_data(Bytes input) {
  const MemoryFile file(input);
  expect_answer([&] {
    DataSourceOptions options;
    options.format = "hdf5";
    options.files = {file.path()};
    const auto source = open_data_source(options);
    Sample sample;
    for (int64_t i = 0; i < std::min<int64_t>(source->size(), 4); ++i) {
      expect_answer([&] { source->read(i, sample); });
    }
  });
}

}  // namespace lockstep::fuzz
