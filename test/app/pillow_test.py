"""Resizing and evaluation crops against Pillow, on which torchvision's are built.

Pillow rounds to whole numbers after each of its two passes, Lockstep not at all: values differ by at most 1 of 255.
"""

import os
import subprocess
import sys

import kit
import numpy

try:
    from PIL import Image
except ImportError:
    print("Pillow is not installed")
    sys.exit(77)

TOOL = os.environ["LOCKSTEP_TRANSFORM_TOOL"]
SIZES = [(500, 375), (375, 500), (1000, 800), (425, 500), (100, 80), (299, 299), (300, 299), (333, 1024), (64, 9)]
TOLERANCE = 1.001


def resized(image, width, height):
    return image.resize((width, height), Image.BILINEAR)


def torchvision_evaluation(image, size):
    """Resize(8/7 size) and CenterCrop(size) as torchvision.transforms count."""
    width, height = image.size
    short = round(size * 8 / 7)
    if width <= height:
        image = resized(image, short, int(short * height / width))
    else:
        image = resized(image, int(short * width / height), short)
    left, top = (int(round((side - size) / 2)) for side in image.size)
    return image.crop((left, top, left + size, top + size))


def inception_evaluation(image, size):
    """tf.image.central_crop(0.875), then a resize with antialiasing, whose triangle is Pillow's."""
    width, height = image.size
    left, top = (int((side - side * 0.875) / 2) for side in image.size)
    return resized(image.crop((left, top, width - left, height - top)), size, size)


class Pillow(kit.TestCase):
    def compare(self, augment, expected, sizes=(299, 75)):
        random = numpy.random.default_rng(1)
        for width, height in SIZES:
            noise = random.integers(0, 256, (height, width, 3), dtype=numpy.uint8)
            image = Image.fromarray(noise)
            image.save(self.path("image.png"))
            for size in sizes:
                with self.subTest(image=(width, height), size=size):
                    output = subprocess.run([TOOL, self.path("image.png"), augment, str(size)], check=True,
                                            capture_output=True).stdout
                    ours = numpy.frombuffer(output, numpy.float32).reshape(3, size, size)
                    theirs = numpy.asarray(expected(image, size), numpy.float32).transpose(2, 0, 1)
                    self.assertLess(numpy.abs(ours - theirs).max(), TOLERANCE)

    def test_the_whole_image_resized(self):
        self.compare("none", lambda image, size: resized(image, size, size))

    def test_the_evaluation_crop_of_torchvision(self):
        self.compare("torchvision", torchvision_evaluation)

    def test_the_evaluation_crop_of_inception(self):
        self.compare("inception", inception_evaluation)


if __name__ == "__main__":
    kit.main()
