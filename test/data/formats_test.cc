#include "lockstep/data/source/formats.h"

#include <cstdlib>

#include "test/catch.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

std::pair<ExitCode, std::string> listing_error(std::string_view format, const std::vector<std::string>& patterns) {
  try {
    list_inputs(format, patterns);
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ExitCode::ok, "no error"};
}

}  // namespace

TEST_CASE("inputs are listed by bytes and once, from paths, globs and braces") {
  const ScratchDirectory directory;
  for (const char* name : {"b-2", "b-10", "B-1", "a", "odd[1]"}) write_file(directory / name, "");
  CHECK(list_inputs("tfrecord", {directory / "b-*", directory / "B-1", directory / "b-2"}) ==
        std::vector<std::string>{directory / "B-1", directory / "b-10", directory / "b-2"});
  CHECK(list_inputs("tfrecord", {directory / "{a,b-2}"}) ==
        std::vector<std::string>{directory / "a", directory / "b-2"});
  CHECK(list_inputs("hdf5", {directory / "odd[1]"}) == std::vector<std::string>{directory / "odd[1]"});
}

TEST_CASE("a pattern that matches nothing, and one that names a directory, are errors that name it") {
  const ScratchDirectory directory;
  write_file(directory / "data/x", "");
  const auto [code, nothing] = listing_error("tfrecord", {directory / "train-*"});
  CHECK(code == ExitCode::data);
  CHECK_THAT(nothing, ContainsSubstring("train-*' matches no file (0 files seen)"));
  CHECK_THAT(listing_error("tfrecord", {directory / "data"}).second, ContainsSubstring("names a directory"));
}

TEST_CASE("an unknown format is an error of the configuration that lists the known ones") {
  const auto [code, text] = listing_error("lmdb", {"x"});
  CHECK(code == ExitCode::config);
  CHECK_THAT(text, ContainsSubstring("'lmdb'") &&
                       ContainsSubstring("tfrecord, folder, cifar10, cifar100, hdf5, sparse_tfrecord, synthetic"));
}

TEST_CASE("the cache directory comes from LOCKSTEP_CACHE, XDG_CACHE_HOME, HOME, in this order") {
  const auto saved = [](const char* name) { return std::string(std::getenv(name) ? std::getenv(name) : ""); };
  const std::string own = saved("LOCKSTEP_CACHE");
  const std::string xdg = saved("XDG_CACHE_HOME");
  const std::string home = saved("HOME");
  setenv("HOME", "/h", 1);
  unsetenv("LOCKSTEP_CACHE");
  unsetenv("XDG_CACHE_HOME");
  CHECK(default_cache_directory() == "/h/.cache/lockstep");
  setenv("XDG_CACHE_HOME", "/x", 1);
  CHECK(default_cache_directory() == "/x/lockstep");
  setenv("LOCKSTEP_CACHE", "/l", 1);
  CHECK(default_cache_directory() == "/l");
  for (const auto& [name, value] :
       {std::pair("LOCKSTEP_CACHE", own), std::pair("XDG_CACHE_HOME", xdg), std::pair("HOME", home)}) {
    if (value.empty()) {
      unsetenv(name);
    } else {
      setenv(name, value.c_str(), 1);
    }
  }
}
