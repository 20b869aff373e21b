// Runs small programs of operations on any backend, the way the compile pipeline would: formats as the backend chooses
// them, explicit reorders, saved blobs as large as it says. Where the kernels of a GPU run on the host (cuda_on_host),
// all runs are done in each order of threads, and must leave the same bits.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/backend/backend.h"

namespace lockstep::test {

// A tensor on the host in plain format; the values of every element type as doubles.
struct HostTensor {
  Shape shape;
  DType dtype = DType::f32;
  std::vector<double> values;  // empty for a `saved` blob
};

// One operation of a program. Its inputs are numbers of values: first the program's inputs, then the outputs of each
// step in order.
struct Step {
  Op op;
  std::vector<int> inputs;
};

struct ProgramResult {
  std::vector<HostTensor> values;            // inputs and all outputs, by number
  std::vector<std::string> implementations;  // of each step's kernel
};

// |a - b| / |b| in the Euclidean norm, or |a| if b is zero.
double relative_error(const std::vector<double>& a, const std::vector<double>& b);

struct RunOptions {
  bool in_place = false;  // give every operation that may work in place (in_place_input) one memory for both
};

// Memory that a kernel is to write, its workspace included, starts as NaN: in the arena it holds whatever was there.
ProgramResult run_program(const Backend& backend, std::span<const HostTensor> inputs, std::span<const Step> steps,
                          const RunOptions& options = {});

// Runs one kernel of the update. `outputs` are read and written.
void run_update(const Backend& backend, const struct UpdateOp& op, std::span<const HostTensor> inputs,
                std::span<HostTensor> outputs);

// A buffer of the backend with the tensor in it, and what it holds read back.
Buffer to_backend(const Backend& backend, Stream& stream, const HostTensor& tensor);
HostTensor from_backend(const Backend& backend, Stream& stream, const TensorDesc& desc, const Buffer& buffer);

}  // namespace lockstep::test
