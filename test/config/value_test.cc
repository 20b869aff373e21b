#include "lockstep/config/value.h"

#include <optional>

#include "lockstep/config/keys.h"
#include "test/catch.h"
#include "test/config/config_error.h"

using namespace lockstep;

namespace {

const ConfigKey& key(const std::string& full_name) {
  const ConfigKey* found = find_config_key(full_name);
  REQUIRE(found);
  return *found;
}

// nullopt: refused.
template <class T>
std::optional<T> parsed(const std::string& full_name, const std::string& text) {
  try {
    return std::get<T>(parse_config_value(key(full_name), text, "command line"));
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::config);
    CHECK_THAT(std::string(e.what()), ContainsSubstring("command line: " + full_name + " takes "));
    return std::nullopt;
  }
}

struct NumberCase {
  const char* text;
  std::optional<double> number;
  std::optional<int64_t> integer;
};

constexpr std::nullopt_t kRefused = std::nullopt;

}  // namespace

TEST_CASE("a number on the command line is the whole text, decimal and finite") {
  const NumberCase cases[] = {
      {"0", 0, 0},
      {"1", 1, 1},
      {"-1", -1, -1},
      {"007", 7, 7},
      {"-0", 0, 0},
      {"1e-4", 1e-4, kRefused},
      {"1E-4", 1e-4, kRefused},
      {"1e3", 1000, 1000},
      {"1e+3", 1000, 1000},
      {"1.5e1", 15, 15},
      {"1.0", 1, 1},
      {"2.5", 2.5, kRefused},
      {".1", 0.1, kRefused},
      {"1.", 1, 1},
      {"-.5", -0.5, kRefused},
      {"9007199254740993", 9007199254740992.0, 9007199254740993},
      {"9223372036854775807", 9223372036854775808.0, 9223372036854775807},
      {"9223372036854775808", 9223372036854775808.0, kRefused},
      {"1e16", 1e16, kRefused},
      {"1e300", 1e300, kRefused},
      {"1e999", kRefused, kRefused},
      {"1e-999", kRefused, kRefused},
      {"0.1abc", kRefused, kRefused},
      {"abc", kRefused, kRefused},
      {"", kRefused, kRefused},
      {" 1", kRefused, kRefused},
      {"1 ", kRefused, kRefused},
      {"1\n", kRefused, kRefused},
      {"1,5", kRefused, kRefused},
      {"1_000", kRefused, kRefused},
      {"0x10", kRefused, kRefused},
      {"+1", kRefused, kRefused},
      {"--1", kRefused, kRefused},
      {"1e", kRefused, kRefused},
      {"e3", kRefused, kRefused},
      {".", kRefused, kRefused},
      {"-", kRefused, kRefused},
      {"nan", kRefused, kRefused},
      {"inf", kRefused, kRefused},
      {"-infinity", kRefused, kRefused},
      {"true", kRefused, kRefused},
      {"10%", kRefused, kRefused},
      {"1f", kRefused, kRefused},
      {"3/4", kRefused, kRefused},
  };
  for (const NumberCase& c : cases) {
    INFO("'" << c.text << "'");
    CHECK(parsed<double>("optimizer.lr", c.text) == c.number);
    CHECK(parsed<int64_t>("train.seed", c.text) == c.integer);
  }
}

TEST_CASE("a boolean is true or false and nothing else") {
  CHECK(parsed<bool>("data.shuffle", "true") == true);
  CHECK(parsed<bool>("data.shuffle", "false") == false);
  for (const char* text : {"", "True", "FALSE", "yes", "no", "on", "off", "0", "1", "t", " true"}) {
    INFO("'" << text << "'");
    CHECK(parsed<bool>("data.shuffle", text) == kRefused);
  }
}

TEST_CASE("a string is taken as it is") {
  CHECK(parsed<std::string>("log.jsonl", "") == "");
  CHECK(parsed<std::string>("log.jsonl", " a,b \"c\" 1e3") == " a,b \"c\" 1e3");
}

