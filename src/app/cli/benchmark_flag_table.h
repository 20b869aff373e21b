// The flags that a benchmark takes, and those of tf_cnn_benchmarks that it refuses.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

// A fixed switch may say what happens anyway, and nothing else.
enum class FlagKind : uint8_t { text, count, number, toggle, fixed, refused };

struct BenchmarkFlag {
  std::string_view name;
  FlagKind kind = FlagKind::text;
  std::string_view key{};      // of the configuration, where the value goes there as it is
  std::string_view allowed{};  // words, separated by '|'; fixed: what it may say
  std::string_view instead{};  // refused, fixed: what to use
};

// Why a flag about the exchange of gradients means nothing here.
inline constexpr std::string_view kAlwaysReduced =
    "gradients are always reduced over all ranks; see the keys of [comm]";

std::span<const BenchmarkFlag> benchmark_flags();

const BenchmarkFlag* find_benchmark_flag(std::string_view name);  // null: there is none

}  // namespace lockstep
