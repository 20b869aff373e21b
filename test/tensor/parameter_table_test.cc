#include "lockstep/tensor/parameter_table.h"

#include "lockstep/base/error.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

ParameterTable three_weights_and_statistics() {
  ParameterTable table;
  table.add({.name = "a", .shape = {5}});
  table.add({.name = "b", .shape = {3}});
  table.add({.name = "c", .shape = {20}});
  table.add({.name = "m", .shape = {7}, .kind = ParameterKind::running_mean});
  table.add({.name = "v", .shape = {7}, .kind = ParameterKind::running_var});
  return table;
}

}  // namespace

TEST_CASE("a name may be declared once only") {
  ParameterTable table = three_weights_and_statistics();
  CHECK_THROWS_AS(table.add({.name = "a", .shape = {1}}), Error);
  CHECK(table.find("c") == 2);
  CHECK(table.find("nothing") == -1);
  CHECK(table.trained_elements() == 28);
}

TEST_CASE("parameters lie in the order given, aligned, and statistics have their own arena") {
  const ParameterTable table = three_weights_and_statistics();
  const ParameterId order[] = {2, 0, 1};
  const ParameterLayout layout = lay_out_parameters(table, order);
  CHECK(layout.offset == std::vector<int64_t>{32, 48, 0, 0, 16});
  CHECK(layout.trained_elements == 64);
  CHECK(layout.statistic_elements == 32);
}

TEST_CASE("a group lies side by side without padding, wherever its first member in the order comes") {
  const ParameterTable table = three_weights_and_statistics();
  const ParameterId order[] = {1, 2, 0};
  const std::vector<std::vector<ParameterId>> groups = {{0, 1}};
  const ParameterLayout layout = lay_out_parameters(table, order, groups);
  CHECK(layout.offset[0] == 0);
  CHECK(layout.offset[1] == 5);
  CHECK(layout.offset[2] == 16);
  CHECK(layout.trained_elements == 48);
}

TEST_CASE("frozen parameters lie behind the statistics that follow the batches, in their groups") {
  ParameterTable table;
  table.add({.name = "fixed", .shape = {4}, .kind = ParameterKind::fixed_scale});
  table.add({.name = "a", .shape = {5}, .frozen = true});
  table.add({.name = "b", .shape = {3}});
  table.add({.name = "c", .shape = {20}, .frozen = true});
  table.add({.name = "m", .shape = {7}, .kind = ParameterKind::running_mean});
  table.add({.name = "frozen.m", .shape = {7}, .kind = ParameterKind::running_mean, .frozen = true});
  CHECK(table.trained_elements() == 3);
  CHECK(table.frozen_elements() == 25);
  CHECK(trained_in_table_order(table) == std::vector<ParameterId>{2});
  const std::vector<std::vector<ParameterId>> groups = {{1, 3}};
  const ParameterLayout layout = lay_out_parameters(table, trained_in_table_order(table), groups);
  CHECK(layout.offset == std::vector<int64_t>{16, 32, 0, 37, 0, 64});
  CHECK(layout.trained_elements == 16);
  CHECK(layout.moment_elements == 16);
  CHECK(layout.statistic_elements == 80);
}

TEST_CASE("a pattern names parameters and the layers that contain them") {
  const std::string name = "layer1.0.conv1.weight";
  for (const char* pattern :
       {"layer1", "layer1.0", "layer*", "*", "layer[12].*.conv1", "*.conv?.weight", "layer1.0.conv1.weight"}) {
    INFO(pattern);
    CHECK(names_parameter(pattern, name));
  }
  for (const char* pattern : {"", "layer", "layer1.", "conv1", "*.conv", "layer[23]*", "LAYER1"}) {
    INFO(pattern);
    CHECK_FALSE(names_parameter(pattern, name));
  }
  CHECK(names_parameter("[]a]x", "]x"));
  CHECK(names_parameter("[!a-y]?\\*", "zz*"));
  CHECK_FALSE(names_parameter("[!a-y]?\\*", "zzz"));
  CHECK(names_parameter("a[b", "a[b"));
  CHECK_FALSE(names_parameter("a\\", "ab"));
  CHECK(names_parameter("*ab*ab", "abxabab"));
  CHECK_FALSE(names_parameter("*ab*abc", "abxabab"));
}

TEST_CASE("a pattern of many asterisks takes no time") {
  std::string pattern;
  for (int i = 0; i < 100; ++i) pattern += "a*";
  CHECK_FALSE(names_parameter(pattern + "b", std::string(1000, 'a')));
  CHECK(names_parameter(pattern, std::string(1000, 'a')));
}

TEST_CASE("a pattern that names nothing is an error with the nearest name") {
  const std::vector<std::string> names = {"Mixed_5b.branch1x1.conv.weight", "fc.weight"};
  CHECK_NOTHROW(require_named(names, "Mixed_5*", "train.freeze", "parameter"));
  CHECK_THROWS_WITH(require_named(names, "Mixd_5*", "train.freeze", "parameter"),
                    "train.freeze: \"Mixd_5*\" matches no parameter of the model; did you mean Mixed_5b?");
  CHECK_THROWS_WITH(require_named(names, "quite else", "train.freeze", "parameter"),
                    "train.freeze: \"quite else\" matches no parameter of the model");
}

TEST_CASE("a parameter missing from the order, or twice in it, is a bug that is caught") {
  const ParameterTable table = three_weights_and_statistics();
  const ParameterId missing[] = {0, 1};
  const ParameterId twice[] = {0, 1, 2, 2};
  CHECK_THROWS_AS(lay_out_parameters(table, missing), Error);
  CHECK_THROWS_AS(lay_out_parameters(table, twice), Error);
}