TEST_CASE("lists have commas between their items") {
  using Texts = std::vector<std::string>;
  using Integers = std::vector<int64_t>;
  CHECK(parsed<Texts>("data.train", "") == Texts{});
  CHECK(parsed<Texts>("data.train", "a/train-*") == Texts{"a/train-*"});
  CHECK(parsed<Texts>("data.train", "a,b c") == Texts{"a", "b c"});
  CHECK(parsed<Texts>("data.train", "a,,b") == kRefused);
  CHECK(parsed<Texts>("data.train", "a,") == kRefused);
  CHECK(parsed<Texts>("data.train", "{a,b}-*,c{d,e}") == Texts{"{a,b}-*", "c{d,e}"});
  CHECK(parsed<Texts>("data.train", "a{b,c}d},{e,f") == Texts{"a{b,c}d}", "{e", "f"});
  CHECK(parsed<Texts>("data.train", R"(a\,b,\{c,d})") == Texts{R"(a\,b)", R"(\{c)", "d}"});
  CHECK(parsed<Texts>("checkpoint.init_exclude", "{a,b}") == Texts{"{a", "b}"});
  CHECK(parsed<Integers>("model.hidden", "10") == Integers{10});
  CHECK(parsed<Integers>("model.hidden", "10,1e2") == Integers{10, 100});
  CHECK(parsed<Integers>("model.hidden", "10, 20") == kRefused);
  CHECK(parsed<Integers>("model.hidden", "10,") == kRefused);
  using Numbers = std::vector<double>;
  CHECK(parsed<Numbers>("schedule.factors", "") == Numbers{});
  CHECK(parsed<Numbers>("schedule.factors", "0.1,1e-2,3") == Numbers{0.1, 0.01, 3});
  CHECK(parsed<Numbers>("schedule.factors", "0.1,nan") == kRefused);
  CHECK(parsed<Numbers>("schedule.factors", "0.1,") == kRefused);
}

TEST_CASE("a list in TOML's notation has items with commas, and a pattern that begins with a bracket is none") {
  using Texts = std::vector<std::string>;
  CHECK(parsed<Texts>("data.train", R"(["a,b", "c d"])") == Texts{"a,b", "c d"});
  CHECK(parsed<Texts>("data.train", R"([ 'a\b,["c"]', ])") == Texts{R"(a\b,["c"])"});
  CHECK(parsed<Texts>("data.train", "[]") == Texts{});
  CHECK(parsed<Texts>("data.train", R"(["a", 3])") == kRefused);
  CHECK(parsed<Texts>("data.train", "[ab]*,[!c]-?") == Texts{"[ab]*", "[!c]-?"});
  CHECK(parsed<Texts>("data.train", "[]a]*") == Texts{"[]a]*"});
  CHECK(parsed<Texts>("data.train", "[\"a\"]\nseed = 3") == kRefused);
  CHECK(parsed<std::vector<int64_t>>("model.hidden", "[10, 1e2]") == std::vector<int64_t>{10, 100});
  CHECK(parsed<std::vector<int64_t>>("model.hidden", "[10, 0.5]") == kRefused);
  CHECK(parsed<std::vector<double>>("schedule.factors", "[1, 0.1]") == std::vector<double>{1, 0.1});
  const auto parse = [](const std::string& text) {
    return config_error([&] { parse_config_value(key("data.train"), text, "command line"); });
  };
  CHECK_THAT(parse("[\"a,b"), ContainsSubstring("command line: data.train:1: not valid TOML: "));
  CHECK_THAT(parse("[\"a\"," + std::string(100000, '[')), ContainsSubstring("more than 16 brackets are open"));
}

TEST_CASE("ranges say which ends belong to them") {
  const auto check = [](const char* name, ConfigValue value) { check_config_value(key(name), value, "here"); };
  CHECK_NOTHROW(check("model.dropout", 0.0));
  CHECK_NOTHROW(check("model.dropout", 0.999));
  CHECK(config_error([&] { check("model.dropout", 1.0); }) == "here: model.dropout must be in [0, 1), not 1");
  CHECK_NOTHROW(check("schedule.decay_rate", 1.0));
  CHECK(config_error([&] { check("schedule.decay_rate", 0.0); }) ==
        "here: schedule.decay_rate must be in (0, 1], not 0");
  CHECK(config_error([&] { check("train.steps", int64_t{-1}); }) == "here: train.steps must be at least 0, not -1");
}

