// Runs and evaluations that take only the weights of a file.
#include <algorithm>

#include "lockstep/checkpoint/run_directory.h"
#include "lockstep/exchange/onnx.h"
#include "lockstep/exchange/onnx_import.h"
#include "lockstep/models/models.h"
#include "lockstep/train/initialize.h"
#include "lockstep/train/model_graphs.h"
#include "test/catch.h"
#include "test/train/log_capture.h"
#include "test/train/starting.h"

using namespace lockstep;
using testing::world;

TEST_CASE("init_from gives weights alone, from a file of bare weights or a checkpoint") {
  const SharedDirectory directory;
  Config config = config_with(directory);
  const SmallRun trained(config);
  trained.fill(3);
  if (world().is_root()) {
    Hdf5File file = Hdf5File::create_in_memory("weights", {});
    for (const CheckpointArray& a : trained.arrays()) {
      if (!a.path.starts_with("/model/")) continue;
      file.write<float>(a.path.substr(6), std::span(a.shape.begin(), a.shape.end()),
                        {a.data, static_cast<size_t>(a.shape.elements())});
    }
    const Hdf5Image image = std::move(file).finish();
    write_file_atomically(directory / "weights.h5", image.bytes(), {});
  }
  world().barrier({"the weights"});
  config.checkpoint.init_from = directory / "weights.h5";
  Starting s(config);
  const StartState start = s.start();
  CHECK(start.progress.step == 0);
  CHECK(start.resumed_from.empty());
  for (const auto& [path, values] : s.run.values()) {
    INFO(path);
    if (path.starts_with("/optimizer/")) {
      CHECK(std::ranges::all_of(values, [](float v) { return v == 0; }));
      continue;
    }
    const std::string name = path.substr(path.find('/', 1) + 1);
    CHECK(std::ranges::equal(values, trained.model.parameter(trained.model.parameters().find(name))));
  }

  // A checkpoint to resume from goes before it, and serves as such a file itself.
  const Values saved = save(config, 7);
  CHECK(Starting(config).start().progress.step == 7);
  config.checkpoint.directory = directory / "fresh";
  config.checkpoint.init_from = directory / "run/step-00000007.h5";
  Starting again(config);
  CHECK(again.start().progress.step == 0);
  CHECK(again.run.values()[0] == saved[0]);
}

