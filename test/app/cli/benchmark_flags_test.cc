#include "app/cli/benchmark_flags.h"

#include <algorithm>

#include "app/cli/command_line.h"
#include "lockstep/base/error.h"
#include "test/catch.h"

using namespace lockstep;

namespace {

std::string value_of(const BenchmarkCommand& command, const std::string& key) {
  const auto found = std::ranges::find(command.overrides, key, &Assignment::name);
  return found == command.overrides.end() ? "(not set)" : found->value;
}

std::string message_of(const std::vector<std::string>& arguments) {
  try {
    parse_benchmark_flags(arguments);
  } catch (const Error& e) {
    CHECK(e.code() == ExitCode::config);
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("flags of a benchmark are told from other command lines") {
  CHECK(is_benchmark({"--model", "inception3"}));
  CHECK(is_benchmark({"--model=inception3", "--device.threads", "1"}));
  CHECK(is_benchmark({"--num_batches", "3"}));
  CHECK(is_benchmark({"--job_name=ps"}));
  CHECK_FALSE(is_benchmark({}));
  CHECK_FALSE(is_benchmark({"--config", "digits", "--batch_size", "3"}));
  CHECK_FALSE(is_benchmark({"--config=digits"}));
  CHECK_FALSE(is_benchmark({"--model.name", "inception_v3"}));
  CHECK_FALSE(is_benchmark({"evaluate", "--model", "inception3"}));
  CHECK_FALSE(is_benchmark({"--version"}));
}

TEST_CASE("a benchmark trains on made-up images and writes nothing") {
  const BenchmarkCommand command = parse_benchmark_flags({"--model", "inception3", "--batch_size", "8"});
  CHECK(command.options.model == "inception3");
  CHECK(command.options.batches == 100);
  CHECK(command.options.warm_up == 10);
  CHECK(command.options.display_every == 10);
  CHECK(command.options.alone == 5);
  CHECK_FALSE(command.options.forward_only);
  CHECK(value_of(command, "model.name") == "inception_v3");
  CHECK(value_of(command, "model.classes") == "1001");
  CHECK(value_of(command, "train.batch_size") == "8");
  CHECK(value_of(command, "train.steps") == "110");
  CHECK(value_of(command, "data.format") == "synthetic");
  CHECK(value_of(command, "checkpoint.every_seconds") == "0");
  CHECK(value_of(command, "log.jsonl").empty());
  CHECK_NOTHROW(load_config({.overrides = command.overrides}));
}

TEST_CASE("each model of a benchmark makes a valid configuration") {
  for (const char* model : {"inception3", "inception_v3", "resnet18", "resnet50", "resnet50_v1.5", "resnet101",
                            "resnet152_v1.5", "cifar10_cnn"}) {
    INFO(model);
    CHECK_NOTHROW(load_config({.overrides = parse_benchmark_flags({"--model", model}).overrides}));
  }
}

TEST_CASE("flags are written as their users write them") {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--model=resnet50", "--forward_only", "--num_batches=7", "--num_warmup_batches=2"},
        {"-model", "resnet50", "--forward_only=True", "--num_batches", "7", "--num_warmup_batches", "2"},
        {"--forward_only", "true", "--model", "resnet50", "--num_batches", "7", "--num_warmup_batches", "2"}}) {
    const BenchmarkCommand command = parse_benchmark_flags(arguments);
    CHECK(command.options.forward_only);
    CHECK(command.options.model == "resnet50");
    CHECK(value_of(command, "train.steps") == "9");
  }
  CHECK_FALSE(parse_benchmark_flags({"--model=resnet50", "--noforward_only"}).options.forward_only);
  CHECK(parse_benchmark_flags({"--model=resnet50"}).options.batch_on_device);
  CHECK_FALSE(parse_benchmark_flags({"--model=resnet50", "--nobatch_on_device"}).options.batch_on_device);
}

TEST_CASE("optimizers of a benchmark have their own momentum") {
  const auto momentum_of = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--model", "cifar10_cnn", "--momentum", "0.8", "--rmsprop_momentum", "0.7"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const BenchmarkCommand command = parse_benchmark_flags(arguments);
    return value_of(command, "optimizer.name") + " " + value_of(command, "optimizer.momentum");
  };
  CHECK(momentum_of({}) == "sgd 0");
  CHECK(momentum_of({"--optimizer", "momentum"}) == "sgd 0.8");
  CHECK(momentum_of({"--optimizer=rmsprop"}) == "rmsprop_tf 0.7");
}

TEST_CASE("keys of the configuration go before what a flag sets") {
  const BenchmarkCommand command =
      parse_benchmark_flags({"--model.image_size=75", "--model", "inception3", "--model.aux_weight", "0"});
  CHECK(value_of(command, "model.image_size") == "75");
  CHECK(value_of(command, "model.aux_weight") == "0");
}

