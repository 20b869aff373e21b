// Failures on some ranks turned into one ending of all ranks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/group/process_group.h"

namespace lockstep {

// An error that every rank throws at the same place with the same code and message: rank 0 alone prints it, and all
// ranks may finalize. Any other Error concerns the ranks that throw it, and the job must be aborted.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// Runs `work` on rank 0 and returns its result on every rank; what it throws becomes an AgreedError on every rank.
// The other ranks wait meanwhile, so the limit covers the work.
std::string on_root(ProcessGroup& group, const Timeout& wait, const std::function<std::string()>& work);

// Throws AgreedError on every rank when any rank brings an error: the code and the message, with rank and host, of the
// lowest such rank.
void agree(ProcessGroup& group, const Timeout& wait, const std::optional<Error>& mine);

// Runs `work`, which must not be collective, on every rank and agrees about the outcome.
void on_every_rank(ProcessGroup& group, const Timeout& wait, const std::function<void()>& work);

// Each text that some rank brings, in the order of ranks; in front of one that not all bring, the ranks that do.
// `texts`: by rank; empty: that rank has nothing to say.
std::vector<std::string> merge_texts(const ProcessGroup& group, const std::vector<std::string>& texts);

// Rank 0 warns of what any rank brings, each text once for the job. Collective.
void warn_together(ProcessGroup& group, const Timeout& wait, const std::string& mine);

}  // namespace lockstep
