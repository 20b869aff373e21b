#include "app/cli/command_line.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "lockstep/config/keys.h"
#include "test/catch.h"
#include "test/config/config_error.h"

using namespace lockstep;

namespace {

using Arguments = std::vector<std::string>;

constexpr std::array kSubcommands = {"train",   "check",  "evaluate", "predict", "explain",
                                     "inspect", "export", "import",   "pack"};

std::string error_of(const Arguments& arguments) {
  return config_error([&] { parse_command_line(arguments); });
}

}  // namespace

TEST_CASE("without a subcommand the trainer trains") {
  const CommandLine line = parse_command_line({"--config", "digits", "--train.seed", "7", "--optimizer.lr=1e-3"});
  CHECK(line.command == Command::train);
  CHECK(line.config == "digits");
  REQUIRE(line.overrides.size() == 2);
  CHECK(line.overrides[0].name == "train.seed");
  CHECK(line.overrides[0].value == "7");
  CHECK(line.overrides[1].name == "optimizer.lr");
  CHECK(line.overrides[1].value == "1e-3");
}

TEST_CASE("every key is an option in both forms") {
  for (const ConfigKey& key : config_keys()) {
    INFO(key.full_name());
    const CommandLine spaced = parse_command_line({"--" + key.full_name(), "x"});
    const CommandLine joined = parse_command_line({"--" + key.full_name() + "=x"});
    REQUIRE(spaced.overrides.size() == 1);
    REQUIRE(joined.overrides.size() == 1);
    CHECK(spaced.overrides[0].name == key.full_name());
    CHECK(joined.overrides[0].value == "x");
  }
}

TEST_CASE("values reach the keys as they were typed") {
  const CommandLine line = parse_command_line(
      {"--data.label_offset", "-1", "--data.train", "a b,c*", "--log.jsonl", "", "--checkpoint.directory=a=b"});
  REQUIRE(line.overrides.size() == 4);
  CHECK(line.overrides[0].value == "a b,c*");
  CHECK(line.overrides[1].value == "-1");
  CHECK(line.overrides[2].value == "a=b");
  CHECK(line.overrides[3].value == "");
}

TEST_CASE("an empty value after the equals sign is that, not the next argument") {
  const CommandLine line = parse_command_line({"--data.validation=", "--log.jsonl", "x", "--train.seed=1"});
  REQUIRE(line.overrides.size() == 3);
  CHECK(line.overrides[0].value == "");
  CHECK(line.overrides[1].value == "1");
  CHECK(line.overrides[2].value == "x");
}

TEST_CASE("evaluate takes a checkpoint and the options of training on either side") {
  CommandLine line =
      parse_command_line({"evaluate", "--config", "c.toml", "--checkpoint", "a.h5", "--train.seed", "1"});
  CHECK(line.command == Command::evaluate);
  CHECK(line.config == "c.toml");
  CHECK(line.checkpoint == "a.h5");
  CHECK(line.overrides.size() == 1);
  line = parse_command_line({"--config", "c.toml", "evaluate"});
  CHECK(line.command == Command::evaluate);
  CHECK(line.checkpoint == "latest");
  CHECK_FALSE(line.per_class);
}

TEST_CASE("evaluate takes a checkpoint without its option as well, and what to say of single classes") {
  CHECK_THROWS_WITH(parse_command_line({"evaluate", "runs/a", "--ema"}),
                    ContainsSubstring("--ema is about --per_class"));
  const CommandLine line = parse_command_line({"evaluate", "runs/a", "--per_class", "--confusion", "c.csv", "--ema"});
  CHECK(line.command == Command::evaluate);
  CHECK(line.checkpoint == "runs/a");
  CHECK(line.per_class);
  CHECK(line.confusion == "c.csv");
  CHECK(line.average);
  CHECK_THAT(error_of({"evaluate", "a.h5", "b.h5"}), ContainsSubstring("'b.h5' is not expected here"));
  CHECK_THAT(error_of({"evaluate", "a.h5", "--checkpoint", "b.h5"}), ContainsSubstring("given twice"));
}

TEST_CASE("train is the name of what happens without a subcommand") {
  const CommandLine line = parse_command_line({"train", "--config", "digits", "--train.seed", "7"});
  CHECK(line.command == Command::train);
  CHECK(line.config == "digits");
  CHECK(line.overrides.size() == 1);
  CHECK_THAT(error_of({"train"}), ContainsSubstring("no configuration"));
}

