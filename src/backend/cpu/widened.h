// Makes kernels for bfloat16 tensors from kernels that support only float32.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "backend/cpu/context.h"

namespace lockstep::cpu {

// Converts `count` values between bfloat16 and float32, as from_bf16() and to_bf16() do.
void widen(const uint16_t* from, float* to, int64_t count);
void narrow(const float* from, uint16_t* to, int64_t count);

// Returns a kernel for these tensors from one that `compile` makes for the same tensors in float32: inputs are copied
// to its workspace in float32, and outputs are rounded from there.
using CompileTensors = std::function<std::unique_ptr<Kernel>(Descs inputs, Descs outputs)>;
std::unique_ptr<Kernel> compile_widened(const Context& context, Descs inputs, Descs outputs,
                                        const CompileTensors& compile);

}  // namespace lockstep::cpu
