// The CUDA backend against the reference backend in float64, over the shared operation cases, in every precision. Left
// out where there is no usable GPU.
#include <bit>
#include <cmath>

#include "lockstep/backend/update.h"
#include "lockstep/tensor/half.h"
#include "test/backend/check_case.h"
#include "test/backend/lowered_cases.h"
#include "test/catch.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

// Where kernels run on the host (cuda_on_host), the reference backend stands in for cuDNN and cuBLAS: nothing to
// compare.
bool left_to_libraries(const OpCase& op_case) {
#ifdef LOCKSTEP_KERNELS_ON_HOST
  return std::holds_alternative<Conv2d>(op_case.steps[0].op) || std::holds_alternative<Linear>(op_case.steps[0].op);
#else
  return op_case.steps.empty();
#endif
}

struct Precision {
  const char* name;
  DType compute;
  bool tf32;
  double bound;  // a few roundings to 24, 11, 8 and 11 bits
};
constexpr Precision kPrecisions[] = {{"float32", DType::f32, false, 1e-5},
                                     {"tf32", DType::f32, true, 2e-3},
                                     {"bf16", DType::bf16, false, 2e-2},
                                     {"fp16", DType::f16, false, 3e-3}};

void check_operations(const Precision& precision) {
  const auto gpu = make_backend("cuda", {.tf32 = precision.tf32});
  for (const OpCase& op_case : op_cases()) {
    if (left_to_libraries(op_case) || (precision.compute != DType::f32 && computes_in_float32(op_case))) continue;
    check_case(op_case.name, [&] { check_lowered(*gpu, op_case, precision.compute, precision.bound); });
  }
}

// Weights of several shapes with others between them, and where the backend wants their copies.
struct CopiedWeights {
  CopiedWeights(const Backend& backend, DType dtype) {
    // Filters that are padded, larger than a block's piece of the update, of several taps, and of one; linear weights;
    // filters of pairs of pixels.
    for (const Shape& shape : {Shape{5, 3, 3, 3}, Shape{3, 1024, 3, 3}, Shape{40, 32, 5, 5}, Shape{24, 600, 1, 1},
                               Shape{7, 3, 1, 1}, Shape{33, 300}, Shape{6, 3, 3, 5}}) {
      elements += 5;
      TensorDesc copy{shape, dtype, {}};
      copy.format = backend.choose_formats(Cast{dtype}, {{{shape, DType::f32, {}}}}, {{copy}}).outputs[0];
      if (shape[0] == 6) {
        const TensorDesc image{{1, 3, 9, 9}, dtype, {}}, y{{1, 6, 4, 3}, dtype, {}};
        copy.format = backend.choose_formats(Conv2d{.window = {3, 5, 2, 2}}, {{image, copy}}, {{y}}).inputs[1];
      }
      copies.push_back({elements, bytes, copy});
      elements += shape.elements();
      bytes += static_cast<int64_t>((backend.storage_bytes(copy) + 255) / 256 * 256);
    }
    // The third is of two parameters.
    const int64_t middle = copies[2].offset + copies[2].desc.shape.elements() / 2;
    segments = {{.offset = 0, .count = middle}, {.offset = middle, .count = elements - middle, .rate_factor = 2}};
  }

  // The arena of the copies before an update.
  HostTensor arena() const {
    return {{bytes / 4}, DType::i32, std::vector<double>(static_cast<size_t>(bytes) / 4, 0x12341234)};
  }

  // And after one that gave these weights.
  HostTensor arena(const Backend& backend, const std::vector<double>& weights) const {
    std::vector<uint16_t> values(static_cast<size_t>(bytes) / 2, 0x1234);
    for (const WeightCopy& copy : copies) {
      const Shape& s = copy.desc.shape;
      const int64_t pixels = s.rank() == 4 ? s[2] * s[3] : 1;
      // Elements of a row of taps, which has one more where it is paired, and of a tap.
      const int64_t row = static_cast<int64_t>(backend.storage_bytes(copy.desc)) / 2 / (s[0] * s.h());
      const int64_t stored = s.rank() == 4 ? row / (s.w() + (row % s.w() > 0 ? 1 : 0)) : row;
      for (int64_t i = 0; i < s.elements(); ++i) {
        const int64_t filter = i / (s[1] * pixels), channel = i / pixels % s[1], pixel = i % pixels;
        const int64_t at = (filter * s.h() + pixel / s.w()) * row + pixel % s.w() * stored + channel;
        values[static_cast<size_t>(copy.to_bytes / 2 + at)] = (copy.desc.dtype == DType::bf16 ? to_bf16 : to_f16)(
            static_cast<float>(weights[static_cast<size_t>(copy.offset + i)]));
      }
    }
    HostTensor result = arena();
    for (size_t i = 0; i < result.values.size(); ++i) {
      result.values[i] = std::bit_cast<int32_t>(values[2 * i] | uint32_t{values[2 * i + 1]} << 16);
    }
    return result;
  }

  int64_t elements = 0, bytes = 0;
  std::vector<UpdateSegment> segments;
  std::vector<WeightCopy> copies;
};

}  // namespace

TEST_CASE("operations on a GPU agree with the reference backend, in every precision", "[gpu]") {
  if (!gpu_unavailable_reason().empty()) {
    WARN("skipped, no usable GPU: " << gpu_unavailable_reason());
    return;
  }
  for (const Precision& precision : kPrecisions) {
    check_case(precision.name, [&] { check_operations(precision); });
  }
}

TEST_CASE("an update on a GPU writes the weights in 16 bits as layers read them", "[gpu]") {
  if (!gpu_unavailable_reason().empty()) {
    WARN("skipped, no usable GPU: " << gpu_unavailable_reason());
    return;
  }
  const DType dtype = GENERATE(DType::bf16, DType::f16);
  const bool skipped = GENERATE(false, true);
  const auto gpu = make_backend("cuda", {});
  const CopiedWeights weights(*gpu, dtype);
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::rmsprop_tf, OptimizerKind::adamw}) {
    ApplyOptimizer plain{.kind = kind, .segments = weights.segments}, copying = plain;
    copying.copies = weights.copies;
    const auto vector_of = [&](auto value) {
      HostTensor tensor{{weights.elements}, DType::f32, {}};
      for (int64_t i = 0; i < weights.elements; ++i) tensor.values.push_back(value(static_cast<double>(i)));
      return tensor;
    };
    std::vector<double> scalars(kUpdateScalars);
    scalars[kLearningRate] = 0.1;
    scalars[kGradientScale] = scalars[kBias1] = scalars[kBias2] = 1;
    scalars[kSkip] = skipped ? 1 : 0;
    const HostTensor inputs[] = {vector_of([](double i) { return std::cos(i); }),
                                 {{kUpdateScalars}, DType::f32, scalars}};
    std::vector<HostTensor> state{vector_of([](double i) { return std::sin(i); })};
    for (size_t i = 0; i < optimizer_slots(kind).slots.size(); ++i)
      state.push_back(vector_of([](double) { return 1; }));
    std::vector<HostTensor> copied = state;
    copied.push_back(weights.arena());
    run_update(*gpu, {DType::f32, plain}, inputs, state);
    run_update(*gpu, {DType::f32, copying}, inputs, copied);
    for (size_t i = 0; i < state.size(); ++i) CHECK((copied[i].values == state[i].values));
    const HostTensor expected = skipped ? weights.arena() : weights.arena(*gpu, state[0].values);
    CHECK((copied.back().values == expected.values));
  }
}
