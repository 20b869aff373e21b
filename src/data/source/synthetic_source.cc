#include <algorithm>

#include "data/source/format_sources.h"
#include "lockstep/base/random.h"

namespace lockstep {
namespace {

constexpr int64_t kGrid = 4;  // a class's pattern: kGrid x kGrid patches of one brightness in each channel

// Sample i is a pure function of (seed, split, i): a class drawn at random, and for every pixel the mean of the
// class's patch and noise.
class SyntheticSource final : public DataSource {
 public:
  SyntheticSource(const SyntheticOptions& options, LabelRule labels)
      : DataSource({.classes = labels.classes}), options_(options), classes_(labels.classes) {
    if (classes_ < 1) fail(ExitCode::config, "synthetic data needs model.classes of at least 1");
    if (options.channels != 1 && options.channels != 3) fail(ExitCode::config, "synthetic data has 1 or 3 channels");
    require(options.image_size > 0, "synthetic data of image size {}", options.image_size);
  }

  int64_t size() const override { return options_.samples; }
  std::string where(int64_t index) const override { return fmt::format("synthetic sample {}", index); }
  std::string description() const override {
    if (options_.vocabulary > 0) {
      return fmt::format("synthetic: {} samples of at most {} ids below {}", options_.samples, options_.max_ids,
                         options_.vocabulary);
    }
    return fmt::format("synthetic: {} images of {} x {}", options_.samples, options_.image_size, options_.image_size);
  }
  std::optional<LabelRange> known_labels() const override { return LabelRange{0, classes_ - 1}; }

 private:
  void fetch(int64_t index, Sample& sample) const override {
    const uint64_t key = random_key(options_.seed, fnv1a64("synthetic"), options_.split, index);
    RandomStream stream(key);
    const auto label = static_cast<int64_t>(stream.below(static_cast<uint64_t>(classes_)));
    sample.label = label;
    if (options_.vocabulary > 0) return fetch_sparse(stream, sample);
    const uint64_t pattern = random_key(options_.seed, fnv1a64("synthetic class"), label);
    const int64_t side = options_.image_size;
    sample.buffer.resize(static_cast<size_t>(options_.channels * side * side));
    auto* pixel = reinterpret_cast<uint8_t*>(sample.buffer.data());
    uint64_t noise = 0;
    int64_t count = 0;
    for (int64_t c = 0; c < options_.channels; ++c) {
      for (int64_t y = 0; y < side; ++y) {
        const int64_t row = (c * kGrid + y * kGrid / side) * kGrid;
        int64_t x = 0;
        for (int64_t column = 0; column < kGrid; ++column) {
          const uint64_t base = random_bits(pattern, static_cast<uint64_t>(row + column)) >> 56;
          for (; x * kGrid < (column + 1) * side; ++x, ++count) {
            if (count % 8 == 0) noise = stream.bits();
            *pixel++ = static_cast<uint8_t>((base + (noise & 0xff)) / 2);
            noise >>= 8;
          }
        }
      }
    }
    sample.kind = Sample::Kind::u8;
    sample.bytes = sample.buffer;
    sample.channels = options_.channels;
    sample.height = side;
    sample.width = side;
  }

  // Every other id identifies the class: its remainder is the label.
  void fetch_sparse(RandomStream& stream, Sample& sample) const {
    const auto vocabulary = static_cast<uint64_t>(options_.vocabulary);
    const uint64_t count = 1 + stream.below(static_cast<uint64_t>(options_.max_ids));
    sample.kind = Sample::Kind::sparse;
    sample.ids.clear();
    sample.values.clear();
    for (uint64_t i = 0; i < count; ++i) {
      auto id = static_cast<int64_t>(stream.below(vocabulary));
      if (i % 2 == 0) id = std::min(id - id % classes_ + sample.label, options_.vocabulary - 1);
      sample.ids.push_back(id);
      sample.values.push_back(static_cast<float>(stream.uniform(0.5, 1.5)));
    }
  }

  const SyntheticOptions options_;
  const int64_t classes_;
};

}  // namespace

std::unique_ptr<DataSource> open_synthetic(const DataSourceOptions& options) {
  return std::make_unique<SyntheticSource>(options.synthetic, options.labels);
}

}  // namespace lockstep
