// What weight decay adds to the loss: half of it times the squares of all weights that decay.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/train/compiled_model.h"

namespace lockstep {

// Where the host can address the weights they are summed at once. On a device they are summed there, in the stream's
// order, and the host neither waits nor reads them: value() is then what they were at the call before.
//
// For the thread that runs the steps; program, backend and stream must outlive it.
class DecayLoss {
 public:
  // On a device this enqueues the sums that the first value() returns.
  DecayLoss(const Config& config, const CompiledModel& model, Stream& stream);
  double value();

 private:
  struct Part {
    float* weights;
    std::unique_ptr<Kernel> squares;
  };
  void enqueue();
  double host_squares() const;

  const double factor_;
  const CompiledModel& model_;
  Stream& stream_;
  std::vector<ParameterId> decayed_;
  std::vector<Part> parts_;
  Buffer sums_, arrived_sums_, workspace_;  // on the device, and pinned: a double a part
  std::unique_ptr<Event> arrived_;
};

}  // namespace lockstep
