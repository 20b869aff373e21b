#include "app/cli/class_report.h"

#include "test/catch.h"

using namespace lockstep;

TEST_CASE("precision is a part of the predictions, recall a part of the samples") {
  ClassReport report(4, {"ant", "bee, wild", "cat"});
  for (int i = 0; i < 3; ++i) report.add(0, 0);
  report.add(0, 1);
  report.add(1, 1);
  report.add(2, 0);
  CHECK(report.table() ==
        "class      precision  recall  support\n"
        "ant           0.7500  0.7500        4\n"
        "bee, wild     0.5000  1.0000        1\n"
        "cat                -  0.0000        1");
  CHECK(report.csv() ==
        "label,ant,\"bee, wild\",cat,3\n"
        "ant,3,1,0,0\n"
        "\"bee, wild\",0,1,0,0\n"
        "cat,1,0,0,0\n"
        "3,0,0,0,0\n");
}

TEST_CASE("a class that is predicted without samples has a precision and no recall") {
  ClassReport report(2, {});
  report.add(0, 1);
  CHECK(report.table() ==
        "class  precision  recall  support\n"
        "0              -  0.0000        1\n"
        "1         0.0000       -        0");
}