TEST_CASE("predict takes a checkpoint, then images or a data set, and how to print") {
  CommandLine line = parse_command_line({"predict", "runs/a", "b.png", "photos", "--device.threads", "1"});
  CHECK(line.command == Command::predict);
  CHECK(line.checkpoint == "runs/a");
  CHECK(line.predict.images == std::vector<std::string>{"b.png", "photos"});
  CHECK(line.predict.top == 5);
  CHECK(line.predict.format == "table");
  CHECK_FALSE(line.average);
  CHECK(line.config.empty());
  CHECK(line.overrides.size() == 1);
  line = parse_command_line(
      {"predict", "--top", "1", "--format", "json", "latest", "--ema", "--data", "photos/*", "--config", "c.toml"});
  CHECK(line.checkpoint == "./latest");
  CHECK(line.predict.images.empty());
  CHECK(line.predict.top == 1);
  CHECK(line.predict.format == "json");
  CHECK(line.average);
  CHECK(line.config == "c.toml");
  REQUIRE(line.overrides.size() == 2);
  CHECK(line.overrides[0].name == "data.validation");
  CHECK(line.overrides[0].value == "photos/*");
  CHECK(line.overrides[1].name == "data.validation_fraction");
  CHECK(line.overrides[1].value == "0");
}

TEST_CASE("predict refuses what it cannot print") {
  CHECK_THAT(error_of({"predict"}), ContainsSubstring("checkpoint is required"));
  CHECK(error_of({"predict", "a.h5"}) == "command line: predict takes image files or directories, or --data FILES");
  CHECK(error_of({"predict", "a.h5", "b.png", "--data", "c"}) ==
        "command line: predict takes either images or --data FILES, not both");
  CHECK(error_of({"predict", "a.h5", "--data", "c", "--data.validation", "d"}) ==
        "command line: --data and --data.validation are both given");
  CHECK_THAT(error_of({"predict", "a.h5", "b.png", "--top", "0"}), ContainsSubstring("--top"));
  CHECK_THAT(error_of({"predict", "a.h5", "b.png", "--format", "xml"}), ContainsSubstring("--format"));
  CHECK_THAT(error_of({"predict", "a.h5", "b.png", "--formt", "csv"}), ContainsSubstring("did you mean --format?"));
}

TEST_CASE("check takes a configuration") {
  const CommandLine line = parse_command_line({"check", "--config", "digits", "--model.classes", "3"});
  CHECK(line.command == Command::check);
  CHECK(line.config == "digits");
  CHECK(line.overrides.size() == 1);
}

TEST_CASE("explain takes a configuration") {
  const CommandLine line = parse_command_line({"explain", "--config", "digits", "--model.classes", "3"});
  CHECK(line.command == Command::explain);
  CHECK(line.config == "digits");
  CHECK(line.overrides.size() == 1);
}

TEST_CASE("inspect takes one checkpoint and no configuration") {
  CommandLine line = parse_command_line({"inspect", "run/step-00000010.h5"});
  CHECK(line.command == Command::inspect);
  CHECK(line.checkpoint == "run/step-00000010.h5");
  CHECK_FALSE(line.verify);
  line = parse_command_line({"inspect", "--verify", "a.h5"});
  CHECK(line.verify);
  CHECK_THAT(error_of({"inspect"}), ContainsSubstring("checkpoint is required"));
  CHECK_THAT(error_of({"inspect", "a.h5", "b.h5"}), ContainsSubstring("'b.h5'"));
  CHECK_THAT(error_of({"inspect", "a.h5", "--train.seed", "1"}), ContainsSubstring("'--train.seed'"));
}

TEST_CASE("an unknown option is an error with the nearest one") {
  CHECK(error_of({"--config", "digits", "--train.sed", "1"}) ==
        "command line: unknown option '--train.sed'; did you mean --train.seed?");
  CHECK(error_of({"--train.batch-size=3"}) ==
        "command line: unknown option '--train.batch-size=3'; did you mean --train.batch_size?");
  CHECK(error_of({"--confg", "digits"}) == "command line: unknown option '--confg'; did you mean --config?");
  CHECK(error_of({"--lr", "1"}) == "command line: unknown option '--lr'; did you mean --optimizer.lr?");
  CHECK(error_of({"--zzzzzzzzzzzz"}) == "command line: unknown option '--zzzzzzzzzzzz'");
  CHECK_THAT(error_of({"-x"}), ContainsSubstring("unknown option '-x'"));
  CHECK(error_of({"--checkpoint", "a.h5", "--config", "c"}) ==
        "command line: unknown option '--checkpoint'; other commands have it, see trainer --help");
}

