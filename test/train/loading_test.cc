#include "lockstep/train/loading.h"

#include "lockstep/train/batch_upload.h"
#include "test/catch.h"
#include "test/train/small_run.h"
#include "test/train/world.h"

using namespace lockstep;
using testing::world;

TEST_CASE("a loader follows the keys of the data, and its use says batch, position and ranks") {
  Config config = small_config();
  config.data.augment = "torchvision";
  config.data.normalize = "none";
  config.data.shuffle = false;
  config.data.shuffle_block = 32;
  config.data.bad_records = BadRecordRule::skip;
  config.data.max_pixels = 1000;
  config.data.exif_orientation = true;
  config.data.prefetch = 5;
  config.train.seed = 9;
  config.train.accumulate = 3;
  LoaderUse use{.group = world(), .batch_size = 4, .workers = 2, .start_position = 40};
  const LoaderOptions training = loader_options(config, use);
  CHECK(training.training);
  CHECK(training.rank == world().rank());
  CHECK(training.world_size == world().size());
  CHECK(training.batch_size == 4);
  CHECK(training.accumulate == 3);
  CHECK(training.start_position == 40);
  CHECK(training.workers == 2);
  CHECK(training.image_size == 8);
  CHECK(training.max_ids == 0);
  CHECK(training.augment == Augment::torchvision);
  CHECK(training.normalize == Normalize::none);
  CHECK(training.seed == 9);
  CHECK_FALSE(training.shuffle);
  CHECK(training.shuffle_block == 32);
  CHECK(training.max_pixels == 1000);
  CHECK(training.apply_orientation);
  CHECK(training.bad_records == BadRecords::skip);
  CHECK(training.queue_depth == 6);  // the batch in use included

  use.training = false;
  const LoaderOptions evaluation = loader_options(config, use);
  CHECK_FALSE(evaluation.training);
  CHECK(evaluation.accumulate == 1);
}

TEST_CASE("samples of a model of ids have no images") {
  Config config = small_config();
  config.model.name = "wide_mlp";
  config.model.max_ids = 6;
  config.model.vocabulary = 50;
  const LoaderOptions options = loader_options(config, {.group = world()});
  CHECK(options.image_size == 0);
  CHECK(options.max_ids == 6);
  CHECK(options.vocabulary == 50);
}
