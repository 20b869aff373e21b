#include "lockstep/checkpoint/run_directory.h"

#include <algorithm>
#include <filesystem>

#include "test/catch.h"
#include "test/checkpoint/fixtures.h"
#include "test/scratch.h"
#include "test/train/log_capture.h"

using namespace lockstep;

namespace {

std::vector<int64_t> steps_in(const std::string& directory) {
  std::vector<int64_t> steps;
  for (const FoundCheckpoint& file : find_checkpoints(directory)) steps.push_back(file.step);
  return steps;
}

void write_steps(const ScratchDirectory& directory, const std::vector<int64_t>& steps) {
  const SmallModel model;
  for (const int64_t step : steps) model.write(step, directory / checkpoint_name(step));
}

}  // namespace

TEST_CASE("checkpoints are ordered by the step stored in them, whatever their names") {
  const ScratchDirectory directory;
  const SmallModel model;
  model.write(900, directory / "step-900.h5");
  model.write(10000, directory / "step-10000.h5");
  model.write(1000, directory / "step-0001000.h5");
  model.write(5, directory / "step-99999999.h5");
  CHECK(steps_in(directory.path()) == std::vector<int64_t>{10000, 1000, 900, 5});
  CHECK(checkpoint_name(12) == "step-00000012.h5");
}

TEST_CASE("temporaries, links and other files are never looked at") {
  const ScratchDirectory directory;
  const SmallModel model;
  model.write(3, directory / checkpoint_name(3));
  model.write(9, directory / (checkpoint_name(9) + ".tmp"));
  model.write(9, directory / (checkpoint_name(9) + ".tmp.4"));
  model.write(9, directory / "other.h5");
  point_at_checkpoint(directory.path(), "latest", 3);
  CHECK(steps_in(directory.path()) == std::vector<int64_t>{3});
  CHECK(find_checkpoints(directory / "none").empty());
}

TEST_CASE("a directory stands for its newest checkpoint, and another path for itself") {
  const ScratchDirectory directory;
  CHECK_THROWS_WITH(checkpoint_at(directory.path()), ContainsSubstring("without a whole checkpoint"));
  write_steps(directory, {10, 20});
  write_text_atomically(directory / checkpoint_name(30), "", ExitCode::internal);
  CHECK(checkpoint_at(directory.path()) == directory / checkpoint_name(20));
  CHECK(checkpoint_at(directory / checkpoint_name(10)) == directory / checkpoint_name(10));
  CHECK(checkpoint_at(directory / "none.h5") == directory / "none.h5");
}

TEST_CASE("the newest whole checkpoint is taken and each file passed over is named once") {
  const ScratchDirectory directory;
  const SmallModel model;
  write_steps(directory, {10, 20});
  const std::vector<std::byte> whole = read_file(model.write(30, directory / checkpoint_name(30)), ExitCode::internal);
  write_file_atomically(directory / checkpoint_name(30), std::span(whole).first(whole.size() / 2), {});
  std::vector<std::byte> damaged = whole;  // right length and header
  damaged[whole.size() / 2] ^= std::byte{1};
  write_file_atomically(directory / checkpoint_name(40), damaged, {});
  write_text_atomically(directory / checkpoint_name(50), "", ExitCode::internal);
  auto foreign = Hdf5File::create_in_memory("foreign", {});
  foreign.write_attribute("/", "kind", std::string("something else"));
  write_file_atomically(directory / checkpoint_name(60), std::move(foreign).finish().bytes(), {});

  const LogCapture log;
  const auto reader = open_newest_whole(directory.path());
  REQUIRE(reader);
  CHECK(reader->meta().step == 20);
  const std::string warnings = log.text();
  REQUIRE(std::ranges::count(warnings, '\n') == 4);
  const auto warned = [&](int64_t step, const std::string& reason) {
    return warnings.find("warning: " + (directory / checkpoint_name(step)) + ": " + reason) != std::string::npos;
  };
  CHECK(warned(30, "truncated checkpoint"));
  CHECK(warned(40, "damaged checkpoint, checksum"));
  CHECK(warned(50, "empty file"));
  CHECK(warned(60, "not a Lockstep checkpoint"));
}

TEST_CASE("a directory without checkpoints gives nothing, one with damaged ones only an error") {
  const ScratchDirectory directory;
  CHECK_FALSE(open_newest_whole(directory.path()));
  CHECK_FALSE(open_newest_whole(directory / "none"));
  write_text_atomically(directory / checkpoint_name(1), "stump", ExitCode::internal);
  const auto error = error_of([&] { open_newest_whole(directory.path()); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::checkpoint);
  CHECK_THAT(error->what(), ContainsSubstring(directory.path() + ": holds 1 checkpoint file but no whole one"));
}

TEST_CASE("retention keeps the newest, the best and all that is none of its business") {
  const ScratchDirectory directory;
  write_steps(directory, {10, 20, 30, 40, 50, 900});
  write_text_atomically(directory / checkpoint_name(5), "stump", ExitCode::internal);
  point_at_checkpoint(directory.path(), "best", 20);
  apply_retention(directory.path(), {.keep = 0, .step = 50});
  CHECK(steps_in(directory.path()) == std::vector<int64_t>{900, 50, 40, 30, 20, 10, -1});
  apply_retention(directory.path(), {.keep = 2, .step = 50});
  CHECK(steps_in(directory.path()) == std::vector<int64_t>{900, 50, 40, 20, -1});
}

TEST_CASE("an overwritten run leaves nothing behind but other files") {
  const ScratchDirectory directory;
  write_steps(directory, {10, 20});
  point_at_checkpoint(directory.path(), "latest", 20);
  point_at_checkpoint(directory.path(), "best", 10);
  write_text_atomically(directory / "metrics.jsonl", "", ExitCode::internal);
  std::filesystem::copy(directory / checkpoint_name(10), directory / (checkpoint_name(30) + ".tmp"));
  remove_all_checkpoints(directory.path());
  CHECK(list_directory(directory.path(), ExitCode::internal) == std::vector<std::string>{"metrics.jsonl"});
}

TEST_CASE("stale temporaries of checkpoints and links go, those of others stay") {
  const ScratchDirectory directory;
  for (const char* name : {"step-00000001.h5.tmp", "step-00000001.h5.tmp.2", "latest.tmp", "other.tmp"}) {
    std::filesystem::create_symlink("nowhere", directory / name);
  }
  remove_stale_temporaries(directory.path());
  CHECK(list_directory(directory.path(), ExitCode::internal) == std::vector<std::string>{"other.tmp"});
}
