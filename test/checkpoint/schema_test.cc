#include "lockstep/checkpoint/schema.h"

#include "test/catch.h"
#include "test/checkpoint/fixtures.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

ParameterTable table_of(std::vector<Parameter> parameters) {
  ParameterTable table;
  for (Parameter& parameter : parameters) table.add(std::move(parameter));
  return table;
}

// The model of the fixture with `classes` outputs.
ParameterTable with_classes(int64_t classes) {
  return table_of({{.name = "conv.weight", .shape = Shape{4, 3, 2, 2}},
                   {.name = "bn.running_mean", .shape = Shape{4}, .kind = ParameterKind::running_mean},
                   {.name = "fc.weight", .shape = Shape{classes, 4}},
                   {.name = "fc.bias", .shape = Shape{classes}, .kind = ParameterKind::bias}});
}

struct OpenFile {
  ScratchDirectory directory;
  CheckpointReader reader = CheckpointReader::open(SmallModel().write(1, directory / "a.h5"));

  std::string mismatch(const ParameterTable& table, const SchemaOptions& options = {}) const {
    const auto error = error_of([&] { match_schema(table, reader, options); });
    REQUIRE(error);
    CHECK(error->code() == ExitCode::config);
    REQUIRE_THAT(error->what(), ContainsSubstring(reader.path() + ": "));
    return std::string(error->what()).substr(reader.path().size() + 2);
  }
};

}  // namespace

TEST_CASE("a file of the same model matches in every group") {
  const OpenFile file;
  CHECK(match_schema(with_classes(10), file.reader, {}) == std::vector<ParameterId>{0, 1, 2, 3});
  CHECK(match_schema(with_classes(10), file.reader, {.group = "/ema"}).size() == 4);
  CHECK(match_schema(with_classes(10), file.reader, {.group = "/optimizer/momentum", .trained_only = true}) ==
        std::vector<ParameterId>{0, 2, 3});
  CHECK(array_path("/", "fc.bias") == "/fc.bias");
  CHECK(array_path("/ema", "fc.bias") == "/ema/fc.bias");
}

TEST_CASE("another number of classes names the layer with both shapes") {
  CHECK(
      OpenFile().mismatch(with_classes(11)) ==
      "does not fit the model: /model/fc.weight is [10,4] in the file and [11,4] in the model; /model/fc.bias is [10] "
      "in the file and [11] in the model");
}

TEST_CASE("missing and extra arrays are named") {
  const auto table = table_of({{.name = "conv.weight", .shape = Shape{4, 3, 2, 2}},
                               {.name = "bn.running_mean", .shape = Shape{4}, .kind = ParameterKind::running_mean},
                               {.name = "fc.weight", .shape = Shape{10, 4}},
                               {.name = "fc2.weight", .shape = Shape{5, 10}}});
  CHECK(
      OpenFile().mismatch(table) ==
      "does not fit the model: /model/fc2.weight is missing, the model wants [5,10]; /model/fc.bias [10] is not in the "
      "model");
}

TEST_CASE("a layer left out is not read, whether it fits or not") {
  const OpenFile file;
  CHECK(match_schema(with_classes(11), file.reader, {.exclude = {"fc"}}) == std::vector<ParameterId>{0, 1});
  CHECK(match_schema(with_classes(10), file.reader, {.exclude = {"fc.bias"}}) == std::vector<ParameterId>{0, 1, 2});
  const auto headless = table_of({{.name = "conv.weight", .shape = Shape{4, 3, 2, 2}}});
  CHECK(match_schema(headless, file.reader, {.exclude = {"fc", "bn"}}) == std::vector<ParameterId>{0});
  CHECK(file.mismatch(with_classes(10), {.exclude = {"f"}}) ==
        "does not fit the model: f is to be left out, but the model has no such layer");
}

TEST_CASE("a missing slot or average is named, with what the file has instead") {
  const OpenFile file;
  CHECK(file.mismatch(with_classes(10), {.group = "/optimizer/exp_avg"}) ==
        "has no /optimizer/exp_avg; its optimizer's slots are momentum");
  CHECK(file.mismatch(with_classes(10), {.group = "/swa"}) == "has no /swa; it was not written with it");
  float value = 1;
  const CheckpointContents bare{.arrays = {{"/model/x", Shape{1}, &value}}};
  write_file_atomically(file.directory / "bare.h5", build_checkpoint(bare, "bare").bytes(), {});
  const auto error = error_of([&] {
    match_schema(with_classes(10), CheckpointReader::open(file.directory / "bare.h5"),
                 {.group = "/optimizer/momentum"});
  });
  REQUIRE(error);
  CHECK_THAT(error->what(), ContainsSubstring("it has no optimizer state"));
}

TEST_CASE("one array missing from a slot is named") {
  const ScratchDirectory directory;
  const SmallModel model;
  CheckpointContents contents = model.contents(1);
  contents.arrays.pop_back();  // /optimizer/momentum/fc.bias
  write_file_atomically(directory / "a.h5", build_checkpoint(contents, "a").bytes(), {});
  const auto error = error_of([&] {
    match_schema(model.table(), CheckpointReader::open(directory / "a.h5"),
                 {.group = "/optimizer/momentum", .trained_only = true});
  });
  REQUIRE(error);
  CHECK_THAT(error->what(), ContainsSubstring("/optimizer/momentum/fc.bias is missing, the model wants [10]"));
}

TEST_CASE("a long list of differences is cut") {
  std::vector<Parameter> parameters;
  for (int i = 0; i < 30; ++i) parameters.push_back({.name = fmt::format("layer{}.weight", i), .shape = Shape{1}});
  CHECK_THAT(OpenFile().mismatch(table_of(std::move(parameters))), ContainsSubstring("; and 24 more"));
}
