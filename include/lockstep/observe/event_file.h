// TensorBoard event files: TFRecords of tensorflow.Event messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/io/file.h"

namespace lockstep {

// Events, with the time at which they are encoded.
using EventScalars = std::vector<std::pair<std::string, double>>;  // tag ("train/loss") and value
std::string encode_scalars(int64_t step, const EventScalars& values);
// How the values are distributed, non-finite ones left out; empty where none is finite.
std::string encode_histogram(int64_t step, const std::string& tag, std::span<const float> values);

// Rank 0 only, on the thread for the run's files. One file a start of the run; its first events make TensorBoard forget
// what earlier files say of steps that the run repeats. Each event is written whole with one write(2). Trouble with the
// file is a warning: events never stop a run. A file that is deleted or moved meanwhile is followed by another.
class EventFile {
 public:
  // A new file in `directory`, which is made; the run goes on after `resumed_step`. Empty: nothing is written.
  EventFile(std::string directory, int64_t resumed_step);
  EventFile() = default;  // writes nothing
  EventFile(EventFile&&) = default;
  EventFile& operator=(EventFile&&) = default;

  void write(std::string_view event);
  // The run goes back to `step`: what was written of later steps does not count.
  void go_back(int64_t step);

 private:
  void open();
  void append_record(std::string_view event);

  std::string directory_, path_;
  FileDescriptor file_;
};

}  // namespace lockstep
