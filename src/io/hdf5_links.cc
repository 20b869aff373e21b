// Which parts of other files an HDF5 file may bring in.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>
#include <vector>

#include "io/hdf5_internal.h"
#include "lockstep/base/printable.h"
#include "lockstep/io/file.h"

namespace lockstep::hdf5 {
namespace {

bool exists_and_is_special(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
}

// Where the library looks for `named`, which the file `parent` refers to: beside the parent, which may be a symbolic
// link, and at the name itself. Of an absolute name, only the last part is looked for beside the parent.
std::vector<std::string> candidates(const std::string& parent, const std::string& named) {
  std::error_code ignored;
  const std::string resolved = std::filesystem::weakly_canonical(parent, ignored).string();
  const std::string beside = parent_directory(parent) + "/", beside_resolved = parent_directory(resolved) + "/";
  if (!named.starts_with('/')) return {beside + named, named, beside_resolved + named};
  const std::string last = named.substr(named.rfind('/') + 1);
  return {named, beside + last, beside_resolved + last};
}

// Whether `named` is a pipe, a device or a directory: the library would wait for it or read without end.
bool is_special(const std::string& parent, const std::string& named) {
  return std::ranges::any_of(candidates(parent, named), exists_and_is_special);
}

// What get(buffer, size), a function of the library that returns the whole length, puts into its buffer.
template <class Get>
std::string text_of(const Get& get, const Context& context, std::string_view what) {
  const ssize_t length = check(get(nullptr, 0), context, what);
  std::string text(static_cast<size_t>(length) + 1, '\0');
  check(get(text.data(), text.size()), context, what);
  text.pop_back();
  return text;
}

// What a virtual data set names as a source of values.
struct Source {
  std::string file;  // ".": that of the virtual data set
  std::string dataset;
  auto operator<=>(const Source&) const = default;
};

std::set<Source> sources_of(hid_t creation, const Context& context) {
  size_t count = 0;
  check(H5Pget_virtual_count(creation, &count), context, "count the sources");
  std::set<Source> sources;
  for (size_t i = 0; i < count; ++i) {
    const auto file = [&](char* to, size_t size) { return H5Pget_virtual_filename(creation, i, to, size); };
    const auto dataset = [&](char* to, size_t size) { return H5Pget_virtual_dsetname(creation, i, to, size); };
    sources.insert({text_of(file, context, "get a source"), text_of(dataset, context, "get a source")});
  }
  return sources;
}

// Throws unless the library finds the source: it takes fill values in place of one that it does not find or cannot
// open. Where the user has it look elsewhere, or sources are numbered by a pattern, this is not known.
void require_present(const std::string& parent, const Source& source, const Context& context) {
  const bool pattern = (source.file + source.dataset).find('%') != std::string::npos;
  if (pattern || std::getenv("HDF5_VDS_PREFIX") != nullptr) return;
  const auto paths = source.file == "." ? std::vector{parent} : candidates(parent, source.file);
  const auto found =
      std::ranges::find_if(paths, [](const std::string& path) { return ::access(path.c_str(), R_OK) == 0; });
  if (found == paths.end()) {
    fail(context.blame, "{}: takes values from {}, which does not exist or cannot be read; put it beside {}",
         context.where, printable(source.file), printable(parent));
  }
  const std::string path = source.dataset.starts_with('/') ? source.dataset : "/" + source.dataset;
  if (Hdf5File::open(*found, context.blame).exists(path)) return;
  fail(context.blame, "{}: takes values from {} in {}, which has no such data set", context.where,
       printable(source.dataset), printable(*found));
}

constexpr int kMostSoftLinks = 16;  // as many as the library follows

// The text or the parts that a link of the user's kinds holds.
std::vector<char> value_of(hid_t location, const std::string& path, size_t bytes, const LinkAccess& access,
                           const Context& context) {
  std::vector<char> value(bytes + 1, '\0');
  access.check(H5Lget_val(location, path.c_str(), value.data(), bytes, access.list()), context,
               "read the link " + path);
  return value;
}

void require_sound_links(hid_t location, const std::string& path, const LinkAccess& access, const Context& context,
                         int soft_links) {
  // Part by part, so that what lies on the way has been found sound.
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    H5L_info_t info = {};
    if (part == "/" || H5Lget_info(location, part.c_str(), &info, access.list()) < 0) {
      H5Eclear2(H5E_DEFAULT);  // no such link: opening it reports that
      return;
    }
    if (info.type == H5L_TYPE_EXTERNAL) {
      const std::vector<char> value = value_of(location, part, info.u.val_size, access, context);
      unsigned flags = 0;
      const char* file = nullptr;
      const char* object = nullptr;
      access.check(H5Lunpack_elink_val(value.data(), info.u.val_size, &flags, &file, &object), context,
                   "read the external link " + part);
    } else if (info.type == H5L_TYPE_SOFT && soft_links < kMostSoftLinks) {
      std::string target = value_of(location, part, info.u.val_size, access, context).data();
      if (!target.starts_with('/')) target.insert(0, part, 0, part.rfind('/') + 1);
      require_sound_links(location, target, access, context, soft_links + 1);
    }
    if (slash == std::string::npos) return;
  }
}

}  // namespace

void require_sound_links(hid_t location, const std::string& path, const LinkAccess& access, const Context& context) {
  require_sound_links(location, path, access, context, 0);
}

LinkAccess::LinkAccess(bool stands_alone, const Context& context)
    : stands_alone_(stands_alone), list_(check_id(H5Pcreate(H5P_LINK_ACCESS), context, "make an access list")) {
  hdf5::check(H5Pset_elink_cb(list_.get(), follow, this), context, "watch for external links");
}

herr_t LinkAccess::follow(const char* parent, const char*, const char* child, const char* object, unsigned*, hid_t,
                          void* self) {
  auto& way = *static_cast<LinkAccess*>(self);
  way.left_file_ = true;
  const std::string target = fmt::format("{} in {}", printable(object), printable(child));
  if (way.stands_alone_) {
    way.refusal_ = fmt::format("it is a link to {}; copy what it links to into this file", target);
  } else if (is_special(parent, child)) {
    way.refusal_ = fmt::format("it is a link to {}, which is not a regular file", target);
  }
  return way.refusal_.empty() ? 0 : -1;
}

void LinkAccess::fail_refused(const Context& context, const std::string& what) const {
  H5Eclear2(H5E_DEFAULT);
  fail(context.blame, "{}: cannot {}: {}", context.where, what, refusal_);
}

void require_own_values(hid_t dataset, hid_t creation, bool stands_alone, const Context& context) {
  const int external = H5Pget_external_count(creation);
  if (external > 0) {
    std::string name(kPrintedBytes, '\0');
    check(H5Pget_external(creation, 0, name.size() - 1, name.data(), nullptr, nullptr), context, "get the other file");
    fail(context.blame, "{}: keeps its values in another file, {}, which is refused; copy them into this one",
         context.where, printable(name.c_str()));
  }
  if (H5Pget_layout(creation) != H5D_VIRTUAL) return;
  if (stands_alone) {
    fail(context.blame, "{}: is a virtual data set, whose values lie elsewhere; copy them into this file",
         context.where);
  }
  const std::string parent =
      text_of([&](char* to, size_t size) { return H5Fget_name(dataset, to, size); }, context, "get the file's name");
  for (const Source& source : sources_of(creation, context)) {
    if (source.file != "." && is_special(parent, source.file)) {
      fail(context.blame, "{}: takes values from {}, which is not a regular file", context.where,
           printable(source.file));
    }
    require_present(parent, source, context);
  }
}

}  // namespace lockstep::hdf5
