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

TEST_CASE("a parameter missing from the order, or twice in it, is a bug that is caught") {
  const ParameterTable table = three_weights_and_statistics();
  const ParameterId missing[] = {0, 1};
  const ParameterId twice[] = {0, 1, 2, 2};
  CHECK_THROWS_AS(lay_out_parameters(table, missing), Error);
  CHECK_THROWS_AS(lay_out_parameters(table, twice), Error);
}
