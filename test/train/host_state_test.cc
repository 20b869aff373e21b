#include "lockstep/train/host_state.h"

#include "test/catch.h"
#include "test/train/small_run.h"

using namespace lockstep;

namespace {

Config config_on(bool device) {
  Config config = small_config();
  config.device.deferred = device;
  config.ema.decay = 0.9;
  return config;
}

}  // namespace

TEST_CASE("where the host can read the arenas it gets themselves, else a copy, to and from which values move") {
  const bool device = GENERATE(false, true);
  const SmallRun run(config_on(device));
  run.fill(1);
  const HostState host(run.model);
  CHECK((host.arenas().parameters.data() == run.model.state().parameters.data()) == !device);
  host.download();
  const auto expected = run.values();
  host.parameter(2)[1] = 77;
  CHECK((run.values() == expected) == device);
  host.upload();
  CHECK(run.model.parameter(2)[1] == 77);
  host.parameter(0, Weights::average)[0] = 5;
  host.upload();
  CHECK(run.model.parameter(0, Weights::average)[0] == 5);
}

TEST_CASE("a snapshot holds the state of its moment, though training goes on before it arrives") {
  const SmallRun run(config_on(true));
  const Buffer zeros = run.backend->allocate_pinned(run.model.state().parameters.bytes());
  Snapshot snapshot(run.model);
  for (const float value : {3.0F, 4.0F}) {
    run.fill(value);
    const std::vector<float> expected(run.model.parameter(0).begin(), run.model.parameter(0).end());
    snapshot.take(*run.stream);
    run.backend->copy(*run.stream, run.model.state().parameters.data(), zeros.data(), zeros.bytes());
    run.stream->wait();
    snapshot.wait();
    CHECK(snapshot.ready());
    const std::span<float> saved = run.model.parameter_in(snapshot.arenas(), 0, Weights::raw);
    CHECK(std::vector<float>(saved.begin(), saved.end()) == expected);
  }
}

TEST_CASE("a state that the host can read needs no snapshot") {
  const SmallRun run(config_on(false));
  CHECK_THROWS_WITH(Snapshot(run.model), ContainsSubstring("memory that the host can read"));
}
