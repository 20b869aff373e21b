#include "data/source/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

using namespace std::string_view_literals;

struct Signature {
  size_t offset;
  std::string_view bytes;
  std::string_view name;
  bool packed = false;
};

// The first matching row counts, so a longer signature comes before one with which it begins.
constexpr Signature kSignatures[] = {
    {0, "version https://git-lfs"sv, "a Git LFS pointer (the file itself was not fetched: run 'git lfs pull')"sv},
    {0, "\xff\xd8\xff"sv, "a JPEG image"sv},
    {0, "\x89PNG\r\n\x1a\n"sv, "a PNG image"sv},
    {0, "GIF8"sv, "a GIF image"sv},
    {0, "BM"sv, "a BMP image"sv},
    {8, "WEBP"sv, "a WebP image"sv},
    {0, "II*"sv, "a TIFF image"sv},
    {0, "MM\0*"sv, "a TIFF image"sv},
    {4, "ftypavif"sv, "an AVIF image"sv},
    {4, "ftypavis"sv, "an AVIF image"sv},
    {4, "ftyphei"sv, "a HEIC image"sv},
    {4, "ftyphev"sv, "a HEIC image"sv},
    {4, "ftypmif1"sv, "a HEIC or AVIF image"sv},
    {4, "ftypmsf1"sv, "a HEIC or AVIF image"sv},
    {0, "\xff\x0a"sv, "a JPEG XL image"sv},
    {4, "JXL \r\n\x87\n"sv, "a JPEG XL image"sv},
    {4, "jP  \r\n\x87\n"sv, "a JPEG 2000 image"sv},
    {0, "\xff\x4f\xff\x51"sv, "a JPEG 2000 image"sv},
    {0, "%PDF"sv, "a PDF file"sv},
    {0, "\x89HDF\r\n\x1a\n"sv, "an HDF5 file"sv},
    {0, "\x93NUMPY"sv, "a NumPy array"sv},
    {0, "\x80\x02"sv, "a Python pickle"sv},
    {0, "\x80\x03"sv, "a Python pickle"sv},
    {0, "\x80\x04"sv, "a Python pickle"sv},
    {0, "\x80\x05"sv, "a Python pickle"sv},
    {0, "\x1f\x8b"sv, "compressed with gzip"sv, true},
    {0, "PK\x03\x04"sv, "a zip archive"sv, true},
    {0, "\xfd\x37zXZ\0"sv, "compressed with xz"sv, true},
    {0, "\x28\xb5\x2f\xfd"sv, "compressed with zstd"sv, true},
    {0, "BZh"sv, "compressed with bzip2"sv, true},
    {257, "ustar"sv, "a tar archive"sv, true},
    {0, "\x78\x01"sv, "compressed with zlib"sv, true},
    {0, "\x78\x5e"sv, "compressed with zlib"sv, true},
    {0, "\x78\x9c"sv, "compressed with zlib"sv, true},
    {0, "\x78\xda"sv, "compressed with zlib"sv, true},
};

const Signature* find_signature(std::string_view text) {
  const auto* found = std::ranges::find_if(kSignatures, [&](const Signature& signature) {
    return text.size() > signature.offset && text.substr(signature.offset).starts_with(signature.bytes);
  });
  return found == std::end(kSignatures) ? nullptr : found;
}

std::string_view as_text(std::span<const std::byte> beginning) {
  return {reinterpret_cast<const char*>(beginning.data()), std::min(beginning.size(), kFileKindBytes)};
}

// Returns whether files of this kind must be unpacked.
bool is_packed(std::span<const std::byte> beginning) {
  const Signature* signature = find_signature(as_text(beginning));
  return signature != nullptr && signature->packed;
}

}  // namespace

std::string_view name_file_kind(std::span<const std::byte> beginning) {
  const std::string_view text = as_text(beginning);
  if (text.empty()) return "empty"sv;
  if (const Signature* signature = find_signature(text)) return signature->name;
  const size_t begin = text.find_first_not_of(" \t\r\n\xef\xbb\xbf"sv);
  if (begin != std::string_view::npos && text[begin] == '<') return "an HTML or XML page"sv;
  return {};
}

std::string describe_other_kind(const InputFile& file, std::string_view wanted) {
  std::array<std::byte, kFileKindBytes> bytes = {};
  const auto beginning =
      std::span(bytes).first(static_cast<size_t>(std::min<int64_t>(file.size_bytes(), std::ssize(bytes))));
  file.read(0, beginning);
  const std::string_view kind = name_file_kind(beginning);
  if (kind.empty() || kind == wanted) return {};
  if (is_packed(beginning)) return fmt::format("the file is {}; unpack it first", kind);
  return fmt::format("the file is {}, where {} is needed", kind, wanted);
}

}  // namespace lockstep
