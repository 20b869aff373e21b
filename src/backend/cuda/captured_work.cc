#include "backend/cuda/captured_work.h"

#include "backend/cuda/check.h"

namespace lockstep::cuda {
namespace {

struct GraphTraits {
  using type = cudaGraph_t;
  static type invalid() { return nullptr; }
  static void destroy(type graph) noexcept { check_noexcept(cudaGraphDestroy(graph), "destroying a graph"); }
};
struct GraphExecTraits {
  using type = cudaGraphExec_t;
  static type invalid() { return nullptr; }
  static void destroy(type graph) noexcept { check_noexcept(cudaGraphExecDestroy(graph), "destroying a graph"); }
};

class Graph final : public CapturedWork {
 public:
  explicit Graph(cudaGraph_t graph) {
    cudaGraphExec_t executable = nullptr;
    check(cudaGraphInstantiate(&executable, graph, 0), "making a graph of the captured work");
    executable_.reset(executable);
  }
  void launch(Stream& stream) const override {
    check(cudaGraphLaunch(executable_.get(), static_cast<CudaStream&>(stream).get()), "launching captured work");
  }

 private:
  UniqueHandle<GraphExecTraits> executable_;
};

}  // namespace

std::unique_ptr<CapturedWork> capture(CudaStream& stream, const std::function<void()>& enqueue) {
  // This thread must not make certain calls during a capture; other threads, such as NCCL's, still may.
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "capturing work");
  cudaGraph_t raw = nullptr;
  try {
    enqueue();
  } catch (...) {
    // What is thrown has usually invalidated the capture, so its end fails for the same reason.
    (void)cudaStreamEndCapture(stream.get(), &raw);
    (void)cudaGetLastError();  // or the check of the next launch would report it
    const UniqueHandle<GraphTraits> abandoned(raw);
    throw;
  }
  check(cudaStreamEndCapture(stream.get(), &raw), "ending a capture");
  const UniqueHandle<GraphTraits> graph(raw);
  return std::make_unique<Graph>(graph.get());
}

}  // namespace lockstep::cuda
