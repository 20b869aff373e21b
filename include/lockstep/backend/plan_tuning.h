// Chooses plans by timing them, where a backend's library has several for an operation (cuDNN for convolutions).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// Owned by a backend on an existing device. take() and time_plans() precede its compile(), the other calls follow it.
class PlanTuning {
 public:
  virtual ~PlanTuning() = default;

  // Device and library: "NVIDIA H200 (compute capability 9.0), cuDNN 9.19.0". Choices are valid only if it is equal.
  virtual std::string valid_for() const = 0;

  // Uses the choices of another process. Throws Error(checkpoint) if they cannot be read; compile() throws it if the
  // library lacks one of the plans.
  virtual void take(std::string_view choices) = 0;

  // Lets compile() time the plans of every shape without a choice, on scratch memory, for `seconds` in total. When they
  // have passed, it uses the library's first plans.
  virtual void time_plans(double seconds) = 0;

  // Returns a line for each shape, including those of take(): the name of the plan, a tab, the shape.
  virtual std::string choices() const = 0;

  struct Result {
    int64_t kernels = 0, shapes = 0;  // numbers of those compiled
    int64_t taken = 0;                // shapes
    int64_t timed = 0;                // plans
    int64_t failed = 0;               // plans that did not run when they were to be timed
    int64_t left = 0;                 // shapes without a timed plan, which have the first one
    double seconds = 0;               // duration of the timing
    double first = 0, fastest = 0;    // seconds of one run of each timed kernel: with the first plans, with the chosen
  };
  virtual Result result() const = 0;
};

}  // namespace lockstep
