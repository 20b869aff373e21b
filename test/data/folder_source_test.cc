#include "data/folder_source.h"

#include <map>

#include "lockstep/data/decode.h"
#include "lockstep/data/formats.h"
#include "test/catch.h"
#include "test/data/image_writer.h"
#include "test/scratch.h"

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

TEST_CASE("classes are the sorted visible folders; an empty one keeps its number and stray files count for nothing") {
  const ScratchFolder folder;
  const std::string png = flat_png(1, 1, 1, 2, 3);
  for (const char* name : {"c/1.png", "a/2.png", "a/.3.png", ".ipynb_checkpoints/4.png"}) {
    write_file(folder / "root/" + name, png);
  }
  for (const char* name : {".DS_Store", "Thumbs.db", "notes.txt", "a/readme.md", "b/none"}) {
    write_file(folder / "root/" + name, "text");
  }
  const auto source = open(folder / "root");
  CHECK(source->class_names() == std::vector<std::string>{"a", "b", "c"});
  CHECK(labels_of(*source) == std::map<std::string, int64_t>{{"1.png", 2}, {"2.png", 0}});
  CHECK(source->description() == "folder: 2 images in 3 classes");
  CHECK(open(folder / "root/", 3)->size() == 2);  // a final slash changes nothing
}

TEST_CASE("names keep their bytes: any case of extension, spaces, UTF-8 and bytes that are none") {
  const ScratchFolder folder;
  const std::string png = flat_png(1, 1, 1, 2, 3);
  const std::vector<std::string> names = {
      "\xc3\xbc \xe7\x8c\xab.JPEG",  "x.JPG", "y.jpeg", "z.PnG", "bad\xff\xfe.jpe", "-dash.png",
      std::string(251, 'n') + ".png"};
  for (const std::string& name : names) write_file(folder / "root/A b/" + name, png);
  const auto labels = labels_of(*open(folder / "root"));
  CHECK(labels.size() == names.size());
  for (const std::string& name : names) CHECK(labels.contains(name));
}

TEST_CASE("images are read whole and decoded by content, not by name") {
  const ScratchFolder folder;
  write_file(folder / "root/a/x.JPEG", flat_png(2, 3, 10, 20, 30));
  const auto source = open(folder / "root");
  Sample sample;
  Image image;
  source->read(0, sample);
  decode_image(sample.bytes, image);
  CHECK(image.width == 3);
  CHECK(image.pixels[2] == 30);
}

TEST_CASE("several roots make one data set, classes joined by name") {
  const ScratchFolder folder;
  for (const char* name : {"one/b/1.png", "two/a/2.png", "two/b/3.png"})
    write_file(folder / name, flat_png(1, 1, 0, 0, 0));
  const auto files = list_inputs("folder", {folder / "one", folder / "t*"});
  const auto source = open_data_source({.format = "folder", .files = files});
  CHECK(labels_of(*source) == std::map<std::string, int64_t>{{"1.png", 1}, {"2.png", 0}, {"3.png", 1}});
}

TEST_CASE("an empty root, a flat one and one of empty classes are errors that say what is wrong") {
  const ScratchFolder folder;
  std::filesystem::create_directories(folder / "empty");
  CHECK_THAT(listing_error(folder / "empty"), ContainsSubstring("/empty: holds no class folder"));
  write_file(folder / "flat/1.JPEG", "x");
  write_file(folder / "flat/2.png", "x");
  CHECK_THAT(listing_error(folder / "flat"), ContainsSubstring("/flat: holds 2 images but no class folders"));
  write_file(folder / "bare/a/readme.txt", "x");
  CHECK_THAT(listing_error(folder / "bare"), ContainsSubstring("1 class folders but no image"));
  CHECK_THAT(listing_error(folder / "absent"), ContainsSubstring("absent' matches no folder (0 files seen)"));
}

TEST_CASE("more class folders than the model has classes are an error at the start") {
  const ScratchFolder folder;
  for (const char* name : {"root/a/1.png", "root/b/1.png", "root/c/1.png"}) write_file(folder / name, "x");
  CHECK_THROWS_WITH(open(folder / "root", 2), ContainsSubstring("3 class folders") && ContainsSubstring("is 2"));
}
