#include "lockstep/train/loading.h"

#include "lockstep/base/error.h"
#include "lockstep/config/model_info.h"
#include "lockstep/train/batch_upload.h"
#include "lockstep/train/compiled_model.h"

namespace lockstep {

BadRecords bad_record_rule(const Config& config) {
  return config.data.bad_records == BadRecordRule::skip ? BadRecords::skip : BadRecords::fail;
}

LoaderOptions loader_options(const Config& config, const LoaderUse& use) {
  const auto augment = parse_augment(config.data.augment);
  const auto normalize = parse_normalize(config.data.normalize);
  require(augment && normalize, "data.augment or data.normalize was not checked");
  const bool sparse = model_info(config.model.name).sparse;
  return {.training = use.training,
          .rank = use.group.rank(),
          .world_size = use.group.size(),
          .batch_size = use.batch_size,
          .accumulate = use.training ? config.train.accumulate : 1,
          .image_size = sparse ? 0 : config.model.image_size,
          .max_ids = sparse ? config.model.max_ids : 0,
          .vocabulary = sparse ? config.model.vocabulary : 0,
          .augment = *augment,
          .normalize = *normalize,
          .transform_input = config.model.transform_input,
          .pixels = use.model != nullptr && use.model->takes_pixels(),
          .jpeg_scaling = config.data.jpeg_scaling,
          .apply_orientation = config.data.exif_orientation,
          .max_pixels = config.data.max_pixels,
          .seed = static_cast<uint64_t>(config.train.seed),
          .shuffle = config.data.shuffle,
          .shuffle_block = config.data.shuffle_block,
          .start_position = use.start_position,
          .bad_records = bad_record_rule(config),
          .workers = use.workers,
          .queue_depth = static_cast<int>(config.data.prefetch) + 1,
          .allocate = use.model ? pinned_memory(use.model->backend()) : allocate_aligned};
}

}  // namespace lockstep
