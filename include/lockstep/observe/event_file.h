// TensorBoard event files: TFRecords of tensorflow.Event messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/io/file.h"

namespace lockstep {

// Returns the seconds since 1970 by the wall clock.
double wall_seconds();

// The encode functions return a serialized Event message with the current time as its wall time.
using EventScalars = std::vector<std::pair<std::string, double>>;  // tag ("loss") and value
std::string encode_scalars(int64_t step, const EventScalars& values);
// The histogram contains the finite values only. Returns an empty string if no value is finite.
std::string encode_histogram(int64_t step, const std::string& tag, std::span<const float> values);

// A text that TensorBoard shows as Markdown.
std::string encode_text(int64_t step, const std::string& tag, std::string_view markdown);
// The hyperparameters of a run, and its end, for TensorBoard's table of runs.
using Hyperparameters = std::vector<std::pair<std::string, std::variant<bool, double, std::string>>>;
std::string encode_hyperparameters(const Hyperparameters& values);
std::string encode_run_end();

// Used by rank 0 only, on the file thread of the run (FileWorker). Every start of the run creates a new file. Its first
// events make TensorBoard discard what earlier files contain about steps that the run repeats. Each event is written
// with a single write(2). An I/O error only logs a warning, so events never stop a run. If the file is deleted or moved
// during the run, a new one is started.
class EventFile {
 public:
  // Starts a new file in `directory`, which is created if needed. The run continues after `resumed_step`. With an empty
  // `directory`, nothing is written.
  EventFile(std::string directory, int64_t resumed_step);
  EventFile() = default;  // writes nothing
  EventFile(EventFile&&) = default;
  EventFile& operator=(EventFile&&) = default;

  // Appends a serialized event.
  void write(std::string_view event);
  // Makes TensorBoard discard the events after `step`, because the run rolls back to it.
  void go_back(int64_t step);

 private:
  void open();
  void append_record(std::string_view event);

  std::string directory_, path_;
  FileDescriptor file_;
};

}  // namespace lockstep
