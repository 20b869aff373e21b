#include "app/machine_rates.h"

#include <algorithm>
#include <limits>

namespace lockstep {
namespace {

constexpr int kRuns = 5;
constexpr int64_t kSummedElements = int64_t{32} << 20;  // far more than a cache holds

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

}  // namespace

MachineRates measure_machine_rates(const Backend& backend, Stream& stream, DType compute) {
  const int64_t side = backend.host_addressable() ? 1024 : 8192;
  const TensorDesc matrix{.shape = {side, side}, .dtype = compute};
  const TensorDesc bias{.shape = {side}, .dtype = DType::f32};
  const double product = best_seconds(backend, stream, Linear{}, {matrix, matrix, bias});
  const TensorDesc term{.shape = {kSummedElements}, .dtype = DType::f32};
  const double sum = best_seconds(backend, stream, Add{}, {term, term});
  const auto operations = 2.0 * static_cast<double>(side) * static_cast<double>(side) * static_cast<double>(side);
  return {.operations_per_second = operations / product,
          .bytes_per_second = 3.0 * static_cast<double>(kSummedElements * sizeof(float)) / sum};
}

}  // namespace lockstep
