// Turns a failure on some ranks into the same error on every rank, so that the job ends with one message and one code.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/group/process_group.h"

namespace lockstep {

// An error that every rank throws at the same point with the same code and message. Only rank 0 prints it, and all
// ranks may call MPI_Finalize. Any other Error is local to the rank that throws it, and the job must be aborted.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// Called in a catch block: returns the exception as an Error. The source location of an internal error becomes part of
// its text, because only code and text reach other ranks and the log.
Error current_error();

// Collective. Runs `work` on rank 0 and returns its result on every rank. If it throws, every rank throws an
// AgreedError with that code and message. The other ranks wait while `work` runs, so the timeout must cover it.
std::string on_root(ProcessGroup& group, const Timeout& wait, const std::function<std::string()>& work);

// Collective. If any rank passes an error, every rank throws an AgreedError with the code and message of the lowest
// failing rank; the message names that rank and its host.
void agree(ProcessGroup& group, const Timeout& wait, const std::optional<Error>& mine);

// Collective. Runs `work` on every rank, then calls agree() with what it threw. `work` itself must not be collective: a
// rank that fails would leave the others waiting in it.
void on_every_rank(ProcessGroup& group, const Timeout& wait, const std::function<void()>& work);

// Returns each distinct text once, in the order of ranks; one that not all ranks have begins with the ranks that have
// it. `texts` are indexed by rank; an empty text does not count.
std::vector<std::string> merge_texts(const ProcessGroup& group, const std::vector<std::string>& texts);

// Collective. Rank 0 logs the texts of all ranks as warnings, each distinct text once.
void warn_together(ProcessGroup& group, const Timeout& wait, const std::string& mine);

}  // namespace lockstep
