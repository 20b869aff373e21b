// The flags that benchmark mode accepts, and those of tf_cnn_benchmarks that it rejects.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

// A `fixed` switch accepts only the value that describes what the program does anyway.
enum class FlagKind : uint8_t { text, count, number, toggle, fixed };

struct BenchmarkFlag {
  std::string_view name;
  FlagKind kind = FlagKind::text;
  std::string_view key{};      // the configuration key that gets the value unchanged, if any
  std::string_view allowed{};  // the allowed words, separated by '|'; for `fixed`, the only possible value
  std::string_view instead{};  // for `fixed`: what to use instead
};

// The advice for flags about how gradients are exchanged, which have no meaning here.
inline constexpr std::string_view kAlwaysReduced =
    "gradients are always reduced over all ranks; see the keys of [comm]";

std::span<const BenchmarkFlag> benchmark_flags();

const BenchmarkFlag* find_benchmark_flag(std::string_view name);  // returns nullptr if there is none

// Returns what to use instead of a flag of tf_cnn_benchmarks that is always an error; empty for any other name.
std::string_view instead_of_refused_flag(std::string_view name);

}  // namespace lockstep
