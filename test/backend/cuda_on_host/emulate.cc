#include "test/backend/cuda_on_host/emulate.h"

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

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define LOCKSTEP_QUICK_SWITCH
#else
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace {

constexpr size_t kStackBytes = 128 << 10;
constexpr size_t kMaxSharedBytes = 48 << 10;  // of a block
#ifdef LOCKSTEP_QUICK_SWITCH
using Place = void**;  // the top of a stack that was left
#else
using Place = ucontext_t;
#endif

// A thread of the block that runs. It is started once and runs the same place of block after block, so that switching
// between threads is all that a block costs.
struct Thread {
  std::unique_ptr<char[]> stack = std::make_unique_for_overwrite<char[]>(kStackBytes);
  Place place{};
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
size_t shared_bytes = 0;               // of them all, each counted once
std::unique_ptr<char[]> dynamic_shared;
std::vector<unsigned> order_of_threads;  // up to the next barrier
bool met_barrier = false;                // by a thread of the block
ThreadOrder thread_order = ThreadOrder::ascending;
int launches[3];  // by order
std::mt19937 shuffler;

void run_to_end(Thread& thread) {
  running = &thread;
  threadIdx = thread.index;
  (*current_kernel)();
  thread.done = true;
}

Place scheduler;

#ifdef LOCKSTEP_QUICK_SWITCH
// Leaves the stack whose top goes to `from`, with the registers on it that a call preserves. (swapcontext asks the
// system for the signal mask each time.)
extern "C" void lockstep_switch_stack(Place* from, Place to);
asm(R"(
  .text
  .hidden lockstep_switch_stack
  .globl lockstep_switch_stack
lockstep_switch_stack:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");

void yield() { lockstep_switch_stack(&running->place, scheduler); }
void enter(Thread& thread) { lockstep_switch_stack(&scheduler, thread.place); }
void arrived() {}
#else
// The sanitizer must be notified of each change of stacks. It returns which stack was left: at a yield the scheduler's.
[[maybe_unused]] const void* left_stack;
[[maybe_unused]] size_t left_stack_bytes;

void arrived([[maybe_unused]] void* fake = nullptr) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(fake, &left_stack, &left_stack_bytes);
#endif
}
void change_stacks(Place& from, Place& to, [[maybe_unused]] const void* stack, [[maybe_unused]] size_t bytes) {
  void* fake = nullptr;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&fake, stack, bytes);
#endif
  swapcontext(&from, &to);
  arrived(fake);
}

void yield() { change_stacks(running->place, scheduler, left_stack, left_stack_bytes); }
void enter(Thread& thread) { change_stacks(scheduler, thread.place, thread.stack.get(), kStackBytes); }
#endif

void run_blocks() {
  arrived();
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
#ifdef LOCKSTEP_QUICK_SWITCH
  static size_t next_top = 0;
  // Tops that all have the same place within a page would share a few lines of the cache.
  const size_t used = kStackBytes - next_top++ % 64 * 256;
  constexpr size_t kSaved = 6;  // registers, and above them the address of run_blocks and an unused word, which aligns
  thread.place = reinterpret_cast<Place>(thread.stack.get() + used) - kSaved - 2;
  thread.place[kSaved] = reinterpret_cast<void*>(run_blocks);
#else
  getcontext(&thread.place);
  thread.place.uc_stack.ss_sp = thread.stack.get();
  thread.place.uc_stack.ss_size = kStackBytes;
  makecontext(&thread.place, run_blocks, 0);
#endif
}

// Lets the thread run to its next barrier or its end; the first one of a block, when it ends, with all others.
void resume(Thread& thread) {
  running = &thread;
  threadIdx = thread.index;
  if (!thread.started) start(thread);
  enter(thread);
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
    const char *const file = other.barrier.file_name(), *const first_file = first.barrier.file_name();
    const bool same_place =
        other.barrier.line() == first.barrier.line() && (file == first_file || std::strcmp(file, first_file) == 0);
    if (other.done == first.done && (first.done || same_place)) continue;
    threads.clear();  // they stand somewhere in their kernels
    throw std::logic_error(std::string(kernel) + ": thread " + std::to_string(i) +
                           " of a block is not at the barrier of thread 0");
  }
  return !first.done;
}

void number_threads(unsigned count) {
  while (threads.size() < count) threads.push_back(std::make_unique<Thread>());
  for (unsigned i = 0; i < count; ++i) {
    threads[i]->index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
  }
}

// A kernel declares its own variables in shared memory where its threads come by, so they are known afterwards.
void expect_room_for_shared(const char* kernel) {
  if (shared_bytes <= kMaxSharedBytes) return;
  threads.clear();
  throw std::logic_error(std::string(kernel) + ": " + std::to_string(shared_bytes) +
                         " bytes of shared memory, its own and the launch's");
}

void run_block(const char* kernel, unsigned count) {
  for (unsigned i = 0; i < count; ++i) threads[i]->done = false;
  for (const Memory& memory : shared_variables) memory.poison();
  met_barrier = false;
  while (run_to_barrier(kernel, count)) expect_room_for_shared(kernel);
  expect_room_for_shared(kernel);
}

}  // namespace

bool accepts(const LaunchShape& shape) {
  constexpr uint64_t kMaxThreads = 1024, kMaxBlocksAcross = (uint64_t{1} << 31) - 1, kMaxBlocks = 65535;
  const dim3 &grid = shape.grid, &block = shape.block;
  const uint64_t block_threads = uint64_t{block.x} * block.y * block.z;
  return block_threads > 0 && block_threads <= kMaxThreads && block_threads <= shape.most_threads && block.z <= 64 &&
         grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x <= kMaxBlocksAcross && grid.y <= kMaxBlocks &&
         grid.z <= kMaxBlocks && shape.shared_bytes <= kMaxSharedBytes;
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

int launches_in(ThreadOrder order) { return launches[static_cast<int>(order)]; }

SharedVariable::SharedVariable(void* data, size_t bytes) {
  if (std::any_of(shared_variables.begin(), shared_variables.end(), [&](const Memory& m) { return m.data == data; }))
    return;
  shared_variables.push_back({data, bytes});
  shared_variables.back().poison();
  shared_bytes += bytes;
}

void* dynamic_shared_memory() { return dynamic_shared.get(); }

void emulate(const LaunchShape& shape, const std::function<void()>& kernel) {
  ++launches[static_cast<int>(thread_order)];
  gridDim = shape.grid;
  blockDim = shape.block;
  current_kernel = &kernel;
  shared_variables.clear();
  shared_bytes = shape.shared_bytes;
  dynamic_shared = std::make_unique<char[]>(shape.shared_bytes);
  if (shape.shared_bytes > 0) shared_variables.push_back({dynamic_shared.get(), shape.shared_bytes});
  const unsigned count = blockDim.x * blockDim.y * blockDim.z;
  number_threads(count);
  std::vector<unsigned> order;
  arrange(order, gridDim.x * gridDim.y * gridDim.z);
  for (unsigned i : order) {
    blockIdx = {i % gridDim.x, i / gridDim.x % gridDim.y, i / gridDim.x / gridDim.y};
    run_block(shape.kernel, count);
  }
}
