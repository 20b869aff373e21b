// Convolutions by cuDNN's graph API: each is planned once, when kernels are compiled, and the plan shared by all
// kernels of equal shape. The plan is the first in cuDNN's own ranking that meets our conditions, so that all ranks
// with the same kind of GPU choose the same one, or the fastest of the first ones (PlanTuning).
#pragma once

#include <cudnn.h>

#include <map>
#include <memory>
#include <span>
#include <string>

#include "lockstep/backend/plan_tuning.h"
#include "lockstep/ops/ops.h"

namespace lockstep::cuda {

enum class ConvKind : uint8_t { forward, grad_input, grad_weights };

// What a convolution computes of a batch norm with ReLU before or behind it (see ops/conv2d.h). cuDNN has engines for
// these in fp16.
enum class Fusion : uint8_t {
  none,
  statistics,             // forward: the sums of y and of its squares
  normalized_statistics,  // the same of the convolution of relu(slope x + offset)
  normalized_grad_weights,
  norm_gradients,  // the gradient by input where relu(norm(x)) is above 0, and the sums of the norm's gradient
};

// The numbers of a problem's tensors. All vectors have one element a channel; slope and offset are of the problem's
// type, the others float32.
enum TensorId : int64_t {
  kX = 1,
  kWeights,
  kY,
  kGradient,  // dz of norm_gradients, of the shape of x
  kSlope,
  kOffset,
  kSum,
  kSquares,
  kMean,
  kInverseDeviation,
  kScale,
  kShift,
  kScaleGradient,
  kShiftGradient,
  kByGradient,  // the gradient by x is kByGradient dz + kByX x + kConstant
  kByX,
  kConstant,
  kAfterLast
};

// x [N,I,H,W] and y [N,O,H',W'] channels last, weights [O,I,kh,kw] with I last; all of one element type, sums in float.
struct ConvProblem {
  ConvKind kind = ConvKind::forward;
  DType dtype = DType::f32;
  bool tf32 = false;  // f32: tensor cores may round the factors to tf32
  Window window;
  Shape x, weights, y;
  Fusion fusion = Fusion::none;
  std::string to_string() const;
};

// A tensor of a plan by its number, and where it lies.
struct PlanTensor {
  TensorId id;
  void* memory;
};

// Owned by the planner and the kernels together; run by one thread at a time.
class ConvPlan {
 public:
  virtual ~ConvPlan() = default;
  // `tensors`: all of the problem.
  virtual void run(cudnnHandle_t handle, std::span<const PlanTensor> tensors, void* workspace) const = 0;
  virtual size_t workspace_bytes() const = 0;
  virtual std::string name() const = 0;  // cuDNN's name of the engine and its knobs
  virtual bool tensor_cores() const = 0;
};

// Plans for the device of a cuDNN handle, or for a device that is only described: then no GPU is needed, and the plans
// cannot be run. Used by one thread at a time.
class ConvPlanner final : public PlanTuning {
 public:
  // The handle is not owned and must outlive the planner. `device` is its name in valid_for().
  explicit ConvPlanner(cudnnHandle_t handle, std::string device = {});
  explicit ConvPlanner(std::string_view device_as_json);  // as cuDNN serializes device properties
  ~ConvPlanner() override;

  // Throws Error(config) with cuDNN's reason when no engine meets the conditions.
  std::shared_ptr<const ConvPlan> plan(const ConvProblem& problem);
  // Whether an engine meets the conditions; otherwise cuDNN's reason in `why`.
  bool can(const ConvProblem& problem, std::string* why = nullptr);

  std::string valid_for() const override;
  void take(std::string_view choices) override;
  void time_plans(double seconds) override;
  std::string choices() const override;
  Result result() const override;

 private:
  struct Device;
  struct Known {
    std::shared_ptr<const ConvPlan> plan;
    std::string name;     // of the plan that was chosen
    int64_t kernels = 0;  // that run it
    bool taken = false;
    double first = 0, fastest = 0;  // seconds of one run; 0: not timed
  };
  std::shared_ptr<const ConvPlan> first_plan(const ConvProblem& problem) const;
  void choose(const ConvProblem& problem, Known& known);
  void time(const ConvProblem& problem, Known& known);

  std::unique_ptr<Device> device_;
  std::map<std::string, Known> known_;           // by ConvProblem::to_string()
  std::map<std::string, std::string> refusals_;  // of fused problems: cuDNN's reason
  double deadline_ = 0;                          // until which plans are timed, in monotonic_seconds(); 0: they are not
  Result timing_;                                // but for what known_ says
};

}  // namespace lockstep::cuda