TEST_CASE("words without an option are refused") {
  CHECK(error_of({"digits"}) == "command line: 'digits' is not expected here; see trainer --help");
  CHECK(error_of({"--config", "digits", "extra"}) == "command line: 'extra' is not expected here; see trainer --help");
  CHECK(error_of({"evalute", "--config", "digits"}) ==
        "command line: 'evalute' is not expected here; did you mean evaluate?; see trainer --help");
  CHECK_THAT(error_of({"check", "--config", "digits", "extra"}), ContainsSubstring("'extra' is not expected here"));
  CHECK_THAT(error_of({"trian", "--config", "digits"}), ContainsSubstring("did you mean train?"));
  CHECK_THAT(error_of({"predikt", "runs/a"}), ContainsSubstring("did you mean predict?"));
}

TEST_CASE("an option twice, or without its value, is an error") {
  CHECK(error_of({"--train.seed", "1", "--train.seed", "2"}) ==
        "command line: --train.seed is given twice, '1' and '2'");
  CHECK(error_of({"--config", "a", "--config=b"}) == "command line: --config is given twice, 'a' and 'b'");
  CHECK_THAT(error_of({"--config", "a", "--train.seed"}), ContainsSubstring("--train.seed"));
}

TEST_CASE("no configuration at all is an error") {
  CHECK_THAT(error_of({}), ContainsSubstring("no configuration; give --config FILE"));
  CHECK_THAT(error_of({"evaluate"}), ContainsSubstring("no configuration") && ContainsSubstring("--checkpoint PATH"));
  CHECK_THAT(error_of({"evaluate", "--train.seed", "1"}), ContainsSubstring("no configuration"));
  CHECK(parse_command_line({"evaluate", "--checkpoint", "runs/a"}).config.empty());
  CHECK(parse_command_line({"evaluate", "--checkpoint.directory", "runs/a"}).checkpoint == "latest");
}

TEST_CASE("help is a text to print, version asks for one that names the libraries") {
  const CommandLine help = parse_command_line({"--help"});
  CHECK(help.command == Command::print);
  CHECK_THAT(help.text, ContainsSubstring("trainer SUBCOMMAND"));
  CHECK_THAT(parse_command_line({"evaluate", "--help"}).text, ContainsSubstring("--checkpoint"));
  CHECK_THAT(parse_command_line({"inspect", "-h"}).text, ContainsSubstring("--verify"));
  CHECK(parse_command_line({"--version"}).command == Command::version);
}

TEST_CASE("help fits on a screen, has the subcommands first, and no help is wider than a terminal") {
  const std::string help = parse_command_line({"--help"}).text;
  CHECK(std::ranges::count(help, '\n') < 24);
  std::istringstream short_lines(help);
  for (std::string line; std::getline(short_lines, line);) CHECK(line.size() <= 80);
  CHECK(help.find("\n  evaluate ") < help.find("--config FILE|RECIPE  "));
  for (const char* subcommand : kSubcommands) {
    CHECK_THAT(help, ContainsSubstring("\n  " + std::string(subcommand) + " "));
  }
  const std::string keys = parse_command_line({"--help-keys"}).text;
  for (const ConfigKey& key : config_keys()) {
    INFO(key.full_name());
    CHECK_THAT(keys, ContainsSubstring("--" + key.full_name() + "\n"));
  }
  CHECK_THAT(keys, ContainsSubstring("default 0.045]"));
  std::vector<Arguments> helps = {{"--help-keys"}};
  for (const char* subcommand : kSubcommands) helps.push_back({subcommand, "--help"});
  for (const Arguments& arguments : helps) {
    std::istringstream lines(parse_command_line(arguments).text);
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      CHECK(line.size() <= 100);
    }
  }
}

TEST_CASE("the manual page has every subcommand, option and key") {
  const CommandLine line = parse_command_line({"--help-man"});
  CHECK(line.command == Command::print);
  CHECK(line.text.starts_with(".TH TRAINER 1 "));
  for (const char* subcommand : kSubcommands) {
    CHECK_THAT(line.text, ContainsSubstring("\n.SS " + std::string(subcommand) + "\n"));
  }
  for (const ConfigKey& key : config_keys()) {
    CHECK_THAT(line.text, ContainsSubstring("\n\\fB\\-\\-" + key.full_name() + "\\fR"));
  }
  CHECK_THAT(line.text, ContainsSubstring("\n\\fB\\-\\-top\\fR \\fIN\\fR\nClasses for each sample"));
}

