#include "lockstep/comm/group/agreement.h"

#include <algorithm>
#include <charconv>
#include <new>

#include "lockstep/base/log.h"
#include "lockstep/comm/group/rank_names.h"

namespace lockstep {
namespace {

// Returns what `work` throws.
std::optional<Error> outcome(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (...) {
    return current_error();
  }
}

// "<code> <message>", code 0 for success.
std::string encode(const std::optional<Error>& error, std::string_view result = {}) {
  if (!error) return fmt::format("0 {}", result);
  return fmt::format("{} {}", static_cast<int>(error->code()), error->what());
}

struct Decoded {
  ExitCode code;
  std::string text;
};

Decoded decode(const std::string& message) {
  int code = 0;
  const auto [end, status] = std::from_chars(message.data(), message.data() + message.size(), code);
  require(status == std::errc() && end < message.data() + message.size(), "agreement of ranks: garbled message '{}'",
          message);
  return {static_cast<ExitCode>(code), std::string(end + 1, message.data() + message.size())};
}

}  // namespace

Error current_error() {
  try {
    throw;
  } catch (const Error& error) {
    return Error(error.code(), message_of(error), error.where());
  } catch (const std::bad_alloc&) {
    return Error(ExitCode::internal, "out of memory");
  } catch (const std::exception& error) {
    return Error(ExitCode::internal, error.what());
  } catch (...) {
    return Error(ExitCode::internal, "an exception of unknown type");
  }
}

std::string on_root(ProcessGroup& group, const Timeout& wait, const std::function<std::string()>& work) {
  std::string message;
  if (group.is_root()) {
    std::string result;
    const std::optional<Error> error = outcome([&] { result = work(); });
    message = encode(error, result);
  }
  Decoded decoded = decode(group.broadcast(std::move(message), wait));
  if (decoded.code != ExitCode::ok) throw AgreedError(decoded.code, decoded.text);
  return std::move(decoded.text);
}

void agree(ProcessGroup& group, const Timeout& wait, const std::optional<Error>& mine) {
  const std::vector<std::string> messages = group.all_gather(encode(mine), wait);
  std::optional<AgreedError> first;
  int others = 0;
  for (int r = 0; r < group.size(); ++r) {
    const Decoded decoded = decode(messages[r]);
    if (decoded.code == ExitCode::ok) continue;
    if (first) {
      ++others;
    } else {
      first.emplace(decoded.code,
                    group.size() == 1 ? decoded.text : fmt::format("{}: {}", group.describe(r), decoded.text));
    }
  }
  if (!first) return;
  if (others == 0) throw *first;
  throw AgreedError(first->code(),
                    fmt::format("{} (and {} more rank{} failed)", first->what(), others, others == 1 ? "" : "s"));
}

void on_every_rank(ProcessGroup& group, const Timeout& wait, const std::function<void()>& work) {
  agree(group, wait, outcome(work));
}

std::vector<std::string> merge_texts(const ProcessGroup& group, const std::vector<std::string>& texts) {
  std::vector<std::string> merged;
  for (const auto& [text, ranks] : group_ranks(texts)) {
    if (text.empty()) continue;
    if (ranks.size() == texts.size()) return {text};
    merged.push_back(fmt::format("{}: {}", fold_ranks(ranks, group.hosts()), text));
  }
  return merged;
}

void warn_together(ProcessGroup& group, const Timeout& wait, const std::string& mine) {
  const std::vector<std::string> texts = group.all_gather(mine, wait);
  if (!group.is_root()) return;
  for (const std::string& text : merge_texts(group, texts)) log_warning("{}", text);
}

}  // namespace lockstep
