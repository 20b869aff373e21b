#include "test/backend/cuda_on_host/emulate.h"

#include <ucontext.h>

#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

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
  std::source_location barrier;  // where it stopped, while it has not ended
  uint3 index{};
};

struct Memory {
  void* data;
  size_t bytes;
  void poison() const { std::memset(data, 0xff, bytes); }
};

std::vector<std::unique_ptr<Thread>> threads;
Thread* running;
const std::function<void()>* current_kernel;
std::vector<Memory> shared_variables;  // of the launch
std::unique_ptr<char[]> dynamic_shared;
std::vector<unsigned> order_of_threads;  // up to the next barrier
bool met_barrier = false;                // by a thread of the block
ThreadOrder thread_order = ThreadOrder::ascending;
std::mt19937 shuffler;

void run_to_end(Thread& thread) {
  running = &thread;
  threadIdx = thread.index;
  (*current_kernel)();
  thread.done = true;
}

#ifdef __SANITIZE_ADDRESS__
// The sanitizer must be told of each change of stacks, and longjmp between them confuses it.
ucontext_t scheduler;
const void* scheduler_stack;
size_t scheduler_stack_bytes;

void yield() {
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, scheduler_stack, scheduler_stack_bytes);
  swapcontext(&running->first, &scheduler);
  __sanitizer_finish_switch_fiber(fake, &scheduler_stack, &scheduler_stack_bytes);
}
void run_blocks() {
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_bytes);
#else
std::jmp_buf scheduler;

// setjmp and longjmp rather than swapcontext, which asks the system for the signal mask each time.
void yield() {
  if (_setjmp(running->place) == 0) _longjmp(scheduler, 1);
}
void run_blocks() {
#endif
  for (;;) {
    Thread* const own = running;
    run_to_end(*own);
    // A block whose first thread met no barrier has none: the others need no stacks of their own.
    for (unsigned i : order_of_threads) {
      if (!met_barrier && !threads[i]->done) run_to_end(*threads[i]);
    }
    running = own;
    yield();
  }
}

void start(Thread& thread) {
  thread.started = true;
  getcontext(&thread.first);
  thread.first.uc_stack.ss_sp = thread.stack.get();
  thread.first.uc_stack.ss_size = kStackBytes;
  makecontext(&thread.first, run_blocks, 0);
}

// Lets the thread run to its next barrier or its end; the first one of a block, when it ends, with all others.
void resume(Thread& thread) {
  running = &thread;
  threadIdx = thread.index;
#ifdef __SANITIZE_ADDRESS__
  if (!thread.started) start(thread);
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, thread.stack.get(), kStackBytes);
  swapcontext(&scheduler, &thread.first);
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
  if (_setjmp(scheduler) != 0) return;
  if (thread.started) _longjmp(thread.place, 1);
  start(thread);
  setcontext(&thread.first);
#endif
}

// 0 to count - 1, as the threads, or blocks, are to run.
void arrange(std::vector<unsigned>& order, unsigned count) {
  order.resize(count);
  std::iota(order.begin(), order.end(), 0U);
  if (thread_order == ThreadOrder::descending) std::reverse(order.begin(), order.end());
  if (thread_order == ThreadOrder::shuffled) std::shuffle(order.begin(), order.end(), shuffler);
}

// All threads of the block up to the barrier at which they meet. False: to their ends.
bool run_to_barrier(const char* kernel, unsigned count) {
  arrange(order_of_threads, count);
  for (unsigned i : order_of_threads) {
    if (!threads[i]->done) resume(*threads[i]);
  }
  const Thread& first = *threads.front();
  for (unsigned i = 1; i < count; ++i) {
    const Thread& other = *threads[i];
    const bool same_place = other.barrier.line() == first.barrier.line() &&
                            std::strcmp(other.barrier.file_name(), first.barrier.file_name()) == 0;
    if (other.done == first.done && (first.done || same_place)) continue;
    threads.clear();  // they stand somewhere in their kernels
    throw std::logic_error(std::string(kernel) + ": thread " + std::to_string(i) +
                           " of a block is not at the barrier of thread 0");
  }
  return !first.done;
}

void run_block(const char* kernel) {
  const unsigned count = blockDim.x * blockDim.y * blockDim.z;
  while (threads.size() < count) threads.push_back(std::make_unique<Thread>());
  for (unsigned i = 0; i < count; ++i) {
    threads[i]->index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
    threads[i]->done = false;
  }
  for (const Memory& memory : shared_variables) memory.poison();
  met_barrier = false;
  while (run_to_barrier(kernel, count)) {
  }
}

}  // namespace

bool accepts(const LaunchShape& shape) {
  constexpr uint64_t kMaxThreads = 1024, kMaxBlocksAcross = (uint64_t{1} << 31) - 1, kMaxBlocks = 65535;
  constexpr size_t kMaxSharedBytes = 48 << 10;
  const dim3 &grid = shape.grid, &block = shape.block;
  const uint64_t block_threads = uint64_t{block.x} * block.y * block.z;
  return block_threads > 0 && block_threads <= kMaxThreads && block.z <= 64 && grid.x > 0 && grid.y > 0 && grid.z > 0 &&
         grid.x <= kMaxBlocksAcross && grid.y <= kMaxBlocks && grid.z <= kMaxBlocks &&
         shape.shared_bytes <= kMaxSharedBytes;
}

void __syncthreads(std::source_location place) {
  running->barrier = place;
  met_barrier = true;
  yield();
}

void set_thread_order(ThreadOrder order) {
  thread_order = order;
  shuffler.seed(1);
}

SharedVariable::SharedVariable(void* data, size_t bytes) {
  if (std::any_of(shared_variables.begin(), shared_variables.end(), [&](const Memory& m) { return m.data == data; }))
    return;
  shared_variables.push_back({data, bytes});
  shared_variables.back().poison();
}

void* dynamic_shared_memory() { return dynamic_shared.get(); }

void emulate(const LaunchShape& shape, const std::function<void()>& kernel) {
  gridDim = shape.grid;
  blockDim = shape.block;
  current_kernel = &kernel;
  shared_variables.clear();
  dynamic_shared = std::make_unique<char[]>(shape.shared_bytes);
  if (shape.shared_bytes > 0) shared_variables.push_back({dynamic_shared.get(), shape.shared_bytes});
  std::vector<unsigned> order;
  arrange(order, gridDim.x * gridDim.y * gridDim.z);
  for (unsigned i : order) {
    blockIdx = {i % gridDim.x, i / gridDim.x % gridDim.y, i / gridDim.x / gridDim.y};
    run_block(shape.kernel);
  }
}
