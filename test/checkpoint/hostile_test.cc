// Checkpoints that no run can have written, and files of weights that never end.
#include <hdf5.h>
#include <algorithm>

#include <limits>

#include "checkpoint/header.h"
#include "lockstep/checkpoint/inspect.h"
#include "lockstep/checkpoint/run_directory.h"
#include "test/catch.h"
#include "test/checkpoint/fixtures.h"
#include "test/scratch.h"
#include "test/train/log_capture.h"

using namespace lockstep;

namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

std::string hostile(const std::string& name) { return LOCKSTEP_HOSTILE_DIR "/" + name; }

template <class Call>
std::string refusal(const Call& call) {
  const auto error = error_of(call);
  REQUIRE(error);
  CHECK(error->code() == ExitCode::checkpoint);
  return error->what();
}

// What opening a checkpoint says whose contents `change` has changed.
template <class Change>
std::string refusal_after(const Change& change) {
  const ScratchDirectory directory;
  const std::string path = directory / "a.h5";
  CheckpointContents contents = SmallModel().contents(5);
  SmallModel model;
  contents = model.contents(5);
  change(contents);
  write_file_atomically(path, build_checkpoint(contents, path).bytes(), {});
  const std::string text = refusal([&] { CheckpointReader::open(path); });
  REQUIRE(text.starts_with(path + ": damaged checkpoint, "));
  return text.substr(path.size() + std::string(": damaged checkpoint, ").size());
}

// A whole checkpoint in which the group /model contains the root.
std::string write_cyclic(const std::string& path) {
  SmallModel().write(9, path);
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  REQUIRE(H5Lcreate_hard(file, "/", file, "/model/again", H5P_DEFAULT, H5P_DEFAULT) >= 0);
  H5Fclose(file);
  auto bytes = read_regular_file(path, ExitCode::internal);
  seal_checkpoint(bytes, 9);
  write_file_atomically(path, bytes, {});
  return path;
}

}  // namespace

TEST_CASE("each field of a checkpoint that no run can have written is refused by name") {
  const auto of_meta = [](int64_t CheckpointMeta::*field, int64_t value) {
    return refusal_after([&](CheckpointContents& c) { c.meta.*field = value; });
  };
  CHECK(of_meta(&CheckpointMeta::step, -5) == "its header's step is -5, which no run can have written");
  CHECK_THAT(of_meta(&CheckpointMeta::step, kLargest), ContainsSubstring("attribute step is 9223372036854775807"));
  CHECK_THAT(of_meta(&CheckpointMeta::epoch, -1), ContainsSubstring("attribute epoch is -1"));
  CHECK_THAT(of_meta(&CheckpointMeta::samples_seen, -1), ContainsSubstring("attribute samples_seen is -1"));
  CHECK_THAT(of_meta(&CheckpointMeta::world_size, 0), ContainsSubstring("attribute world_size is 0"));
  CHECK_THAT(of_meta(&CheckpointMeta::global_batch, -64), ContainsSubstring("attribute global_batch is -64"));
  const auto of_training = [](const std::string& name, TrainingValue value) {
    return refusal_after([&](CheckpointContents& c) { c.training[name] = value; });
  };
  CHECK(of_training("position", int64_t{-1}) == "/training/position is -1, which no run can have written");
  CHECK_THAT(of_training("position", kLargest), ContainsSubstring("/training/position is 9223372036854775807"));
  CHECK_THAT(of_training("updates", int64_t{-1}), ContainsSubstring("/training/updates is -1"));
  CHECK_THAT(of_training("loss_scale_steady_steps", int64_t{-1}), ContainsSubstring("loss_scale_steady_steps is -1"));
  CHECK_THAT(of_training("best_evaluation_position", -kLargest), ContainsSubstring("best_evaluation_position is -9"));
  CHECK_THAT(of_training("loss_scale", 0.0), ContainsSubstring("/training/loss_scale is 0"));
  CHECK_THAT(of_training("loss_scale", std::numeric_limits<double>::infinity()), ContainsSubstring("is inf"));
  CHECK_THAT(of_training("best_score", std::numeric_limits<double>::quiet_NaN()),
             ContainsSubstring("best_score is nan"));
}

TEST_CASE("every seed, and numbers of later programs, are taken") {
  const ScratchDirectory directory;
  const SmallModel model;
  CheckpointContents contents = model.contents(5);
  contents.meta.seed = -7;
  contents.training["of_later"] = int64_t{-3};
  write_file_atomically(directory / "a.h5", build_checkpoint(contents, "a").bytes(), {});
  CHECK(CheckpointReader::open(directory / "a.h5").meta().seed == -7);
}

TEST_CASE("a header of another step than the file's is damage") {
  const ScratchDirectory directory;
  const SmallModel model;
  Hdf5Image image = build_checkpoint(model.contents(5), "a");
  seal_checkpoint(image.bytes(), 6);
  write_file_atomically(directory / "a.h5", image.bytes(), {});
  CHECK(refusal([&] { CheckpointReader::open(directory / "a.h5"); }) ==
        directory / "a.h5" + ": damaged checkpoint, its header tells step 6 and its attribute step 5");
}

