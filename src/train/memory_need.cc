#include "train/memory_need.h"

#include <string>
#include <vector>

#include "lockstep/config/model_info.h"

namespace lockstep {
namespace {

std::string size_text(int64_t bytes) {
  constexpr int64_t kMegabyte = 1'000'000, kGigabyte = 1'000'000'000;
  if (bytes < kMegabyte) return fmt::format("{} bytes", bytes);
  return bytes < kGigabyte ? fmt::format("{:.1f} MB", static_cast<double>(bytes) / kMegabyte)
                           : fmt::format("{:.1f} GB", static_cast<double>(bytes) / kGigabyte);
}

// Returns the keys that lower the need, with their values.
std::string keys_to_lower(const Config& config, const ModelBatches& batches, bool gpu) {
  std::string keys;
  const auto add = [&](const std::string& key) { keys += (keys.empty() ? "" : ", ") + key; };
  if (batches.evaluation > batches.training) {
    add(fmt::format("eval.batch_size ({})", batches.evaluation));
  } else if (config.train.global_batch > 0) {
    add(fmt::format("train.global_batch ({})", config.train.global_batch));
  } else {
    add(fmt::format("train.batch_size ({})", batches.training));
  }
  if (!model_info(config.model.name).sparse) add(fmt::format("model.image_size ({})", config.model.image_size));
  // CPUs compute only in float32.
  const bool full = config.train.precision == Precision::float32 || config.train.precision == Precision::tf32;
  if (gpu && full) add(fmt::format("train.precision ({}; bf16 halves activations)", word(config.train.precision)));
  return keys;
}

}  // namespace

void fail_too_large(const Config& config, const ModelBatches& batches, const MemoryNeed& need,
                    const MemoryPresent& present) {
  const std::string all_ranks = batches.local_ranks > 1 ? fmt::format(", {} ranks of this host {}", batches.local_ranks,
                                                                      size_text(batches.local_ranks * need.sum()))
                                                        : std::string();
  const std::string there = present.bytes < 0
                                ? fmt::format("there is not so much {}", present.kind)
                                : fmt::format("there are {} of {}", size_text(present.bytes), present.kind);
  fail(ExitCode::config,
       "the model does not fit in {}: a rank needs {} ({} for activations, {} for parameters, gradients and "
       "optimizer){}, "
       "and {}; lower {}, or start fewer ranks on a host; 'trainer explain' lists what takes the memory",
       present.kind, size_text(need.sum()), size_text(need.activations), size_text(need.state), all_ranks, there,
       keys_to_lower(config, batches, present.gpu));
}

void require_host_memory(const Config& config, const ModelBatches& batches, const MemoryNeed& need,
                         int64_t host_bytes) {
  if (host_bytes < 0 || need.sum() <= host_bytes / batches.local_ranks) return;
  fail_too_large(config, batches, need, {.bytes = host_bytes});
}

}  // namespace lockstep
