// CUDA kernels run on the host, one block after the other; the threads of a block take turns that end at barriers, so
// each sees what the others wrote before the last one. What the translated kernels include (translate_kernels.py).
//
// What a GPU leaves undefined is made visible: blocks, and threads between barriers, run in any of several orders,
// which must make no difference to a bit; shared memory holds NaN when a block begins; all threads of a block must meet
// at the same barriers; and a launch that a GPU would refuse is refused.
//
// Threads of a block whose first one ends without a barrier run one after the other on one stack: such kernels switch
// no contexts.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <source_location>

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

struct LaunchShape {
  const char* kernel;  // its name, for messages
  dim3 grid, block;
  size_t shared_bytes = 0;       // of dynamic shared memory
  unsigned most_threads = 1024;  // that a block may have: the kernel's launch bounds
};

// Whether a GPU would take the launch, as far as that is known before the kernel runs.
bool accepts(const LaunchShape& shape);

// Calls `kernel` for every thread of the grid. Throws std::logic_error when the threads of a block part at a barrier,
// and when the kernel's own shared memory and that of the launch are more than a block may have. One thread of the
// process at a time.
void emulate(const LaunchShape& shape, const std::function<void()>& kernel);

// What a launch in a translated kernel file becomes. Each program defines when the kernel runs; a launch that a GPU
// would not take is the error that cudaGetLastError() returns next.
void enqueue_launch(const LaunchShape& shape, cudaStream_t stream, std::function<void()> kernel);

// The arguments are copied at the launch.
template <class Kernel, class... Arguments>
void launch_kernel(const LaunchShape& shape, cudaStream_t stream, Kernel kernel, Arguments... arguments) {
  enqueue_launch(shape, stream, [=] { kernel(arguments...); });
}

void __syncthreads(std::source_location place = std::source_location::current());

// In which order all launches from now on run their blocks, and their threads between barriers.
enum class ThreadOrder { ascending, descending, shuffled };
void set_thread_order(ThreadOrder order);
// How many launches have run in this order.
int launches_in(ThreadOrder order);

// A variable in shared memory: made where it is declared, by every thread.
struct SharedVariable {
  SharedVariable(void* data, size_t bytes);
};
// The dynamic shared memory of the launch, exactly as many bytes as it asked for.
void* dynamic_shared_memory();

// One thread runs at a time.
inline void __threadfence() {}
inline unsigned atomicAdd(unsigned* value, unsigned more) {
  const unsigned before = *value;
  *value += more;
  return before;
}

// What CUDA declares globally.
using std::isfinite;
using std::isnan;
using std::max;
using std::min;
