#include "lockstep/train/batch_upload.h"

#include <cstring>

#include "lockstep/backend/deferred_backend.h"
#include "lockstep/data/source/formats.h"
#include "test/catch.h"
#include "test/train/plain_source.h"

using namespace lockstep;

namespace {

struct Bench {
  explicit Bench(std::unique_ptr<Backend> b) : backend(std::move(b)) {}
  LoaderOptions options() const {
    return {.batch_size = 2, .image_size = 8, .augment = Augment::none, .allocate = pinned_memory(*backend)};
  }
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Stream> compute = backend->make_stream();
  PlainSource data{12};
  Loader loader{data, options()};
  BatchUpload upload{*backend, loader.options()};
};

std::unique_ptr<Backend> cpu() { return make_backend("cpu", {.threads = 1}); }

}  // namespace

TEST_CASE("on a CPU kernels read the loader's memory") {
  Bench bench(cpu());
  const Batch batch = bench.upload.next(bench.loader);
  const ExternalInputs placed = bench.upload.place(*bench.compute, batch);
  CHECK(placed.images == batch.images);
  CHECK(placed.labels == batch.labels);
  CHECK(placed.weights == batch.weights);
}

TEST_CASE("sparse batches, ids and values, have fixed addresses on a device as well") {
  const auto source = open_data_source(
      {.format = "synthetic", .labels = {.classes = 2}, .synthetic = {.vocabulary = 50, .max_ids = 7}});
  const auto backend = make_deferred_backend(cpu());
  const auto options = [&](const Backend& of) {
    return LoaderOptions{.batch_size = 3, .max_ids = 7, .vocabulary = 50, .allocate = pinned_memory(of)};
  };
  const auto host = cpu();
  Loader reference(*source, options(*host)), loader(*source, options(*backend));
  BatchUpload upload(*backend, loader.options());
  const auto compute = backend->make_stream();
  const Buffer ids = backend->allocate_pinned(4 * 21 * sizeof(int32_t));
  const Buffer seen = backend->allocate_pinned(4 * 21 * sizeof(float));
  const void* place = nullptr;
  for (size_t i = 0; i < 4; ++i) {
    const ExternalInputs placed = upload.place(*compute, upload.next(loader));
    CHECK(placed.images == nullptr);
    if (place) CHECK(placed.values == place);
    place = placed.values;
    backend->copy(*compute, ids.as<int32_t>() + 21 * i, placed.ids, 21 * sizeof(int32_t));
    backend->copy(*compute, seen.as<float>() + 21 * i, placed.values, 21 * sizeof(float));
  }
  compute->wait();
  for (size_t i = 0; i < 4; ++i) {
    const Batch batch = reference.next();
    CHECK(std::equal(batch.ids, batch.ids + 21, ids.as<int32_t>() + 21 * i));
    CHECK(std::equal(batch.values, batch.values + 21, seen.as<float>() + 21 * i));
  }
}

TEST_CASE("batches of bytes come to a device with the changes that were drawn for them") {
  const auto backend = make_deferred_backend(cpu());
  const auto options = [](const Backend& of) {
    return LoaderOptions{
        .batch_size = 3, .image_size = 7, .augment = Augment::inception, .pixels = true, .allocate = pinned_memory(of)};
  };
  const auto host = cpu();
  const PlainSource data{12};
  Loader reference(data, options(*host)), loader(data, options(*backend));
  BatchUpload upload(*backend, loader.options());
  const auto compute = backend->make_stream();
  constexpr size_t kBytes = 3 * 3 * 7 * 7, kChangeBytes = 3 * sizeof(ImageChanges);
  std::vector<Buffer> pixels, changes;
  for (size_t i = 0; i < 4; ++i) {
    const ExternalInputs placed = upload.place(*compute, upload.next(loader));
    CHECK(placed.images == nullptr);
    backend->copy(*compute, pixels.emplace_back(backend->allocate_pinned(kBytes)).data(), placed.pixels, kBytes);
    backend->copy(*compute, changes.emplace_back(backend->allocate_pinned(kChangeBytes)).data(), placed.changes,
                  kChangeBytes);
  }
  compute->wait();
  for (size_t i = 0; i < 4; ++i) {
    const Batch batch = reference.next();
    CHECK(std::memcmp(batch.pixels, pixels[i].data(), kBytes) == 0);
    CHECK(std::memcmp(batch.changes, changes[i].data(), kChangeBytes) == 0);
    CHECK(batch.changes[0].color.contrast != 1);
  }
}

TEST_CASE("a batch that the upload was not made for is a bug") {
  Bench bench(make_deferred_backend(cpu()));
  BatchUpload sparse(*bench.backend, {.batch_size = 2, .max_ids = 4});
  CHECK_THROWS_WITH(sparse.place(*bench.compute, sparse.next(bench.loader)), ContainsSubstring("of another kind"));
}

TEST_CASE("on a device every batch comes to the same place, whole, though the host runs ahead") {
  Bench bench(make_deferred_backend(cpu()));
  Bench host(cpu());
  const size_t bytes = 2 * 3 * 8 * 8 * sizeof(float);
  std::vector<Buffer> seen;
  std::vector<std::vector<float>> expected;
  const void* place = nullptr;
  for (int i = 0; i < 5; ++i) {
    const Batch reference = host.upload.next(host.loader);
    expected.emplace_back(reference.images, reference.images + bytes / sizeof(float));
    const Batch batch = bench.upload.next(bench.loader);
    const ExternalInputs placed = bench.upload.place(*bench.compute, batch);
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

TEST_CASE("a batch that is used in every step is taken from the loader once and stays where it is") {
  for (const bool on_device : {true, false}) {
    Bench bench(on_device ? make_deferred_backend(cpu()) : cpu());
    BatchUpload upload(*bench.backend, bench.loader.options(), BatchUse::every_step);
    const size_t bytes = 2 * 3 * 8 * 8 * sizeof(float);
    const Batch first = upload.next(bench.loader);
    const std::vector<float> expected(first.images, first.images + bytes / sizeof(float));
    const ExternalInputs place = upload.place(*bench.compute, first);
    for (int step = 0; step < 3; ++step) {
      const Batch again = upload.next(bench.loader);
      CHECK(again.images == first.images);
      CHECK(again.call == first.call);
      CHECK(upload.place(*bench.compute, again).images == place.images);
      const Buffer seen = bench.backend->allocate_pinned(bytes);
      bench.backend->copy(*bench.compute, seen.data(), place.images, bytes);
      bench.compute->wait();
      CHECK(std::vector<float>(seen.as<float>(), seen.as<float>() + expected.size()) == expected);
    }
    CHECK(bench.loader.next().call == first.call + 1);
  }
}
