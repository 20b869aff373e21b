#include "lockstep/checkpoint/checkpoint.h"

#include <chrono>
#include <thread>

#include "checkpoint/header.h"
#include "lockstep/base/random.h"
#include "test/catch.h"
#include "test/checkpoint/fixtures.h"
#include "test/scratch.h"

using namespace lockstep;

namespace {

// A Python with h5py, or nothing.
std::string python_with_h5py() {
  for (const std::string python : {"python3", "/usr/bin/python3"}) {
    if (command_works(python + " -c 'import h5py, numpy'")) return python;
  }
  return {};
}

std::string run_python(const std::string& python, const std::string& script_path, const std::string& script) {
  write_text_atomically(script_path, script, ExitCode::internal);
  const CommandResult result = run_command(python + " " + script_path);
  INFO(result.output);
  CHECK(result.status == 0);
  return result.output;
}

}  // namespace

TEST_CASE("a checkpoint reads back as it was built") {
  const ScratchDirectory directory;
  const SmallModel model;
  const CheckpointReader reader = CheckpointReader::open(model.write(41, directory / "a.h5"));
  CHECK(reader.meta().step == 41);
  CHECK(reader.meta().epoch == 3);
  CHECK(reader.meta().samples_seen == 41 * 64);
  CHECK(reader.meta().world_size == 2);
  CHECK(reader.meta().global_batch == 64);
  CHECK(reader.meta().seed == 17);
  CHECK(reader.meta().model == "small");
  CHECK(reader.meta().created.size() == 20);
  CHECK(reader.config() == "[model]\nname = \"small\"\n");
  CHECK(reader.training() == model.contents(41).training);
  CHECK(reader.classes() == model.contents(41).classes);
  CHECK(reader.optimizer_slots() == std::vector<std::string>{"momentum"});
  CHECK(reader.model_group() == "/model");
  CHECK(reader.arrays("/none").empty());
  CHECK(reader.arrays("/model").size() == 4);
  for (const CheckpointArray& array : model.contents(41).arrays) {
    std::vector<float> values(static_cast<size_t>(array.shape.elements()));
    reader.read(array.path, values);
    CHECK(std::equal(values.begin(), values.end(), array.data));
  }
}

TEST_CASE("the same contents give the same file, and its size is as estimated") {
  const SmallModel model;
  CheckpointContents contents = model.contents(5);
  contents.meta.created = "2026-01-02T03:04:05Z";
  const Hdf5Image first = build_checkpoint(contents, "a");
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // HDF5 would date what it makes, to the second
  const Hdf5Image second = build_checkpoint(contents, "b");
  REQUIRE(first.bytes().size() == second.bytes().size());
  CHECK(std::equal(first.bytes().begin(), first.bytes().end(), second.bytes().begin()));
  const auto estimated = static_cast<double>(estimate_checkpoint_bytes(contents));
  CHECK(estimated == Approx(static_cast<double>(first.bytes().size())).epsilon(0.3));
}

TEST_CASE("one damaged byte anywhere, or a missing end, is always found and named") {
  const ScratchDirectory directory;
  const std::string path = SmallModel().write(7, directory / "step-00000007.h5");
  const std::vector<std::byte> whole = read_file(path, ExitCode::internal);
  RandomStream random(random_key(2026));
  const auto must_fail = [&](std::span<const std::byte> bytes) {
    write_file_atomically(path, bytes, {});
    const auto error = error_of([&] { CheckpointReader::open(path); });
    REQUIRE(error);
    REQUIRE(error->code() == ExitCode::checkpoint);
    REQUIRE_THAT(error->what(), ContainsSubstring(path + ": "));
  };
  for (int i = 0; i < 300; ++i) {
    std::vector<std::byte> damaged = whole;
    // A third of the damages hit the user block, which is a small part of the file.
    const size_t at = random.below(i % 3 == 0 ? 512 : damaged.size());
    damaged[at] ^= static_cast<std::byte>(1 + random.below(255));
    CAPTURE(at);
    must_fail(damaged);
  }
  for (int i = 0; i < 50; ++i) must_fail(std::span(whole).first(random.below(whole.size())));
  for (size_t length = 0; length < 40; ++length) must_fail(std::span(whole).first(length));
  std::vector<std::byte> longer = whole;
  longer.push_back(std::byte{0});
  must_fail(longer);
  write_file_atomically(path, whole, {});
  CHECK_NOTHROW(CheckpointReader::open(path));
}

TEST_CASE("two thousand arrays with names of a hundred characters are written and read") {
  const ScratchDirectory directory;
  float value = 4;
  CheckpointContents contents{.meta = {.step = 1}};
  for (int i = 0; i < 2000; ++i) {
    contents.arrays.push_back({fmt::format("/model/{:*>100}", fmt::format(".layer{}", i)), Shape{1}, &value});
  }
  write_file_atomically(directory / "a.h5", build_checkpoint(contents, "many").bytes(), {});
  const CheckpointReader reader = CheckpointReader::open(directory / "a.h5");
  CHECK(reader.arrays("/model").size() == 2000);
  float read = 0;
  reader.read(contents.arrays[1234].path, {&read, 1});
  CHECK(read == 4);
}

