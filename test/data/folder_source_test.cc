#include "data/source/format_sources.h"

#include <sys/stat.h>

#include <filesystem>
#include <map>

#include "lockstep/base/printable.h"
#include "lockstep/data/image/decode.h"
#include "lockstep/data/source/formats.h"
#include "test/catch.h"
#include "test/data/image_writer.h"
#include "test/redirected.h"
#include "test/scratch.h"
#include "test/train/log_capture.h"

using namespace lockstep;

namespace {

std::unique_ptr<DataSource> open(const std::string& root, int64_t classes = 0) {
  return open_data_source({.format = "folder", .files = list_inputs("folder", {root}), .labels = {.classes = classes}});
}

std::map<std::string, int64_t> labels_of(const DataSource& source) {
  std::map<std::string, int64_t> labels;
  Sample sample;
  for (int64_t i = 0; i < source.size(); ++i) {
    source.read(i, sample);
    const std::string path = source.where(i);
    labels[path.substr(path.rfind('/') + 1)] = sample.label;
  }
  return labels;
}

std::string listing_error(const std::string& root) {
  try {
    list_inputs("folder", {root});
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::data);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE(
    "classes are the sorted visible directories, an empty one keeps its number and stray files count for nothing") {
  const ScratchDirectory directory;
  const std::string png = flat_png(1, 1, 1, 2, 3);
  for (const char* name : {"c/1.png", "a/2.png", "a/.3.png", ".ipynb_checkpoints/4.png"}) {
    write_file(directory / "root/" + name, png);
  }
  for (const char* name : {".DS_Store", "Thumbs.db", "notes.txt", "a/readme.md", "b/none"}) {
    write_file(directory / "root/" + name, "text");
  }
  const auto source = open(directory / "root");
  CHECK(source->class_names() == std::vector<std::string>{"a", "b", "c"});
  CHECK(labels_of(*source) == std::map<std::string, int64_t>{{"1.png", 2}, {"2.png", 0}});
  CHECK(source->description() == "folder: 2 images in 3 classes");
  CHECK(open(directory / "root/", 3)->size() == 2);  // a final slash changes nothing
}

TEST_CASE("names keep their bytes: any case of extension, spaces, UTF-8 and bytes that are none") {
  const ScratchDirectory directory;
  const std::string png = flat_png(1, 1, 1, 2, 3);
  const std::vector<std::string> names = {
      "\xc3\xbc \xe7\x8c\xab.JPEG",  "x.JPG", "y.jpeg", "z.PnG", "bad\xff\xfe.jpe", "-dash.png",
      std::string(251, 'n') + ".png"};
  for (const std::string& name : names) write_file(directory / "root/A b/" + name, png);
  const auto labels = labels_of(*open(directory / "root"));
  CHECK(labels.size() == names.size());
  for (const std::string& name : names) CHECK(labels.contains(printable(name)));
}

TEST_CASE("images are read whole and decoded by content, not by name") {
  const ScratchDirectory directory;
  write_file(directory / "root/a/x.JPEG", flat_png(2, 3, 10, 20, 30));
  const auto source = open(directory / "root");
  Sample sample;
  Image image;
  source->read(0, sample);
  decode_image(sample.bytes, image);
  CHECK(image.width == 3);
  CHECK(image.pixels[2] == 30);
}

TEST_CASE("several roots make one data set, classes joined by name") {
  const ScratchDirectory directory;
  for (const char* name : {"one/b/1.png", "two/a/2.png", "two/b/3.png"})
    write_file(directory / name, flat_png(1, 1, 0, 0, 0));
  const auto files = list_inputs("folder", {directory / "one", directory / "t*"});
  const auto source = open_data_source({.format = "folder", .files = files});
  CHECK(labels_of(*source) == std::map<std::string, int64_t>{{"1.png", 1}, {"2.png", 0}, {"3.png", 1}});
}

TEST_CASE("an empty root, a flat one and one of empty classes are errors that say what is wrong") {
  const ScratchDirectory directory;
  std::filesystem::create_directories(directory / "empty");
  CHECK_THAT(listing_error(directory / "empty"), ContainsSubstring("/empty: holds no class directory"));
  write_file(directory / "flat/1.JPEG", "x");
  write_file(directory / "flat/2.png", "x");
  CHECK_THAT(listing_error(directory / "flat"), ContainsSubstring("/flat: holds 2 images but no class directories"));
  write_file(directory / "bare/a/readme.txt", "x");
  CHECK_THAT(listing_error(directory / "bare"), ContainsSubstring("1 class directories but no image"));
  CHECK_THAT(listing_error(directory / "absent"), ContainsSubstring("absent' matches no directory (0 files seen)"));
}

TEST_CASE("more class directories than the model has classes are an error at the start") {
  const ScratchDirectory directory;
  for (const char* name : {"root/a/1.png", "root/b/1.png", "root/c/1.png"}) write_file(directory / name, "x");
  CHECK_THROWS_WITH(open(directory / "root", 2), ContainsSubstring("3 class directories") && ContainsSubstring("is 2"));
}

TEST_CASE("images that lie one directory deeper are one error that says so") {
  const ScratchDirectory directory;
  for (const char* name : {"root/a/images/1.JPEG", "root/b/images/2.JPEG", "root/c/images/3.JPEG"}) {
    write_file(directory / name, "x");
  }
  CHECK_THAT(listing_error(directory / "root"),
             ContainsSubstring("no image lies in its 3 class directories, but one directory deeper, as in ") &&
                 ContainsSubstring("/root/a/images: move or link them"));
}

TEST_CASE("archives of classes are mentioned where there is no class directory") {
  const ScratchDirectory directory;
  for (const char* name : {"root/n01.tar", "root/n02.tar"}) write_file(directory / name, "x");
  CHECK_THAT(listing_error(directory / "root"),
             ContainsSubstring("holds 2 .tar files but no class directories: unpack"));
}

TEST_CASE("all classes without an image are one warning, with where images lie deeper") {
  const ScratchDirectory directory;
  write_file(directory / "root/a/1.png", flat_png(1, 1, 1, 2, 3));
  for (int i = 0; i < 9; ++i) write_file(directory / fmt::format("root/empty{}/notes.txt", i), "text");
  write_file(directory / "root/empty3/more/1.png", "x");
  {
    const Redirected out(STDOUT_FILENO, directory / "log"), errors(STDERR_FILENO, directory / "log");
    CHECK(open(directory / "root")->size() == 1);
  }
  const std::string log = read_file(directory / "log");
  CHECK(log.find("warning") == log.rfind("warning"));
  CHECK_THAT(log, ContainsSubstring("9 of 10 class directories have no image; they keep their numbers: empty0, empty1, "
                                    "empty2, empty3, empty4 and 4 more; images lie one directory deeper in ") &&
                      ContainsSubstring("/root/empty3/more, where they are not read"));
}

TEST_CASE("a link among the classes that cannot be followed is refused: later labels would shift") {
  const ScratchDirectory directory;
  for (const char* name : {"root/a/1.png", "root/c/2.png"}) write_file(directory / name, flat_png(1, 1, 1, 2, 3));
  std::filesystem::create_directory_symlink(directory / "absent", directory / "root/b");
  CHECK_THAT(listing_error(directory / "root"),
             ContainsSubstring("/root/b: is a link that cannot be followed (No such file"));
  std::filesystem::create_directories(directory / "absent");
  CHECK(labels_of(*open(directory / "root")) == std::map<std::string, int64_t>{{"1.png", 0}, {"2.png", 2}});
}

TEST_CASE("an image that cannot be opened is a bad record: a dangling link, a pipe, a directory") {
  const ScratchDirectory directory;
  write_file(directory / "root/a/1.png", flat_png(1, 1, 1, 2, 3));
  std::filesystem::create_symlink(directory / "absent", directory / "root/a/2.png");
  REQUIRE(::mkfifo((directory / "root/a/3.png").c_str(), 0600) == 0);
  std::filesystem::create_directories(directory / "root/a/4.png");
  const auto source = open(directory / "root");
  REQUIRE(source->size() == 4);
  Sample sample;
  CHECK_NOTHROW(source->read(0, sample));
  const char* reasons[] = {"/root/a/2.png: cannot open: No such file", "/root/a/3.png: is a pipe",
                           "/root/a/4.png: is a directory"};
  for (int64_t i = 1; i < 4; ++i) {
    CHECK_THROWS_AS(source->read(i, sample), BadRecord);
    CHECK_THROWS_WITH(source->read(i, sample), ContainsSubstring(reasons[i - 1]) && !ContainsSubstring(".png: /"));
  }
}

TEST_CASE("fewer classes take the labels of those that another source names, and others are refused") {
  const ScratchDirectory directory;
  for (const char* name :
       {"train/a/1.png", "train/b/2.png", "train/c/3.png", "part/c/4.png", "other/b/5.png", "other/d/6.png"}) {
    write_file(directory / name, flat_png(1, 1, 1, 2, 3));
  }
  const auto train = open(directory / "train");
  const auto part = open(directory / "part");
  CHECK(labels_of(*part) == std::map<std::string, int64_t>{{"4.png", 0}});
  const LogCapture log;
  part->follow_classes(train->class_names());
  CHECK_THAT(log.text(), ContainsSubstring("folder: 1 image in 1 class: images of 1 of the 3 classes only; its labels "
                                           "become those of the other data set's classes, 2 to 2"));
  CHECK(labels_of(*part) == std::map<std::string, int64_t>{{"4.png", 2}});
  CHECK(part->class_names() == train->class_names());
  CHECK_THROWS_WITH(open(directory / "other")->follow_classes(train->class_names()),
                    ContainsSubstring("class directory 'd' is not among the 3 classes"));
}

TEST_CASE("names of classes and images are printed without what a terminal acts on") {
  const ScratchDirectory directory;
  write_file(directory / "root/a\x1b[2J/b\n.png", flat_png(1, 1, 1, 2, 3));
  const auto source = open(directory / "root");
  CHECK_THAT(source->where(0), ContainsSubstring("/root/a\\x1b[2J/b\\x0a.png"));
}
