// Counter-based random numbers: every value is a pure function of (key, counter), the same on host and device and on
// any thread or rank. SplitMix64 (Steele, Lea, Flood 2014) over FNV-1a keys.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

// 64-bit FNV-1a hash of a name.
constexpr uint64_t fnv1a64(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

constexpr uint64_t splitmix64(uint64_t z) {
  z += 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// Folds another word into a key: random_key(seed, epoch, index) names one stream.
constexpr uint64_t random_key(uint64_t key) { return splitmix64(key); }
template <class... Rest>
constexpr uint64_t random_key(uint64_t key, uint64_t next, Rest... rest) {
  return random_key(splitmix64(key) ^ next, static_cast<uint64_t>(rest)...);
}

// Value number `counter` of stream `key`.
constexpr uint64_t random_bits(uint64_t key, uint64_t counter) { return splitmix64(key + counter); }

// Uniform in [0, 1) with 24 bits: exact in float.
constexpr float random_unit_float(uint64_t key, uint64_t counter) {
  return static_cast<float>(random_bits(key, counter) >> 40) * 0x1p-24F;
}

// Uniform in [0, 1) with 53 bits.
constexpr double random_unit_double(uint64_t key, uint64_t counter) {
  return static_cast<double>(random_bits(key, counter) >> 11) * 0x1p-53;
}

// A stream with a running counter, for code that draws a varying number of values.
class RandomStream {
 public:
  explicit constexpr RandomStream(uint64_t key) : key_(key) {}
  constexpr uint64_t bits() { return random_bits(key_, counter_++); }
  constexpr double unit() { return random_unit_double(key_, counter_++); }
  constexpr double uniform(double low, double high) { return low + (high - low) * unit(); }
  // Uniform in [0, bound), bound > 0 (multiply-shift; the bias is below 2^-32 for the bounds used here).
  constexpr uint64_t below(uint64_t bound) { return static_cast<uint64_t>((static_cast<Wide>(bits()) * bound) >> 64); }
  double normal();  // mean 0, deviation 1 (Box-Muller, which makes two at a time: the second is kept)

 private:
  __extension__ typedef unsigned __int128 Wide;

  uint64_t key_;
  uint64_t counter_ = 0;
  double spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace lockstep
