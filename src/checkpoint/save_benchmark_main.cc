// Measures the parts of saving a checkpoint, for scripts/bench/save.py.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/parse_number.h"
#include "lockstep/checkpoint/writer.h"
#include "lockstep/io/crc64.h"
#include "lockstep/io/file.h"

namespace {

using namespace lockstep;

// The contents of a checkpoint, and the memory of its arrays.
struct State {
  std::vector<std::vector<float>> values;
  CheckpointContents contents;
};

State read_state(const std::string& path) {
  State state;
  const CheckpointReader reader = CheckpointReader::open(path);
  state.contents.meta = reader.meta();
  state.contents.training = reader.training();
  state.contents.config = reader.config();
  for (const std::string group : {"/model", "/ema", "/optimizer"}) {
    for (const CheckpointReader::Array& array : reader.arrays(group)) {
      auto& values = state.values.emplace_back(array.shape.elements());
      reader.read(array.path, values);
      state.contents.arrays.push_back({array.path, array.shape, values.data()});
    }
  }
  return state;
}

// Prints the seconds of one part and the processor time of this thread.
template <class Work>
void measure(const char* part, const Work& work) {
  const double clock = monotonic_seconds(), cpu = thread_cpu_seconds();
  work();
  fmt::print("{} {:.6f} {:.6f}\n", part, monotonic_seconds() - clock, thread_cpu_seconds() - cpu);
}

void write_parts(const std::string& path, std::span<const std::byte> bytes) {
  constexpr ExitCode kBlame = ExitCode::checkpoint;
  measure("write", [&] { write_file_atomically(path, bytes, {.blame = kBlame}); });
  const FileDescriptor file = open_for_reading(path, kBlame);
  measure("verify", [&] { require(reads_back(file, bytes), "{} reads back differently", path); });
  remove_file(path);
}

void whole_save(CheckpointWriter& writer, CheckpointContents contents, int64_t step) {
  contents.meta.step = step;
  const double start = monotonic_seconds();
  writer.start(std::move(contents));
  writer.wait_copied();
  require(writer.wait_idle(600), "the disk does not answer");
  const SaveResult result = writer.poll().value();
  if (result.error) throw *result.error;
  fmt::print("save {:.6f} {:.6f}\n", monotonic_seconds() - start, result.cpu_seconds);
}

void run(const std::string& checkpoint, const std::string& directory, int64_t rounds) {
  const State state = read_state(checkpoint);
  CheckpointWriter writer({.directory = directory, .keep = 1});
  for (int64_t round = 1; round <= rounds; ++round) {
    Hdf5Image image;
    measure("build", [&] { image = build_checkpoint(state.contents, directory); });
    measure("crc64", [&] { crc64(image.bytes()); });
    write_parts(directory + "/parts.h5", image.bytes());
    image = {};
    whole_save(writer, state.contents, state.contents.meta.step + round);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const int64_t rounds = count == 4 ? lockstep::parse_number<int64_t>(arguments[3]).value_or(0) : 0;
  if (rounds < 1) {
    fmt::print(stderr, "usage: {} CHECKPOINT DIRECTORY ROUNDS\n", arguments[0]);
    return 2;
  }
  try {
    run(arguments[1], arguments[2], rounds);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", arguments[0], error.what());
    return 1;
  }
}
