// Enums for the keys whose value is one of a few words. kWords lists the words of each enum in the order of its values,
// and the table of keys takes the allowed words from there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

#include "lockstep/base/log.h"

namespace lockstep {

enum class InitRule : uint8_t { truncated_normal, fan_in };                                    // model.init
enum class BranchPool : uint8_t { avg, max };                                                  // model.mixed_7c_pool
enum class BadRecordRule : uint8_t { fail, skip };                                             // data.bad_records
enum class Precision : uint8_t { float32, tf32, bf16, fp16 };                                  // train.precision
enum class NonFiniteRule : uint8_t { stop, skip, rollback };                                   // train.not_finite
enum class ScheduleKind : uint8_t { constant, exponential, step, piecewise, cosine, linear };  // schedule.name
enum class SaveErrorRule : uint8_t { warn, fail };                                             // checkpoint.on_error
enum class DeviceChoice : uint8_t { automatic, gpu, cpu };                                     // device.kind
enum class GraphCapture : uint8_t { automatic, on, off };                                      // device.graph
enum class PlanTiming : uint8_t { automatic, off };                                            // device.tune
enum class RecomputeChoice : uint8_t { norms, convolutions };                                  // graph.recompute
enum class TransportChoice : uint8_t { automatic, nccl, mpi };                                 // comm.transport
enum class ReductionAlgorithm : uint8_t { ring, tree, automatic };                             // comm.algorithm
enum class WireType : uint8_t { float32, bf16, fp16 };                                         // comm.gradient_dtype
enum class ProgressStyle : uint8_t { automatic, bar, lines };                                  // log.progress

template <class E>
inline constexpr std::array<std::string_view, 0> kWords{};  // empty: not an enum of words
template <>
inline constexpr std::array<std::string_view, 2> kWords<InitRule>{"truncated_normal", "fan_in"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<BranchPool>{"avg", "max"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<BadRecordRule>{"fail", "skip"};
template <>
inline constexpr std::array<std::string_view, 4> kWords<Precision>{"float32", "tf32", "bf16", "fp16"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<NonFiniteRule>{"stop", "skip", "rollback"};
template <>
inline constexpr std::array<std::string_view, 6> kWords<ScheduleKind>{"constant",  "exponential", "step",
                                                                      "piecewise", "cosine",      "linear"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<SaveErrorRule>{"warn", "fail"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<DeviceChoice>{"auto", "gpu", "cpu"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<GraphCapture>{"auto", "on", "off"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<PlanTiming>{"auto", "off"};
template <>
inline constexpr std::array<std::string_view, 2> kWords<RecomputeChoice>{"norms", "convolutions"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<TransportChoice>{"auto", "nccl", "mpi"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<ReductionAlgorithm>{"ring", "tree", "auto"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<WireType>{"float32", "bf16", "fp16"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<ProgressStyle>{"auto", "bar", "lines"};
template <>
inline constexpr std::array<std::string_view, 3> kWords<LogLevel>{"info", "warning", "error"};  // log.level

template <class E>
concept WordEnum = std::is_enum_v<E> && !kWords<E>.empty();

// Whether V is the value of an enumerator; the compiler prints any other value as a cast: "(lockstep::WireType)3".
template <auto V>
constexpr bool is_enumerator() {
  constexpr std::string_view kName = __PRETTY_FUNCTION__;
  return kName.find("V = (") == kName.npos;
}

// Returns the word that the configuration file uses for this value.
template <WordEnum E>
constexpr std::string_view word(E value) {
  constexpr size_t kCount = kWords<E>.size();
  static_assert(is_enumerator<static_cast<E>(kCount - 1)>() && !is_enumerator<static_cast<E>(kCount)>(),
                "each value of the enum has one word");
  return kWords<E>[static_cast<size_t>(value)];
}

// Returns the value of this word, if it is one of the enum's words.
template <WordEnum E>
constexpr std::optional<E> find_word(std::string_view text) {
  for (size_t i = 0; i < kWords<E>.size(); ++i) {
    if (kWords<E>[i] == text) return static_cast<E>(i);
  }
  return std::nullopt;
}

}  // namespace lockstep
