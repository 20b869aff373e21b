// Finds where the values of a data set are: in its file, in other data sets (its sources), or in raw external files.
#include "io/hdf5_virtual.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "lockstep/base/printable.h"

namespace lockstep::hdf5 {
namespace {

// Returns the text that get(buffer, size) writes into its buffer; like many functions of the library, it returns the
// length of the whole text.
template <class Get>
std::string text_of(const Get& get, const Context& context, std::string_view what) {
  const ssize_t length = check(get(nullptr, 0), context, what);
  std::string text(static_cast<size_t>(length) + 1, '\0');
  check(get(text.data(), text.size()), context, what);
  text.pop_back();
  return text;
}

// The name of a source in a virtual data set.
struct Named {
  std::string file;  // ".": that of the virtual data set
  std::string dataset;
  auto operator<=>(const Named&) const = default;
};

std::set<Named> sources_of(hid_t creation, const Context& context) {
  size_t count = 0;
  check(H5Pget_virtual_count(creation, &count), context, "count the sources");
  std::set<Named> sources;
  for (size_t i = 0; i < count; ++i) {
    const auto file = [&](char* to, size_t size) { return H5Pget_virtual_filename(creation, i, to, size); };
    const auto dataset = [&](char* to, size_t size) { return H5Pget_virtual_dsetname(creation, i, to, size); };
    sources.insert({text_of(file, context, "get a source"), text_of(dataset, context, "get a source")});
  }
  return sources;
}

// Expands a name as the library does: "%b" is the number of a block, "%%" a percent sign. Returns whether the name
// contains a number.
bool expand(std::string& name, int64_t block) {
  bool numbered = false;
  for (size_t at = 0; (at = name.find('%', at)) != std::string::npos && at + 1 < name.size();) {
    const bool number = name[at + 1] == 'b';
    const std::string by = number ? std::to_string(block) : "%";
    if (number || name[at + 1] == '%') name.replace(at, 2, by);
    at += by.size();
    numbered |= number;
  }
  return numbered;
}

void refuse_external_files(hid_t creation, const Context& context) {
  if (H5Pget_external_count(creation) < 1) return;
  std::string name(kPrintedBytes, '\0');
  check(H5Pget_external(creation, 0, name.size() - 1, name.data(), nullptr, nullptr), context, "get the other file");
  fail(context.blame, "{}: keeps its values in another file, {}, which is refused; copy them into this one",
       context.where, printable(name.c_str()));
}

}  // namespace

void SourceWalk::require_values(hid_t dataset, hid_t creation, const Context& context) {
  refuse_external_files(creation, context);
  if (H5Pget_layout(creation) != H5D_VIRTUAL) return;
  if (stands_alone_) {
    fail(context.blame, "{}: is a virtual data set, whose values lie elsewhere; copy them into this file",
         context.where);
  }
  const std::string parent =
      text_of([&](char* to, size_t size) { return H5Fget_name(dataset, to, size); }, context, "get the file's name");
  for (const Named& named : sources_of(creation, context)) {
    for (int64_t block = 0;; ++block) {
      Named source = named;
      const bool numbered = expand(source.file, block) | expand(source.dataset, block);
      // The first block that does not exist ends the list.
      if (!require_source(parent, {source.file, source.dataset}, numbered, context) || !numbered) break;
    }
  }
}

bool SourceWalk::require_source(const std::string& parent, const Source& named, bool optional, const Context& context) {
  const auto& [file, dataset] = named;
  if (file != "." && is_special(parent, file)) {
    fail(context.blame, "{}: takes values from {}, which is not a regular file", context.where, printable(file));
  }
  if (std::getenv("HDF5_VDS_PREFIX") != nullptr)
    return false;  // with it, the library may open other files than those found here
  const auto paths = file == "." ? std::vector{parent} : paths_of(parent, file);
  const auto found =
      std::ranges::find_if(paths, [](const std::string& path) { return ::access(path.c_str(), R_OK) == 0; });
  if (found == paths.end() && optional) return false;
  if (found == paths.end()) {
    fail(context.blame, "{}: takes values from {}, which does not exist or cannot be read; put it beside {}",
         context.where, printable(file), printable(parent));
  }
  const std::string path = dataset.starts_with('/') ? dataset : "/" + dataset;
  const Hdf5File opened = Hdf5File::open(*found, context.blame);
  if (opened.exists(path)) {
    std::error_code ignored;
    enter({std::filesystem::weakly_canonical(*found, ignored).string(), path}, opened, context);
    return true;
  }
  if (optional) return false;
  fail(context.blame, "{}: takes values from {} in {}, which has no such data set", context.where, printable(dataset),
       printable(*found));
}

// A source that was checked at the same or a greater depth is not checked again.
void SourceWalk::enter(const Source& source, const Hdf5File& file, const Context& context) {
  constexpr size_t kMostDepth = 16;
  if (way_.contains(source)) {
    fail(context.blame, "{}: takes values from {} in {}, which takes its own from there again", context.where,
         printable(source.second), printable(source.first));
  }
  if (way_.size() == kMostDepth) {
    fail(context.blame, "{}: virtual data sets take values from others more than {} deep", context.where, kMostDepth);
  }
  const auto whole = whole_at_.find(source);
  if (whole != whole_at_.end() && whole->second >= way_.size()) return;
  way_.insert(source);
  file.dataset(source.second, *this);
  way_.erase(source);
  whole_at_[source] = way_.size();
}

}  // namespace lockstep::hdf5
