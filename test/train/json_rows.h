// The rows of a metrics.jsonl.
#pragma once

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/io/file.h"

namespace lockstep {

// Those of one kind, or all.
inline std::vector<nlohmann::json> json_rows(const std::string& path, const std::string& kind = {}) {
  std::istringstream lines(read_text_file(path, ExitCode::internal));
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(lines, line);) {
    nlohmann::json row = nlohmann::json::parse(line);
    if (kind.empty() || row["kind"] == kind) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace lockstep
