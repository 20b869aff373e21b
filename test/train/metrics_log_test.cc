#include "lockstep/train/metrics_log.h"

#include <filesystem>

#include "test/catch.h"
#include "test/scratch.h"
#include "test/train/log_capture.h"

using namespace lockstep;

namespace {

class MetricsFile {
  ScratchFolder folder_;

 public:
  const std::string path = folder_ / "metrics.jsonl";
  void put(const std::string& text) const { write_text_atomically(path, text, ExitCode::internal); }
  std::string text() const { return read_text_file(path, ExitCode::internal); }
  // What is left of the file when a run resumes at `step`.
  std::string after_resume(int64_t step) const {
    const MetricsLog log(path, step);
    return text();
  }
};

constexpr const char* kThree = "{\"kind\":\"train\",\"step\":10}\n{\"kind\":\"eval\",\"step\":20}\n{\"step\":30}\n";

}  // namespace

TEST_CASE("rows are whole lines, appended to those of the run before") {
  const MetricsFile file;
  MetricsLog(file.path, 0).write(R"({"step":1})");
  {
    MetricsLog log(file.path, 1);
    log.write(R"({"step":2})");
    log.write(R"({"step":3})");
  }
  CHECK(file.text() == "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
}

TEST_CASE("a line that a crash tore is cut off") {
  const MetricsFile file;
  file.put("{\"step\":1}\n{\"step\":2}\n{\"step\":3,\"lo");
  CHECK(file.after_resume(3) == "{\"step\":1}\n{\"step\":2}\n");
  file.put("{\"step\":1}\n{\"step\":2}");  // only the line break is missing: it may be a longer number that was torn
  CHECK(file.after_resume(3) == "{\"step\":1}\n");
  file.put(std::string("{\"step\":1}\n\0\0\0", 15));  // the length was written, the bytes were not
  CHECK(file.after_resume(3) == "{\"step\":1}\n");
}

TEST_CASE("rows of steps after the one resumed from are dropped, whatever their kind") {
  const MetricsFile file;
  file.put(kThree);
  CHECK(file.after_resume(30) == kThree);
  CHECK(file.after_resume(29) == "{\"kind\":\"train\",\"step\":10}\n{\"kind\":\"eval\",\"step\":20}\n");
  CHECK(file.after_resume(10) == "{\"kind\":\"train\",\"step\":10}\n");
  CHECK(file.after_resume(0).empty());
}

TEST_CASE("a file with nothing to drop is not written anew") {
  const MetricsFile file;
  file.put(kThree);
  const auto before = std::filesystem::last_write_time(file.path);
  file.after_resume(100);
  CHECK(std::filesystem::last_write_time(file.path) == before);
}

TEST_CASE("rows that are written anew are dropped first") {
  const MetricsFile file;
  file.put(kThree);
  MetricsLog log(file.path, 30);
  CHECK_FALSE(log.drop("eval", 10));
  CHECK(file.text() == kThree);
  CHECK(log.drop("eval", 20));
  log.write(R"({"kind":"eval","step":20,"top1":1})");
  CHECK(file.text() == "{\"kind\":\"train\",\"step\":10}\n{\"step\":30}\n{\"kind\":\"eval\",\"step\":20,\"top1\":1}\n");
}

TEST_CASE("rows of other programs do not disturb") {
  const MetricsFile file;
  file.put("{\"step\":\"ten\"}\n{\"note\":1}\n[1,2]\nplain text\n{\"step\":2.5}\n");
  CHECK(file.after_resume(2) == "{\"step\":\"ten\"}\n{\"note\":1}\n");
}

TEST_CASE("a file that cannot be opened is a warning and nothing else") {
  const ScratchFolder folder;
  const LogCapture log;
  MetricsLog(folder / "missing/metrics.jsonl", 0).write("{}");
  CHECK_THAT(log.text(), ContainsSubstring("warning: " + folder.path() +
                                           "/missing/metrics.jsonl: metrics cannot be "
                                           "written (No such file or directory)"));
}

TEST_CASE("without a path nothing is written") { CHECK_NOTHROW(MetricsLog("", 0).write("{}")); }
