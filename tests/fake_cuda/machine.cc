#include "machine.h"

#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace machine {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kDefaultMemory = std::size_t{8} << 30;

long setting(const char* name, long otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtol(value, nullptr, 10);
}

std::vector<Card> visible_cards;
bool is_started = false;
std::array<bool, kMostCards> contexts{};
std::array<std::size_t, kMostCards> taken{};
std::array<std::unique_ptr<Stream>, kMostCards> default_streams;
std::map<Stream*, std::unique_ptr<Stream>> streams;
std::map<const char*, Allocation> allocations;
std::map<std::string, long> counts;
thread_local int current_card = 0;

std::string uuid_of(const char* prefix, int number) {
  char text[64];
  std::snprintf(text, sizeof text, "%s11111111-1111-1111-1111-1111111111%02x", prefix, number);
  return text;
}

// The cards' numbers in CUDA's order: the fastest first, unless CUDA is asked for the driver's.
std::vector<int> numbers(int cards) {
  std::vector<int> found;
  const char* order = std::getenv("CUDA_DEVICE_ORDER");
  const bool as_the_driver = order != nullptr && std::string(order) == "PCI_BUS_ID";
  const int fastest = as_the_driver ? -1 : fastest_card();
  if (fastest >= 0 && fastest < cards) found.push_back(fastest);
  for (int i = 0; i < cards; i++) {
    if (i != fastest) found.push_back(i);
  }
  return found;
}

// A card that is visible as a whole or, in MIG mode, by its first slice.
Card seen(int number) {
  const bool slice = setting("FAKE_CUDA_MIG", 0) != 0;
  return {uuid_of(slice ? "MIG-" : "GPU-", number), number, slice};
}

// The card, or slice, that one entry of CUDA_VISIBLE_DEVICES names; false where it names none.
bool named(const std::string& entry, const std::vector<int>& cards, Card* found) {
  const bool is_index = !entry.empty() && entry.find_first_of("+0123456789") == 0;
  const std::size_t index = is_index ? std::strtoul(entry.c_str(), nullptr, 10) : cards.size();  // "1a" is 1
  for (std::size_t place = 0; place < cards.size(); place++) {
    const int i = cards[place];
    if (place == index || (entry.rfind("GPU-", 0) == 0 && uuid_of("GPU-", i).rfind(entry, 0) == 0)) {
      *found = seen(i);
      return true;
    }
    if (entry == uuid_of("MIG-", i)) {
      *found = {entry, i, true};
      return true;
    }
  }
  return false;
}

// As CUDA reads it: from the left, up to the first entry that names no card; one named twice shows none at all, and of
// slices a process gets the first.
std::vector<Card> read_visible(const std::vector<int>& cards) {
  std::vector<Card> found;
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  if (value == nullptr) {
    for (const int number : cards) {
      found.push_back(seen(number));
      if (found.back().slice) break;
    }
    return found;
  }
  std::set<std::string> seen;
  std::string rest = value;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    Card next;
    if (!named(rest.substr(0, comma), cards, &next)) break;
    if (!seen.insert(next.uuid).second) return {};
    found.push_back(next);
    if (next.slice || comma == std::string::npos) break;
    rest = rest.substr(comma + 1);
  }
  return found;
}

bool late() {
  static const bool is_late = std::getenv("FAKE_CUDA_LATE") != nullptr;
  return is_late;
}

}  // namespace

std::recursive_mutex& lock() {
  static std::recursive_mutex mutex;
  return mutex;
}

void Stream::ask(std::function<void()> work) {
  asked_++;
  if (late()) {
    waiting_.push_back(std::move(work));
  } else {
    done_++;
    work();
  }
}

void Stream::work_off(long until) {
  while (done_ < until && !waiting_.empty()) {
    const std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    done_++;
    work();
  }
}

void start() {
  if (is_started) return;
  is_started = true;
  visible_cards = read_visible(numbers(static_cast<int>(setting("FAKE_CUDA_GPUS", 4))));
}

bool started() { return is_started; }

int fastest_card() { return static_cast<int>(setting("FAKE_CUDA_FASTEST", -1)); }

int broken() { return static_cast<int>(setting("FAKE_CUDA_BROKEN", 0)); }

