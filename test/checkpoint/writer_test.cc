#include "lockstep/checkpoint/writer.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "lockstep/checkpoint/run_directory.h"
#include "test/catch.h"
#include "test/checkpoint/fixtures.h"
#include "test/scratch.h"
#include "test/train/log_capture.h"

using namespace lockstep;

namespace {

SaveResult finish(CheckpointWriter& writer) {
  REQUIRE(writer.wait_idle(60));
  const auto result = writer.poll();
  REQUIRE(result);
  return *result;
}

SaveResult save(CheckpointWriter& writer, CheckpointContents contents, int64_t best_step = -1) {
  writer.start(std::move(contents), best_step);
  writer.wait_copied();
  return finish(writer);
}

std::string link_of(const ScratchDirectory& directory, const std::string& name) {
  return std::filesystem::read_symlink(directory / name).string();
}

}  // namespace

TEST_CASE("a save is published under its step, is whole, and latest points at it") {
  const ScratchDirectory directory;
  const SmallModel model;
  CheckpointWriter writer({.directory = directory / "run"});
  CHECK_FALSE(writer.poll());
  const SaveResult result = save(writer, model.contents(10));
  CHECK_FALSE(result.error);
  CHECK(result.step == 10);
  CHECK(result.path == directory / "run/step-00000010.h5");
  CHECK(result.bytes == static_cast<int64_t>(std::filesystem::file_size(result.path)));
  CHECK(result.snapshot_seconds > 0);
  CHECK(result.write_seconds > 0);
  CHECK(result.cpu_seconds > 0);
  CHECK(CheckpointReader::open(result.path).meta().step == 10);
  CHECK(link_of(directory, "run/latest") == "step-00000010.h5");
  CHECK(list_directory(directory / "run", ExitCode::internal).size() == 2);
}