TEST_CASE("the completion has every subcommand, option, key and word") {
  const CommandLine line = parse_command_line({"--help-bash"});
  CHECK(line.command == Command::print);
  CHECK_THAT(line.text, ContainsSubstring("train|check|evaluate|predict|profile|explain|inspect|export|import|pack)"));
  CHECK_THAT(line.text,
             ContainsSubstring("    export) options=\"--help --to --ema --fold_batch_norm --drop_background\" ;;"));
  CHECK_THAT(line.text, ContainsSubstring(
                            "    pack) options=\"--help --to --short_side --quality --png --records_per_file $keys\""));
  for (const ConfigKey& key : config_keys()) {
    CHECK_THAT(line.text, ContainsSubstring(" --" + key.full_name()));
    if (key.member.type != ConfigType::text || key.allowed.size() < 2) continue;
    CHECK_THAT(line.text,
               ContainsSubstring("    --" + key.full_name() + ") words=\"" + std::string(key.allowed[0]) + " "));
  }
}

TEST_CASE("inspect may compare with another checkpoint") {
  const CommandLine line = parse_command_line({"inspect", "a.h5", "--compare", "b.h5"});
  CHECK(line.checkpoint == "a.h5");
  CHECK(line.compared == "b.h5");
}

TEST_CASE("export takes a checkpoint, a file to write and what to do with the weights") {
  const CommandLine line =
      parse_command_line({"export", "a.h5", "--to", "m.onnx", "--ema", "--fold_batch_norm", "--drop_background"});
  CHECK(line.command == Command::export_weights);
  CHECK(line.checkpoint == "a.h5");
  CHECK(line.to == "m.onnx");
  CHECK(line.average);
  CHECK(line.fold_batch_norm);
  CHECK(line.drop_background);
  CHECK_FALSE(parse_command_line({"export", "a.h5", "--to", "m.onnx"}).average);
  CHECK_THAT(error_of({"export", "a.h5"}), ContainsSubstring("--to is required"));
}

TEST_CASE("import takes a file, a checkpoint to write and, if need be, the options of training") {
  const CommandLine bare = parse_command_line({"import", "a.safetensors", "--to", "b.h5"});
  CHECK(bare.command == Command::import_weights);
  CHECK(bare.from == "a.safetensors");
  CHECK(bare.to == "b.h5");
  CHECK(bare.config.empty());
  const CommandLine full =
      parse_command_line({"import", "a.h5", "--to", "b.h5", "--config", "digits", "--model.classes", "7"});
  CHECK(full.config == "digits");
  REQUIRE(full.overrides.size() == 1);
  CHECK(full.overrides[0].name == "model.classes");
}

TEST_CASE("pack takes a directory to write into, the options of training and how pictures are written") {
  const CommandLine plain = parse_command_line({"pack", "--config", "flowers", "--to", "packed"});
  CHECK(plain.command == Command::pack);
  CHECK(plain.config == "flowers");
  CHECK(plain.to == "packed");
  CHECK(plain.pack.short_side == 0);
  CHECK(plain.pack.quality == 95);
  CHECK_FALSE(plain.pack.png);
  const CommandLine full = parse_command_line({"pack", "--to", "packed", "--data.train", "photos", "--short_side",
                                               "400", "--quality", "90", "--png", "--records_per_file", "7"});
  CHECK(full.overrides.size() == 1);
  CHECK(full.pack.short_side == 400);
  CHECK(full.pack.quality == 90);
  CHECK(full.pack.png);
  CHECK(full.pack.records_per_file == 7);
  CHECK_THAT(error_of({"pack", "--config", "flowers"}), ContainsSubstring("--to is required"));
  CHECK_THAT(error_of({"pack", "--to", "a", "--config", "b", "--quality", "0"}), ContainsSubstring("--quality"));
  CHECK_THAT(error_of({"pack", "--to", "packed"}), ContainsSubstring("no configuration"));
  CHECK_THAT(error_of({"pack", "--to", "a", "--config", "b", "--short_sides", "3"}),
             ContainsSubstring("did you mean --short_side?"));
}

TEST_CASE("an option or argument with an empty value is an error, which says what it takes") {
  for (const auto& [arguments, message] : {
           std::pair(Arguments{"--config", "digits", "--dump-config", ""}, "--dump-config is empty; it takes FILE"),
           {Arguments{"--config="}, "--config is empty; it takes FILE|RECIPE"},
           {Arguments{"export", "run", "--to="}, "--to is empty; it takes FILE.safetensors|.onnx|.h5"},
           {Arguments{"inspect", ""}, "checkpoint is empty; it takes PATH"},
           {Arguments{"predict", "run", "a.png", ""}, "images is empty; it takes PATH"},
           {Arguments{"evaluate", "run", "--confusion", ""}, "--confusion is empty; it takes FILE.csv"},
       }) {
    CHECK(error_of(arguments) == fmt::format("command line: {}", message));
  }
}