int card_count() {
  start();
  return static_cast<int>(visible_cards.size());
}

const Card& card(int index) { return visible_cards.at(index); }

std::size_t card_bytes() {
  static const std::size_t bytes = static_cast<std::size_t>(setting("FAKE_CUDA_MEMORY", kDefaultMemory));
  return bytes;
}

int current() { return current_card; }

void set_current(int index) { current_card = index; }

void make_context(int index) {
  start();
  contexts.at(index) = true;
}

bool has_context(int index) { return index >= 0 && index < kMostCards && contexts[index]; }

std::size_t bytes_taken(int index) { return kContextBytes + taken.at(index); }

void* allocate(std::size_t bytes, Kind kind) {
  make_context(current_card);
  if (kind == Kind::kCard && bytes_taken(current_card) + bytes > card_bytes()) return nullptr;
  const std::size_t whole = (bytes / kPage + 1) * kPage;
  void* made = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return nullptr;
  if (kind == Kind::kCard) taken[current_card] += bytes;
  allocations[static_cast<const char*>(made)] = {bytes, current_card, kind};
  return made;
}

void release(void* address) {
  const auto found = allocations.find(static_cast<const char*>(address));
  if (found == allocations.end()) return;
  const Allocation& freed = found->second;
  if (freed.kind == Kind::kCard) taken[freed.card] -= freed.bytes;
  munmap(address, (freed.bytes / kPage + 1) * kPage);
  allocations.erase(found);
}

void* reserve(std::size_t bytes) {
  void* made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return made == MAP_FAILED ? nullptr : made;
}

void free_reserved(void* address, std::size_t bytes) { munmap(address, bytes); }

bool map(void* address, std::size_t bytes, int card) {
  make_context(card);
  if (bytes_taken(card) + bytes > card_bytes()) return false;
  taken[card] += bytes;
  allocations[static_cast<const char*>(address)] = {bytes, card, Kind::kCard};
  return true;
}

void unmap(void* address) {
  const auto found = allocations.find(static_cast<const char*>(address));
  if (found == allocations.end()) return;
  taken[found->second.card] -= found->second.bytes;
  madvise(address, found->second.bytes, MADV_DONTNEED);
  allocations.erase(found);
}

const Allocation* find(const void* address) {
  const char* place = static_cast<const char*>(address);
  auto found = allocations.upper_bound(place);
  if (found == allocations.begin()) return nullptr;
  --found;
  return place < found->first + found->second.bytes ? &found->second : nullptr;
}

Stream* stream(cudaStream_t handle) {
  const auto found = streams.find(reinterpret_cast<Stream*>(handle));
  if (found != streams.end()) return found->second.get();
  std::unique_ptr<Stream>& ours = default_streams.at(current_card);
  if (ours == nullptr) ours = std::make_unique<Stream>(current_card);
  return ours.get();
}

cudaStream_t make_stream() {
  make_context(current_card);
  auto made = std::make_unique<Stream>(current_card);
  Stream* handle = made.get();
  streams[handle] = std::move(made);
  return reinterpret_cast<cudaStream_t>(handle);
}

void work_off_card(int index) {
  if (default_streams.at(index) != nullptr) default_streams[index]->work_off();
  for (auto& each : streams) {
    if (each.second->card() == index) each.second->work_off();
  }
}

void count(const std::string& what) { counts[what]++; }

}  // namespace machine

// What the tests ask, through ctypes.

EXPORTED const char* fake_cuda_counts() {
  static std::string text;
  text = "{";
  for (const auto& each : machine::counts) {
    text += (text.size() > 1 ? ", \"" : "\"") + each.first + "\": " + std::to_string(each.second);
  }
  return (text += "}").c_str();
}

EXPORTED void fake_cuda_forget() { machine::counts.clear(); }

EXPORTED int fake_cuda_has_context(int card) { return machine::has_context(card); }

EXPORTED int fake_cuda_current() { return machine::current(); }

// What the functions of cuBLAS and the others return, which compute nothing: success.
EXPORTED int fake_cuda_library_called() {
  std::lock_guard<std::recursive_mutex> locked(machine::lock());
  machine::count("library");
  return 0;
}
