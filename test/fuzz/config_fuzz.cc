// A configuration file: as one that a run is started with, and as the text inside a checkpoint.
#include "lockstep/config/load.h"
#include "test/fuzz/targets.h"

namespace lockstep::fuzz {

void config(Bytes input) {
  const std::string text(as_text(input));
  expect_answer([&] {
    const LoadedConfig loaded =
        load_config({.file_path = "/runs/run.toml", .file_text = text, .working_directory = "/work"});
    require_law(config_from_toml(to_toml(loaded.config), "itself") == loaded.config,
                "a configuration that is written out and read is the same");
  });
  expect_answer([&] { config_from_toml(text, "/runs/step-00000007.h5"); });
}

}  // namespace lockstep::fuzz
