#include "report.h"

#include <cstdio>

#include "symbols.h"

namespace kwemu {
namespace {

constexpr const char* kKindNames[] = {"OUT_OF_BOUNDS", "MISALIGNED",         "UNINITIALISED_READ",
                                      "RACE",          "BARRIER_DIVERGENCE", "DEADLOCK",
                                      "UNSUPPORTED"};

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      result += code;
    } else {
      result += c;
    }
  }
  return result + "\"";
}

std::string triple(const dim3& v) {
  return "[" + std::to_string(v.x) + ", " + std::to_string(v.y) + ", " + std::to_string(v.z) + "]";
}

SourceLine resolve(const Place& place, const SymbolTable& symbols) {
  if (place.file != nullptr) return {place.file, place.line};
  return place.code != nullptr ? symbols.find(place.code) : SourceLine{};
}

std::string to_json(const Finding& finding, const SourceLine& line, const SourceLine& other) {
  std::string text = "{\"kind\": " + quoted(kKindNames[static_cast<int>(finding.kind)]);
  text += ", \"kernel\": " + quoted(finding.kernel);
  text += ", \"file\": " + quoted(line.file) + ", \"line\": " + std::to_string(line.line);
  text += ", \"block\": " + triple(finding.block) + ", \"thread\": " + triple(finding.thread);
  const bool both = finding.other_thread.has_value();
  text += ", \"other_block\": " + (both ? triple(*finding.other_block) : std::string("null"));
  text += ", \"other\": " + (both ? triple(*finding.other_thread) : std::string("null"));
  text +=
      ", \"other_line\": " + (other.line > 0 ? std::to_string(other.line) : std::string("null"));
  text += ", \"count\": " + std::to_string(finding.count);
  return text + ", \"message\": " + quoted(finding.message) + "}";
}

}  // namespace

Report& Report::instance() {
  static Report* const report = new Report;
  return *report;
}

void Report::add(Finding finding) {
  const std::lock_guard lock(mutex_);
  const Place& place = finding.place;
  const Key key{finding.kind, finding.kernel, place.file, place.line, place.code};
  const auto [entry, is_new] = index_.try_emplace(key, findings_.size());
  if (!is_new) {
    if (entry->second < findings_.size()) ++findings_[entry->second].count;
  } else if (findings_.size() < limit_) {
    findings_.push_back(std::move(finding));
  } else {
    entry->second = limit_;  // known, and dropped
  }
}

bool Report::repeats(FindingKind kind, const char* kernel, const Place& place) {
  const std::lock_guard lock(mutex_);
  const auto found = index_.find({kind, kernel, place.file, place.line, place.code});
  if (found == index_.end()) return false;
  if (found->second < findings_.size()) ++findings_[found->second].count;
  return true;
}

void Report::clear() {
  const std::lock_guard lock(mutex_);
  index_.clear();
  findings_.clear();
}

std::string Report::json() {
  const std::lock_guard lock(mutex_);
  std::vector<const void*> codes;
  for (const Finding& finding : findings_) {
    if (finding.place.code != nullptr) codes.push_back(finding.place.code);
    if (finding.other_place.code != nullptr) codes.push_back(finding.other_place.code);
  }
  const SymbolTable symbols(codes);
  // Inlining gives one line several addresses: one finding per line is what a reader wants.
  std::map<std::tuple<int, std::string, std::string, int>, size_t> seen;
  std::vector<std::pair<Finding, SourceLine>> merged;
  for (const Finding& finding : findings_) {
    const SourceLine line = resolve(finding.place, symbols);
    const auto [entry, is_new] = seen.try_emplace(
        {static_cast<int>(finding.kind), finding.kernel, line.file, line.line}, merged.size());
    if (is_new) {
      merged.emplace_back(finding, line);
    } else {
      merged[entry->second].first.count += finding.count;
    }
  }
  std::string text = "[";
  for (const auto& [finding, line] : merged) {
    if (text.size() > 1) text += ",\n ";
    text += to_json(finding, line, resolve(finding.other_place, symbols));
  }
  return text + "]";
}

}  // namespace kwemu
