// Compares facts about the ranks' environments (versions, limits, settings), to report differences that would break or
// slow down a run.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/group/process_group.h"

namespace lockstep {

// A property that should be the same on every rank. Every rank passes the same facts in the same order, each with its
// own values; the other members are the same on every rank.
struct Fact {
  std::string name;
  std::string value;
  ExitCode blame = ExitCode::ok;  // exit code if values differ; ok: only a warning
  std::string advice;             // what the user can do about a difference
};

// A problem that a check found, with advice.
struct Finding {
  ExitCode blame = ExitCode::ok;  // exit code of the problem; ok: only a warning
  std::string what;
  std::string advice;
};

// A fact with its values on all ranks.
struct FactRow {
  Fact fact;                        // with this rank's value
  std::vector<std::string> values;  // by rank
  bool differs() const;
};

// Collective. Returns one row per fact. The rows are the same on every rank, except for Fact::value.
std::vector<FactRow> gather_facts(ProcessGroup& group, const Timeout& wait, std::span<const Fact> facts);

// Groups ranks by value: "2.6.3: ranks 0-63 on node[1-4]; 3.1: rank 64@node5". Both are indexed by rank.
std::string group_by_value(std::span<const std::string> values, std::span<const std::string> hosts);

// Returns a finding if the values differ between ranks, otherwise nothing. `hosts` are indexed by rank.
std::optional<Finding> difference(const FactRow& row, std::span<const std::string> hosts);

}  // namespace lockstep
