// Streams, events, captures and graphs of the fake device, and the rules of what may be captured.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "test/fake_gpu/work.h"

namespace lockstep::fake_gpu {

struct GraphNode {
  Operation operation;
  std::vector<size_t> after;  // nodes before it in the graph
};
using Frontier = std::vector<size_t>;  // what the next node of a stream comes after

struct Stream;

struct Capture {
  Stream* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  std::vector<GraphNode> nodes;
  std::set<Stream*> members;
  int kernels = 0;
  std::string invalid;  // why it can no longer become a graph
  bool ended = false;
};

struct Stream {
  int number = 0;
  WorkPtr last;
  std::vector<WorkPtr> waits;  // events that the next work comes after as well
  std::shared_ptr<Capture> capture;
  Frontier frontier;
};

struct Event {
  WorkPtr work;                      // null: nothing to wait for
  std::shared_ptr<Capture> capture;  // of the last record, if that was captured
  Frontier frontier;
  std::shared_ptr<double> reached;  // with timing: seconds when the stream came by, in monotonic_seconds()
};

struct Graph {
  std::vector<GraphNode> nodes;
};

struct GraphExec {
  std::vector<GraphNode> nodes;
  WorkPtr last_launch;
};

// All with the device's lock, and throw Refused.

// Every stream of the process; the null handle is the legacy default stream.
Stream& stream_of(cudaStream_t handle);
Stream* make_stream();
void destroy_stream(Stream* stream);

void submit(Stream& stream, Operation operation);
void record(Stream& stream, Event& event);
void wait_for(Stream& stream, const Event& event);
// All that the stream has been given, as one piece of work, or null.
WorkPtr work_of(Stream& stream);

// What a thread whose capture is not relaxed must not call: it ends the capture.
void expect_no_capture(const std::string& call);
void expect_not_capturing(const Stream& stream, const std::string& call);
// Of a host that asks for it or waits for it.
void expect_not_captured(const Event& event, const std::string& call);

void begin_capture(Stream& stream, cudaStreamCaptureMode mode);
// Never null. Throws when the capture became invalid; it has ended then as well.
std::unique_ptr<Graph> end_capture(Stream& stream);
void launch(GraphExec& graph, Stream& stream);

}  // namespace lockstep::fake_gpu
