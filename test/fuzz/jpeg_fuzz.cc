// A JPEG file.
#include "test/fuzz/pictures.h"
#include "test/fuzz/targets.h"

namespace lockstep::fuzz {

void jpeg(Bytes input) {
  if (input.size() > 1 && input[0] == std::byte{0xff}) decode_both_ways(input);
}

}  // namespace lockstep::fuzz
