#include "lockstep/exchange/hdf5_weights.h"

#include <algorithm>

#include "lockstep/io/file.h"
#include "test/catch.h"
#include "test/exchange/weights.h"
#include "test/scratch.h"

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("weights in HDF5 come back as they were, by name") {
  const ScratchDirectory directory;
  const std::string path = directory / "weights.h5";
  write_file_atomically(path, encode_hdf5_weights(small_weights(), {{"model", "small"}}, path).bytes(), {});
  CHECK(Hdf5File::open(path, ExitCode::checkpoint).string_attribute("/", "model") == "small");
  const auto arranged = arrange_by_table(read_hdf5_weights(path), small_graph().parameters, path);
  const auto expected = small_weights();
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(arranged[i].shape == expected[i].shape);
    CHECK(arranged[i].values == expected[i].values);
  }
}

TEST_CASE("PyTorch's counters in HDF5 are left out") {
  const ScratchDirectory directory;
  const std::string path = directory / "weights.h5";
  const std::vector<NamedTensor> tensors = {{"w", Shape({1}), {1.0F}}, {"bn.num_batches_tracked", Shape({1}), {3.0F}}};
  write_file_atomically(path, encode_hdf5_weights(tensors, {}, path).bytes(), {});
  const auto found = read_hdf5_weights(path);
  REQUIRE(found.size() == 1);
  CHECK(found[0].name == "w");
}

TEST_CASE("shapes are checked before values are read") {
  const ScratchDirectory directory;
  const std::string path = directory / "weights.h5";
  const std::vector<NamedTensor> tensors = {{"w", Shape({1000}), std::vector<float>(1000, 1.0F)}};
  Hdf5Image image = encode_hdf5_weights(tensors, {}, path);
  auto* const found = std::search(image.bytes().data(), image.bytes().data() + image.bytes().size(),
                                  std::as_bytes(std::span(tensors[0].values)).data(),
                                  std::as_bytes(std::span(tensors[0].values)).data() + 4000);
  REQUIRE(found != image.bytes().data() + image.bytes().size());
  *found ^= std::byte{1};  // reading the values finds the damage
  write_file_atomically(path, image.bytes(), {});
  CHECK(error_of([&] { read_hdf5_weights(path); }).value().code() == ExitCode::checkpoint);
  const auto refuse = [](const std::vector<NamedTensor>& shapes) {
    REQUIRE(shapes.size() == 1);
    CHECK(shapes[0].shape == Shape({1000}));
    CHECK(shapes[0].values.empty());
    fail(ExitCode::config, "another shape");
  };
  CHECK(error_of([&] { read_hdf5_weights(path, refuse); }).value().code() == ExitCode::config);
}
