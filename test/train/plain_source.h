// A data set of made-up pixels of which any record may be bad.
#pragma once

#include <set>
#include <string>

#include "lockstep/base/random.h"
#include "lockstep/data/source/data_source.h"

namespace lockstep {

// 8 x 8 pixels; record i is of class i % 3.
class PlainSource final : public DataSource {
 public:
  explicit PlainSource(int64_t size, std::set<int64_t> bad = {})
      : DataSource({.classes = 3}), size_(size), bad_(std::move(bad)) {}
  int64_t size() const override { return size_; }
  std::string where(int64_t index) const override { return fmt::format("record {}", index); }
  std::string description() const override { return "made up"; }

 protected:
  void fetch(int64_t index, Sample& sample) const override {
    if (bad_.contains(index)) throw BadRecord("torn");
    sample.kind = Sample::Kind::u8;
    sample.channels = 3;
    sample.height = sample.width = 8;
    sample.buffer.resize(3 * 8 * 8);
    for (size_t i = 0; i < sample.buffer.size(); ++i) {
      sample.buffer[i] = static_cast<std::byte>(random_bits(random_key(static_cast<uint64_t>(index)), i));
    }
    sample.bytes = sample.buffer;
    sample.label = index % 3;
  }

 private:
  int64_t size_;
  std::set<int64_t> bad_;
};

}  // namespace lockstep
