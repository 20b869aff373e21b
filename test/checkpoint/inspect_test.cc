#include "lockstep/checkpoint/inspect.h"

#include <limits>

#include "test/catch.h"
#include "test/checkpoint/fixtures.h"
#include "test/scratch.h"

using namespace lockstep;

TEST_CASE("a report tells where a checkpoint stands and what is in it") {
  const ScratchFolder folder;
  const Inspection report = inspect_checkpoint(SmallModel().write(41, folder / "a.h5"), false);
  CHECK(report.whole);
  for (const char* line :
       {"step 41, epoch 3, 2624 samples seen\n", "model small, global batch 64 on 2 ranks, seed 17\n",
        "training best_top1 = 0.75\n", "/model: 4 arrays, 102 values, 408 bytes\n",
        "/optimizer/momentum: 3 arrays, 98 values, 392 bytes\n", "  /model/conv.weight [4,3,2,2]\n",
        "whole: the checksum is right\n"}) {
    CHECK_THAT(report.text, ContainsSubstring(line));
  }
}

TEST_CASE("verifying gives range and norm of every array and finds values that are not finite") {
  const ScratchFolder folder;
  const std::vector<float> good{3, -4};
  const std::vector<float> bad{1, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()};
  CheckpointContents contents{.arrays = {{"/model/good", Shape{2}, good.data()}}};
  write_file_atomically(folder / "good.h5", build_checkpoint(contents, "good").bytes(), {});
  const Inspection fine = inspect_checkpoint(folder / "good.h5", true);
  CHECK(fine.whole);
  CHECK_THAT(fine.text, ContainsSubstring("  /model/good [2] min -4 max 3 norm 5\n"));
  CHECK_THAT(fine.text, ContainsSubstring("whole: the checksum is right, every array was read\n"));

  contents.arrays.push_back({"/model/bad", Shape{3}, bad.data()});
  write_file_atomically(folder / "bad.h5", build_checkpoint(contents, "bad").bytes(), {});
  const Inspection report = inspect_checkpoint(folder / "bad.h5", true);
  CHECK_FALSE(report.whole);
  CHECK_THAT(report.text, ContainsSubstring("  /model/bad [3] min 1 max 1 norm 1 NOT FINITE 2\n"));
}

TEST_CASE("a file that is not whole is reported with the reason") {
  const ScratchFolder folder;
  write_text_atomically(folder / "a.h5", "stump", ExitCode::internal);
  const Inspection report = inspect_checkpoint(folder / "a.h5", true);
  CHECK_FALSE(report.whole);
  CHECK(report.text == (folder / "a.h5") + ": not a Lockstep checkpoint\n");
}
