#include "plans.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>

namespace tc {
namespace {

// What caches must notice. It changes while Shared::mutex is held. A thread that reads the new number without the mutex and
// then takes the mutex therefore finds the new table.
std::atomic<uint32_t> generation{1};

struct Shared {
  std::mutex mutex;  // guards the rest; only a problem that no cache holds takes it
  std::shared_ptr<const PlanTable> table;
  std::string log_path;
  std::set<std::string> logged;
};
Shared& shared = *new Shared;  // never destroyed, because threads may plan while the process ends

void log_problem(const PlanKey& key) {
  const std::lock_guard<std::mutex> lock(shared.mutex);
  if (shared.log_path.empty()) return;
  const std::string line = text_of(key) + "\n";
  if (!shared.logged.insert(line).second) return;
  if (std::FILE* file = std::fopen(shared.log_path.c_str(), "a")) {
    std::fputs(line.c_str(), file);
    std::fclose(file);
  }
}

}  // namespace

void set_plan_table(std::shared_ptr<const PlanTable> given) {
  const std::lock_guard<std::mutex> lock(shared.mutex);
  shared.table = std::move(given);
  generation.fetch_add(1, std::memory_order_relaxed);
}

Candidate table_or_plan(const PlanKey& key, const DeviceSpec& device) {
  std::shared_ptr<const PlanTable> current;
  {
    const std::lock_guard<std::mutex> lock(shared.mutex);
    current = shared.table;
  }
  if (current && current->gpu == device.driver_name && current->sm == device.gpu.sm && current->num_sms == device.gpu.num_sms) {
    const auto found = current->plans.find(key);
    if (found != current->plans.end()) {
      Candidate best = plan(key, device, found->second);
      best.from_table = true;
      if (best.kernel) return best;
    }
  }
  return plan(key, device);
}

// Planning takes microseconds, and a model asks for the same few problems again and again.
const Candidate& cached_plan(const PlanKey& key, const DeviceSpec& device) {
  struct Entry {
    PlanKey key{};
    uint32_t generation = 0;
    int device = 0;
    Candidate plan;
  };
  constexpr int kBits = 6;
  thread_local Entry cache[1 << kBits];
  constexpr uint64_t kSpread = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio: it spreads sizes that are multiples of 64
  uint64_t hash = 0;
  for (const int64_t size : {key.batch, key.m, key.n, key.k}) hash = (hash + uint64_t(size)) * kSpread;
  Entry& entry = cache[hash >> (64 - kBits)];
  const uint32_t now = generation.load(std::memory_order_relaxed);
  if (entry.generation != now || entry.device != device.ordinal || !(entry.key == key)) {
    entry = {key, now, device.ordinal, table_or_plan(key, device)};
    log_problem(key);
  }
  return entry.plan;
}

void log_problems(const std::string& path) {
  std::set<std::string> lines;
  if (std::FILE* file = path.empty() ? nullptr : std::fopen(path.c_str(), "r")) {
    char line[512];  // longer than any line of a log
    while (std::fgets(line, sizeof(line), file)) lines.insert(line);
    std::fclose(file);
  }
  const std::lock_guard<std::mutex> lock(shared.mutex);
  shared.log_path = path;
  shared.logged = std::move(lines);
  generation.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace tc
