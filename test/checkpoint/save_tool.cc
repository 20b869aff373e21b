// checkpoint_save_tool DIRECTORY VALUES [slow:SECONDS] [give_up:SECONDS] ACTION...: a stand-in for a training run. The
// two times are those of WriterOptions, and long unless given: under a tracer or a sanitizer a save takes its time.
// Actions: a number saves that step and waits for the result; rm:NAME deletes a file in the directory; open opens the
// newest whole checkpoint; overlap:S starts to save S and counts how often it gets round while that is written;
// leave:S starts to save S and goes on to the next action.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/log.h"
#include "lockstep/checkpoint/run_directory.h"
#include "lockstep/checkpoint/writer.h"
#include "lockstep/io/file.h"

using namespace lockstep;

namespace {

class Tool {
 public:
  Tool(const WriterOptions& options, size_t values)
      : directory_(options.directory), values_(values, 1.0F), writer_(options) {}

  void act(const std::string& action) {
    if (action.starts_with("rm:")) {
      remove_file(directory_ + "/" + action.substr(3));
    } else if (action == "open") {
      const auto reader = open_newest_whole(directory_);
      say(reader ? fmt::format("newest {}", reader->meta().step) : "none");
    } else if (action.starts_with("overlap:")) {
      overlap(std::stoll(action.substr(8)));
    } else if (action.starts_with("leave:")) {
      start(std::stoll(action.substr(6)));
      writer_.wait_copied();
    } else {
      start(std::stoll(action));
      writer_.wait_copied();
      finish();
    }
  }

 private:
  static void say(const std::string& text) {
    fmt::print("{}\n", text);
    std::fflush(stdout);
  }

  void start(int64_t step) {
    CheckpointContents contents;
    contents.meta.step = step;
    contents.arrays.push_back({"/model/x", Shape{static_cast<int64_t>(values_.size())}, values_.data()});
    writer_.start(std::move(contents));
  }

  void finish() {
    writer_.wait_idle(60);
    if (const auto result = writer_.poll()) {
      if (result->error) {
        say(fmt::format("step {} failed with {}: {}", result->step, static_cast<int>(result->error->code()),
                        result->error->what()));
      } else {
        say(fmt::format("step {} saved", result->step));
      }
    }
  }

  void overlap(int64_t step) {
    start(step);
    writer_.wait_copied();
    say(writer_.busy() ? "busy" : "not busy");
    int rounds = 0;
    while (!writer_.wait_idle(0)) {
      ++rounds;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    say(rounds > 10 ? "went on" : "stalled");
    finish();
  }

  std::string directory_;
  std::vector<float> values_;
  CheckpointWriter writer_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    WriterOptions options{.directory = argv[1], .keep = 3};
    int i = 3;
    for (; i < argc; ++i) {
      const std::string argument = argv[i];
      if (argument.starts_with("slow:")) {
        options.slow_seconds = std::stod(argument.substr(5));
      } else if (argument.starts_with("give_up:")) {
        options.give_up_seconds = std::stod(argument.substr(8));
      } else {
        break;
      }
    }
    Tool tool(options, std::stoul(argv[2]));
    for (; i < argc; ++i) tool.act(argv[i]);
    return 0;
  } catch (const Error& error) {
    log_error("{}", error.what());
    return static_cast<int>(error.code());
  }
}
