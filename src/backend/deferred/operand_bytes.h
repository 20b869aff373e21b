// The size of the memory of each operand of an operation of the update (update.h lists the operands).
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/backend/update.h"

namespace lockstep {

struct OperandBytes {
  std::vector<size_t> inputs, outputs;
};

OperandBytes operand_bytes(const UpdateOp& op);
std::string_view operation_name(const UpdateOp& op);

}  // namespace lockstep