TEST_CASE(
    "a head for other classes starts from random values with init_from, which is logged, and everything else must "
    "fit") {
  const SharedDirectory directory;
  Config config = config_with(directory);
  save(config, 7);
  config.checkpoint.directory = directory / "tuned";
  config.checkpoint.init_from = directory / "run/step-00000007.h5";
  config.model.classes = 5;
  {
    const LogCapture log;
    Starting s(config);
    CHECK(s.start().progress.step == 0);
    const ParameterTable& table = s.run.model.parameters();
    const CheckpointReader file = CheckpointReader::open(config.checkpoint.init_from);
    for (ParameterId id = 0; id < table.size(); ++id) {
      INFO(table[id].name);
      std::vector<float> expected(static_cast<size_t>(table[id].shape.elements()));
      if (table[id].name.starts_with("fc5.")) {
        initialize_parameter(table[id], InitRule::truncated_normal, 1, expected);
      } else {
        file.read("/model/" + table[id].name, expected);
      }
      CHECK(std::ranges::equal(s.run.model.parameter(id), expected));
    }
    if (world().is_root()) {
      CHECK_THAT(log.text(), ContainsSubstring("weights from " + config.checkpoint.init_from +
                                               "; fc5 start from fresh values (the file has 3 classes, the model 5)"));
    }
  }
  config.model.image_size = 16;  // another width of fc3
  const auto error = agreed_error_of([&] { Starting(config).start(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::config);
  CHECK_THAT(error->what(),
             ContainsSubstring("/model/fc3.weight is [384,256] in the file and [384,1024] in the model"));
  CHECK_THAT(error->what(), !ContainsSubstring("fc5"));
  config.checkpoint.init_exclude = {"fc3"};
  CHECK(Starting(config).start().progress.step == 0);
  config.checkpoint.init_exclude = {"fc3", "fc6"};
  CHECK_THAT(message_of(agreed_error_of([&] { Starting(config).start(); })),
             ContainsSubstring("fc6 is to be left out"));
}

TEST_CASE("a file of weights that lacks one is refused by its name") {
  const SharedDirectory directory;
  Config config = config_with(directory);
  if (world().is_root()) {
    Hdf5File file = Hdf5File::create_in_memory("weights", {});
    const std::vector<float> bias(3);
    const int64_t dims[] = {3};
    file.write<float>("/fc5.bias", dims, bias);
    const Hdf5Image image = std::move(file).finish();
    write_file_atomically(directory / "weights.h5", image.bytes(), {});
  }
  world().barrier({"the weights"});
  config.checkpoint.init_from = directory / "weights.h5";
  const auto error = agreed_error_of([&] { Starting(config).start(); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::config);
  CHECK_THAT(error->what(), ContainsSubstring("conv1.weight"));
}

TEST_CASE("a run of an ONNX file starts from its weights, but not in a classifier for other classes") {
  const SharedDirectory directory;
  Config config = config_with(directory);
  config.model = {.name = "file", .file = directory / "net.onnx", .classes = 3, .image_size = 8};
  config.model.definition =
      "layer = [\n  { op = \"conv\", name = \"conv\", channels = 2 },\n  { op = \"flatten\", name = \"flat\" },\n"
      "  { op = \"linear\", name = \"hidden\", outputs = 5 },\n"
      "  { op = \"linear\", name = \"fc\", outputs = \"$classes\" },\n  { op = \"loss\", name = \"loss\" },\n]\n";
  const Graph graph = build_model("file", model_options(config, 1, false));
  std::vector<NamedTensor> weights;
  for (const Parameter& p : graph.parameters.all()) {
    weights.emplace_back(p.name, p.shape, std::vector<float>(static_cast<size_t>(p.shape.elements()), 0.5F));
  }
  if (world().is_root()) {
    write_text_atomically(config.model.file, encode_onnx(graph, weights, {.name = "net"}), ExitCode::internal);
  }
  world().barrier({"the ONNX file"});
  config.model.definition = read_definition(config.model.file);
  for (const int64_t classes : {3, 4}) {
    config.model.classes = classes;
    Starting s(config);
    CHECK(s.start().progress.step == 0);
    const ParameterTable& table = s.run.model.parameters();
    for (ParameterId id = 0; id < table.size(); ++id) {
      INFO(table[id].name);
      const bool all = std::ranges::all_of(s.run.model.parameter(id), [](float value) { return value == 0.5F; });
      CHECK(all == (classes == 3 || !table[id].name.starts_with("fc.")));
    }
  }
  config.model.classes = 3;
  OnnxModel read = read_onnx_model(config.model.file);
  world().barrier({"the ONNX file"});
  if (world().is_root()) std::filesystem::remove(config.model.file);
  CHECK(Starting(config).start(&read).progress.step == 0);  // what was read is not read again
  if (world().is_root()) {
    write_text_atomically(config.model.file, encode_onnx(graph, weights, {.name = "net"}), ExitCode::internal);
  }
  config.model.image_size = 9;
  const std::string message = message_of(agreed_error_of([&] { Starting(config).start(); }));
  CHECK_THAT(message, ContainsSubstring("hidden.weight is [5,128] in the file and [5,162] in the model"));
  CHECK_THAT(message, ContainsSubstring("the file is for images of 8 pixels, model.image_size = 9"));
  config.checkpoint.init_exclude = {"hidden"};
  CHECK(Starting(config).start().progress.step == 0);
}

TEST_CASE("weights that cannot be read are an I/O error in every format") {
  const SharedDirectory directory;
  Config config = config_with(directory);
  for (const char* ending : {"h5", "safetensors", "onnx"}) {
    const std::string damaged = directory / fmt::format("damaged.{}", ending);
    if (world().is_root()) write_text_atomically(damaged, "no weights", ExitCode::internal);
    world().barrier({"the file"});
    for (const std::string& file : {damaged, directory / fmt::format("none.{}", ending)}) {
      INFO(file);
      config.checkpoint.init_from = file;
      const auto error = agreed_error_of([&] { Starting(config).start(); });
      REQUIRE(error);
      CHECK(error->code() == ExitCode::checkpoint);
      CHECK_THAT(error->what(), ContainsSubstring(file));
    }
  }
}

TEST_CASE("evaluation takes weights and averages of the newest checkpoint or a named one, and deletes nothing") {
  const SharedDirectory directory;
  Config config = config_with(directory, "never");
  config.checkpoint.overwrite = true;
  const Values older = save(config, 20), newer = save(config, 30);
  Starting s(config, Purpose::evaluate);
  const LoadedWeights latest = load_for_evaluation(s.context, {}, "latest");
  CHECK(latest.step == 30);
  CHECK(latest.has_average);
  const Values loaded = s.run.values();  // without slots
  CHECK(std::equal(loaded.begin(), loaded.end(), newer.begin()));
  CHECK(load_for_evaluation(s.context, {}, directory / "run/step-00000020.h5").step == 20);
  CHECK(s.run.values()[0] == older[0]);
  for (const char* name : {"never", "auto"}) {  // words of checkpoint.resume, here files that do not exist
    const auto error = agreed_error_of([&] { load_for_evaluation(s.context, {}, name); });
    REQUIRE(error);
    CHECK(error->code() == ExitCode::checkpoint);
  }
  CHECK(find_checkpoints(directory / "run").size() == 2);
}

TEST_CASE("evaluation without averages in the file says so") {
  const SharedDirectory directory;
  Config config = config_with(directory);
  config.ema.decay = 0;
  save(config, 20);
  config.ema.decay = 0.9;
  Starting s(config, Purpose::evaluate);
  CHECK_FALSE(load_for_evaluation(s.context, {}, "latest").has_average);
}
