#include "lockstep/config/load.h"
#include "test/catch.h"
#include "test/config/config_error.h"

using namespace lockstep;

namespace {

Config good_config() {
  Config config;
  config.data.train = {"/data/train"};
  return config;
}

// The error after `change` of a good configuration.
template <class Change>
std::string error_after(Change change) {
  Config config = good_config();
  change(config);
  return config_error([&] { validate(config); });
}

}  // namespace

TEST_CASE("the defaults with training data are valid") { CHECK_NOTHROW(validate(good_config())); }

TEST_CASE("a file that node_exporter would not read is an error") {
  CHECK_THAT(error_after([](Config& c) { c.log.prometheus_file = "/metrics/run.txt"; }),
             ContainsSubstring("log.prometheus_file = '/metrics/run.txt'") && ContainsSubstring("end in .prom"));
  Config config = good_config();
  config.log.prometheus_file = "/metrics/run.prom";
  CHECK_NOTHROW(validate(config));
}

TEST_CASE("the auxiliary head below 299 pixels is an error that says what to do") {
  CHECK(error_after([](Config& c) { c.model.image_size = 298; }) ==
        "model.aux_weight = 0.4 with model.image_size = 298: the auxiliary head needs at least 299 pixels; set "
        "model.aux_weight = 0 or enlarge the image");
}

TEST_CASE("inception_v3 below 75 pixels is an error, cifar10_cnn at 32 is not") {
  CHECK(error_after([](Config& c) { c.model.image_size = 74; }) ==
        "model.image_size = 74: inception_v3 needs at least 75 pixels");
  Config config = good_config();
  config.model.name = "cifar10_cnn";
  config.model.image_size = 32;
  CHECK_NOTHROW(validate(config));
}

TEST_CASE("transform_input is refused where nothing is to be transformed") {
  const std::string wanted = "belongs to model.name = \"inception_v3\" with data.normalize = \"torchvision\"";
  CHECK_THAT(error_after([](Config& c) { c.model.transform_input = true; }), ContainsSubstring(wanted));
  CHECK_THAT(error_after([](Config& c) {
               c.model.transform_input = true;
               c.model.name = "cifar10_cnn";
               c.data.normalize = "torchvision";
             }),
             ContainsSubstring(wanted));
  Config config = good_config();
  config.model.transform_input = true;
  config.data.normalize = "torchvision";
  CHECK_NOTHROW(validate(config));
}

TEST_CASE("sparse data and wide_mlp belong together") {
  CHECK_THAT(error_after([](Config& c) { c.data.format = "sparse_tfrecord"; }),
             ContainsSubstring("wide_mlp, and it alone, takes sparse_tfrecord"));
  CHECK_THAT(error_after([](Config& c) { c.model.name = "wide_mlp"; }),
             ContainsSubstring("data.format = \"tfrecord\""));
  Config config = good_config();
  config.model.name = "wide_mlp";
  config.data.format = "sparse_tfrecord";
  CHECK_NOTHROW(validate(config));
}

TEST_CASE("training needs data unless they are synthetic") {
  CHECK_THAT(error_after([](Config& c) { c.data.train.clear(); }), ContainsSubstring("data.train is empty"));
  Config config;
  config.data.format = "synthetic";
  CHECK_NOTHROW(validate(config));
}

TEST_CASE("training needs a length") {
  CHECK_THAT(error_after([](Config& c) { c.train.epochs = 0; }),
             ContainsSubstring("train.epochs and train.steps are both 0"));
  Config config = good_config();
  config.train.epochs = 0;
  config.train.steps = 1;
  CHECK_NOTHROW(validate(config));
}

TEST_CASE("the best checkpoint needs validation data") {
  CHECK_THAT(error_after([](Config& c) { c.checkpoint.keep_best = true; }), ContainsSubstring("data.validation"));
}

TEST_CASE("a warning after the abort is an error that names the phase") {
  CHECK_THAT(error_after([](Config& c) { c.watchdog.warn_seconds = 700; }),
             ContainsSubstring("watchdog.warn_seconds = 700 is above watchdog.abort_seconds = 600"));
  CHECK_THAT(error_after([](Config& c) { c.watchdog.save_warn_seconds = 2, c.watchdog.save_abort_seconds = 1; }),
             ContainsSubstring("watchdog.save_warn_seconds = 2 is above watchdog.save_abort_seconds = 1"));
  Config config = good_config();
  config.watchdog.abort_seconds = 0;  // never
  CHECK_NOTHROW(validate(config));
}

