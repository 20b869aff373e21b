// The operations of the parameter update. They run over whole arenas after the all-reduce, so they are not part of the
// graph; every state change of a step happens in them. None of them needs the host: DecideUpdate decides about a step,
// and when it sets kSkip the others change nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep {

// Consecutive elements that share one weight decay and one learning rate.
struct UpdateSegment {
  int64_t offset = 0, count = 0;  // elements in the trained arena
  double weight_decay = 0;
  double rate_factor = 1;  // multiplies the learning rate
  bool adaptive = false;   // lars: one parameter, whose rate follows from its norm and its gradient's
};

enum class OptimizerKind : uint8_t {
  sgd,         // g += wd w; m = momentum m + g; w -= lr m, or with nesterov w -= lr (g + momentum m)
               // (torch.optim.SGD); slot momentum
  rmsprop_tf,  // g += wd w; s += (1-decay)(g^2 - s); m = momentum m + lr g / sqrt(s + eps); w -= m
               // (TensorFlow's RMSPropOptimizer: epsilon inside the root, s starts at 1); slots mean_square, momentum
  rmsprop,     // g += wd w; s = decay s + (1-decay) g^2; m = momentum m + g / (sqrt(s) + eps); w -= lr m
               // (torch.optim.RMSprop: epsilon outside the root, s starts at 0); slots mean_square, momentum
  adam,        // g += wd w; then as adamw without its wd w (torch.optim.Adam); slots exp_avg, exp_avg_sq
  adamw,       // a = b1 a + (1-b1) g; v = b2 v + (1-b2) g^2;
               // w -= lr ((a / c1) / (sqrt(v / c2) + eps) + wd w), c = 1 - b^t (Loshchilov and Hutter 2019);
               // slots exp_avg, exp_avg_sq
  lars,        // r = trust |w| / (|g| + wd |w|) in adaptive segments (1 where a norm is 0), else 1; g += wd w;
               // m = momentum m + lr r g; w -= m (You, Gitman and Ginsburg 2017); slot momentum
  ftrl,        // g += wd w; n' = n + g^2; z += g - (n'^p - n^p) / lr w, p = -learning_rate_power;
               // w = (clamp(z, -l1, l1) - z) / (n'^p / lr + 2 l2)
               // (TensorFlow's FtrlOptimizer, McMahan et al. 2013; n starts above 0); slots accumulator, linear
};

// Scalars of one step, in the parameters' element type, at these indices of the `scalars` input.
enum UpdateScalar : int {
  kLearningRate = 0,
  kGradientScale = 1,  // multiplies every gradient before anything else (1 / global sample count; clipping)
  kBias1 = 2,          // adam, adamw: c1
  kBias2 = 3,          // adam, adamw: c2
  kAverageDecay = 4,   // decay of the exponential moving average at this step
  kSampleCount = 5,    // samples of the global batch
  kSkip = 6,           // not 0: the step changes nothing
  kLossScale = 7,      // of the next step's gradients
  kUpdateScalars = 8
};

// Parameters in 16 bits for the layers that read them, in the format of the backend. Holds whole filters: all of a
// parameter, or of several that lie side by side.
struct WeightCopy {
  int64_t offset = 0;    // elements in the trained arena
  int64_t to_bytes = 0;  // in the arena of copies
  TensorDesc desc;
};

// inputs: gradients, scalars; outputs (read and written): parameters, slot0 (, slot1) (, the arena of copies, written)
struct ApplyOptimizer {
  OptimizerKind kind = OptimizerKind::sgd;
  double momentum = 0.9;
  bool nesterov = false;              // sgd
  double decay = 0.9;                 // rmsprop_tf, rmsprop
  double beta1 = 0.9, beta2 = 0.999;  // adam, adamw
  double epsilon = 1e-8;
  double trust = 0.001;                               // lars
  double l1 = 0, l2 = 0, learning_rate_power = -0.5;  // ftrl
  std::vector<UpdateSegment> segments;
  std::vector<WeightCopy> copies;  // all of one type; only where the backend can CastMany
};

