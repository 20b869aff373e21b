#include "observe/bad_records.h"

#include "lockstep/base/error.h"
#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

TEST_CASE("the bad records of all ranks are listed once each, in the order of the data set, with all meetings") {
  const std::vector<BadRecordNote> first = {{.index = 30, .message = "c: torn", .times = 2},
                                            {.index = 4, .message = "a: not an image", .times = 1}};
  const std::vector<BadRecordNote> second = {{.index = 30, .message = "c: torn", .times = 5},
                                             {.index = 7'000'000'000, .message = "b\n\xFF 12 ", .times = 1}};
  const std::string encoded[] = {encode_bad_records(first), encode_bad_records({}), encode_bad_records(second)};
  const std::vector<BadRecordNote> all = merge_bad_records(encoded);
  REQUIRE(all.size() == 3);
  CHECK(all[0].index == 4);
  CHECK(all[0].times == 1);
  CHECK(all[0].message == "a: not an image");
  CHECK(all[1].index == 30);
  CHECK(all[1].times == 7);
  CHECK(all[1].message == "c: torn");
  CHECK(all[2].index == 7'000'000'000);
  CHECK(all[2].message == "b\n\xFF 12 ");
}

TEST_CASE("nothing skipped is an empty list") {
  const std::string none[] = {{}, {}};
  CHECK(merge_bad_records(none).empty());
}

TEST_CASE("garbled notes are a bug that says so") {
  for (const std::string text : {"x", "1", "1 2", "1 2 no end", "1 x y"}) {
    INFO(text);
    const auto error = error_of([&] { merge_bad_records(std::span(&text, 1)); });
    REQUIRE(error);
    CHECK(error->code() == ExitCode::internal);
  }
}
