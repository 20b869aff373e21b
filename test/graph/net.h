// A compiled graph with memory of its own, filled and read as doubles whatever the backend and element type.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/model_state.h"
#include "lockstep/graph/executable.h"

namespace lockstep::test {

// The backend must outlive it. Used by one thread.
class Net {
 public:
  Net(const Backend& backend, Graph graph, const CompileOptions& options);
  // A graph for evaluation that reads the parameters and statistics of `trained`, which must outlive it.
  Net(const Net& trained, Graph graph);

  // value(parameter, element) for every element of every parameter and statistic.
  using Fill = std::function<double(const Parameter&, int64_t)>;
  void fill_parameters(const Fill& value);
  void set(ExternalInput input, std::span<const double> values);
  // Parameters, images, labels and dropout key that depend on the seed alone; sample weights 1.
  void fill_at_random(uint64_t seed);

  void forward(const RankSum& sum = {});
  void backward(const RankSum& sum = {});
  double loss() const;  // sum over heads of weight * summed loss

  std::vector<double> value(ValueId id) const;
  std::vector<double> parameter(const std::string& name) const;  // statistics too
  std::vector<double> gradient(const std::string& name) const;
  void set_parameter(const std::string& name, std::span<const double> values);

  // Runs an update kernel over whole arenas.
  void update(const UpdateOp& op, std::vector<const void*> inputs, std::vector<void*> outputs);

  const Executable& executable() const { return executable_; }
  const Graph& graph() const { return executable_.graph(); }
  ModelState& state() { return state_; }
  const Arenas& arenas() const { return arenas_; }
  Stream& stream() const { return *stream_; }
  DType dtype() const { return dtype_; }
  std::vector<double> read(const void* from, DType type, int64_t count) const;
  void write(void* to, DType type, std::span<const double> values) const;

 private:
  void bind_externals();
  void* parameter_address(ParameterId id) const;

  const Backend& backend_;
  std::shared_ptr<Stream> stream_;  // shared with nets for evaluation: convolutions run on the backend's first stream
  Executable executable_;
  DType compute_;
  DType dtype_;
  ModelState state_;  // of a trained net; empty in one for evaluation but for the activations
  std::map<ExternalInput, Buffer> externals_;
  Arenas arenas_;
};

// How many matches a rewrite changed; -1: it did not run.
int matches_of(const Executable& executable, std::string_view rewrite);

// Runs both nets forward and backward on the same random numbers; returns the largest relative error of the logits of
// all heads and of the gradients (see worst_gradient_error).
double worst_error(Net& net, Net& expected);

// sqrt(sum (a - b)^2 / sum b^2); the norm of the difference where b is zero.
double relative_error(std::span<const double> a, std::span<const double> b);

// The largest over all trained parameters of |gradient - expected| / max(|expected|, 1e-3 of the largest |expected|):
// gradients that are zero but for rounding (of a bias before batch norm, say) count by the size of the others.
double worst_gradient_error(const Net& net, const Net& expected);

}  // namespace lockstep::test