TEST_CASE("what is saved is what the sources held before wait_copied returned") {
  const ScratchDirectory directory;
  std::vector<float> source(300'000, 1.0F);
  CheckpointWriter writer({.directory = directory.path()});
  const auto contents = [&](int64_t step) {
    return CheckpointContents{.meta = {.step = step}, .arrays = {{"/model/x", Shape{300'000}, source.data()}}};
  };
  for (int64_t step = 1; step <= 3; ++step) {
    std::fill(source.begin(), source.end(), static_cast<float>(step));
    writer.start(contents(step));
    writer.wait_copied();
    std::fill(source.begin(), source.end(), -1.0F);
    const SaveResult result = finish(writer);
    std::vector<float> read(source.size());
    CheckpointReader::open(result.path).read("/model/x", read);
    CHECK((read == std::vector<float>(source.size(), static_cast<float>(step))));
  }
}

TEST_CASE("the writer is busy until the result of the save has been polled") {
  const ScratchDirectory directory;
  const SmallModel model;
  CheckpointWriter writer({.directory = directory.path()});
  CHECK_FALSE(writer.busy());
  writer.start(model.contents(10));
  CHECK(writer.busy());
  CHECK_THROWS_AS(writer.start(model.contents(11)), Error);
  CHECK(finish(writer).step == 10);
  CHECK_FALSE(writer.busy());
}

TEST_CASE("the newest are kept, and the best beside them") {
  const ScratchDirectory directory;
  const SmallModel model;
  CheckpointWriter writer({.directory = directory.path(), .keep = 2});
  for (int64_t step = 1; step <= 5; ++step) CHECK_FALSE(save(writer, model.contents(step), step < 2 ? -1 : 2).error);
  std::vector<int64_t> steps;
  for (const FoundCheckpoint& file : find_checkpoints(directory.path())) steps.push_back(file.step);
  CHECK(steps == std::vector<int64_t>{5, 4, 2});
  CHECK(link_of(directory, "best") == checkpoint_name(2));
  writer.mark_best(5);
  REQUIRE(writer.wait_idle(60));
  CHECK_FALSE(writer.poll());
  CHECK(link_of(directory, "best") == checkpoint_name(5));
}

TEST_CASE("the former best is deleted as soon as there is a new one, saved now or before") {
  const ScratchDirectory directory;
  const SmallModel model;
  CheckpointWriter writer({.directory = directory.path(), .keep = 1});
  const auto names = [&] {
    std::vector<int64_t> steps;
    for (const FoundCheckpoint& file : find_checkpoints(directory.path())) steps.push_back(file.step);
    return steps;
  };
  CHECK_FALSE(save(writer, model.contents(1), 1).error);
  CHECK_FALSE(save(writer, model.contents(2), 2).error);
  CHECK(names() == std::vector<int64_t>{2});
  CHECK_FALSE(save(writer, model.contents(3), 2).error);
  CHECK(names() == std::vector<int64_t>{3, 2});
  writer.mark_best(3);
  REQUIRE(writer.wait_idle(60));
  CHECK(names() == std::vector<int64_t>{3});
  CHECK(link_of(directory, "best") == checkpoint_name(3));
}

TEST_CASE("a best save that fails leaves the best before it, which is spared") {
  const ScratchDirectory directory;
  const SmallModel model;
  CheckpointWriter writer({.directory = directory.path(), .keep = 1});
  CHECK_FALSE(save(writer, model.contents(1), 1).error);
  std::filesystem::create_directories(directory / checkpoint_name(2) + "/in the way");
  CHECK(save(writer, model.contents(2), 2).error);
  CHECK_FALSE(save(writer, model.contents(3), 1).error);
  CHECK(link_of(directory, "best") == checkpoint_name(1));
  CHECK(path_exists(directory / checkpoint_name(1)));
}

TEST_CASE("the best is kept where its link was lost, or cannot be made, which is reported once") {
  const ScratchDirectory directory;
  const SmallModel model;
  {
    CheckpointWriter writer({.directory = directory.path(), .keep = 1});
    CHECK_FALSE(save(writer, model.contents(1), 1).error);
    std::filesystem::remove(directory / "best");
    for (int64_t step = 2; step <= 3; ++step) CHECK_FALSE(save(writer, model.contents(step), 1).error);
    CHECK(path_exists(directory / checkpoint_name(1)));
  }
  std::filesystem::create_directories(directory / "latest.tmp/in the way");
  std::filesystem::create_directories(directory / "best.tmp/in the way");
  const LogCapture log;
  CheckpointWriter writer({.directory = directory.path(), .keep = 1});
  CHECK_FALSE(save(writer, model.contents(4), 1).error);
  CHECK(path_exists(directory / checkpoint_name(1)));
  for (int64_t step = 5; step <= 7; ++step) CHECK_FALSE(save(writer, model.contents(step), 5).error);
  std::vector<int64_t> steps;
  for (const FoundCheckpoint& file : find_checkpoints(directory.path())) steps.push_back(file.step);
  CHECK(steps == std::vector<int64_t>{7, 5});
  const std::string text = log.text();
  const std::string reported = "without the links latest and best the newest checkpoint is";
  const size_t first = text.find(reported);
  REQUIRE(first != std::string::npos);
  CHECK(text.find(reported, first + 1) == std::string::npos);
}

TEST_CASE("best may be said while the step is being written, and a save that fails is not the best") {
  const ScratchDirectory directory;
  const SmallModel model;
  CheckpointWriter writer({.directory = directory / "run"});
  writer.start(model.contents(3));
  writer.mark_best(3);
  CHECK_FALSE(finish(writer).error);
  CHECK(link_of(directory, "run/best") == checkpoint_name(3));
  std::filesystem::remove_all(directory / "run");
  std::ofstream(directory / "run").put(' ');
  writer.start(model.contents(4));
  writer.mark_best(4);
  CHECK(finish(writer).error);
  std::filesystem::remove(directory / "run");
  writer.mark_best(4);
  REQUIRE(writer.wait_idle(60));
  CHECK_FALSE(path_exists(directory / "run"));
}

TEST_CASE("values that are not finite are never published and the array is named") {
  const ScratchDirectory directory;
  SmallModel model;
  CheckpointWriter writer({.directory = directory.path()});
  CHECK_FALSE(save(writer, model.contents(1)).error);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    model.values()[2][39] = bad;  // /model/fc.weight
    const SaveResult result = save(writer, model.contents(2));
    REQUIRE(result.error);
    CHECK(result.error->code() == ExitCode::numerics);
    CHECK_THAT(result.error->what(),
               ContainsSubstring(fmt::format("step 2: /model/fc.weight holds {} at element 39", bad)));
  }
  CHECK(link_of(directory, "latest") == checkpoint_name(1));
  CHECK(find_checkpoints(directory.path()).size() == 1);
  model.values()[2][39] = 0;
  CHECK_FALSE(save(writer, model.contents(2)).error);
}

TEST_CASE("a save that fails keeps its error for the caller, and the next one works") {
  const ScratchDirectory directory;
  const SmallModel model;
  CheckpointWriter writer({.directory = directory / "run"});
  std::filesystem::remove(directory / "run");
  std::ofstream(directory / "run").put(' ');  // a file in the way
  const SaveResult lost = save(writer, model.contents(1));
  REQUIRE(lost.error);
  CHECK(lost.error->code() == ExitCode::checkpoint);
  CHECK_THAT(lost.error->what(), ContainsSubstring(directory / "run/step-00000001.h5"));
  std::filesystem::remove(directory / "run");
  CHECK_FALSE(save(writer, model.contents(1)).error);
}

TEST_CASE("a directory that is deleted or moved during the run is made again, with a warning") {
  const ScratchDirectory directory;
  const SmallModel model;
  const LogCapture log;
  CheckpointWriter writer({.directory = directory / "runs/a"});
  CHECK_FALSE(save(writer, model.contents(1)).error);
  std::filesystem::rename(directory / "runs", directory / "moved");
  CHECK_FALSE(save(writer, model.contents(2)).error);
  CHECK_THAT(log.text(), ContainsSubstring("runs/a: was deleted or moved during the run; it is made again"));
  CHECK(read_checkpoint_header(directory / "runs/a/step-00000002.h5").step == 2);
  CHECK(read_checkpoint_header(directory / "moved/a/step-00000001.h5").step == 1);
}

TEST_CASE("a file in the way of latest does not lose the checkpoint") {
  const ScratchDirectory directory;
  const SmallModel model;
  std::filesystem::create_directories(directory / "latest/full");
  CheckpointWriter writer({.directory = directory.path()});
  CHECK_FALSE(save(writer, model.contents(1)).error);
  CHECK(CheckpointReader::open(directory / checkpoint_name(1)).meta().step == 1);
}

TEST_CASE("the writer's end waits for the save in flight, and its start clears what a killed run left") {
  const ScratchDirectory directory;
  const SmallModel model;
  model.write(9, directory / (checkpoint_name(9) + ".tmp"));
  {
    CheckpointWriter writer({.directory = directory.path()});
    CHECK_FALSE(path_exists(directory / (checkpoint_name(9) + ".tmp")));
    writer.start(model.contents(4));
  }
  CHECK(CheckpointReader::open(directory / checkpoint_name(4)).meta().step == 4);
}

TEST_CASE("saving goes on while another thread reads checkpoints") {
  const ScratchDirectory directory;
  const SmallModel model;
  CheckpointWriter writer({.directory = directory.path(), .keep = 0});
  CHECK_FALSE(save(writer, model.contents(1)).error);
  for (int64_t step = 2; step <= 20; ++step) {
    writer.start(model.contents(step));
    const LogCapture log;
    const auto reader = open_newest_whole(directory.path());
    CHECK(log.text().empty());
    REQUIRE(reader);
    CHECK(reader->meta().step >= step - 1);
    std::vector<float> weights(48);
    reader->read("/model/conv.weight", weights);
    CHECK(weights[5] == 5.25F);
    writer.wait_copied();
    CHECK_FALSE(finish(writer).error);
  }
}
