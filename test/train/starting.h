// What tests of the start of a run share.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/config/load.h"
#include "lockstep/io/file.h"
#include "lockstep/train/checkpointer.h"
#include "lockstep/train/start_state.h"
#include "test/train/world.h"

namespace lockstep {

// A run on every rank, and its ways to start.
struct Starting : SmallRank {
  using SmallRank::SmallRank;
  StartState start(OnnxModel* onnx = nullptr) { return prepare_start(context, {}, {}, onnx); }
};

inline Config config_with(const SharedDirectory& directory, const std::string& resume = "auto") {
  Config config = small_config(directory / "run");
  config.checkpoint.resume = resume;
  return config;
}

using Values = std::vector<std::pair<std::string, std::vector<float>>>;

// Saves a state of its own kind at `step` into the configuration's directory, and returns its values.
inline Values save(const Config& config, int64_t step) {
  const SmallRun run(config);
  run.fill(static_cast<float>(step));
  Checkpointer checkpointer(run.config, run.model,
                            {.root = testing::world().is_root(), .config_text = to_toml(config)});
  checkpointer.finish({.step = step, .position = 10 * step, .updates = step - 1});
  testing::world().barrier({"the save"});
  return run.values();
}

// Overwrites a byte in the middle of a file, on rank 0.
inline void damage(const std::string& path) {
  if (testing::world().is_root()) {
    std::string text = read_text_file(path, ExitCode::internal);
    text[text.size() / 2] ^= 1;
    write_text_atomically(path, text, ExitCode::internal);
  }
  testing::world().barrier({"the damage"});
}

inline std::string message_of(const std::optional<Error>& error) { return error ? error->what() : "no error"; }

}  // namespace lockstep