TEST_CASE("paths become absolute against the directory, words and other keys stay") {
  const auto resolve = [](const char* name, ConfigValue value) {
    return resolve_config_paths(key(name), std::move(value), "/a/b", "here");
  };
  using Texts = std::vector<std::string>;
  CHECK(std::get<Texts>(resolve("data.train", Texts{"x-*", "../c/./y", "/abs/z"})) ==
        Texts{"/a/b/x-*", "/a/c/y", "/abs/z"});
  CHECK(std::get<std::string>(resolve("checkpoint.resume", std::string("latest"))) == "latest");
  CHECK(std::get<std::string>(resolve("checkpoint.resume", std::string("step-1.h5"))) == "/a/b/step-1.h5");
  CHECK(std::get<std::string>(resolve("checkpoint.init_from", std::string())) == "");
  CHECK(std::get<std::string>(resolve("log.jsonl", std::string("m.jsonl"))) == "m.jsonl");
}

TEST_CASE("only what the user wrote is a pattern, not the directory in front of it") {
  const auto resolve = [](const char* name, ConfigValue value) {
    return resolve_config_paths(key(name), std::move(value), "/a/exp[lr=0.1]/{x,~}", "here");
  };
  using Texts = std::vector<std::string>;
  CHECK(std::get<Texts>(resolve("data.train", Texts{"[ab]/t-*", "../u?", "/d[1]/*"})) ==
        Texts{R"(/a/exp\[lr=0.1\]/\{x\,\~\}/[ab]/t-*)", R"(/a/exp\[lr=0.1\]/u?)", "/d[1]/*"});
  CHECK(std::get<std::string>(resolve("checkpoint.init_from", std::string("w.h5"))) == "/a/exp[lr=0.1]/{x,~}/w.h5");
}

TEST_CASE("paths with a tilde or a variable are refused") {
  for (const char* path : {"~/runs", "~other/runs", "$HOME/runs", "/scratch/${USER}/runs"}) {
    INFO(path);
    const std::string message =
        config_error([&] { resolve_config_paths(key("checkpoint.directory"), std::string(path), "/a", "c.toml:3"); });
    CHECK_THAT(message, ContainsSubstring("c.toml:3: checkpoint.directory = '"));
    CHECK_THAT(message, ContainsSubstring("are not expanded here"));
  }
}

TEST_CASE("strings that are not UTF-8 are refused") {
  const auto check = [](const std::string& text) {
    check_config_encoding(key("log.jsonl"), text, "command line");
    check_config_encoding(key("data.train"), std::vector<std::string>{"a", text}, "command line");
  };
  for (const char* good : {"", "a", "\u00fc", "\u20ac", "\ud7ff", "\ue000", "\U0001f600", "\U0010ffff"}) {
    INFO(good);
    CHECK_NOTHROW(check(good));
  }
  for (const char* bad : {"\xff", "\x80", "a\xc3", "\xc0\x80", "\xc3(", "\xe0\x80\x80", "\xed\xa0\x80", "\xe2\x82",
                          "\xe2\x82(", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"}) {
    CHECK_THAT(config_error([&] { check(bad); }), ContainsSubstring("is not UTF-8 text"));
  }
}

TEST_CASE("values are printed as TOML, numbers in their shortest form") {
  CHECK(config_value_toml(true) == "true");
  CHECK(config_value_toml(int64_t{-3}) == "-3");
  CHECK(config_value_toml(4e-5) == "4e-05");
  CHECK(config_value_toml(100.0) == "100.0");
  CHECK(config_value_toml(0.1) == "0.1");
  CHECK(config_value_toml(1e22) == "1e+22");
  CHECK(config_value_toml(std::string("a\\b\"c\n\x7f")) == "\"a\\\\b\\\"c\\u000A\\u007F\"");
  CHECK(config_value_toml(std::vector<std::string>{"a", "b"}) == "[\"a\", \"b\"]");
  CHECK(config_value_toml(std::vector<int64_t>{}) == "[]");
}

TEST_CASE("quotes for messages are short and printable") {
  CHECK(quote_for_message("a\tb\xc2\x9b") == "'a\\x09b\\xc2\\x9b'");
  CHECK(quote_for_message(std::string(1000, 'x')) == "'" + std::string(60, 'x') + "... (1000 bytes)'");
}