TEST_CASE("a log lies inside the run's directory, under a name of its own") {
  Config config = good_config();
  for (const char* name : {"", "metrics.jsonl", "./logs/a.jsonl", "logs/../rows.jsonl", "..jsonl"}) {
    config.log.jsonl = name;
    CHECK_NOTHROW(validate(config));
  }
  for (const auto& [name, reason] :
       {std::pair("../notes.txt", "outside"), std::pair("logs/../../notes.txt", "outside"),
        std::pair("/tmp/rows.jsonl", "outside"), std::pair("..", "outside"), std::pair("logs/", "names no file"),
        std::pair(".", "names no file"), std::pair("run.lock", "other files"), std::pair("./latest", "other files"),
        std::pair("step-00000010.h5", "other files")}) {
    config.log.jsonl = name;
    CHECK_THAT(config_error([&] { validate(config); }),
               ContainsSubstring(fmt::format("log.jsonl = '{}'", name)) && ContainsSubstring(reason));
  }
}

TEST_CASE("a piecewise schedule needs ascending boundaries and a factor for each") {
  const auto error = [](std::vector<double> boundaries, std::vector<double> factors) {
    return error_after([&](Config& c) {
      c.schedule.name = ScheduleKind::piecewise;
      c.schedule.boundaries = boundaries;
      c.schedule.factors = factors;
    });
  };
  CHECK_THAT(error({}, {}), ContainsSubstring("at least one: there are 0 and 0"));
  CHECK_THAT(error({1, 2}, {0.1}), ContainsSubstring("there are 1 and 2"));
  CHECK_THAT(error({2, 1}, {0.1, 0.01}), ContainsSubstring("schedule.boundaries = [2, 1] must ascend"));
  CHECK_THAT(error({2, 2}, {0.1, 0.01}), ContainsSubstring("must ascend"));
}

TEST_CASE("learning-rate factors are a pattern and a number that is not negative") {
  Config::Optimizer optimizer{.lr_factors = {"fc=10", "layer[=1]*=0.5", "a=b=1e-3", "bn=0"}};
  const auto items = learning_rate_factors(optimizer);
  REQUIRE(items.size() == 4);
  CHECK((items[0].pattern == "fc" && items[0].factor == 10));
  CHECK((items[1].pattern == "layer[=1]*" && items[1].factor == 0.5));
  CHECK((items[2].pattern == "a=b" && items[2].factor == 1e-3));
  CHECK((items[3].pattern == "bn" && items[3].factor == 0));
  for (const char* item : {"", "fc", "=1", "fc=", "fc=-1", "fc=ten", "fc=inf", "fc=1 "}) {
    INFO(item);
    CHECK_THAT(error_after([&](Config& c) {
                 c.optimizer.lr_factors = {"fc=1", item};
               }),
               ContainsSubstring("optimizer.lr_factors takes items of the form \"PATTERN=FACTOR\"") &&
                   ContainsSubstring(std::string("not \"") + item + "\""));
  }
  CHECK_THAT(error_after([](Config& c) { c.optimizer = {.name = "ftrl", .lr_factors = {"fc=0"}}; }),
             ContainsSubstring("\"fc=0\": ftrl divides by the learning rate; name these parameters in train.freeze"));
}

TEST_CASE("any number of ranks may evaluate") {
  Config config;
  CHECK(evaluation_batch(config, 3) == 32);
  config.train.global_batch = 64;
  CHECK(evaluation_batch(config, 2) == 32);
  CHECK(evaluation_batch(config, 3) == 22);
  config.eval.batch_size = 7;
  CHECK(evaluation_batch(config, 3) == 7);
}

TEST_CASE("the global batch is the ranks' batches and accumulations multiplied") {
  Config config;
  config.train.batch_size = 16;
  config.train.accumulate = 3;
  const BatchSizes sizes = batch_sizes(config, 4);
  CHECK(sizes.per_rank == 16);
  CHECK(sizes.global == 192);
}

TEST_CASE("a given global batch is shared out, or refused with the nearest that fit") {
  Config config;
  config.train.global_batch = 96;
  config.train.accumulate = 2;
  const BatchSizes sizes = batch_sizes(config, 3);
  CHECK(sizes.per_rank == 16);
  CHECK(sizes.global == 96);
  CHECK_THAT(config_error([&] { batch_sizes(config, 5); }),
             ContainsSubstring("train.global_batch = 96 does not divide by 5 ranks x train.accumulate = 2; the nearest "
                               "that do are 90 and 100"));
  config.train.global_batch = 1;
  CHECK_THAT(config_error([&] { batch_sizes(config, 4); }), ContainsSubstring("the nearest that does is 8"));
}

TEST_CASE("an evaluation needs no training data, unless it takes a share of them") {
  Config config = good_config();
  config.data.train.clear();
  config.data.validation = {"/data/validation"};
  CHECK_NOTHROW(validate(config, true));
  CHECK_THROWS_AS(validate(config), Error);
  config.data.validation.clear();
  config.data.validation_fraction = 0.1;
  CHECK_THROWS_AS(validate(config, true), Error);
}
