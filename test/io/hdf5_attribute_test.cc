#include "lockstep/io/hdf5.h"
#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

TEST_CASE("attributes of groups and data sets read back, and absent ones are absent") {
  auto file = Hdf5File::create_in_memory("attributes", {});
  file.write<float>("/x", std::vector<int64_t>{1}, std::vector<float>{9});
  file.write_attribute("/", "step", int64_t{-7'000'000'000});
  file.write_attribute("/x", "unit", std::string("millimètre"));
  file.write_attribute("/x", "empty", std::string());
  const Hdf5Image image = std::move(file).finish();
  const auto read = Hdf5File::open_image(image.bytes(), "attributes", ExitCode::data);
  CHECK(read.integer_attribute("/", "step") == -7'000'000'000);
  CHECK(read.string_attribute("/x", "unit") == "millimètre");
  CHECK(read.string_attribute("/x", "empty") == "");
  CHECK(read.integer_attribute("/", "none") == std::nullopt);
  CHECK(read.string_attribute("/x", "step") == std::nullopt);
}

TEST_CASE("an attribute of another kind is a named error") {
  auto file = Hdf5File::create_in_memory("attributes", {});
  file.write_attribute("/", "text", std::string("x"));
  file.write_attribute("/", "number", int64_t{1});
  const auto not_number = error_of([&] { file.integer_attribute("/", "text"); });
  REQUIRE(not_number);
  CHECK(std::string(not_number->what()) == "attributes: attribute text is not one number");
  const auto not_string = error_of([&] { file.string_attribute("/", "number"); });
  REQUIRE(not_string);
  CHECK(std::string(not_string->what()) == "attributes: attribute number is not one string");
}