TEST_CASE("flags that mean nothing here are refused by name, with what to use") {
  CHECK_THAT(message_of({"--model=inception3", "--job_name=worker"}),
             ContainsSubstring("--job_name: not for this program") && ContainsSubstring("mpirun -np N"));
  CHECK_THAT(message_of({"--model", "inception3", "--data_dir", "x"}),
             ContainsSubstring("--config RECIPE --data.train"));
  CHECK_THAT(message_of({"--model", "inception3", "--num_gpus", "8"}), ContainsSubstring("mpirun -np N"));
  CHECK_THAT(message_of({"--model", "inception3", "--variable_update", "parameter_server"}),
             ContainsSubstring("always reduced over all ranks"));
  CHECK_THAT(message_of({"--model", "inception3", "--optimizer", "adam"}),
             ContainsSubstring("one of sgd, momentum, rmsprop"));
}

TEST_CASE("everything that is refused is told at once") {
  const std::string message = message_of({"--model=inception3", "--data_dir", "x", "--job_name=worker", "--ps_hosts=a",
                                          "--xla", "--optimizer=adam", "--variable_update=distributed_replicated",
                                          "--num_batchs=3", "--frobnicate", "5"});
  for (const char* part :
       {"--data_dir: not for this program: to train", "--job_name, --ps_hosts: not for this program: there are no",
        "--xla = 'true': only false is possible", "--optimizer = 'adam': one of sgd, momentum, rmsprop is wanted",
        "one of horovod, replicated, distributed_all_reduce, collective_all_reduce is wanted",
        "no flag --num_batchs (did you mean --num_batches?), --frobnicate; it takes --model, --batch_size"}) {
    CHECK_THAT(message, ContainsSubstring(part));
  }
}

TEST_CASE("a flag that does not exist is named without what a terminal acts on, and not at any length") {
  const std::string message = message_of({"--model=inception3", "--x\x1b[2K\x91" + std::string(500, 'y') + "=3"});
  CHECK_THAT(message, ContainsSubstring("no flag --x\\x1b[2K\\x91yyy") && ContainsSubstring("y... (506 bytes)"));
}

TEST_CASE("a switch that says what happens anyway is understood") {
  for (const char* flag :
       {"--noxla", "--noxla_compile", "--nodistortions", "--distortions=False", "--eval=false", "--noeval",
        "--cross_replica_sync", "--cross_replica_sync=True", "--fp16_enable_auto_loss_scale"}) {
    INFO(flag);
    CHECK_NOTHROW(parse_benchmark_flags({flag, "--model=resnet50"}));
  }
  for (const char* flag : {"--xla", "--distortions", "--distortions=True", "--nocross_replica_sync", "--eval"}) {
    INFO(flag);
    CHECK_THAT(message_of({flag, "--model=resnet50"}), ContainsSubstring("is possible: "));
  }
}

TEST_CASE("tf_cnn_benchmarks' Inception-v3 has neither an auxiliary head nor dropout, and Lockstep's has both") {
  const BenchmarkCommand theirs = parse_benchmark_flags({"--model=inception3"});
  CHECK(value_of(theirs, "model.aux_weight") == "0");
  CHECK(value_of(theirs, "model.dropout") == "0");
  CHECK(value_of(theirs, "model.mixed_7c_pool") == "max");
  const BenchmarkCommand ours = parse_benchmark_flags({"--model=inception_v3"});
  CHECK(value_of(ours, "model.aux_weight") == "0.4");
  CHECK(value_of(ours, "model.dropout") == "0.2");
}

TEST_CASE("mistakes in a benchmark's flags are named") {
  CHECK_THAT(message_of({"--num_batches", "3"}), ContainsSubstring("needs --model: one of inception3"));
  CHECK_THAT(message_of({"--model", "trivial"}), ContainsSubstring("--model = 'trivial'"));
  CHECK_THAT(message_of({"--model", "inception3", "--num_batchs", "3"}),
             ContainsSubstring("did you mean --num_batches?"));
  CHECK_THAT(message_of({"--model", "inception3", "--num_batches", "many"}),
             ContainsSubstring("--num_batches = 'many'"));
  CHECK_THAT(message_of({"--model", "inception3", "--num_batches", "0"}), ContainsSubstring("1 or more"));
  CHECK_THAT(message_of({"--model", "inception3", "--batch_size"}), ContainsSubstring("--batch_size has no value"));
  CHECK_THAT(message_of({"--model", "inception3", "--model=resnet50"}), ContainsSubstring("--model is given twice"));
  CHECK_THAT(message_of({"--model", "inception3", "now"}), ContainsSubstring("'now' is not expected"));
  CHECK_THAT(message_of({"--model", "inception3", "--forward_only=maybe"}), ContainsSubstring("true or false"));
}

TEST_CASE("the command line hands a benchmark on") {
  const CommandLine line = parse_command_line({"--model", "cifar10_cnn", "--num_batches=4"});
  CHECK(line.command == Command::benchmark);
  CHECK(line.benchmark.batches == 4);
  CHECK_FALSE(line.overrides.empty());
}
