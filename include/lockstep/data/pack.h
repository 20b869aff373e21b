// Smaller copies of a data set's images, as TFRecord files: for storage that is too slow for the originals.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/image/decode.h"
#include "lockstep/data/source/data_source.h"

namespace lockstep {

struct PackOptions {
  std::string directory;       // is created if it does not exist
  std::string name = "train";  // the files are train-00000-of-00012 and so on
  int64_t short_side = 0;      // pixels; pictures whose short side is longer are shrunk to it
  bool lossless = false;       // PNG instead of JPEG
  int quality = 95;            // of a JPEG, as libjpeg counts: 1 to 100
  int64_t records_per_file = 1024;
  bool shuffle = false;                  // records in a random order, so that blocks of neighbors are of all classes
  uint64_t seed = 1;                     // of that order
  bool apply_orientation = false;        // turn JPEGs as their EXIF block says before they are shrunk
  int64_t max_pixels = kUsualMaxPixels;  // of a picture
  BadRecords bad_records = BadRecords::fail;  // skip: leave them out
  int threads = 1;
};

struct PackSummary {
  int64_t files = 0;
  int64_t records = 0;                // written
  int64_t shrunk = 0;                 // of them; the others keep their bytes
  int64_t bytes = 0;                  // of all files
  std::vector<std::string> left_out;  // bad records: position and reason
};

// Writes every picture of `source` once. Each is decoded, so that damaged ones are found here; a JPEG or PNG that is
// small enough keeps its bytes. Labels are written as stored in the source. A file appears under its name when it is
// complete; each thread builds one in memory. Throws Error(config) if the directory already holds files of this name or
// the samples are not pictures, and Error(data) for a bad record unless bad records are skipped.
PackSummary pack_images(const DataSource& source, const PackOptions& options);

}  // namespace lockstep
