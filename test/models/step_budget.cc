// What the compiled step of every bundled model asks of a GPU that is only described: kernels that are launched, bytes
// that they read and write, memory, and cuDNN's engines, with the options of the model's recipe (recipe_options.h). A
// row a model, precision, batch and device:
//
//   step_budget            prints the table
//   step_budget TABLE      compares it with a file; prints rows that differ, and ends with 1 then
//   step_budget MODEL PRECISION BATCH
//                          on an H200: its row, gigabytes by operation, launches by kernel, and what memory holds at
//                          the peak
//
// Forward and backward; the update is not in it. Bytes are those of the operands, as often as the kernels pass over
// them: what caches save is not counted. The time is that of a model (node_seconds), in which nothing is measured.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "lockstep/graph/predicted_time.h"
#include "lockstep/models/models.h"
#include "test/models/counting_device.h"
#include "test/models/precisions.h"
#include "test/models/recipe_options.h"

using namespace lockstep;
using namespace lockstep::test;

namespace {

struct Device {
  const char* name;
  double bytes_per_second;  // that a copy reaches
};
constexpr Device kDevices[] = {{"h100", kH100CopyRate}, {"h200", kH200CopyRate}};
constexpr int64_t kBatches[] = {32, 128, 256};
constexpr int kCapability = 9;

enum Kind { kConvolution, kNorm, kPool, kSum, kCast, kCopy, kOther, kKinds };
constexpr std::array<const char*, kKinds> kKindNames = {"conv", "norm", "pool", "sum", "cast", "copy", "other"};

struct Budget {
  std::array<double, kKinds> gigabytes{};
  double seconds = 0;
  int64_t fused = 0;  // convolutions and gradients
  int64_t activation_bytes = 0, workspace_bytes = 0;
  int64_t tensor_core_plans = 0, other_plans = 0;
  DeviceWork work;
};

Kind kind_of(const Op& op) {
  return std::visit(
      Overload{[](const OneOf<Conv2d, Conv2dGradInput, Conv2dGradWeights, Conv2dStatistics, Conv2dNormalizedGradWeights,
                              Conv2dGradInputNorm> auto&) { return kConvolution; },
               [](const OneOf<BatchNorm, BatchNormGrad, BatchNormInference, BatchNormInferenceGrad, BatchNormOfSums,
                              BatchNormOfSumsGrad, BatchNormStatistics, BatchNormGradApply, BatchNormMaxPool,
                              BatchNormMaxPoolGrad, BatchNormGradSums, BatchNormGradOfSums,
                              BatchNormMaxPoolGradOfSums> auto&) { return kNorm; },
               [](const OneOf<MaxPool, MaxPoolGrad, MaxPoolGradSum, MaxPoolGradNormSums, AvgPool, AvgPoolGrad,
                              AvgPoolStatistics> auto&) { return kPool; },
               [](const Add&) { return kSum; },
               [](const OneOf<Cast, CastMany, PreparePixels, Reorder> auto&) { return kCast; },
               [](const OneOf<Reshape, Slice, Concat> auto&) { return kCopy; }, [](const auto&) { return kOther; }},
      op);
}

// Enqueues the step once, at addresses that nothing may touch.
DeviceWork run_once(const Backend& backend, const Executable& e) {
  const auto stream = backend.make_stream();
  constexpr size_t kArena = size_t{1} << 40;
  Arenas arenas{.parameters = device_address(kArena),
                .copies = device_address(kArena),
                .statistics = device_address(kArena),
                .gradients = device_address(kArena),
                .activations = device_address(kArena)};
  for (const Value& v : e.graph().values) {
    if (v.role == ValueRole::external) arenas.external[v.external] = device_address(kArena);
  }
  take_device_work();
  e.forward(*stream, arenas);
  e.backward(*stream, arenas, {});
  return take_device_work();
}

Budget budget_of(const Backend& backend, const Model& model, const Precision& precision, int64_t batch,
                 const Device& device) {
  const Executable e =
      Executable::compile(build_model(model.name, recipe_options(model.name, batch)), backend,
                          {.training = true, .compute = precision.compute, .pixels = recipe_pixels(model.name)});
  const DeviceRates rates = assumed_rates(precision.compute, precision.tf32, device.bytes_per_second);
  Budget budget;
  for (size_t p = 0; p < e.schedule().order.size(); ++p) {
    const Node& node = e.graph().node(e.schedule().order[p]);
    const std::string implementation = e.kernel(p).implementation();
    budget.gigabytes[kind_of(node.op)] += node_bytes(e, backend, p) * 1e-9;
    budget.seconds += node_seconds(e, backend, p, rates);
    budget.workspace_bytes = std::max(budget.workspace_bytes, static_cast<int64_t>(e.kernel(p).workspace_bytes()));
    if (!implementation.starts_with("cudnn:")) continue;
    if (implementation.ends_with(", fused")) {
      ++budget.fused;
      continue;
    }
    ++(implementation.ends_with(", tensor cores") ? budget.tensor_core_plans : budget.other_plans);
  }
  budget.activation_bytes = e.plan().activation_bytes;
  budget.work = run_once(backend, e);
  budget.seconds += static_cast<double>(budget.work.launches()) * rates.gap_seconds;
  return budget;
}

std::string header() {
  std::string text = "model\tprecision\tbatch\tdevice\tkernels\tconvolutions\tfused\tproducts";
  for (const char* kind : kKindNames) text += fmt::format("\t{}_GB", kind);
  return text + "\tall_GB\tMB_per_image\tactivations_MB\tworkspace_MB\ttensor_core_plans\tother_plans\tmodel_ms\n";
}

std::string row(const std::string& key, int64_t batch, const Budget& b) {
  std::string text =
      fmt::format("{}\t{}\t{}\t{}\t{}", key, b.work.launches(), b.work.convolutions, b.fused, b.work.products);
  double all = 0;
  for (const double gigabytes : b.gigabytes) {
    text += fmt::format("\t{:.3f}", gigabytes);
    all += gigabytes;
  }
  return text + fmt::format("\t{:.3f}\t{:.1f}\t{:.1f}\t{:.1f}\t{}\t{}\t{:.2f}\n", all,
                            all * 1e3 / static_cast<double>(batch), static_cast<double>(b.activation_bytes) * 1e-6,
                            static_cast<double>(b.workspace_bytes) * 1e-6, b.tensor_core_plans, b.other_plans,
                            b.seconds * 1e3);
}

std::string description_of(const std::string& device) {
  std::ifstream file(std::string(LOCKSTEP_DEVICE_DIR) + "/" + device + ".json");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string table() {
  std::string text = header();
  for (const Device& device : kDevices) {
    for (const Precision& precision : kPrecisions) {
      const auto backend =
          cuda::make_backend_for_described_device(description_of(device.name), {.tf32 = precision.tf32});
      for (const Model& model : models()) {
        for (const int64_t batch : kBatches) {
          text += row(fmt::format("{}\t{}\t{}\t{}", model.name, precision.name, batch, device.name), batch,
                      budget_of(*backend, model, precision, batch, device));
        }
      }
    }
  }
  return text;
}

std::set<std::string> lines_of(const std::string& text) {
  std::set<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.insert(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// 1 when the rows are not those of the file.
int compare(const std::string& actual, const char* path) {
  std::ifstream file(path);
  const std::set<std::string> expected = lines_of({std::istreambuf_iterator<char>(file), {}}), now = lines_of(actual);
  if (expected == now) return 0;
  std::cout << "  " << header();
  for (const std::string& line : expected) {
    if (!now.contains(line)) std::cout << "- " << line << "\n";
  }
  for (const std::string& line : now) {
    if (!expected.contains(line)) std::cout << "+ " << line << "\n";
  }
  std::cout << "This is what the change does to a step on a GPU. If it is meant so, write the new table: step_budget > "
            << path << "\n";
  return 1;
}

void print_peak(const Backend& backend, const Executable& e) {
  std::vector<size_t> storage, workspaces;
  for (const Value& v : e.graph().values) storage.push_back(backend.storage_bytes(v.desc));
  for (size_t p = 0; p < e.schedule().order.size(); ++p) workspaces.push_back(e.kernel(p).workspace_bytes());
  const MemoryPeak peak = find_peak({e.graph(), e.schedule(), e.layout(), storage, workspaces}, e.plan());
  fmt::print("peak at {}: {:.1f} MB\n", e.graph().node(e.schedule().order[peak.position]).name,
             static_cast<double>(peak.bytes) * 1e-6);
  for (const MemoryPeak::Part& part : peak.parts) {
    if (part.bytes < peak.bytes / 200) break;
    fmt::print("\t{}\t{:.1f}\n", part.value < 0 ? "workspace" : e.graph().value(part.value).name,
               static_cast<double>(part.bytes) * 1e-6);
  }
}

void print_step(std::string_view model, std::string_view precision_name, int64_t batch) {
  const auto precision = std::ranges::find(kPrecisions, precision_name, &Precision::name);
  if (precision == std::end(kPrecisions)) throw std::runtime_error("no such precision");
  const auto backend = cuda::make_backend_for_described_device(description_of("h200"), {.tf32 = precision->tf32});
  const Executable e =
      Executable::compile(build_model(model, recipe_options(model, batch)), *backend,
                          {.training = true, .compute = precision->compute, .pixels = recipe_pixels(model)});
  std::map<std::string, std::pair<int, double>> operations;
  for (size_t p = 0; p < e.schedule().order.size(); ++p) {
    auto& [count, bytes] = operations[std::string(op_name(e.graph().node(e.schedule().order[p]).op))];
    ++count;
    bytes += node_bytes(e, *backend, p);
  }
  for (const auto& [name, sum] : operations) fmt::print("{}\t{}\t{:.3f} GB\n", name, sum.first, sum.second * 1e-9);
  for (const auto& [name, launches] : run_once(*backend, e).kernels) fmt::print("kernel {}\t{}\n", name, launches);
  print_peak(*backend, e);
  const Device& h200 = *std::ranges::find(kDevices, std::string_view("h200"), &Device::name);
  fmt::print("{}{}", header(),
             row(fmt::format("{}\t{}\t{}\th200", model, precision_name, batch), batch,
                 budget_of(*backend, {.name = model}, *precision, batch, h200)));
}

}  // namespace

int main(int count, char** arguments) {
  try {
    set_device_capability(kCapability);
    if (count == 4) {
      print_step(arguments[1], arguments[2], std::stoll(arguments[3]));
      return 0;
    }
    const std::string text = table();
    if (count > 1) return compare(text, arguments[1]);
    std::cout << text;
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
