#include "lockstep/train/initialize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "lockstep/base/cpu_cores.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/printable.h"
#include "lockstep/base/random.h"
#include "lockstep/exchange/onnx_import.h"
#include "lockstep/models/models.h"

namespace lockstep {
namespace {

double deviation_of(const Parameter& p, InitRule rule) {
  if (rule == InitRule::truncated_normal) return p.init.deviation;
  const Shape& s = p.shape;
  const bool conv = s.rank() == 4;
  const auto fan_in = static_cast<double>(s.elements() / s[0]);
  return std::sqrt((conv ? 2.0 : 1.0) / fan_in);
}

// Gives the parameters the values of an ONNX file. A classifier for another number of classes keeps those that it has.
void load_onnx_weights(const Config& config, const CompiledModel& model, const HostState& host) {
  OnnxModel file = read_onnx_model(config.model.file);
  const std::string name = printable(config.model.file);
  require_finite(file.weights, name);
  const ParameterTable& table = model.parameters();
  const Graph drawn = build_model(config.model.name, model_options(config, 1, false));
  std::string fresh;
  for (const ParameterId id : classifier_parameters(drawn)) {
    const Parameter& parameter = drawn.parameters[id];
    const auto tensor = std::ranges::find(file.weights, parameter.name, &NamedTensor::name);
    if (tensor == file.weights.end() || tensor->shape[0] == parameter.shape[0]) continue;
    fresh = fmt::format("; the classifier starts from fresh values (the file has {} classes, the model {})",
                        tensor->shape[0], config.model.classes);
    const std::span<float> values = host.parameter(table.find(parameter.name));
    *tensor = {parameter.name, parameter.shape, {values.begin(), values.end()}};
  }
  try {
    file.weights = arrange_by_table(std::move(file.weights), table, name);
  } catch (const Error& error) {
    if (file.image_size == 0 || file.image_size == config.model.image_size) throw;
    fail(error.code(), "{}; the file is for images of {} pixels, model.image_size = {}", error.what(), file.image_size,
         config.model.image_size);
  }
  for (ParameterId id = 0; id < table.size(); ++id) {
    std::ranges::copy(file.weights[static_cast<size_t>(id)].values, host.parameter(id).begin());
  }
  log_info("weights from {}{}", name, fresh);
}

}  // namespace

void initialize_parameter(const Parameter& parameter, InitRule rule, uint64_t seed, std::span<float> values) {
  if (parameter.init.kind == Initializer::Kind::constant) {
    std::fill(values.begin(), values.end(), static_cast<float>(parameter.init.value));
    return;
  }
  const double deviation = deviation_of(parameter, rule);
  RandomStream stream(random_key(seed, fnv1a64(parameter.name)));
  for (float& value : values) {
    double z = stream.normal();
    while (std::abs(z) > parameter.init.bound) z = stream.normal();
    value = static_cast<float>(deviation * z);
  }
}

void initialize_parameters(const Config& config, const CompiledModel& model, const HostState& host) {
  constexpr int kMostHelpers = 8;
  const InitRule rule = config.model.init;
  const ParameterTable& table = model.parameters();
  std::atomic<ParameterId> next = 0;
  const auto work = [&] {  // each parameter has its own random numbers, so it does not matter which thread draws them
    for (ParameterId id = next++; id < table.size(); id = next++) {
      initialize_parameter(table[id], rule, config.train.seed, host.parameter(id));
    }
  };
  {
    std::vector<std::jthread> helpers(std::min(usable_cores(cpu_cores()), kMostHelpers) - 1);
    for (std::jthread& helper : helpers) helper = std::jthread(work);
    work();
  }
  if (config.model.name == kModelFile && is_onnx(config.model.file)) load_onnx_weights(config, model, host);
}

}  // namespace lockstep
