#include "test/fake_gpu/streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

namespace lockstep::fake_gpu {
namespace {

struct Streams {
  Stream legacy{.number = 0};
  std::vector<std::unique_ptr<Stream>> made;
  int numbers = 0;
  std::vector<std::shared_ptr<Capture>> captures;  // in progress
};

Streams& streams() {
  static auto* const instance = new Streams;
  return *instance;
}

// The capture can only be ended from now on, with an error.
[[noreturn]] void refuse(Capture& capture, cudaError_t status, const std::string& why) {
  if (capture.invalid.empty()) capture.invalid = why;
  throw Refused(status, why);
}

void expect_valid(const Capture& capture) {
  if (!capture.invalid.empty()) throw Refused(cudaErrorStreamCaptureInvalidated, capture.invalid);
}

void merge(Frontier& into, const Frontier& more) {
  into.insert(into.end(), more.begin(), more.end());
  std::ranges::sort(into);
  into.erase(std::unique(into.begin(), into.end()), into.end());
}

// Which nodes come before those of the frontier, they themselves included.
std::vector<bool> nodes_before(const Capture& capture, const Frontier& frontier) {
  std::vector<bool> before(capture.nodes.size(), false);
  for (size_t i : frontier) before[i] = true;
  for (size_t i = capture.nodes.size(); i-- > 0;) {  // a node comes after nodes of lower numbers
    if (!before[i]) continue;
    for (size_t other : capture.nodes[i].after) before[other] = true;
  }
  return before;
}

void expect_joined(Capture& capture) {
  const std::vector<bool> before = nodes_before(capture, capture.origin->frontier);
  for (const Stream* member : capture.members) {
    for (size_t i : member->frontier) {
      if (before[i]) continue;
      refuse(capture, cudaErrorStreamCaptureUnjoined,
             fmt::format("stream {} was not joined to stream {}, which was captured: {} would be left over",
                         member->number, capture.origin->number, capture.nodes[i].operation.what));
    }
  }
}

void enqueue(Stream& stream, Operation operation, std::vector<WorkPtr> after) {
  auto work = std::make_shared<Work>();
  work->operation = std::move(operation);
  work->stream = stream.number;
  work->after = std::move(after);
  std::erase(work->after, nullptr);
  stream.last = work;
  Device::get().enqueue(std::move(work));
}

}  // namespace

Stream& stream_of(cudaStream_t handle) {
  if (!handle || handle == cudaStreamLegacy) return streams().legacy;
  auto* const stream = reinterpret_cast<Stream*>(handle);
  const auto& made = streams().made;
  if (std::ranges::none_of(made, [&](const auto& other) { return other.get() == stream; })) {
    throw Refused(cudaErrorInvalidResourceHandle, "a stream that is not there, or no longer");
  }
  return *stream;
}

Stream* make_stream() {
  Streams& all = streams();
  all.made.push_back(std::make_unique<Stream>(Stream{.number = ++all.numbers}));
  return all.made.back().get();
}

void destroy_stream(Stream* stream) {
  if (stream->capture)
    refuse(*stream->capture, cudaErrorStreamCaptureUnsupported, "a stream is destroyed in its capture");
  std::erase_if(streams().made, [&](const auto& other) { return other.get() == stream; });  // its work goes on
}

void submit(Stream& stream, Operation operation) {
  if (stream.capture) {
    Capture& capture = *stream.capture;
    expect_valid(capture);
    capture.nodes.push_back({std::move(operation), std::move(stream.frontier)});
    stream.frontier = {capture.nodes.size() - 1};
    return;
  }
  std::vector<WorkPtr> after = std::exchange(stream.waits, {});
  after.push_back(stream.last);
  enqueue(stream, std::move(operation), std::move(after));
}

WorkPtr work_of(Stream& stream) {
  if (!stream.waits.empty()) submit(stream, {.what = "a wait", .run = nullptr});
  return stream.last;
}

void record(Stream& stream, Event& event) {
  if (stream.capture) {
    expect_valid(*stream.capture);
    event = {.work = nullptr, .capture = stream.capture, .frontier = stream.frontier, .reached = event.reached};
  } else {
    event = {.work = work_of(stream), .capture = nullptr, .frontier = {}, .reached = event.reached};
  }
}

void wait_for(Stream& stream, const Event& event) {
  if (!event.capture) {
    if (!stream.capture) {
      if (event.work) stream.waits.push_back(event.work);
      return;
    }
    expect_valid(*stream.capture);
    if (!event.work) return;
    refuse(*stream.capture, cudaErrorStreamCaptureIsolation,
           fmt::format("stream {} waits in a capture for an event that was recorded outside of it", stream.number));
  }
  if (event.capture->ended) {
    const std::string why = fmt::format("stream {} waits for an event that was recorded in a capture", stream.number);
    if (stream.capture) refuse(*stream.capture, cudaErrorStreamCaptureIsolation, why);
    throw Refused(cudaErrorCapturedEvent, why);
  }
  expect_valid(*event.capture);
  if (stream.capture && stream.capture != event.capture) {
    refuse(*stream.capture, cudaErrorStreamCaptureMerge, "two captures would become one");
  }
  if (!stream.capture) {
    if (&stream == &streams().legacy) {
      refuse(*event.capture, cudaErrorStreamCaptureImplicit, "the legacy default stream would join a capture");
    }
    stream.capture = event.capture;
    stream.frontier.clear();
    event.capture->members.insert(&stream);
  }
  merge(stream.frontier, event.frontier);
}

void expect_no_capture(const std::string& call) {
  for (const auto& capture : streams().captures) {
    const bool concerned =
        capture->mode == cudaStreamCaptureModeGlobal ||
        (capture->mode == cudaStreamCaptureModeThreadLocal && capture->thread == std::this_thread::get_id());
    if (!concerned) continue;
    refuse(*capture, cudaErrorStreamCaptureUnsupported,
           fmt::format("{} while stream {} is captured", call, capture->origin->number));
  }
}

void expect_not_capturing(const Stream& stream, const std::string& call) {
  if (stream.capture) {
    refuse(*stream.capture, cudaErrorStreamCaptureUnsupported,
           fmt::format("{} of stream {}, which is captured", call, stream.number));
  }
}

void expect_not_captured(const Event& event, const std::string& call) {
  if (!event.capture) return;
  const std::string why = fmt::format("{} of an event that was recorded in a capture", call);
  if (!event.capture->ended) refuse(*event.capture, cudaErrorCapturedEvent, why);
  throw Refused(cudaErrorCapturedEvent, why);
}

void begin_capture(Stream& stream, cudaStreamCaptureMode mode) {
  if (&stream == &streams().legacy) {
    throw Refused(cudaErrorStreamCaptureUnsupported, "the legacy default stream cannot be captured");
  }
  if (stream.capture) {
    refuse(*stream.capture, cudaErrorIllegalState, fmt::format("stream {} is captured already", stream.number));
  }
  auto capture = std::make_shared<Capture>();
  capture->origin = &stream;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->members.insert(&stream);
  stream.capture = capture;
  stream.frontier.clear();
  streams().captures.push_back(std::move(capture));
}

std::unique_ptr<Graph> end_capture(Stream& stream) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (!capture) throw Refused(cudaErrorIllegalState, fmt::format("stream {} is not captured", stream.number));
  if (capture->origin != &stream) {
    refuse(*capture, cudaErrorStreamCaptureUnmatched,
           fmt::format("the capture of stream {} is ended at stream {}", capture->origin->number, stream.number));
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    refuse(*capture, cudaErrorStreamCaptureWrongThread, "a capture is ended by another thread than began it");
  }
  const auto end = [&] {
    for (Stream* member : capture->members) {
      member->capture = nullptr;
      member->frontier.clear();
    }
    capture->ended = true;
    std::erase(streams().captures, capture);
  };
  try {
    expect_valid(*capture);
    expect_joined(*capture);
  } catch (...) {
    end();
    capture->nodes.clear();  // events may keep the capture itself
    throw;
  }
  end();
  auto graph = std::make_unique<Graph>();
  graph->nodes = std::move(capture->nodes);
  return graph;
}

