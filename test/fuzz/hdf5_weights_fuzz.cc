// An HDF5 file of weights, as import reads it.
#include "lockstep/exchange/hdf5_weights.h"

#include "test/fuzz/targets.h"

namespace lockstep::fuzz {

void hdf5_weights(Bytes input) {
  expect_answer([&] {
    const MemoryFile file(input);
    for (const NamedTensor& tensor : read_hdf5_weights(file.path())) {
      require_law(static_cast<size_t>(tensor.shape.elements()) == tensor.values.size(), "an array fills its shape");
    }
  });
}

}  // namespace lockstep::fuzz
