#include "test/backend/cuda_on_host/emulate.h"

#include <ucontext.h>

#include <csetjmp>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace {

constexpr size_t kStackBytes = 128 << 10;

// A thread of the block that runs. It is started once and runs the same place of block after block, so that switching
// between threads is all that a block costs.
struct Thread {
  ucontext_t first;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  std::jmp_buf place;
  bool started = false, done = false;
  uint3 index{};
};

std::jmp_buf scheduler;
std::vector<std::unique_ptr<Thread>> threads;
Thread* running;
const std::function<void()>* current_kernel;

// setjmp and longjmp rather than swapcontext, which asks the system for the signal mask each time.
void yield() {
  if (_setjmp(running->place) == 0) _longjmp(scheduler, 1);
}

void run_blocks() {
  for (;;) {
    (*current_kernel)();
    running->done = true;
    yield();
  }
}

// Lets the thread run to its next barrier or its end.
void resume(Thread& thread) {
  running = &thread;
  threadIdx = thread.index;
  if (_setjmp(scheduler) != 0) return;
  if (thread.started) _longjmp(thread.place, 1);
  thread.started = true;
  getcontext(&thread.first);
  thread.first.uc_stack.ss_sp = thread.stack.get();
  thread.first.uc_stack.ss_size = kStackBytes;
  makecontext(&thread.first, run_blocks, 0);
  setcontext(&thread.first);
}

void run_block() {
  const unsigned count = blockDim.x * blockDim.y * blockDim.z;
  while (threads.size() < count) threads.push_back(std::make_unique<Thread>());
  for (unsigned i = 0; i < count; ++i) {
    threads[i]->index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
    threads[i]->done = false;
  }
  bool any = true;
  while (any) {
    any = false;
    for (unsigned i = 0; i < count; ++i) {
      if (threads[i]->done) continue;
      any = true;
      resume(*threads[i]);
    }
  }
}

}  // namespace

void __syncthreads() { yield(); }

void emulate(dim3 grid, dim3 block, const std::function<void()>& kernel) {
  gridDim = grid;
  blockDim = block;
  current_kernel = &kernel;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = {x, y, z};
        run_block();
      }
    }
  }
}

// The part of the runtime that the backend uses, on host memory; everything has finished when it was enqueued.
extern "C" {
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  static char any;
  *stream = reinterpret_cast<cudaStream_t>(&any);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  constexpr size_t kAlignment = 256;
  *memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  std::memmove(to, from, bytes);
  return cudaSuccess;
}
}
