#include "lockstep/train/initialize.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "lockstep/base/cpu_cores.h"
#include "lockstep/base/random.h"

namespace lockstep {
namespace {

double deviation_of(const Parameter& p, InitRule rule) {
  if (rule == InitRule::truncated_normal) return p.init.deviation;
  const Shape& s = p.shape;
  const bool conv = s.rank() == 4;
  const auto fan_in = static_cast<double>(s.elements() / s[0]);
  return std::sqrt((conv ? 2.0 : 1.0) / fan_in);
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
  std::vector<std::jthread> helpers(std::min(usable_cores(cpu_cores()), kMostHelpers) - 1);
  for (std::jthread& helper : helpers) helper = std::jthread(work);
  work();
}

}  // namespace lockstep
