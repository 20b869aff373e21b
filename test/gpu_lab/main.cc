// What a GPU is asked beyond passed and failed. A row a line on standard output, summaries on standard error:
//
//   gpu_lab describe                              the device as cuDNN sees it, and the libraries' versions, as JSON
//   gpu_lab layers MODEL PRECISION BATCH [BACKEND]  the time of each layer of a training step (BACKEND: default cuda)
//   gpu_lab engines MODEL PRECISION BATCH [DEVICE]  every engine of cuDNN for every convolution of the step, timed;
//                                                 for the DEVICE of a file in test/models/devices, only planned
//   gpu_lab fusions MODEL PRECISION BATCH [DEVICE]  the fastest engine for each convolution fused with a batch norm's
//   part
//
// `--seconds N` at the end of engines or fusions: no other convolution is started after N seconds, and a line of the
// summary says how many were left out. The expensive ones come first.
#include <fmt/format.h>

#include <exception>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/parse_number.h"
#include "test/gpu_lab/training_graph.h"

using namespace lockstep;

namespace {

int64_t batch_of(const std::string& text) {
  const auto batch = parse_number<int64_t>(text);
  if (!batch || *batch < 1) fail(ExitCode::config, "a batch of {}: a whole number of at least 1 is needed", text);
  return *batch;
}

// Takes "--seconds N" from the end of the words.
double deadline_of(std::vector<std::string>& words) {
  if (words.size() < 2 || words[words.size() - 2] != "--seconds") return lab::Question{}.deadline;
  const auto seconds = parse_number<double>(words.back());
  if (!seconds) fail(ExitCode::config, "--seconds {}: a number is needed", words.back());
  words.resize(words.size() - 2);
  return monotonic_seconds() + *seconds;
}

bool run(std::vector<std::string> words) {
  const double deadline = deadline_of(words);
  if (words.size() == 1 && words[0] == "describe") {
    lab::describe();
    return true;
  }
  if (words.size() < 4 || words.size() > 5) return false;
  const lab::Question question{
      .model = words[1], .precision = words[2], .batch = batch_of(words[3]), .deadline = deadline};
  const std::string last = words.size() > 4 ? words[4] : "";
  if (words[0] == "layers") {
    lab::time_layers(question, last.empty() ? "cuda" : last);
  } else if (words[0] == "engines") {
    lab::time_engines(question, last);
  } else if (words[0] == "fusions") {
    lab::time_fusions(question, last);
  } else {
    return false;
  }
  return true;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    if (run({arguments + 1, arguments + count})) return 0;
    fmt::print(stderr,
               "usage: gpu_lab describe | layers MODEL PRECISION BATCH [BACKEND] | engines|fusions MODEL PRECISION "
               "BATCH [DEVICE] [--seconds N]\n");
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
