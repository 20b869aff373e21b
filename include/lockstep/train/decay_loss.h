// The contribution of weight decay to the loss: weight_decay / 2 times the sum of squares of all decayed weights.
#pragma once

#include <memory>
#include <vector>

#include "lockstep/train/compiled_model.h"

namespace lockstep {

// If the host can address the weights, it sums them immediately. Otherwise the device sums them in stream order without
// blocking the host, and value() returns the result that was enqueued by the previous call.
//
// Only the thread that runs the steps may use it; the model, its backend and the stream must outlive it.
class DecayLoss {
 public:
  // On a device, the constructor enqueues the sums that the first value() returns.
  DecayLoss(const Config& config, const CompiledModel& model, Stream& stream);
  double value();

 private:
  struct Part {
    float* weights;
    std::unique_ptr<Kernel> squares;
  };
  void enqueue();

  const double factor_;
  const CompiledModel& model_;
  Stream& stream_;
  std::vector<ParameterId> decayed_;
  std::vector<Part> parts_;
  Buffer sums_, arrived_sums_, workspace_;  // on the device and in pinned memory: one double per part
  std::unique_ptr<Event> arrived_;
};

}  // namespace lockstep
