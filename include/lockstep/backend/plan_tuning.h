// Which plan a backend takes where its library has several (cuDNN's of a convolution), found by timing them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// Belongs to a backend on a device that is there. take() and time_plans() come before its compile(), the rest after.
class PlanTuning {
 public:
  virtual ~PlanTuning() = default;

  // Device and library: "NVIDIA H200 (compute capability 9.0), cuDNN 9.19.0". Choices count only where it is the same.
  virtual std::string valid_for() const = 0;

  // Takes the choices of another process. Throws Error(checkpoint) if it cannot be read; compile() does if the library
  // has no such plan.
  virtual void take(std::string_view choices) = 0;

  // Lets compile() time the plans of every shape for which none was taken, on scratch memory, for `seconds` all
  // together. After that it takes the library's first plans.
  virtual void time_plans(double seconds) = 0;

  // A line for each shape, with those that were taken: the name of the plan, a tab, the shape.
  virtual std::string choices() const = 0;

  struct Result {
    int64_t kernels = 0, shapes = 0;  // that were compiled
    int64_t taken = 0;                // shapes
    int64_t timed = 0;                // plans
    int64_t failed = 0;               // plans that did not run when they were to be timed
    int64_t left = 0;                 // shapes of which no plan was timed: they have the first one
    double seconds = 0;               // that timing took
    double first = 0, fastest = 0;  // seconds of one run of each kernel that was timed: with the first plans, with ours
  };
  virtual Result result() const = 0;
};

}  // namespace lockstep
