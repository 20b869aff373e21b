#include "app/tuned_plans.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/printable.h"
#include "lockstep/checkpoint/run_directory.h"
#include "lockstep/comm/group/agreement.h"
#include "lockstep/io/crc32c.h"
#include "lockstep/io/file.h"
#include "lockstep/train/deadlines.h"

namespace lockstep {
namespace {

constexpr std::string_view kFormat = "lockstep plans 1";
constexpr double kMostSeconds = 45;  // of timing: below the time after which the watchdog warns by default

// Three lines precede the choices: format, device and library, checksum of the choices.
struct PlanText {
  std::string valid_for, choices;
};

std::string checksum(std::string_view choices) {
  return fmt::format("crc32c {:08x}", crc32c(std::as_bytes(std::span(choices))));
}

std::string to_text(const PlanTuning& plans) {
  const std::string choices = plans.choices();
  return fmt::format("{}\n{}\n{}\n{}", kFormat, plans.valid_for(), checksum(choices), choices);
}

PlanText parse(std::string_view text) {
  const auto next_line = [&] {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    return line;
  };
  const std::string_view format = next_line(), valid_for = next_line(), sum = next_line();
  if (format != kFormat) fail(ExitCode::checkpoint, "its first line is not \"{}\"", kFormat);
  if (sum != checksum(text)) fail(ExitCode::checkpoint, "the checksum is wrong");
  return {std::string(valid_for), std::string(text)};
}

std::string path_in(const std::string& directory) { return directory + "/plans.txt"; }

// Uses the plans that a run has kept. Returns false if they are for another device.
bool take_kept(PlanTuning& plans, std::string_view text, const std::string& path, bool timed) {
  const PlanText kept = parse(text);
  if (kept.valid_for == plans.valid_for()) {
    plans.take(kept.choices);
    return true;
  }
  log_info("tune | {} is for {}, this is {}: {}", path, printable(kept.valid_for), plans.valid_for(),
           timed ? "plans are timed again" : "it is not used");
  return false;
}

void announce(const PlanTuning::Result& r, const std::string& path) {
  constexpr double kMilliseconds = 1e3;
  std::string text = fmt::format("{} of {}", counted(r.kernels, "convolution"), counted(r.shapes, "shape"));
  if (r.taken > 0) text += fmt::format(", {} as in {}", r.taken, path);
  if (r.timed > 0) {
    text += fmt::format(", {} timed in {:.1f} s: {:.3f} ms with the fastest, {:.3f} ms with the first ones",
                        counted(r.timed, "plan"), r.seconds, kMilliseconds * r.fastest, kMilliseconds * r.first);
  }
  if (r.failed > 0) text += fmt::format(", {} did not run", counted(r.failed, "plan"));
  if (r.left > 0) text += fmt::format(", {} left untimed", counted(r.left, "shape"));
  log_info("tune | {}", text);
}

bool tunes(const Config& config) { return config.device.tune == PlanTiming::automatic; }

}  // namespace

PlanSource new_plans(const Config& config) { return {.timed = tunes(config) && !config.train.deterministic}; }

PlanSource plans_of_run(const Config& config) {
  PlanSource source = new_plans(config);
  const std::string& resume = config.checkpoint.resume;
  if (!tunes(config) || resume == "never") return source;
  if (resume != "auto" && resume != "must" && resume != "latest") {
    source.directory = plans_of_checkpoint(config, resume).directory;
  } else {
    source.directory = config.checkpoint.directory;
    source.only_of_checkpoint = config.train.deterministic;
  }
  return source;
}

PlanSource plans_of_checkpoint(const Config& config, const std::string& checkpoint) {
  if (!tunes(config)) return {};
  if (checkpoint == "latest") return {.directory = config.checkpoint.directory};
  std::error_code error;
  return {.directory = std::filesystem::is_directory(checkpoint, error) ? checkpoint : parent_directory(checkpoint)};
}

std::string agree_on_plans(ProcessGroup& group, PlanTuning& plans, const PlanSource& source,
                           const std::function<void()>& compile) {
  const Timeout wait{"the plans of convolutions", group.limit() + kRootFilesSeconds};
  const std::string text = on_root(group, wait, [&] {
    const std::string path = path_in(source.directory);
    bool kept = !source.directory.empty() && path_exists(path) &&
                (!source.only_of_checkpoint || !find_checkpoints(source.directory).empty());
    const std::string file = kept ? read_text_file(path, ExitCode::checkpoint) : std::string();
    try {
      kept = kept && take_kept(plans, file, path, source.timed);
      if (!kept && !source.timed) return std::string();
      if (source.timed) plans.time_plans(std::min(kMostSeconds, group.limit() / 2));
      compile();
    } catch (const Error& error) {
      if (!kept || error.code() != ExitCode::checkpoint) throw;
      fail(ExitCode::checkpoint,
           "{}: {}; restore the file, or delete it, and the plans are chosen again, perhaps others", path,
           error.what());
    }
    const PlanTuning::Result result = plans.result();
    if (result.kernels == 0) return std::string();
    announce(result, path);
    return to_text(plans);
  });
  if (text.empty()) return text;
  std::string mine;
  if (!group.is_root()) {
    const PlanText of_root = parse(text);
    if (of_root.valid_for == plans.valid_for()) {
      plans.take(of_root.choices);
    } else {
      mine = fmt::format(
          "this is {}, but rank 0 has {}: here the first plans of convolutions are taken, not the ones that "
          "rank 0 found fastest; prefer hosts of one kind",
          plans.valid_for(), of_root.valid_for);
    }
  }
  warn_together(group, wait, mine);
  return text;
}

void keep_plans(ProcessGroup& group, const std::string& directory, const std::string& text) {
  on_root(group, {"the plans of convolutions", group.limit() + kRootFilesSeconds}, [&] {
    const std::string path = path_in(directory);
    if (!text.empty()) {
      write_text_atomically(path, text, ExitCode::checkpoint);
    } else if (!remove_file(path)) {
      fail(ExitCode::checkpoint, "{}: cannot be deleted: {}", path, errno_text(errno));
    }
    return std::string();
  });
}

}  // namespace lockstep
