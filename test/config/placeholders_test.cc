#include "lockstep/config/placeholders.h"

#include "lockstep/config/load.h"
#include "test/catch.h"
#include "test/config/config_error.h"

using namespace lockstep;

namespace {

// The directory of a run with these settings, started in "/home/a{b}" on four ranks.
std::string directory_of(const std::string& pattern, const std::vector<Assignment>& more = {}) {
  ConfigSources sources{.overrides = {{"data.train", "t"}, {"checkpoint.directory", pattern}},
                        .working_directory = "/home/a{b}"};
  sources.overrides.insert(sources.overrides.end(), more.begin(), more.end());
  Config config = load_config(sources).config;
  fill_in_placeholders(config, {.ranks = 4, .time = "20261129-140305", .job = ""});
  return config.checkpoint.directory;
}

}  // namespace

TEST_CASE("placeholders of a run's directory are the run's values") {
  CHECK(directory_of("runs/{model}/{time}") == "/home/a{b}/runs/inception_v3/20261129-140305");
  CHECK(directory_of("r{ranks}-s{seed}", {{"train.seed", "7"}}) == "/home/a{b}/r4-s7");
  CHECK(directory_of("lr{optimizer.lr}-{optimizer.name}", {{"optimizer.lr", "0.01"}}) ==
        "/home/a{b}/lr0.01-rmsprop_tf");
  CHECK(directory_of("{train.sync_batch_norm}/{train.epochs}") == "/home/a{b}/false/100.0");
  CHECK(directory_of("{{x}}") == "/home/a{b}/{x}");
  CHECK(
      directory_of("{model}", {{"model.name", "file"}, {"model.definition", "x"}, {"model.file", "/n/my net.toml"}}) ==
      "/home/a{b}/my_net");
  CHECK(directory_of("") == "/home/a{b}/runs/inception_v3");
  CHECK(directory_of("runs/{time}/") == "/home/a{b}/runs/20261129-140305");
  CHECK(directory_of("/{time}/.") == "/20261129-140305");
}

TEST_CASE("a placeholder that does not exist, or has no value, is an error of the start") {
  CHECK_THAT(config_error([] { directory_of("runs/{modle}"); }), ContainsSubstring("checkpoint.directory = '") &&
                                                                     ContainsSubstring("{modle} is no placeholder") &&
                                                                     ContainsSubstring("did you mean model"));
  CHECK_THAT(config_error([] { directory_of("{data.train}"); }), ContainsSubstring("{data.train} is no placeholder"));
  CHECK_THAT(config_error([] { directory_of("{job}"); }),
             ContainsSubstring("{job} has no value here: it is `SLURM_JOB_ID`"));
  CHECK_THAT(config_error([] {
               directory_of("{time}/{log.jsonl}", {{"log.jsonl", ""}});
             }),
             ContainsSubstring("{log.jsonl} has no value here: it is an empty text"));
}

TEST_CASE("only {time} makes a directory new at every start") {
  CHECK(contains_time("/runs/{model}/{time}"));
  CHECK_FALSE(contains_time("/runs/{model}"));
  CHECK_FALSE(contains_time(without_placeholders("/runs/{time}")));
}