// average += (1 - decay) (value - average); inputs: values, scalars; outputs (read and written): averages
struct ApplyAverage {
  int64_t count = 0;
};

// Updates the running statistics of each batch norm from the summed moments of BatchMoments. With n = sample count of
// the global batch, m = n * spatial values a channel: d = first / n, var = second / n - d^2,
//   running_mean += momentum * d;  running_var += momentum * (max(var, 0) * m / (m - 1) - running_var)
// where d is measured from running_mean as it was when BatchMoments ran.
// inputs: moments (laid out like the statistics arena), scalars; outputs (read and written): statistics
struct ApplyStatistics {
  struct Entry {
    int64_t mean_offset = 0, var_offset = 0;  // elements in the statistics arena
    int64_t channels = 0;
    int64_t spatial = 0;  // H * W of the batch norm's input
  };
  double momentum = 0.1;
  std::vector<Entry> entries;
};

// inputs: values; outputs: f64[1], the sum of squares in double: NaN or infinite exactly when some value is non-finite
// (float32 squares cannot overflow a double).
struct SumOfSquares {
  int64_t count = 0;
};

// sums += values; inputs: values; outputs (read and written): sums
struct AddToSums {
  int64_t count = 0;
};

// Values as 16-bit floats (`to`: bf16 | f16), and back: gradients on the wire. Values too large for the type
// become infinite.
// DowncastValues: inputs: values; outputs: 16-bit values. UpcastValues: inputs: 16-bit values; outputs: values.
struct DowncastValues {
  int64_t count = 0;
  DType to = DType::bf16;
};
struct UpcastValues {
  int64_t count = 0;
  DType from = DType::bf16;
};

// Fills this rank's step header (step_header.h) from its loss heads; `correct` is that of the first head.
// inputs: StepControl, correct i32[2], then a loss [] for each head; outputs: the header, StepOutcome (adds to
// own_loss)
struct FillStepHeader {
  std::vector<double> head_weights;
};

// Decides about the step once the sums of all ranks are known: computes the scalars of the update, or skips the step
// because a loss or gradient is non-finite. The gradient's norm is sqrt(sum of squares) / samples / loss scale. With
// scale_loss (Micikevicius et al. 2018) a non-finite gradient with a finite loss skips the step and halves the loss
// scale; 2000 updates without such a gradient double it. All ranks see the same sums and do the same.
// inputs: summed header, sum of squares f64[1], StepControl; outputs: scalars, UpdateState (read and written),
// StepOutcome (all but own_loss)
struct DecideUpdate {
  double clip_norm = 0;               // gradients with a larger norm are scaled down to this one; 0: no clipping
  double beta1 = 0.9, beta2 = 0.999;  // adam, adamw
  double average_decay = 0;           // at most; during its warm-up (1 + n) / (10 + n) at update n
  bool halt = false;                  // after a non-finite value, skip every later step too
  bool scale_loss = false;
};

// Finds the index of the first non-finite value if the sum of squares shows that there is one; otherwise does not read
// the values. inputs: values, sum of squares f64[1]; outputs (read and written): StepOutcome (bad_gradient)
struct FindNonFinite {
  int64_t count = 0;
};

struct UpdateOp {
  DType dtype = DType::f32;
  std::variant<ApplyOptimizer, ApplyAverage, ApplyStatistics, SumOfSquares, AddToSums, DowncastValues, UpcastValues,
               FillStepHeader, DecideUpdate, FindNonFinite>
      op;
};

struct OptimizerSlots {
  OptimizerKind kind;
  std::string_view name;                // train.optimizer name
  std::vector<std::string_view> slots;  // data set names in checkpoints
  std::vector<double> initial;          // initial value of each slot; a run may set ftrl's first one
};
// All optimizers, one row each.
std::span<const OptimizerSlots> optimizers();
const OptimizerSlots& optimizer_slots(OptimizerKind kind);

}  // namespace lockstep
