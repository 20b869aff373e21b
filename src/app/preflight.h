// The facts that all ranks of a run must have in common. Train compares them at every start; check prints them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "app/job.h"
#include "lockstep/comm/group/process_group.h"
#include "lockstep/comm/group/rank_facts.h"
#include "lockstep/config/config.h"
#include "lockstep/train/start_state.h"

namespace lockstep {

// Returns program, libraries and processor of rank 0, for the log.
std::string program_line(std::span<const FactRow> rows);

// "what; what to do: advice", as every finding is printed.
std::string text_of(const Finding& finding);

// Identifies the data by their size and some records from all over them, so that other data of the same size differ.
// All records that cannot be read count as equal.
DataIdentity identity_of(const DataSource& source);
Fact identity_fact(const std::string& name, const DataIdentity& identity);

// Schema and device of the model.
std::vector<Fact> model_facts(const ModelSetup& setup);

// The facts by which the ranks were compared, and the findings.
struct Comparison {
  std::vector<FactRow> rows;
  std::vector<Finding> findings;
};
// Collective.
Comparison compare_ranks(ProcessGroup& group, const Timeout& wait, const std::vector<Fact>& facts);
// Collective. Compares the programs, their libraries and networks.
Comparison compare_programs(const Config& config, ProcessGroup& group);

// Logs a warning, or ends the run: throws AgreedError on every rank.
void act_on(const Finding& finding, const ProcessGroup& group);

}  // namespace lockstep
