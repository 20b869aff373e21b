// What update.cu launches for the parameter update (backend/update.h): f32, over whole arenas; nothing changes when the
// step is skipped.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "lockstep/backend/step_header.h"
#include "lockstep/backend/update.h"

namespace lockstep::cuda {

constexpr int32_t kPieceElements = 8192;  // the most of a piece

// The piece of a segment that one block updates.
struct UpdatePiece {
  int64_t offset = 0;
  int32_t count = 0;
  int32_t segment = 0;
  float weight_decay = 0;
  float rate_factor = 1;
  int32_t adaptive = 0;
  // [filters, channels, pixels], of which a copy is made as [filters, pixels, stored], padded, with rows of `to_width`
  // in the place of `width` pixels; its first element lies at `copy`. Below 0: none is made.
  int32_t channels = 1, pixels = 1, stored = 1, width = 1, to_width = 1;
  int64_t copy = -1;
};

// The pieces [first, end) of one segment.
struct UpdateSpan {
  int32_t first = 0, end = 0;
};

// Each begins at a multiple of 16 bytes, as a whole arena does.
struct OptimizerArrays {
  const float *gradients, *scalars;
  float *values, *slot0, *slot1;  // slot1: null where the optimizer has one slot
  void* copies;                   // null where there are none
};

// Tables on the device: the pieces and, for optimizers with adaptive segments, their spans. `trust` below: a factor for
// each segment, computed by launch_trust, or null.
struct OptimizerTables {
  const UpdatePiece* pieces = nullptr;
  const UpdateSpan* spans = nullptr;
  int32_t piece_count = 0, segment_count = 0;
};
// `copies`: their type; f32: there are none.
void launch_optimizer(cudaStream_t stream, const ApplyOptimizer& op, const OptimizerTables& tables,
                      const OptimizerArrays& arrays, DType copies, const float* trust);
// workspace: two doubles for each piece
void launch_trust(cudaStream_t stream, const ApplyOptimizer& op, const OptimizerTables& tables,
                  const OptimizerArrays& arrays, double* workspace, float* trust);

// Both arrays begin at multiples of 16 bytes.
void launch_average(cudaStream_t stream, int64_t count, const float* values, const float* scalars, float* averages);

struct StatisticsTable {
  const ApplyStatistics::Entry* entries = nullptr;  // on the device
  int32_t count = 0;
  double momentum = 0;
};
void launch_statistics(cudaStream_t stream, const StatisticsTable& table, const float* moments, const float* scalars,
                       float* statistics);

// workspace: sum_of_squares_bytes
size_t sum_of_squares_bytes();
void launch_sum_of_squares(cudaStream_t stream, int64_t count, const float* values, double* result, void* workspace);

// FindNonFinite
void launch_find_non_finite(cudaStream_t stream, int64_t count, const float* values, const double* squares,
                            StepOutcome* outcome);

// Pointers to the losses of at most kMaxHeads heads, and their weights.
constexpr int kMaxHeads = 8;
struct HeadLosses {
  const float* loss[kMaxHeads] = {};
  double weight[kMaxHeads] = {};
  int count = 0;
};
void launch_fill_step_header(cudaStream_t stream, const HeadLosses& heads, const StepControl* control,
                             const int32_t* correct, float* header, StepOutcome* outcome);
struct DecideArrays {
  const float* header;
  const double* squares;
  const StepControl* control;
  float* scalars;
  UpdateState* state;
  StepOutcome* outcome;
};
void launch_decide_update(cudaStream_t stream, const DecideUpdate& op, const DecideArrays& arrays);

}  // namespace lockstep::cuda
