// Files of CIFAR-10 and CIFAR-100.
#include <algorithm>

#include "lockstep/data/source/formats.h"
#include "test/fuzz/targets.h"

namespace lockstep::fuzz {

void cifar(Bytes input) {
  const MemoryFile file(input);
  for (const char* format : {"cifar10", "cifar100"}) {
    for (const BadRecords policy : {BadRecords::fail, BadRecords::skip}) {
      expect_answer([&] {
        DataSourceOptions options;
        options.format = format;
        options.files = {file.path()};
        options.labels.classes = format == std::string_view("cifar10") ? 10 : 100;
        options.bad_records = policy;
        const auto source = open_data_source(options);
        Sample sample;
        for (int64_t i = 0; i < std::min<int64_t>(source->size(), 4); ++i) {
          expect_answer([&] {
            source->read(i, sample);
            require_law(sample.label < options.labels.classes, "a label is a class");
          });
        }
      });
    }
  }
}

}  // namespace lockstep::fuzz
