#include <algorithm>

#include "lockstep/backend/backend.h"
#include "lockstep/backend/update.h"
#include "lockstep/base/error.h"
#include "test/catch.h"

using namespace lockstep;

TEST_CASE("every listed backend can be made, and knows its name") {
  CHECK(std::ranges::count(backend_names(), "reference") == 1);
  for (std::string_view name : backend_names()) CHECK(make_backend(name, {.threads = 1})->name() == name);
}

TEST_CASE("an unknown backend is a configuration error that lists the known ones") {
  try {
    make_backend("abacus", {});
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::config);
    CHECK_THAT(error.what(), ContainsSubstring("abacus") && ContainsSubstring("reference"));
  }
}

TEST_CASE("buffers are aligned, zeroed, and may be moved") {
  for (std::string_view name : backend_names()) {
    const auto backend = make_backend(name, {});
    Buffer buffer = backend->allocate(100'001);
    CHECK(buffer.bytes() == 100'001);
    CHECK(reinterpret_cast<uintptr_t>(buffer.data()) % 64 == 0);
    CHECK(std::all_of(buffer.as<char>(), buffer.as<char>() + buffer.bytes(), [](char c) { return c == 0; }));
    void* const data = buffer.data();
    const Buffer other = std::move(buffer);
    CHECK(other.data() == data);
    CHECK(buffer.data() == nullptr);
    CHECK(backend->allocate(0).data() == nullptr);
  }
}

TEST_CASE("running out of memory is an error that says how much was asked for") {
  const auto backend = make_backend("reference", {});
  CHECK_THROWS_WITH(backend->allocate(size_t{1} << 60), ContainsSubstring("1152921504606846976 bytes"));
}

TEST_CASE("the reference backend refuses element types and formats it does not have") {
  const auto backend = make_backend("reference", {});
  const TensorDesc whole{{4}, DType::i32, {}};
  CHECK_THROWS_WITH(backend->compile(Relu{}, {&whole, 1}, {&whole, 1}), ContainsSubstring("not in i32"));
  CHECK_THROWS_WITH(backend->compile({DType::u8, SumOfSquares{1}}), ContainsSubstring("not in u8"));
  const TensorDesc blocked{{1, 16, 2, 2}, DType::f32, Format::blocked(16)}, plain{{1, 16, 2, 2}, DType::f32, {}};
  CHECK_THROWS_WITH(backend->compile(Relu{}, {&blocked, 1}, {&plain, 1}), ContainsSubstring("plain format only"));
}
