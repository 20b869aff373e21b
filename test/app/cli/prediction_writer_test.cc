#include "app/cli/prediction_writer.h"

#include <cstdlib>

#include "lockstep/base/error.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

struct Case {
  std::string input;
  Prediction prediction;
};

std::string written(const std::string& format, const std::vector<std::string>& names, bool labels,
                    const std::vector<Case>& cases) {
  char* text = nullptr;
  size_t size = 0;
  std::FILE* const file = ::open_memstream(&text, &size);
  PredictionWriter writer(file, format, names, labels);
  for (const auto& [input, prediction] : cases) writer.add(input, prediction);
  writer.finish();
  std::fclose(file);
  const std::string result(text, size);
  std::free(text);
  return result;
}

const std::vector<Case> kCases = {{"a.png", {.sample = 0, .label = 1, .output = 1, .probability = 0.75}},
                                  {"a.png", {.sample = 0, .label = 1, .output = 0, .probability = 0.25}},
                                  {"b, \"c\".png", {.sample = 3, .label = 0, .output = 0, .probability = 1}}};
const std::vector<std::string> kNames = {"ant", "bee, wild"};

}  // namespace

TEST_CASE("predictions as a table have columns of one width") {
  CHECK(written("table", kNames, false, kCases) ==
        "probability  class      input\n"
        "     0.7500  bee, wild  a.png\n"
        "     0.2500  ant        a.png\n"
        "     1.0000  ant        b, \"c\".png\n");
  CHECK(written("table", {}, true, {kCases[1]}) ==
        "probability  class  label  input\n"
        "     0.2500  0          1  a.png\n");
  CHECK(written("table", {"red\x1b[31m"}, false, {{"a\nb\x1b[31m", {}}}).find('\x1b') == std::string::npos);
}

TEST_CASE("predictions as CSV quote fields that need it and number the classes of a sample") {
  CHECK(written("csv", kNames, true, kCases) ==
        "input,rank,class,name,probability,label\n"
        "a.png,1,1,\"bee, wild\",0.750000,1\n"
        "a.png,2,0,ant,0.250000,1\n"
        "\"b, \"\"c\"\".png\",1,0,ant,1.000000,0\n");
  CHECK(written("csv", {}, false, {kCases[0]}) == "input,rank,class,name,probability\na.png,1,1,,0.750000\n");
}

TEST_CASE("predictions as JSON are one array with an object for each sample") {
  CHECK(written("json", kNames, true, kCases) ==
        "[\n"
        "{\"input\": \"a.png\", \"label\": 1, \"predictions\": "
        "[{\"class\":1,\"name\":\"bee, wild\",\"probability\":0.75}, "
        "{\"class\":0,\"name\":\"ant\",\"probability\":0.25}]},\n"
        "{\"input\": \"b, \\\"c\\\".png\", \"label\": 0, \"predictions\": "
        "[{\"class\":0,\"name\":\"ant\",\"probability\":1.0}]}\n"
        "]\n");
  CHECK(written("json", {}, false, {kCases[1]}) ==
        "[\n{\"input\": \"a.png\", \"predictions\": [{\"class\":0,\"probability\":0.25}]}\n]\n");
}

TEST_CASE("without predictions there is a header, or an empty array") {
  CHECK(written("csv", {}, false, {}) == "input,rank,class,name,probability\n");
  CHECK(written("json", {}, false, {}) == "[\n]\n");
}

TEST_CASE("predictions that cannot be written are an error") {
  std::FILE* const full = std::fopen("/dev/full", "w");
  PredictionWriter writer(full, "csv", {}, false);
  CHECK_THROWS_WITH(writer.finish(), ContainsSubstring("standard output cannot be written"));
  const auto add_many = [&] {
    for (int64_t i = 0; i < 10000; ++i) writer.add("a.png", {.sample = i});
  };
  CHECK_THROWS_WITH(add_many(), ContainsSubstring("standard output cannot be written"));
  std::fclose(full);
}
