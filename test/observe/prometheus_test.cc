#include "lockstep/observe/prometheus.h"

#include <cmath>

#include "test/catch.h"

using namespace lockstep;

TEST_CASE("a page has the latest value of each metric, in the order of the table, with help and type") {
  PrometheusPage page("/runs/a \"b\"\\c");
  page.set("lockstep_step_part_seconds", 0.5, prometheus_label("part", "data"));
  page.set("lockstep_step_part_seconds", 0.25, prometheus_label("part", "compute"));
  page.set("lockstep_loss", 3);
  page.set("lockstep_loss", std::nan(""));
  page.set("lockstep_failed_saves_total", 2);
  CHECK(page.text() ==
        "# HELP lockstep_loss Training loss of the last log interval.\n"
        "# TYPE lockstep_loss gauge\n"
        "lockstep_loss{run=\"/runs/a \\\"b\\\"\\\\c\"} NaN\n"
        "# HELP lockstep_step_part_seconds Mean time of a part of a step on rank 0.\n"
        "# TYPE lockstep_step_part_seconds gauge\n"
        "lockstep_step_part_seconds{run=\"/runs/a \\\"b\\\"\\\\c\",part=\"compute\"} 0.25\n"
        "lockstep_step_part_seconds{run=\"/runs/a \\\"b\\\"\\\\c\",part=\"data\"} 0.5\n"
        "# HELP lockstep_failed_saves_total Number of saves that failed.\n"
        "# TYPE lockstep_failed_saves_total counter\n"
        "lockstep_failed_saves_total{run=\"/runs/a \\\"b\\\"\\\\c\"} 2\n");
  CHECK(PrometheusPage().text().empty());
}

TEST_CASE("what is no metric of the table is a mistake of ours") {
  PrometheusPage page;
  CHECK_THROWS(page.set("lockstep_los", 1));
}
