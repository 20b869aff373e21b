#include "lockstep/exchange/safetensors.h"

#include <cstring>

#include "test/catch.h"
#include "test/exchange/weights.h"
#include "test/scratch.h"

using namespace lockstep;
using namespace lockstep::testing;

namespace {

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string with_header(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

Error error_reading(const std::string& bytes) {
  const ScratchDirectory directory;
  write_file(directory / "a.safetensors", bytes);
  const auto error = error_of([&] { read_safetensors(directory / "a.safetensors"); });
  REQUIRE(error);
  CHECK_THAT(error->what(), ContainsSubstring("a.safetensors: "));
  return *error;
}

}  // namespace

TEST_CASE("safetensors come back as they were, sorted by name") {
  const ScratchDirectory directory;
  write_file(directory / "a.safetensors", text_of(encode_safetensors(small_weights(), {{"model", "small"}})));
  const SafetensorsContent content = read_safetensors(directory / "a.safetensors");
  CHECK(content.counters.empty());
  const auto arranged = arrange_by_table(content.tensors, small_graph().parameters, "a");
  const auto expected = small_weights();
  REQUIRE(arranged.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(arranged[i].shape == expected[i].shape);
    CHECK(arranged[i].values == expected[i].values);
  }
}

TEST_CASE("a safetensors file is what the format describes, to the byte") {
  const std::vector<NamedTensor> tensors = {{"b", Shape({1}), {2.0F}}, {"a", Shape({1, 2}), {0.0F, 1.0F}}};
  const std::string header = R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})";
  const std::string file = text_of(encode_safetensors(tensors, {{"k", "v"}}));
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  CHECK(length % 8 == 0);
  CHECK(file.substr(8, header.size()) == header);
  CHECK(file.size() == 8 + length + 12);
  float last = 0;
  std::memcpy(&last, file.data() + file.size() - 4, sizeof last);
  CHECK(last == 2.0F);
}

TEST_CASE("PyTorch's counters are named and left out") {
  const ScratchDirectory directory;
  const std::string header = R"({"bn.num_batches_tracked":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                             R"("w":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})";
  write_file(directory / "a.safetensors", with_header(header, std::string(12, '\0')));
  const SafetensorsContent content = read_safetensors(directory / "a.safetensors");
  CHECK(content.counters == std::vector<std::string>{"bn.num_batches_tracked"});
  CHECK(content.tensors.size() == 1);
}

TEST_CASE("safetensors files that are torn, lie or hold other types are refused") {
  CHECK(error_reading("abc").code() == ExitCode::checkpoint);
  CHECK(error_reading(with_header("{", "").substr(0, 8)).code() == ExitCode::checkpoint);
  CHECK(error_reading(with_header("no json", "")).code() == ExitCode::checkpoint);
  CHECK(error_reading(with_header("[1]", "")).code() == ExitCode::checkpoint);
  CHECK(error_reading(with_header(R"({"w":{"dtype":"F32"}})", "")).code() == ExitCode::checkpoint);
  const auto tensor = [](const std::string& shape, const std::string& offsets, const std::string& type = "F32") {
    return with_header(fmt::format(R"({{"w":{{"dtype":"{}","shape":{},"data_offsets":{}}}}})", type, shape, offsets),
                       "12345678");
  };
  CHECK(error_reading(tensor("[2]", "[0,12]")).code() == ExitCode::checkpoint);
  CHECK(error_reading(tensor("[2]", "[8,0]")).code() == ExitCode::checkpoint);
  CHECK(error_reading(tensor("[-2]", "[0,8]")).code() == ExitCode::checkpoint);
  CHECK(error_reading(tensor("[4611686018427387904,4]", "[0,0]")).code() == ExitCode::checkpoint);
  // Numbers that are none of JSON's whole ones, or beyond 64 bits, are not made into some.
  for (const char* shape :
       {"[46116860180427387904,4]", "[2.0]", "[true,2]", "[\"2\"]", "2", "[18446744073709551615]"}) {
    CHECK(error_reading(tensor(shape, "[0,8]")).code() == ExitCode::checkpoint);
  }
  for (const char* offsets : {"[-0.5,8]", "[0,8.0]", "[-8,8]", "[0]", "8"}) {
    CHECK(error_reading(tensor("[2]", offsets)).code() == ExitCode::checkpoint);
  }
  CHECK(error_reading(tensor("[1,1,1,1,2]", "[0,8]")).code() == ExitCode::config);
  CHECK(error_reading(tensor("[4]", "[0,8]", "F16")).code() == ExitCode::config);
}

TEST_CASE("tensors that overlap or leave bytes to nobody are refused") {
  const auto two = [](const std::string& first, const std::string& second, const std::string& data = "12345678") {
    return std::string(error_reading(with_header(fmt::format(R"({{"a":{{"dtype":"F32","shape":[1],"data_offsets":{}}},)"
                                                             R"("b":{{"dtype":"F32","shape":[1],"data_offsets":{}}}}})",
                                                             first, second),
                                                 data))
                           .what());
  };
  CHECK_THAT(two("[0,4]", "[0,4]"), ContainsSubstring("its tensors overlap at byte 0"));
  CHECK_THAT(two("[0,8]", "[4,8]"), ContainsSubstring("its tensors overlap at byte 4"));
  CHECK_THAT(two("[8,12]", "[0,4]", "123456789012"), ContainsSubstring("its tensors leave a gap at byte 4"));
  CHECK_THAT(two("[0,4]", "[4,8]", "123456789"), ContainsSubstring("1 bytes behind its tensors belong to none"));
  CHECK_THAT(two("[4,8]", "[8,12]", "123456789012"), ContainsSubstring("leave a gap at byte 0"));
}

TEST_CASE("a header that nests, repeats a name or is longer than any model's is refused") {
  CHECK_THAT(error_reading(with_header(R"({"a":)" + std::string(100'000, '['), "")).what(),
             ContainsSubstring("its header nests too deep"));
  CHECK_THAT(error_reading(with_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                                       R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                                       "1234"))
                 .what(),
             ContainsSubstring("its header has a twice"));
  CHECK_THAT(error_reading(with_header(std::string((16 << 20) + 8, ' '), "")).what(),
             ContainsSubstring("its header has 16777224 bytes, 16777216 are the most"));
}

TEST_CASE("names and types in messages cannot act on the terminal and are cut") {
  const auto error = error_of([] { read_safetensors(LOCKSTEP_HOSTILE_DIR "/safetensors_dtype_escape.safetensors"); });
  REQUIRE(error);
  CHECK(error->code() == ExitCode::config);
  CHECK_THAT(error->what(), ContainsSubstring("a is of type \\x1b[2J\\x1b[31m: convert it to float32 first"));
  const std::string header =
      R"({"w":{"dtype":")" + std::string(100'000, 'F') + R"(","shape":[1],"data_offsets":[0,4]}})";
  CHECK(std::string(error_reading(with_header(header, "1234")).what()).size() < 300);
}
