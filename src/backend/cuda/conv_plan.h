// Convolutions by cuDNN's graph API: each is planned once, when kernels are compiled, and the plan shared by all
// kernels of equal shape. Nothing is timed: the plan is the first in cuDNN's own ranking that meets our conditions, so
// all ranks with the same kind of GPU choose the same one.
#pragma once

#include <cudnn.h>

#include <map>
#include <memory>
#include <span>
#include <string>

#include "lockstep/ops/ops.h"

namespace lockstep::cuda {

enum class ConvKind : uint8_t { forward, grad_input, grad_weights };

// x [N,I,H,W] and y [N,O,H',W'] channels last, weights [O,I,kh,kw] with I last; all of one element type, sums in float.
struct ConvProblem {
  ConvKind kind = ConvKind::forward;
  DType dtype = DType::f32;
  bool tf32 = false;  // f32: tensor cores may round the factors to tf32
  Window window;
  Shape x, weights, y;
  std::string to_string() const;
};

// Owned by the planner and the kernels together; run by one thread at a time.
class ConvPlan {
 public:
  virtual ~ConvPlan() = default;
  // Tensors in the order x, weights, y, one of which is written.
  virtual void run(cudnnHandle_t handle, std::span<void* const, 3> tensors, void* workspace) const = 0;
  virtual size_t workspace_bytes() const = 0;
  virtual std::string name() const = 0;  // cuDNN's name of the engine and its knobs
  virtual bool tensor_cores() const = 0;
};

// Plans for the device of a cuDNN handle, or for a device that is only described: then no GPU is needed, and the plans
// cannot be run. Used by one thread at a time.
class ConvPlanner {
 public:
  explicit ConvPlanner(cudnnHandle_t handle);             // not owned; must outlive the planner
  explicit ConvPlanner(std::string_view device_as_json);  // as cuDNN serializes device properties
  ~ConvPlanner();

  // Throws Error(config) with cuDNN's reason when no engine meets the conditions.
  std::shared_ptr<const ConvPlan> plan(const ConvProblem& problem);

 private:
  struct Device;
  std::unique_ptr<Device> device_;
  std::map<std::string, std::shared_ptr<const ConvPlan>> plans_;
};

}  // namespace lockstep::cuda
