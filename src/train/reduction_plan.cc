#include "train/reduction_plan.h"

namespace lockstep {

std::span<float> gradients_of(const CompiledModel& model) {
  const ModelState& state = model.state();
  return {state.gradients.as<float>(), static_cast<size_t>(state.gradient_elements())};
}

std::vector<Bucket> reduction_plan(const CompiledModel& model, const Config& config) {
  std::vector<ReadyMark> marks;
  for (const GradientMark& m : model.training().gradient_marks()) marks.push_back({m.position, m.end});
  const int64_t usual = model.backend().host_addressable() ? kHostBucketBytes : kDeviceBucketBytes;
  const double bytes = config.comm.bucket_mb > 0 ? config.comm.bucket_mb * 1024 * 1024 : static_cast<double>(usual);
  return plan_buckets(marks, {.total_elements = model.state().gradient_elements(),
                              .target_elements = static_cast<int64_t>(bytes / sizeof(float))});
}

std::optional<WireFormat> wire_format(const CompiledModel& model, const Config& config, int ranks) {
  const WireType type = config.comm.gradient_dtype;
  if (type == WireType::float32 || ranks == 1) return std::nullopt;
  return WireFormat{.backend = model.backend(),
                    .type = type == WireType::bf16 ? DType::bf16 : DType::f16,
                    .elements = model.state().trained_elements};
}

}  // namespace lockstep
