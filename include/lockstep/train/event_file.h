// TensorBoard event files: TFRecords of tensorflow.Event messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// Rank 0 only, one thread. One file a start of the run; its first events make TensorBoard forget what earlier files say
// of steps that the run repeats. Each event is written whole with one write(2). Trouble with the file is a warning:
// events never stop a run.
class EventFile {
 public:
  // A new file in `directory`, which is made; the run goes on after `resumed_step`. Empty: nothing is written.
  EventFile(const std::string& directory, int64_t resumed_step);
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  bool is_open() const { return file_ >= 0; }

  using Scalars = std::vector<std::pair<std::string, double>>;  // tag ("train/loss") and value
  void scalars(int64_t step, const Scalars& values);
  // How the values are spread, those that are not finite left out; nothing where none is finite.
  void histogram(int64_t step, const std::string& tag, std::span<const float> values);
  // The run goes back to `step`: what was written of later steps does not count.
  void go_back(int64_t step);

 private:
  void write(std::string_view event);

  std::string path_;
  int file_ = -1;
};

}  // namespace lockstep
