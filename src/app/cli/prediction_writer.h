// The output of `trainer predict`.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace lockstep {

// One of the most probable classes of a sample; ranks send it to rank 0.
struct Prediction {
  int64_t sample = 0;  // its index in the data
  int64_t label = 0;
  int64_t output = 0;
  double probability = 0;
};

// Writes a table for people, CSV (RFC 4180), or one JSON array. Owned by the command, on every rank; only rank 0 adds.
class PredictionWriter {
 public:
  // `names` are those of the outputs and may be empty; `labels`: the samples have labels, which are written too.
  PredictionWriter(std::FILE* file, std::string format, std::vector<std::string> names, bool labels);

  // Consecutive predictions of one sample belong together; the most probable is first. `input` names the sample.
  void add(const std::string& input, const Prediction& prediction);

  // Must be called at the end. Like add(), throws Error(checkpoint) if something cannot be written.
  void finish();

 private:
  std::string name_of(int64_t output) const;
  void begin();
  void write(const std::string& text);
  void add_row(const std::string& input, const Prediction& prediction);
  void add_json(const std::string& input, const Prediction& prediction);

  std::FILE* const file_;
  const std::string format_;
  const std::vector<std::string> names_;
  const bool labels_;
  size_t width_ = 5;  // of the names in the table
  int64_t sample_ = -1;
  int64_t rank_ = 0;  // of the class among those of the sample
  bool started_ = false;
};

}  // namespace lockstep
