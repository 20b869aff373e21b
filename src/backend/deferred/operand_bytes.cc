#include "backend/deferred/operand_bytes.h"

#include <algorithm>

#include "lockstep/backend/step_header.h"
#include "lockstep/ops/ops.h"

namespace lockstep {
namespace {

constexpr size_t kHalfBytes = 2;

size_t extent(const std::vector<UpdateSegment>& segments) {
  int64_t end = 0;
  for (const UpdateSegment& s : segments) end = std::max(end, s.offset + s.count);
  return static_cast<size_t>(end);
}

size_t extent(const std::vector<ApplyStatistics::Entry>& entries) {
  int64_t end = 0;
  for (const auto& e : entries) end = std::max(end, std::max(e.mean_offset, e.var_offset) + e.channels);
  return static_cast<size_t>(end);
}

}  // namespace

OperandBytes operand_bytes(const UpdateOp& op) {
  const size_t element = dtype_bytes(op.dtype), scalars = kUpdateScalars * element;
  return std::visit(
      Overload{
          [&](const ApplyOptimizer& o) {
            const size_t arena = extent(o.segments) * element;
            return OperandBytes{{arena, scalars}, std::vector<size_t>(1 + optimizer_slots(o.kind).slots.size(), arena)};
          },
          [&](const ApplyAverage& o) {
            const size_t values = o.count * element;
            return OperandBytes{{values, scalars}, {values}};
          },
          [&](const ApplyStatistics& o) {
            const size_t statistics = extent(o.entries) * element;
            return OperandBytes{{statistics, scalars}, {statistics}};
          },
          [&](const AddToSums& o) {
            const size_t values = o.count * element;
            return OperandBytes{{values}, {values}};
          },
          [&](const SumOfSquares& o) {
            return OperandBytes{{o.count * element}, {sizeof(double)}};
          },
          [&](const DowncastValues& o) {
            return OperandBytes{{o.count * element}, {o.count * kHalfBytes}};
          },
          [&](const UpcastValues& o) {
            return OperandBytes{{o.count * kHalfBytes}, {o.count * element}};
          },
          [&](const FindNonFinite& o) {
            return OperandBytes{{o.count * element, sizeof(double)}, {sizeof(StepOutcome)}};
          },
          [&](const FillStepHeader& o) {
            OperandBytes bytes{{sizeof(StepControl), 2 * sizeof(int32_t)},
                               {kStepHeaderElements * element, sizeof(StepOutcome)}};
            bytes.inputs.insert(bytes.inputs.end(), o.head_weights.size(), element);
            return bytes;
          },
          [&](const DecideUpdate&) {
            return OperandBytes{{kStepHeaderElements * element, sizeof(double), sizeof(StepControl)},
                                {scalars, sizeof(UpdateState), sizeof(StepOutcome)}};
          }},
      op.op);
}

std::string_view operation_name(const UpdateOp& op) {
  return std::visit(
      Overload{
          [](const ApplyOptimizer&) { return "ApplyOptimizer"; }, [](const ApplyAverage&) { return "ApplyAverage"; },
          [](const ApplyStatistics&) { return "ApplyStatistics"; }, [](const AddToSums&) { return "AddToSums"; },
          [](const DowncastValues&) { return "DowncastValues"; }, [](const UpcastValues&) { return "UpcastValues"; },
          [](const FindNonFinite&) { return "FindNonFinite"; }, [](const SumOfSquares&) { return "SumOfSquares"; },
          [](const FillStepHeader&) { return "FillStepHeader"; }, [](const DecideUpdate&) { return "DecideUpdate"; }},
      op.op);
}

}  // namespace lockstep
