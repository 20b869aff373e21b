#include "lockstep/checkpoint/run_directory.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "lockstep/base/log.h"
#include "lockstep/io/file.h"

namespace lockstep {
namespace {

constexpr ExitCode kBlame = ExitCode::checkpoint;
constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kSuffix = ".h5";

bool is_checkpoint_name(std::string_view name) { return name.starts_with(kPrefix) && name.ends_with(kSuffix); }

std::vector<std::string> names_in(const std::string& directory) {
  if (!path_exists(directory)) return {};
  return list_directory(directory, kBlame);
}

FoundCheckpoint look_at(const std::string& path) {
  FoundCheckpoint found{.path = path};
  try {
    found.step = read_checkpoint_header(path).step;
  } catch (const Error& error) {
    found.problem = error.what();
  }
  return found;
}

void remove_or_log(const std::string& path) {
  if (!remove_file(path)) log_warning("{}: cannot be deleted: {}", path, errno_text(errno));
}

// Returns the name of the file to which `best` points; empty if there is no link.
std::string best_name(const std::string& directory) {
  std::error_code none;
  return std::filesystem::read_symlink(directory + "/best", none).string();
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("{}{:08}{}", kPrefix, step, kSuffix); }

std::vector<FoundCheckpoint> find_checkpoints(const std::string& directory) {
  std::vector<FoundCheckpoint> found;
  for (const std::string& name : names_in(directory)) {
    if (is_checkpoint_name(name)) found.push_back(look_at(directory + "/" + name));
  }
  std::sort(found.begin(), found.end(), [](const FoundCheckpoint& a, const FoundCheckpoint& b) {
    return std::tie(a.step, a.path) > std::tie(b.step, b.path);
  });
  return found;
}

std::optional<CheckpointReader> open_newest_whole(const std::string& directory) {
  const std::vector<FoundCheckpoint> found = find_checkpoints(directory);
  if (found.empty()) return std::nullopt;
  for (const FoundCheckpoint& file : found) {
    if (!file.problem.empty()) log_warning("{}", file.problem);
  }
  for (const FoundCheckpoint& file : found) {
    if (!file.problem.empty()) continue;
    try {
      return CheckpointReader::open(file.path);
    } catch (const Error& error) {
      log_warning("{}", error.what());
    }
  }
  fail(kBlame, "{}: holds {} checkpoint file{} but no whole one; restore one, or start afresh in another directory",
       directory, found.size(), found.size() == 1 ? "" : "s");
}

std::string checkpoint_at(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_directory(path, none)) return path;
  for (const FoundCheckpoint& file : find_checkpoints(path)) {
    if (file.problem.empty()) return file.path;
  }
  fail(kBlame, "{}: a directory without a whole checkpoint (step-*.h5)", path);
}

void point_at_checkpoint(const std::string& directory, const std::string& name, int64_t step) {
  replace_symlink({.link = directory + "/" + name, .target = checkpoint_name(step)}, kBlame);
}

void apply_retention(const std::string& directory, const Retention& retention) {
  if (retention.keep <= 0) return;
  const std::string best = best_name(directory);
  int kept = 0;
  for (const FoundCheckpoint& file : find_checkpoints(directory)) {
    if (!file.problem.empty() || file.step > retention.step) continue;
    const bool is_best = file.step == retention.best_step || file.path == directory + "/" + best;
    if (++kept <= retention.keep || is_best) continue;
    remove_or_log(file.path);
  }
}

void remove_all_checkpoints(const std::string& directory) {
  for (const std::string& name : names_in(directory)) {
    if (is_checkpoint_name(name) || name == "latest" || name == "best") remove_or_log(directory + "/" + name);
  }
  remove_stale_temporaries(directory);
}

void remove_stale_temporaries(const std::string& directory) {
  for (const std::string& name : names_in(directory)) {
    const bool ours = name.starts_with(kPrefix) || name.starts_with("latest") || name.starts_with("best");
    if (ours && is_temporary_name(name)) remove_or_log(directory + "/" + name);
  }
}

}  // namespace lockstep