TEST_CASE("an empty configuration is kept as a data set") {
  const ScratchDirectory directory;
  write_file_atomically(directory / "a.h5", build_checkpoint({}, "empty").bytes(), {});
  CHECK(CheckpointReader::open(directory / "a.h5").config() == "\n");
}

TEST_CASE("an undamaged file of other content is refused: no mark of completeness, another format") {
  const ScratchDirectory directory;
  const std::string path = directory / "a.h5";
  const auto refusal = [&](const std::string& format, bool complete) {
    auto file = Hdf5File::create_in_memory("other", {.user_block_bytes = kUserBlockBytes});
    file.write_attribute("/", "format", format);
    if (complete) file.write_attribute("/", "complete", int64_t{1});
    Hdf5Image image = std::move(file).finish();
    seal_checkpoint(image.bytes(), 1);
    write_file_atomically(path, image.bytes(), {});
    return std::string(error_of([&] { CheckpointReader::open(path); }).value().what());
  };
  CHECK(refusal("lockstep-checkpoint", false) == path + ": incomplete checkpoint");
  CHECK(refusal("something", true) == path + ": not a Lockstep checkpoint");
  CHECK(refusal("lockstep-checkpoint", true) == path + ": checkpoint without the attribute step");
}

TEST_CASE("h5ls and h5dump read a checkpoint and see its checksums") {
  if (!command_works("h5dump --version")) {
    WARN("skipped: no h5dump");
    return;
  }
  const ScratchDirectory directory;
  const std::string path = SmallModel().write(12, directory / "a.h5");
  const CommandResult list = run_command("h5ls -r " + path);
  CHECK(list.status == 0);
  for (const char* line :
       {"/config ", "/ema/fc.weight ", "/model/conv.weight ", "/optimizer/momentum/fc.bias ", "/training/best_top1 "}) {
    CHECK_THAT(list.output, ContainsSubstring(line));
  }
  CHECK_THAT(list.output, ContainsSubstring("Dataset {4, 3, 2, 2}"));
  const CommandResult header = run_command("h5dump -p -H " + path);
  CHECK(header.status == 0);
  size_t datasets = 0;
  size_t checksums = 0;
  for (size_t at = 0; (at = header.output.find("DATASET \"", at)) != std::string::npos; ++at) ++datasets;
  for (size_t at = 0; (at = header.output.find("CHECKSUM FLETCHER32", at)) != std::string::npos; ++at) ++checksums;
  CHECK(datasets == 15);
  CHECK(checksums == datasets);
  const CommandResult dump = run_command("h5dump -d /model/fc.bias " + path);
  CHECK(dump.status == 0);
  CHECK_THAT(dump.output, ContainsSubstring("3000.25, 3001.25"));
  const CommandResult attribute = run_command("h5dump -a /step " + path);
  CHECK_THAT(attribute.output, ContainsSubstring("(0): 12"));
}

TEST_CASE("h5py reads a checkpoint") {
  const std::string python = python_with_h5py();
  if (python.empty()) {
    WARN("skipped: no h5py");
    return;
  }
  const ScratchDirectory directory;
  const std::string path = SmallModel().write(12, directory / "a.h5");
  const std::string output =
      run_python(python, directory / "read.py",
                 "import h5py\n"
                 "f = h5py.File('" +
                     path +
                     "', 'r')\n"
                     "a = dict(f.attrs)\n"
                     "print(a['format'], a['format_version'], a['complete'], a['step'], a['model'])\n"
                     "print(f['model/conv.weight'].shape, f['model/conv.weight'].dtype,\n"
                     "      f['model/conv.weight'].fletcher32, f['model/conv.weight'][0, 0, 0, 1])\n"
                     "print(bytes(f['config'][:]).decode().splitlines()[1])\n"
                     "print(f['training/position'][0], f['training/best_top1'][0])\n"
                     "print(sorted(f['optimizer/momentum']))\n");
  CHECK(output ==
        "lockstep-checkpoint 1 1 12 small\n"
        "(4, 3, 2, 2) float32 True 1.25\n"
        "name = \"small\"\n"
        "7000000000 0.75\n"
        "['conv.weight', 'fc.bias', 'fc.weight']\n");
}

TEST_CASE("weights open from any HDF5 file with parameter names, and from a checkpoint, which is checked") {
  const ScratchDirectory directory;
  const SmallModel model;
  auto bare = Hdf5File::create_in_memory("bare", {});
  const std::vector<float> bias{1, 2};
  bare.write<float>("/fc.bias", std::vector<int64_t>{2}, bias);
  write_file_atomically(directory / "bare.h5", std::move(bare).finish().bytes(), {});
  const CheckpointReader weights = CheckpointReader::open_weights(directory / "bare.h5");
  CHECK(weights.model_group() == "/");
  REQUIRE(weights.arrays("/").size() == 1);
  CHECK(weights.arrays("/")[0].path == "/fc.bias");
  CHECK(weights.arrays("/")[0].shape == Shape{2});

  const std::string path = model.write(3, directory / "a.h5");
  CHECK(CheckpointReader::open_weights(path).model_group() == "/model");
  std::vector<std::byte> damaged = read_file(path, ExitCode::internal);
  damaged.back() ^= std::byte{1};
  write_file_atomically(path, damaged, {});
  CHECK_THAT(error_of([&] { CheckpointReader::open_weights(path); }).value().what(),
             ContainsSubstring("damaged checkpoint, checksum "));
}