TEST_CASE("an impossible newest checkpoint is passed over, as a damaged one is") {
  const ScratchDirectory directory;
  const SmallModel model;
  model.write(5, directory / checkpoint_name(5));
  write_cyclic(directory / checkpoint_name(9));
  CheckpointContents contents = model.contents(12);
  contents.training["position"] = kLargest;
  write_file_atomically(directory / checkpoint_name(12), build_checkpoint(contents, "a").bytes(), {});
  const LogCapture log;
  const auto found = open_newest_whole(directory.path());
  REQUIRE(found);
  CHECK(found->meta().step == 5);
  const std::string warnings = log.text();
  REQUIRE(std::ranges::count(warnings, '\n') == 2);
  const size_t second = warnings.find('\n');
  CHECK_THAT(warnings.substr(0, second),
             ContainsSubstring(checkpoint_name(12)) && ContainsSubstring("/training/position"));
  CHECK_THAT(warnings.substr(second),
             ContainsSubstring(checkpoint_name(9)) && ContainsSubstring("one may contain itself"));
}

TEST_CASE("groups that contain themselves end the walk, in a checkpoint and in a file of weights") {
  const ScratchDirectory directory;
  CHECK_THAT(refusal([&] { CheckpointReader::open(write_cyclic(directory / "a.h5")); }),
             ContainsSubstring("its groups nest more than 16 deep, down to /model/again/"));
  const Inspection report = inspect_checkpoint(directory / "a.h5", false);
  CHECK_FALSE(report.whole);
  CHECK_THAT(report.text, ContainsSubstring("one may contain itself"));
  const std::string path = hostile("hdf5_group_cycle.h5");
  CHECK(
      refusal([&] { CheckpointReader::open_weights(path); }).starts_with(path + ": its groups nest more than 16 deep"));
}

TEST_CASE("groups that multiply without a cycle end the walk") {
  const ScratchDirectory directory;
  const std::string path = directory / "a.h5";
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  hid_t group = H5Gopen2(file, "/", H5P_DEFAULT);
  for (int depth = 0; depth < 12; ++depth) {  // 4^12 paths lead to the last
    const hid_t next = H5Gcreate2(group, "0", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    for (const char* name : {"1", "2", "3"}) H5Lcreate_hard(group, "0", group, name, H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(group);
    group = next;
  }
  H5Gclose(group);
  H5Fclose(file);
  CHECK(refusal([&] { CheckpointReader::open_weights(path); }) == path + ": holds more than 100000 objects");
}

TEST_CASE("weights that a small file declares without storing them are refused before anything is read") {
  CHECK_THAT(refusal([] { CheckpointReader::open_weights(hostile("hdf5_weights_8GB.h5")); }),
             ContainsSubstring("/w: its shape, [2147483648], is of more chunks"));
  CHECK_THAT(refusal([] { CheckpointReader::open_weights(hostile("hdf5_weights_slow_60s.h5")); }),
             ContainsSubstring("/conv.weight: its shape, [33554432,3,1,1], is of more chunks") ||
                 ContainsSubstring("cannot open conv.weight: "));  // which HDF5 1.14 does not
  CHECK_THAT(refusal([] { CheckpointReader::open_weights(hostile("hdf5_images_overflow_segv.h5")); }),
             ContainsSubstring("/images: its shape"));
  CHECK_THAT(refusal([] { CheckpointReader::open_weights(hostile("hdf5_external_storage.h5")); }),
             ContainsSubstring("/hidden.0.weight: keeps its values in another file, /etc/passwd"));
}

TEST_CASE("one array under many names counts as often as it is named") {
  const ScratchDirectory directory;
  const std::string path = directory / "a.h5";
  const hsize_t count = 1 << 20;  // 4 MiB, of which nothing is stored
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(1, &count, nullptr);
  H5Dclose(H5Dcreate2(file, "w0", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Sclose(space);
  for (const char* name : {"w1", "w2", "w3", "w4"}) H5Lcreate_hard(file, "w0", file, name, H5P_DEFAULT, H5P_DEFAULT);
  H5Fclose(file);
  CHECK_THAT(refusal([&] { CheckpointReader::open_weights(path); }),
             ContainsSubstring("declares arrays of more than") && ContainsSubstring("the last is /w4 [1048576]"));
}

TEST_CASE("names in a checkpoint cannot act on the terminal or imitate a line of the report") {
  const ScratchDirectory directory;
  float value = 1;
  const std::string trick = "x\n\x1b[2Jwhole: the checksum is right";
  const CheckpointContents contents{.meta = {.model = trick, .created = trick},
                                    .arrays = {{"/model/" + trick, Shape{1}, &value}},
                                    .training = {{trick, 1.0}},
                                    .classes = {trick}};
  write_file_atomically(directory / "a.h5", build_checkpoint(contents, "a").bytes(), {});
  const std::string text = inspect_checkpoint(directory / "a.h5", true).text;
  CHECK(text.find('\x1b') == std::string::npos);
  size_t verdicts = 0;
  for (size_t at = text.find("\nwhole"); at != std::string::npos; at = text.find("\nwhole", at + 1)) ++verdicts;
  CHECK(verdicts == 1);
  CHECK_THAT(text, ContainsSubstring("model x\\x0a\\x1b[2Jwhole"));
}
