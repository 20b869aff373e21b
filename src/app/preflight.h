// What every rank of a run must have in common. Train compares it at every start; check prints it.
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

// The program, its libraries, the processor and the configuration of this rank.
std::vector<Fact> program_facts(const Config& config);

// Rank 0's values of those facts, for the log.
std::string program_line(std::span<const FactRow> rows);

// "16 hexadecimal digits" of some bytes, for comparing them over ranks.
std::string digest_text(std::span<const std::byte> bytes);

// Network interfaces that are asked for and missing on some ranks, each once. Collective.
std::vector<Finding> network_findings(ProcessGroup& group, const Timeout& wait);

// "what; what to do: advice", as every finding is printed.
std::string text_of(const Finding& finding);

// Reads some records from all over the data set: data of the same size that are not the same differ in it. A record
// that cannot be read counts as one that is bad.
DataIdentity identity_of(const DataSource& source);
Fact identity_fact(const std::string& name, const DataIdentity& identity);

// Schema and device of the model.
std::vector<Fact> model_facts(const ModelSetup& setup);

// What the ranks were compared by, and what was found.
struct Comparison {
  std::vector<FactRow> rows;
  std::vector<Finding> findings;
};
// Collective.
Comparison compare_ranks(ProcessGroup& group, const Timeout& wait, const std::vector<Fact>& facts);
// Of the programs, with their libraries and networks. Collective.
Comparison compare_programs(const Config& config, ProcessGroup& group);

// A run goes on with a warning, or ends: throws AgreedError on every rank.
void act_on(const Finding& finding, const ProcessGroup& group);

}  // namespace lockstep
