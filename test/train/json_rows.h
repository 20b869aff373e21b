// The rows of a metrics.jsonl.
#pragma once

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/io/file.h"
#include "lockstep/observe/reporter.h"

namespace lockstep {

// Reporters whose rows may still be on their way to the file while a test reads it. All on one thread.
inline std::vector<Reporter*>& reporters_under_test() {
  static std::vector<Reporter*> reporters;
  return reporters;
}

class ReporterUnderTest {
 public:
  explicit ReporterUnderTest(Reporter& reporter) { reporters_under_test().push_back(&reporter); }
  ~ReporterUnderTest() { reporters_under_test().pop_back(); }
  ReporterUnderTest(const ReporterUnderTest&) = delete;
  ReporterUnderTest& operator=(const ReporterUnderTest&) = delete;
};

// Those of one kind, or all, without their times.
inline std::vector<nlohmann::json> json_rows(const std::string& path, const std::string& kind = {}) {
  for (Reporter* reporter : reporters_under_test()) require(reporter->files().finish(30), "the rows are not written");
  std::istringstream lines(read_text_file(path, ExitCode::internal));
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(lines, line);) {
    nlohmann::json row = nlohmann::json::parse(line);
    row.erase("time");
    if (kind.empty() || row["kind"] == kind) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace lockstep
