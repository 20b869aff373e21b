#include "train/checkpoint_comparison.h"

#include "lockstep/config/load.h"
#include "lockstep/io/file.h"
#include "test/catch.h"
#include "test/checkpoint/fixtures.h"
#include "test/scratch.h"
#include "test/train/log_capture.h"

using namespace lockstep;

TEST_CASE("a checkpoint's own configuration that nests without end is refused wherever it is read") {
  const ScratchDirectory directory;
  const SmallModel model;
  const LogCapture log;
  std::string keys, tables = "a = ";
  for (int i = 0; i < 100'000; ++i) keys += "a.", tables += "{a=";
  const std::pair<std::string, const char*> cases[] = {{keys + "a = 1\n", "a dotted key has more than 16 parts"},
                                                       {"[" + keys + "a]\n", "a dotted key has more than 16 parts"},
                                                       {tables + "\n", "more than 16 brackets are open"},
                                                       {"x = " + std::string(100'000, '[') + "\n", "not valid TOML"}};
  for (const auto& [text, reason] : cases) {
    CheckpointContents contents = model.contents(5);
    contents.config = text;
    write_file_atomically(directory / "a.h5", build_checkpoint(contents, "a").bytes(), {});
    const CheckpointReader file = CheckpointReader::open(directory / "a.h5");
    const auto error = error_of([&] { config_from_toml(file.config(), file.path()); });
    REQUIRE(error);
    CHECK_THAT(error->what(), ContainsSubstring(directory / "a.h5") && ContainsSubstring(reason));
    CHECK_NOTHROW(check_split(Config{}.data, file));
    CHECK_NOTHROW(compare_with_fine_tuning(Config{}, file));
  }
  // The log says a warning of one kind once in a while.
  CHECK_THAT(log.text(), ContainsSubstring("settings are not compared with those of " + directory / "a.h5") &&
                             ContainsSubstring("a dotted key has more than 16 parts"));
}
