#include "lockstep/checkpoint/inspect.h"

#include <limits>
#include <span>

#include "lockstep/io/crc64.h"
#include "lockstep/io/file.h"
#include "test/catch.h"
#include "test/checkpoint/fixtures.h"
#include "test/scratch.h"

using namespace lockstep;

TEST_CASE("a report tells where a checkpoint stands and what is in it") {
  const ScratchDirectory directory;
  const Inspection report = inspect_checkpoint(SmallModel().write(41, directory / "a.h5"), false);
  CHECK(report.whole);
  for (const char* line :
       {"step 41, epoch 3, 2624 samples seen\n", "model small, global batch 64 on 2 ranks, seed 17\n",
        "training best_top1 = 0.75\n", "/model: 4 arrays, 102 values, 408 bytes\n",
        "/optimizer/momentum: 3 arrays, 98 values, 392 bytes\n", "  /model/conv.weight [4,3,2,2]\n",
        "whole: the checksum is right\n"}) {
    CHECK_THAT(report.text, ContainsSubstring(line));
  }
}

TEST_CASE("the format version is that of the file") {
  const ScratchDirectory directory;
  const std::string path = SmallModel().write(41, directory / "a.h5");
  CHECK_THAT(inspect_checkpoint(path, false).text, ContainsSubstring("format version 1,"));
  std::string file = read_text_file(path, ExitCode::internal);
  file.replace(file.find("version 1"), 9, "version 0");
  const size_t header = file.find("header ");
  const uint64_t checksum = crc64(std::as_bytes(std::span(file).first(header)));
  file.replace(header, 23, fmt::format("header {:016x}", checksum));
  write_text_atomically(path, file, ExitCode::internal);
  CHECK_THAT(inspect_checkpoint(path, false).text, ContainsSubstring("format version 0,"));
}

TEST_CASE("verifying gives range and norm of every array and finds values that are not finite") {
  const ScratchDirectory directory;
  std::vector<float> good{3, -4};
  std::vector<float> bad{1, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()};
  CheckpointContents contents{.arrays = {{"/model/good", Shape{2}, good.data()}}};
  write_file_atomically(directory / "good.h5", build_checkpoint(contents, "good").bytes(), {});
  const Inspection fine = inspect_checkpoint(directory / "good.h5", true);
  CHECK(fine.whole);
  CHECK_THAT(fine.text, ContainsSubstring("  /model/good [2] min -4 max 3 norm 5\n"));
  CHECK_THAT(fine.text, ContainsSubstring("whole: the checksum is right, every array was read\n"));

  contents.arrays.push_back({"/model/bad", Shape{3}, bad.data()});
  write_file_atomically(directory / "bad.h5", build_checkpoint(contents, "bad").bytes(), {});
  const Inspection report = inspect_checkpoint(directory / "bad.h5", true);
  CHECK_FALSE(report.whole);
  CHECK_THAT(report.text, ContainsSubstring("  /model/bad [3] min 1 max 1 norm 1 NOT FINITE 2\n"));
}

TEST_CASE("a file that is not whole is reported with the reason") {
  const ScratchDirectory directory;
  write_text_atomically(directory / "a.h5", "stump", ExitCode::internal);
  const Inspection report = inspect_checkpoint(directory / "a.h5", true);
  CHECK_FALSE(report.whole);
  CHECK(report.text == (directory / "a.h5") + ": not a Lockstep checkpoint\n");
}

TEST_CASE("a comparison names the arrays that differ, by how much, and those that one file lacks") {
  const ScratchDirectory directory;
  std::vector<float> same{1, 2}, before{3, 4}, after{3, 6};
  CheckpointContents contents{.arrays = {{"/model/same", Shape{2}, same.data()},
                                         {"/model/moved", Shape{2}, before.data()},
                                         {"/ema/lost", Shape{2}, same.data()}}};
  write_file_atomically(directory / "a.h5", build_checkpoint(contents, "a").bytes(), {});
  contents.arrays[1].data = after.data();
  contents.arrays[2].path = "/ema/found";
  write_file_atomically(directory / "b.h5", build_checkpoint(contents, "b").bytes(), {});

  const Inspection report = compare_checkpoints({.first = directory / "a.h5", .second = directory / "b.h5"});
  CHECK(report.whole);
  CHECK_THAT(report.text, ContainsSubstring("  /model/moved [2]: largest difference 2, norm 2 of 5\n"));
  CHECK_THAT(report.text, ContainsSubstring("  /ema/lost [2]: not in " + (directory / "b.h5")));
  CHECK_THAT(report.text, ContainsSubstring("  /ema/found [2]: not in " + (directory / "a.h5")));
  CHECK_THAT(report.text, ContainsSubstring("3 of 3 arrays differ"));
  CHECK_THAT(report.text, !ContainsSubstring("/model/same"));

  const Inspection itself = compare_checkpoints({.first = directory / "a.h5", .second = directory / "a.h5"});
  CHECK_THAT(itself.text, ContainsSubstring("0 of 3 arrays differ; the others are equal to the bit\n"));
  CHECK_FALSE(compare_checkpoints({.first = directory / "a.h5", .second = directory / "none.h5"}).whole);
}
