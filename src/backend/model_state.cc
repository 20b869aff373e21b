#include "lockstep/backend/model_state.h"

namespace lockstep {
namespace {

template <class T>
void fill(const Backend& backend, Stream& stream, const Buffer& buffer, double value) {
  const std::vector<T> values(buffer.bytes() / sizeof(T), static_cast<T>(value));
  backend.copy(stream, buffer.data(), values.data(), buffer.bytes());
  stream.wait();
}

}  // namespace

size_t model_state_bytes(const ParameterLayout& layout, const ModelStateOptions& options) {
  const auto trained = static_cast<size_t>(layout.trained_elements);
  const auto statistics = static_cast<size_t>(layout.statistic_elements);
  size_t elements = trained + statistics;
  if (options.training) {
    elements += trained + static_cast<size_t>(layout.moment_elements + kStepHeaderElements);
    elements += optimizer_slots(options.optimizer).initial.size() * trained;
  }
  if (options.average) elements += trained + statistics;
  return elements * dtype_bytes(options.dtype) + options.activation_bytes + options.copy_bytes;
}

std::vector<double> initial_slots(OptimizerKind optimizer, double initial_accumulator) {
  std::vector<double> values = optimizer_slots(optimizer).initial;
  if (optimizer == OptimizerKind::ftrl) values[0] = initial_accumulator;
  return values;
}

ModelState make_model_state(const Backend& backend, Stream& stream, const ParameterLayout& layout,
                            const ModelStateOptions& options) {
  const size_t element = dtype_bytes(options.dtype);
  const auto trained_bytes = layout.trained_elements * element;
  const auto statistic_bytes = layout.statistic_elements * element;
  ModelState state;
  state.trained_elements = layout.trained_elements;
  state.moment_elements = layout.moment_elements;
  state.parameters = backend.allocate(trained_bytes);
  state.statistics = backend.allocate(statistic_bytes);
  if (options.training) {
    state.gradients = backend.allocate(state.gradient_elements() * element);
    for (double initial : initial_slots(options.optimizer, options.initial_accumulator)) {
      state.slots.push_back(backend.allocate(trained_bytes));
      if (initial == 0) continue;  // allocations are zeroed
      options.dtype == DType::f64 ? fill<double>(backend, stream, state.slots.back(), initial)
                                  : fill<float>(backend, stream, state.slots.back(), initial);
    }
  }
  if (options.average) {
    state.average_parameters = backend.allocate(trained_bytes);
    state.average_statistics = backend.allocate(statistic_bytes);
  }
  state.activations = backend.allocate(options.activation_bytes);
  state.copies = backend.allocate(options.copy_bytes);
  return state;
}

}  // namespace lockstep
