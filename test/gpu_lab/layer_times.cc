// The device's time for each layer of a training step, beside the least that its bytes and operations allow: at rates
// that are assumed of an H200, not measured.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "backend/cuda/cuda_backend.h"
#include "lockstep/base/error.h"
#include "lockstep/base/trace.h"
#include "lockstep/graph/predicted_time.h"
#include "test/gpu_lab/training_graph.h"
#include "test/graph/net.h"

namespace lockstep::lab {
namespace {

// Times spans by events on the stream that they enqueue to; on a backend whose memory is the host's, by the host's
// clock.
class SpanTimes final : public SpanObserver {
 public:
  explicit SpanTimes(cudaStream_t stream) : stream_(stream) {}
  ~SpanTimes() override {
    for (const cudaEvent_t event : events_) (void)cudaEventDestroy(event);
  }

  void begin(const char*) noexcept override {
    open_.push_back(spans_.size());
    spans_.emplace_back(mark(), size_t{0});
  }
  void end() noexcept override {
    spans_[open_.back()].second = mark();
    open_.pop_back();
  }

  // Milliseconds of each span since the last call, in the order of their beginnings; the stream has been waited for.
  std::vector<double> take() {
    std::vector<double> result;
    for (const auto& [from, to] : std::exchange(spans_, {})) result.push_back(milliseconds(from, to));
    used_ = 0;
    seconds_.clear();
    return result;
  }

 private:
  size_t mark() noexcept {
    if (!stream_) {
      seconds_.push_back(monotonic_seconds());
      return seconds_.size() - 1;
    }
    if (used_ == events_.size()) (void)cudaEventCreate(&events_.emplace_back());
    (void)cudaEventRecord(events_[used_], stream_);
    return used_++;
  }
  double milliseconds(size_t from, size_t to) const {
    if (!stream_) return (seconds_[to] - seconds_[from]) * 1e3;
    float ms = 0;
    check(cudaEventElapsedTime(&ms, events_[from], events_[to]), "the time between two events");
    return ms;
  }

  const cudaStream_t stream_;
  std::vector<std::pair<size_t, size_t>> spans_;  // marks
  std::vector<size_t> open_;                      // positions in spans_
  std::vector<cudaEvent_t> events_;
  std::vector<double> seconds_;
  size_t used_ = 0;
};

// Some 25 ms of work ahead of a step, so that the device never waits for the host's launches.
class HeadStart {
 public:
  explicit HeadStart(cudaStream_t stream) : stream_(stream) {
    if (!stream_) return;
    check(cudaMalloc(&memory_, kBytes), "memory for the head start");
    SpanTimes times(stream_);
    for (int i = 0; i < 2; ++i) {  // the first one is slower
      times.begin("");
      run(1);
      times.end();
    }
    check(cudaStreamSynchronize(stream_), "the head start");
    times_ = std::clamp(static_cast<int>(kMilliseconds / std::max(times.take().back(), 1e-3)), 1, 5000);
  }
  ~HeadStart() { (void)cudaFree(memory_); }
  HeadStart(const HeadStart&) = delete;
  HeadStart& operator=(const HeadStart&) = delete;

  void give() {
    if (stream_) run(times_);
  }

