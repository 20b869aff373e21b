#include "config/file.h"

#include "lockstep/base/error.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

struct BadFile {
  const char* what;
  std::string text;
  const char* message;  // the start, after the name of the file
};

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

std::vector<BadFile> bad_files() {
  return {
      {"misspelt key", "[train]\nepochs = 3\nlearing_rate = 0.1\n",
       ":3: unknown key 'learing_rate' in section [train]; did you mean optimizer.lr?"},
      {"misspelt key, swapped letters", "[train]\nbacth_size = 3\n", "did you mean train.batch_size?"},
      {"dash for underscore", "[train]\nbatch-size = 32\n",
       ":2: unknown key 'batch-size' in section [train]; did you mean train.batch_size?"},
      {"upper case", "[train]\nEpochs = 32\n", "did you mean train.epochs?"},
      {"key in the wrong section", "[train]\nlr = 0.1\n",
       ":2: unknown key 'lr' in section [train]; did you mean optimizer.lr?"},
      {"key that two other sections have", "[train]\nkeep = 0.1\n", "did you mean checkpoint.keep?"},
      {"key outside every section", "lr = 0.1\n",
       ":1: key 'lr' stands outside every section; did you mean optimizer.lr?"},
      {"misspelt section", "[trian]\nepochs = 1\n", ":1: unknown section 'trian'; did you mean train?"},
      {"section of another program", "[horovod]\nx = 1\n", ":1: unknown section 'horovod'"},
      {"misspelt section with a dotted key", "modle.name = \"inception_v3\"\n", "did you mean model?"},
      {"name of another program", "[model]\nnum_classes = 10\n", "did you mean model.classes?"},
      {"the same key twice", "[train]\nseed = 1\nepochs = 2\nseed = 2\n", ":4: not valid TOML: "},
      {"the same section twice", "[train]\nseed = 1\n[model]\n[train]\nepochs = 2\n", ":4: not valid TOML: "},
      {"section inside a section", "[watchdog.start]\nwarn_seconds = 1\n", "unknown key 'start' in section [watchdog]"},
      {"list of sections", "[[train]]\nseed = 1\n", "key 'train' stands outside every section"},
      {"missing value", "[train]\nseed =\n", ":2: not valid TOML: "},
      {"missing bracket", "[train\nseed = 1\n", ":1: not valid TOML: "},
      {"missing quote", "[model]\nname = \"inception_v3\n", ":2: not valid TOML: "},
      {"bare word", "[model]\nname = inception_v3\n", ":2: not valid TOML: "},
      {"YAML", "train:\n  seed: 1\n", ":1: not valid TOML: "},
      {"number without a leading digit", "[optimizer]\nlr = .1\n", ":2: not valid TOML: "},
      {"comma in a number", "[optimizer]\nlr = 1,5\n", ":2: not valid TOML: "},
      {"string for an integer", "[train]\nbatch_size = \"32\"\n",
       ":2: train.batch_size takes an integer, not the string '32'"},
      {"string for a number", "[optimizer]\nlr = \"1e-4\"\n", ":2: optimizer.lr takes a number, not the string '1e-4'"},
      {"fraction for an integer", "[train]\nbatch_size = 32.5\n",
       ":2: train.batch_size takes an integer, not the number 32.5"},
      {"integer for a string", "[model]\nname = 3\n", ":2: model.name takes a string, not the integer 3"},
      {"integer for a boolean", "[train]\ndeterministic = 1\n",
       ":2: train.deterministic takes true or false, not the integer 1"},
      {"list for an integer", "[train]\nseed = [1, 2]\n", ":2: train.seed takes an integer, not a list"},
      {"list of numbers for paths", "[data]\ntrain = [\"a\", 3]\n",
       ":2: data.train takes a string or a list of strings, not a list"},
      {"date", "[train]\nseed = 2026-01-01\n", ":2: train.seed takes an integer, not a date or time"},
      {"not a number", "[optimizer]\nlr = nan\n", ":2: optimizer.lr takes a number, not the number nan"},
      {"infinity", "[train]\nmax_seconds = inf\n", ":2: train.max_seconds takes a number, not the number inf"},
      {"zero batch", "[train]\nbatch_size = 0\n", ":2: train.batch_size must be in [1, 1000000], not 0"},
      {"negative rate", "[optimizer]\nlr = -0.1\n", ":2: optimizer.lr must be above 0, not -0.1"},
      {"zero rate", "[optimizer]\nlr = 0\n", ":2: optimizer.lr must be above 0, not 0"},
      {"momentum of 1", "[optimizer]\nmomentum = 1\n", ":2: optimizer.momentum must be in [0, 1), not 1"},
      {"one class", "[model]\nclasses = 1\n", ":2: model.classes must be in [2, 1000000], not 1"},
      {"hidden layer of no width", "[model]\nhidden = [10, 0]\n", ":2: model.hidden must be in [1, 1000000], not 0"},
      {"integer beyond 64 bits", "[train]\nseed = 9223372036854775808\n", ":2: not valid TOML: "},
      {"model that is not there yet", "[model]\nname = \"inception_v4\"\n",
       ":2: model.name = 'inception_v4' is not available in this version; available: inception_v3, cifar10_cnn"},
      {"precision that is not there yet", "[train]\nprecision = \"int8\"\n", "available: float32, tf32, bf16, fp16"},
      {"UTF-16", std::string("\xff\xfe[\0t\0]\0", 8), ":1: not valid TOML: "},
      {"not UTF-8", "[data]\ntrain = \"\xff\xff\"\n", ":2: not valid TOML: "},
      {"zero byte", std::string("[train]\nseed = 1\0\n", 18), ":2: not valid TOML: "},
      {"a 10 MB word", "[train]\n" + std::string(10 << 20, 'x') + " = 1\n", ":2: unknown key 'xxxxxxxxxx"},
      {"a 10 MB value", "[model]\nname = \"" + std::string(10 << 20, 'x') + "\"\n", ":2: model.name = 'xxxxxxxxxx"},
      {"a dotted key of 100,000 parts", "[train]\n" + repeated("a.", 100000) + "a = 1\n",
       ":2: not valid TOML: a dotted key has more than 16 parts"},
      {"a dotted key with quotes", repeated("\"a\" . 'b' .", 100000) + "a = 1\n", ":1: not valid TOML: a dotted key"},
      {"a header of 100,000 parts", "# ''' \" [\n[" + repeated("a.", 100000) + "a]\n",
       ":2: not valid TOML: a dotted key"},
      {"inline tables in inline tables", "a = " + repeated("{a=", 100000) + "\n",
       ":1: not valid TOML: more than 16 brackets are open"},
      {"deep behind a text", R"(a = """
"\"
""""
b = ''
)" + repeated("a.", 100000) + "a = 1\n",
       ":5: not valid TOML: a dotted key"},
      {"a configuration of 20 MB", "#" + std::string(20 << 20, ' '),
       ": 20971521 bytes are too many for a configuration"},
      {"lists nested without end", "[train]\nseed = " + std::string(100000, '[') + "\n", ":2: not valid TOML: "},
  };
}

template <class T>
T value_of(const std::vector<ConfigFileEntry>& entries, const std::string& full_name) {
  for (const ConfigFileEntry& entry : entries) {
    if (entry.key->full_name() == full_name) return std::get<T>(entry.value);
  }
  FAIL("no " << full_name);
  return {};
}

}  // namespace

TEST_CASE("a bad file gives one short message with file, line and what to do") {
  for (const BadFile& bad : bad_files()) {
    INFO(bad.what);
    try {
      parse_config_file(bad.text, "/runs/bad.toml");
      FAIL_CHECK("accepted: " << bad.what);
    } catch (const Error& e) {
      const std::string message = e.what();
      CHECK(e.code() == ExitCode::config);
      CHECK_THAT(message, ContainsSubstring(bad.message));
      CHECK(message.starts_with("/runs/bad.toml:"));
      CHECK(message.size() < 400);
      CHECK(message.find_first_of("\r\n\t") == std::string::npos);
    }
  }
}

TEST_CASE("the first mistake in the order of the file is the one that is reported") {
  try {
    parse_config_file("[watchdog]\nwrong = 1\n[data]\nalso_wrong = 2\n", "c.toml");
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(std::string(e.what()).starts_with("c.toml:2:"));
  }
}

TEST_CASE("byte order mark, CRLF, tabs, trailing comments and a missing last newline are no mistakes") {
  const auto entries = parse_config_file(
      "\xef\xbb\xbf# made on Windows\r\n[train]\t# section\r\n\tseed\t=\t7\t# trailing\r\nepochs = 2.5", "c.toml");
  REQUIRE(entries.size() == 2);
  CHECK(value_of<int64_t>(entries, "train.seed") == 7);
  CHECK(entries[0].line == 3);
  CHECK(value_of<double>(entries, "train.epochs") == 2.5);
  CHECK(entries[1].line == 4);
}

TEST_CASE("an empty file and a comment of 10 MB set nothing") {
  CHECK(parse_config_file("", "c.toml").empty());
  CHECK(parse_config_file("#" + std::string(10 << 20, ' ') + "\n", "c.toml").empty());
}

TEST_CASE("dots and brackets in strings and comments are no depth") {
  const std::string deep = repeated("a.[{", 100);
  const auto entries =
      parse_config_file("# " + deep + "\n[data]\ntrain = [\"" + deep + "\", '" + deep + "', '', \"\\\"" + deep +
                            "\"]\nlabel_key = \"\"\"\n" + deep + "\"\"\"\"\"\nids_key = '''" + deep + "''' # " + deep +
                            "\n[\"train\"]\nepochs = 2.5\n",
                        "c.toml");
  REQUIRE(entries.size() == 4);
  CHECK(value_of<std::vector<std::string>>(entries, "data.train") ==
        std::vector<std::string>{deep, deep, "", "\"" + deep});
  CHECK(value_of<std::string>(entries, "data.label_key") == deep + "\"\"");
  CHECK(value_of<std::string>(entries, "data.ids_key") == deep);
}

TEST_CASE("numbers are taken by the key's type however TOML writes them") {
  const auto entries = parse_config_file(
      "[train]\nsteps = 1e3\nseed = 0x10\nglobal_batch = 1_024\nepochs = 90\n"
      "[optimizer]\nlr = 1e-4\nweight_decay = 1E-4\nepsilon = 1\n",
      "c.toml");
  CHECK(value_of<int64_t>(entries, "train.steps") == 1000);
  CHECK(value_of<int64_t>(entries, "train.seed") == 16);
  CHECK(value_of<int64_t>(entries, "train.global_batch") == 1024);
  CHECK(value_of<double>(entries, "train.epochs") == 90);
  CHECK(value_of<double>(entries, "optimizer.lr") == 1e-4);
  CHECK(value_of<double>(entries, "optimizer.weight_decay") == 1e-4);
  CHECK(value_of<double>(entries, "optimizer.epsilon") == 1);
}

TEST_CASE("a single path and a list of paths both fill a list") {
  const auto entries = parse_config_file("data.train = \"a\"\ndata.validation = ['b', 'c']\n", "c.toml");
  CHECK(value_of<std::vector<std::string>>(entries, "data.train") == std::vector<std::string>{"a"});
  CHECK(value_of<std::vector<std::string>>(entries, "data.validation") == std::vector<std::string>{"b", "c"});
}
