// One tf.train.Example: as an image and as a sparse sample.
#include "data/source/example.h"

#include "test/fuzz/targets.h"

namespace lockstep::fuzz {

void example(Bytes input) {
  expect_answer([&] {
    const ImageExample image = parse_image_example(input);
    require_law(image.encoded.empty() || (image.encoded.data() >= input.data() &&
                                          image.encoded.data() + image.encoded.size() <= input.data() + input.size()),
                "the picture lies in the record");
  });
  expect_answer([&] {
    Sample sample;
    parse_sparse_example(input, {}, sample);
    require_law(sample.ids.size() == sample.values.size(), "each id has a value");
    require_law(sample.ids.size() <= input.size(), "an id takes a byte or more");
  });
}

}  // namespace lockstep::fuzz
