#include "lockstep/observe/metrics_log.h"

#include <sys/stat.h>

#include <filesystem>

#include "test/catch.h"
#include "test/scratch.h"
#include "test/train/log_capture.h"

using namespace lockstep;

namespace {

class MetricsFile {
  ScratchDirectory directory_;

 public:
  const std::string path = directory_ / "metrics.jsonl";
  void put(const std::string& text) const { write_text_atomically(path, text, ExitCode::internal); }
  std::string text() const { return read_text_file(path, ExitCode::internal); }
  // What is left of the file when a run resumes at `step`.
  std::string after_resume(int64_t step) const {
    const MetricsLog log(path, step);
    return text();
  }
};

constexpr const char* kThree =
    "{\"kind\":\"train\",\"step\":10}\n{\"kind\":\"eval\",\"step\":20}\n{\"kind\":\"train\",\"step\":30}\n";

}  // namespace

TEST_CASE("rows are whole lines, appended to those of the run before") {
  const MetricsFile file;
  MetricsLog(file.path, 0).write(R"({"kind":"train","step":1})");
  {
    MetricsLog log(file.path, 1);
    log.write(R"({"kind":"train","step":2})");
    log.write(R"({"kind":"train","step":3})");
  }
  CHECK(file.text() ==
        "{\"kind\":\"train\",\"step\":1}\n{\"kind\":\"train\",\"step\":2}\n{\"kind\":\"train\",\"step\":3}\n");
}

TEST_CASE("a line that a crash tore is cut off") {
  const MetricsFile file;
  file.put("{\"kind\":\"train\",\"step\":1}\n{\"kind\":\"train\",\"step\":2}\n{\"kind\":\"train\",\"step\":3,\"lo");
  CHECK(file.after_resume(3) == "{\"kind\":\"train\",\"step\":1}\n{\"kind\":\"train\",\"step\":2}\n");
  file.put("{\"kind\":\"train\",\"step\":1}\n{\"kind\":\"train\",\"step\":2}");  // only the line break is missing: it
                                                                                 // may be a longer number that was torn
  CHECK(file.after_resume(3) == "{\"kind\":\"train\",\"step\":1}\n");
  file.put("{\"kind\":\"train\",\"step\":1}\n" + std::string(3, '\0'));  // the length was written, the bytes were not
  CHECK(file.after_resume(3) == "{\"kind\":\"train\",\"step\":1}\n");
}

TEST_CASE("rows of steps after the one resumed from are dropped, whatever their kind") {
  const MetricsFile file;
  file.put(kThree);
  CHECK(file.after_resume(30) == kThree);
  CHECK(file.after_resume(29) == "{\"kind\":\"train\",\"step\":10}\n{\"kind\":\"eval\",\"step\":20}\n");
  CHECK(file.after_resume(10) == "{\"kind\":\"train\",\"step\":10}\n");
  CHECK(file.after_resume(0).empty());
}

TEST_CASE("a file with nothing to drop is not written again") {
  const MetricsFile file;
  file.put(kThree);
  const auto before = std::filesystem::last_write_time(file.path);
  file.after_resume(100);
  CHECK(std::filesystem::last_write_time(file.path) == before);
}

TEST_CASE("rows that are written again are dropped first") {
  const MetricsFile file;
  file.put(kThree);
  MetricsLog log(file.path, 30);
  CHECK_FALSE(log.drop("eval", 10));
  CHECK(file.text() == kThree);
  CHECK(log.drop("eval", 20));
  log.write(R"({"kind":"eval","step":20,"top1":1})");
  CHECK(file.text() ==
        "{\"kind\":\"train\",\"step\":10}\n{\"kind\":\"train\",\"step\":30}\n{\"kind\":\"eval\",\"step\":20,\"top1\":1}"
        "\n");
}

TEST_CASE("lines that are no rows of a run are never touched") {
  const MetricsFile file;
  const std::string foreign =
      "notes on the run\n\n{\"step\":\"ten\"}\n{\"step\":30}\n[1,2]\n{\"kind\": \"train\",\"step\":30}\n\xFF\n  ";
  file.put(foreign);
  CHECK(file.after_resume(0) == foreign);
  MetricsLog(file.path, 0).write(R"({"kind":"train","step":1})");
  CHECK(file.text() == foreign + "\n{\"kind\":\"train\",\"step\":1}\n");
  CHECK(file.after_resume(0) == foreign + "\n");
}

TEST_CASE("a log that is deleted, moved or replaced during the run is started again, with its directory") {
  const ScratchDirectory directory;
  const LogCapture log;
  const std::string path = directory / "run/metrics.jsonl";
  const std::string first = "{\"kind\":\"train\",\"step\":1}\n", second = "{\"kind\":\"train\",\"step\":2}\n";
  const auto row = [](const std::string& line) { return line.substr(0, line.size() - 1); };
  MetricsLog metrics(path, 0);
  metrics.write(row(first));
  std::filesystem::rename(directory / "run", directory / "moved");
  metrics.write(row(second));
  CHECK(read_text_file(directory / "moved/metrics.jsonl", ExitCode::internal) == first);
  CHECK(read_text_file(path, ExitCode::internal) == second);
  CHECK_THAT(log.text(), ContainsSubstring(path + ": was deleted or moved during the run; a new file is started"));
  std::filesystem::remove_all(directory / "run");
  std::filesystem::create_directory(directory / "run");
  metrics.write(row(first));
  CHECK(read_text_file(path, ExitCode::internal) == first);
}

TEST_CASE("a file that cannot be opened is a warning and nothing else") {
  const LogCapture log;
  MetricsLog("/proc/nowhere/metrics.jsonl", 0).write("{}");
  CHECK_THAT(log.text(), ContainsSubstring("warning: metrics cannot be written: /proc/nowhere: cannot create the"));
}

TEST_CASE("what is no regular file is a warning, and nobody waits for it") {
  const ScratchDirectory directory;
  const LogCapture log;
  const std::string path = directory / "metrics.jsonl";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  MetricsLog(path, 0).write("{}");  // waiting for the pipe's other end would fail the test's time limit
  CHECK_THAT(log.text(), ContainsSubstring("metrics cannot be written: " + path + ": is a pipe"));
}

TEST_CASE("a file that cannot be read to its end is not replaced by what was read of it") {
  const LogCapture log;
  MetricsLog("/proc/self/mem", 0);  // a regular file whose first bytes cannot be read
  CHECK_THAT(log.text(), ContainsSubstring("stay in the metrics: /proc/self/mem: cannot be read to its end"));
}

TEST_CASE("without a path nothing is written") {
  CHECK_NOTHROW(MetricsLog("", 0).write("{}"));
  CHECK_NOTHROW(MetricsLog().write("{}"));
}
