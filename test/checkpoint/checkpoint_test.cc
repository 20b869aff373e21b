#include "lockstep/checkpoint/checkpoint.h"

#include "lockstep/base/random.h"
#include "test/catch.h"
#include "test/checkpoint/fixtures.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {




}  // namespace

TEST_CASE("a checkpoint reads back as it was built") {
  const ScratchFolder folder;
  const SmallModel model;
  const CheckpointReader reader = CheckpointReader::open(model.write(41, folder / "a.h5"));
  CHECK(reader.meta().step == 41);
  CHECK(reader.meta().epoch == 3);
  CHECK(reader.meta().samples_seen == 41 * 64);
  CHECK(reader.meta().world_size == 2);
  CHECK(reader.meta().global_batch == 64);
  CHECK(reader.meta().seed == 17);
  CHECK(reader.meta().model == "small");
  CHECK(reader.meta().created.size() == 20);
  CHECK(reader.config() == "[model]\nname = \"small\"\n");
  CHECK(reader.training() == model.contents(41).training);
  CHECK(reader.optimizer_slots() == std::vector<std::string>{"momentum"});
  CHECK(reader.model_group() == "/model");
  CHECK(reader.arrays("/none").empty());
  CHECK(reader.arrays("/model").size() == 4);
  for (const CheckpointArray& array : model.contents(41).arrays) {
    std::vector<float> values(static_cast<size_t>(array.shape.elements()));
    reader.read(array.path, values);
    CHECK(std::equal(values.begin(), values.end(), array.data));
  }
}

TEST_CASE("the same contents give the same file, and its size is as estimated") {
  const SmallModel model;
  CheckpointContents contents = model.contents(5);
  contents.meta.created = "2026-01-02T03:04:05Z";
  const Hdf5Image first = build_checkpoint(contents, "a");
  const Hdf5Image second = build_checkpoint(contents, "b");
  REQUIRE(first.bytes().size() == second.bytes().size());
  CHECK(std::equal(first.bytes().begin(), first.bytes().end(), second.bytes().begin()));
  const auto estimated = static_cast<double>(estimate_checkpoint_bytes(contents));
  CHECK(estimated == Approx(static_cast<double>(first.bytes().size())).epsilon(0.5));
}
