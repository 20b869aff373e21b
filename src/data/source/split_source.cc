#include "lockstep/data/source/split_source.h"

#include "lockstep/base/random.h"

namespace lockstep {

class SplitSource final : public DataSource {
 public:
  SplitSource(std::unique_ptr<DataSource> whole, const SplitOptions& options)
      : DataSource(whole->labels_), whole_(std::move(whole)) {
    const uint64_t key = random_key(1, fnv1a64("validation split"));
    for (int64_t i = 0; i < whole_->size(); ++i) {
      const bool validation = random_unit_double(key, static_cast<uint64_t>(i)) < options.validation_fraction;
      if (validation == options.validation) indices_.push_back(i);
    }
    part_ = options.validation ? "validation" : "training";
  }

  int64_t size() const override { return std::ssize(indices_); }
  std::string where(int64_t index) const override { return whole_->where(at(index)); }
  std::string description() const override {
    return fmt::format("{}, of which {} are for {}", whole_->description(), indices_.size(), part_);
  }
  std::vector<std::string> class_names() const override { return whole_->class_names(); }
  void follow_classes(const std::vector<std::string>& names) override { whole_->follow_classes(names); }
  LeftOut left_out() const override { return whole_->left_out(); }

 private:
  void fetch(int64_t index, Sample& sample) const override { whole_->fetch(at(index), sample); }
  int64_t at(int64_t index) const {
    require(index >= 0 && index < size(), "record {} of {}", index, size());
    return indices_[index];
  }

  std::unique_ptr<DataSource> whole_;
  std::vector<int64_t> indices_;  // indices in whole_
  const char* part_ = "";
};

std::unique_ptr<DataSource> split_source(std::unique_ptr<DataSource> whole, const SplitOptions& options) {
  const int64_t all = whole->size();
  auto part = std::make_unique<SplitSource>(std::move(whole), options);
  if (part->size() == 0) {
    fail(ExitCode::data, "data.validation_fraction = {} leaves none of {} samples for {}", options.validation_fraction,
         all, options.validation ? "validation" : "training");
  }
  return part;
}

}  // namespace lockstep
