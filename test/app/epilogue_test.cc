#include "app/launcher/epilogue.h"

#include <fmt/format.h>

#include "test/catch.h"

using namespace lockstep;

namespace {

const std::string kRule(74, '-');

// As Open MPI 5.0.7 of Debian 13 has printed it.
std::string epilogue(int code) {
  return fmt::format(
      "{0}\nprterun detected that one or more processes exited with non-zero status,\n"
      "thus causing the job to be terminated. The first process to do so was:\n\n"
      "   Process name: [prterun-vm-14653@1,1]\n   Exit code:    {1}\n{0}\n",
      kRule, code);
}

// In pieces of `size` bytes.
std::string filtered(const std::string& text, size_t size) {
  EpilogueFilter filter;
  std::string passed;
  for (size_t i = 0; i < text.size(); i += size) passed += filter.pass(std::string_view(text).substr(i, size));
  return passed + filter.rest();
}

}  // namespace

TEST_CASE("the epilogue of mpirun is left out where the ranks have said why they ended") {
  const size_t size = GENERATE(1, 7, 100000);
  const std::string before = "warning: something\n" + kRule + "\n", after = "the last line, without an end";
  for (const int code : {2, 3, 4, 5, 6, 75, 130})
    CHECK(filtered(before + epilogue(code) + after, size) == before + after);
  for (const int code : {1, 7, 127, 137, 139}) {
    CHECK(filtered(before + epilogue(code) + after, size) == before + epilogue(code) + after);
  }
}

TEST_CASE("other messages of mpirun, and an epilogue that is cut short, pass as they are") {
  const size_t size = GENERATE(1, 7, 100000);
  const std::string other = kRule +
                            "\nprterun noticed that process rank 1 with PID 14 on node vm exited on\nsignal 9 "
                            "(Killed).\n" +
                            kRule + "\n";
  CHECK(filtered(other + other, size) == other + other);
  CHECK(filtered(other + epilogue(75) + other, size) == other + other);
  const std::string whole = epilogue(75);
  for (const size_t length : {size_t{0}, size_t{30}, size_t{80}, size_t{200}, whole.size() - 2}) {
    CHECK(filtered(whole.substr(0, length), size) == whole.substr(0, length));
  }
}

TEST_CASE("lines pass as soon as they are whole") {
  EpilogueFilter filter;
  CHECK(filter.pass("error: one").empty());
  CHECK(filter.pass(" line\nand ") == "error: one line\n");
  CHECK(filter.pass("another\n" + kRule + "\n") == "and another\n");
  CHECK(filter.pass("not an epilogue\n") == kRule + "\nnot an epilogue\n");
}
