#include "app/machine_rates.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace lockstep {
namespace {

constexpr int kRuns = 5;
constexpr double kLongSeconds = 0.01;                 // long compared with the start of a kernel
constexpr int64_t kMostElements = int64_t{64} << 20;  // of a matrix and of a term of the sum: far more than caches hold

// Returns the duration of the fastest of a few runs of `op` on zeros.
double best_seconds(const Backend& backend, Stream& stream, const Op& op, std::vector<TensorDesc> inputs) {
  std::vector<TensorDesc> outputs = infer(op, inputs);
  const FormatChoice formats = backend.choose_formats(op, inputs, outputs);
  std::vector<Buffer> memory;
  std::vector<void*> addresses;
  for (const auto& [descs, chosen] : {std::pair(&inputs, &formats.inputs), std::pair(&outputs, &formats.outputs)}) {
    for (size_t i = 0; i < descs->size(); ++i) {
      TensorDesc& desc = (*descs)[i];
      desc.format = (*chosen)[i];
      addresses.push_back(memory.emplace_back(backend.allocate(backend.storage_bytes(desc))).data());
    }
  }
  const auto kernel = backend.compile(op, inputs, outputs);
  const Buffer workspace = backend.allocate(kernel->workspace_bytes());
  const std::span<void* const> all(addresses);
  const auto before = backend.make_timed_event(), after = backend.make_timed_event();
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; ++run) {
    stream.record(*before);
    kernel->run({stream, all.first(inputs.size()), all.subspan(inputs.size()), workspace.data()});
    stream.record(*after);
    stream.wait();
    best = std::min(best, after->seconds_since(*before));
  }
  return best;
}

// Returns the rate on the first number of elements that keeps the machine busy for long, otherwise on the largest: few
// elements would fit in a cache. `seconds` measures one number, and `amount` is its work.
double rate_at_best(const std::function<double(int64_t elements)>& seconds,
                    const std::function<double(double elements)>& amount) {
  for (int64_t elements = kMostElements >> 10;; elements *= 4) {
    const double taken = seconds(elements);
    if (taken > kLongSeconds || elements == kMostElements) return amount(static_cast<double>(elements)) / taken;
  }
}

}  // namespace

MachineRates measure_machine_rates(const Backend& backend, Stream& stream, DType compute) {
  const auto product = [&](int64_t elements) {
    const auto side = std::llround(std::sqrt(static_cast<double>(elements)));
    const TensorDesc matrix{.shape = {side, side}, .dtype = compute};
    return best_seconds(backend, stream, Linear{}, {matrix, matrix, {.shape = {side}, .dtype = compute}});
  };
  const auto sum = [&](int64_t elements) {
    const TensorDesc term{.shape = {elements}, .dtype = DType::f32};
    return best_seconds(backend, stream, Add{}, {term, term});
  };
  return {.operations_per_second = rate_at_best(product, [](double elements) { return 2 * std::pow(elements, 1.5); }),
          .bytes_per_second = rate_at_best(sum, [](double elements) { return 3 * elements * sizeof(float); })};
}

}  // namespace lockstep
