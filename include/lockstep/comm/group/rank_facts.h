// What every rank says about itself, side by side: the differences between ranks that a run would stumble over.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/group/process_group.h"

namespace lockstep {

// One thing that is to be the same on every rank. Every rank brings the same facts in the same order, with its own
// values; what a difference means is the same everywhere.
struct Fact {
  std::string name;
  std::string value;
  ExitCode blame = ExitCode::ok;  // of a difference; ok: it is a warning
  std::string advice;             // what to do about a difference
};

// One finding of a check, with what to do about it. blame ok: a warning.
struct Finding {
  ExitCode blame = ExitCode::ok;
  std::string what;
  std::string advice;
};

struct FactRow {
  Fact fact;                        // the value is this rank's
  std::vector<std::string> values;  // by rank
  bool differs() const;
};

// Collective. The same rows, but for Fact::value, on every rank.
std::vector<FactRow> gather_facts(ProcessGroup& group, const Timeout& wait, std::span<const Fact> facts);

// "2.6.3: rank 0, rank 1 and 2 more; 3.1: rank 3". `names` are the ranks', by rank.
std::string group_by_value(std::span<const std::string> values, std::span<const std::string> names);

// None where all ranks say the same.
std::optional<Finding> difference(const FactRow& row, std::span<const std::string> names);

}  // namespace lockstep