 private:
  static constexpr size_t kBytes = size_t{64} << 20;
  static constexpr double kMilliseconds = 25;
  void run(int times) {
    for (int i = 0; i < times; ++i) check(cudaMemsetAsync(memory_, i, kBytes, stream_), "the head start");
  }
  const cudaStream_t stream_;
  void* memory_ = nullptr;
  int times_ = 0;
};

struct LayerTime {
  std::string name, operation, implementation, output;
  double ms = 0, floor_ms = 0, bytes = 0, operations = 0;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Medians, by schedule position.
std::vector<double> measure(const Backend& backend, test::Net& net) {
  const bool gpu = !backend.host_addressable();
  Stream& stream = net.stream();
  const auto native = gpu ? static_cast<cudaStream_t>(stream.native()) : nullptr;
  const Executable& e = net.executable();
  SpanTimes times(native);
  HeadStart head_start(native);
  std::vector<std::vector<double>> layers(e.schedule().order.size());
  const int warm_up = gpu ? 3 : 1, repeats = gpu ? 10 : 2;
  for (int i = 0; i < warm_up + repeats; ++i) {
    head_start.give();
    observe_spans(&times);
    e.forward(stream, net.arenas());
    e.backward(stream, net.arenas(), {});
    observe_spans(nullptr);
    stream.wait();
    const std::vector<double> taken = times.take();
    require(taken.size() == layers.size(), "{} spans of {} layers", taken.size(), layers.size());
    for (size_t l = 0; i >= warm_up && l < layers.size(); ++l) layers[l].push_back(taken[l]);
  }
  std::vector<double> result;
  for (const auto& samples : layers) result.push_back(median(samples));
  return result;
}

std::vector<LayerTime> layer_times(const Backend& backend, test::Net& net, const Question& question) {
  const Executable& e = net.executable();
  const std::vector<double> ms = measure(backend, net);
  std::vector<LayerTime> layers;
  for (size_t l = 0; l < ms.size(); ++l) {
    const Node& node = e.graph().node(e.schedule().order[l]);
    const std::string implementation = e.kernel(l).implementation();
    LayerTime layer{.name = node.name,
                    .operation = std::string(op_name(node.op)),
                    .implementation = implementation,
                    .output = e.graph().value(node.outputs[0]).desc.to_string(),
                    .ms = ms[l],
                    .operations = operations_of(e.graph(), node)};
    for (const auto* ids : {&node.inputs, &node.outputs}) {
      for (const ValueId id : *ids) layer.bytes += static_cast<double>(backend.storage_bytes(e.graph().value(id).desc));
    }
    if (implementation == "view") layer.bytes = 0;
    layer.floor_ms = 1e3 * std::max(layer.bytes / kH200CopyRate,
                                    layer.operations / assumed_peak(question.compute(), question.tf32()));
    layers.push_back(layer);
  }
  return layers;
}

// "cudnn:eng67, tensor cores" of "cudnn:eng67_k2=4, tensor cores": the engine without its settings.
std::string engine_of(const LayerTime& layer) {
  const size_t begin = layer.implementation.find('_'), end = layer.implementation.find(',');
  if (!layer.implementation.starts_with("cudnn:") || begin == std::string::npos) return layer.implementation;
  return layer.implementation.substr(0, begin) + (end == std::string::npos ? "" : layer.implementation.substr(end));
}

void print_summary(const std::vector<LayerTime>& layers, const Question& question) {
  struct Sum {
    int layers = 0;
    double ms = 0, floor_ms = 0;
  };
  std::map<std::string, Sum> sums;
  Sum all;
  for (const LayerTime& layer : layers) {
    for (Sum* sum : {&sums[layer.operation + ", " + engine_of(layer)], &all}) {
      ++sum->layers;
      sum->ms += layer.ms;
      sum->floor_ms += layer.floor_ms;
    }
  }
  std::vector<std::pair<std::string, Sum>> sorted(sums.begin(), sums.end());
  std::ranges::sort(sorted, [](const auto& a, const auto& b) { return a.second.ms > b.second.ms; });
  sorted.emplace_back("all", all);
  fmt::print(stderr, "{} {} batch {}\n", question.model, question.precision, question.batch);
  for (const auto& [name, sum] : sorted) {
    fmt::print(stderr, "sum\t{}\t{}\t{:.4f}\t{:.4f}\n", name, sum.layers, sum.ms, sum.floor_ms);
  }
}

}  // namespace

void time_layers(const Question& question, const std::string& backend_name) {
  const auto backend = backend_name == "cuda" ? cuda::make_backend_on_device({.tf32 = question.tf32()})
                                              : make_backend(backend_name, {.threads = 2});
  test::Net net(*backend, training_graph(question), compile_options(question, *backend));
  net.fill_at_random(1);
  const std::vector<LayerTime> layers = layer_times(*backend, net, question);
  fmt::print("layer\toperation\timplementation\tms\tfloor_ms\tGB_per_s\tTFLOP_per_s\toutput\n");
  for (const LayerTime& l : layers) {
    const double rate = l.ms > 0 ? 1 / l.ms : 0;
    fmt::print("{}\t{}\t{}\t{:.4f}\t{:.4f}\t{:.0f}\t{:.1f}\t{}\n", l.name, l.operation, l.implementation, l.ms,
               l.floor_ms, l.bytes * 1e-6 * rate, l.operations * 1e-9 * rate, l.output);
  }
  print_summary(layers, question);
}

}  // namespace lockstep::lab