// Launches of one graph come one after the other. Nodes keep only their own order. The first launch uploads the graph,
// which takes the milliseconds that FAKE_GPU_UPLOAD says.
void launch(GraphExec& graph, Stream& stream) {
  if (stream.capture) refuse(*stream.capture, cudaErrorStreamCaptureUnsupported, "a graph is launched in a capture");
  std::vector<WorkPtr> before = std::exchange(stream.waits, {});
  before.push_back(stream.last);
  before.push_back(graph.last_launch);
  if (const char* const upload = std::getenv("FAKE_GPU_UPLOAD"); upload && !graph.last_launch) {
    const std::chrono::milliseconds takes(std::atoi(upload));
    enqueue(stream, {.what = "the upload of a graph", .run = [takes] { std::this_thread::sleep_for(takes); }}, before);
    before = {stream.last};
  }
  std::vector<WorkPtr> works, ends;
  std::vector<bool> followed(graph.nodes.size(), false);
  for (const GraphNode& node : graph.nodes) {
    std::vector<WorkPtr> after;
    for (size_t i : node.after) {
      after.push_back(works[i]);
      followed[i] = true;
    }
    Operation operation = node.operation;
    operation.keeps = nullptr;  // that is the graph's
    enqueue(stream, std::move(operation), after.empty() ? before : std::move(after));
    works.push_back(stream.last);
  }
  for (size_t i = 0; i < works.size(); ++i) {
    if (!followed[i]) ends.push_back(works[i]);
  }
  enqueue(stream, {.what = "the end of a graph", .run = nullptr}, works.empty() ? before : ends);
  graph.last_launch = stream.last;
}

}  // namespace lockstep::fake_gpu
