#include "lockstep/train/batch_upload.h"

#include "lockstep/backend/deferred_backend.h"
#include "test/catch.h"
#include "test/train/plain_source.h"

using namespace lockstep;

namespace {

constexpr BatchShape kShape{.samples = 2, .image_size = 8};

struct Bench {
  explicit Bench(std::unique_ptr<Backend> b) : backend(std::move(b)) {}
  LoaderOptions options() const {
    return {.batch_size = 2, .image_size = 8, .augment = Augment::none, .allocate = pinned_memory(*backend)};
  }
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Stream> compute = backend->make_stream();
  PlainSource data{12};
  Loader loader{data, options()};
  BatchUpload upload{*backend, kShape};
};

std::unique_ptr<Backend> cpu() { return make_backend("cpu", {.threads = 1}); }

}  // namespace

TEST_CASE("on a CPU kernels read the loader's memory") {
  Bench bench(cpu());
  const Batch batch = bench.upload.next(bench.loader);
  const PlacedBatch placed = bench.upload.place(*bench.compute, batch);
  CHECK(placed.images == batch.images);
  CHECK(placed.labels == batch.labels);
  CHECK(placed.weights == batch.weights);
}

TEST_CASE("on a device every batch comes to the same place, whole, though the host runs ahead") {
  Bench bench(make_deferred_backend(cpu()));
  Bench host(cpu());
  const size_t bytes = 2 * 3 * 8 * 8 * sizeof(float);
  std::vector<Buffer> seen;
  std::vector<std::vector<float>> expected;
  const float* place = nullptr;
  for (int i = 0; i < 5; ++i) {
    const Batch reference = host.upload.next(host.loader);
    expected.emplace_back(reference.images, reference.images + bytes / sizeof(float));
    const Batch batch = bench.upload.next(bench.loader);
    const PlacedBatch placed = bench.upload.place(*bench.compute, batch);
    if (place) CHECK(placed.images == place);
    place = placed.images;
    seen.push_back(bench.backend->allocate_pinned(bytes));
    bench.backend->copy(*bench.compute, seen.back().data(), placed.images, bytes);
  }
  bench.compute->wait();
  for (size_t i = 0; i < seen.size(); ++i) {
    CHECK(std::vector<float>(seen[i].as<float>(), seen[i].as<float>() + expected[i].size()) == expected[i]);
  }
}
