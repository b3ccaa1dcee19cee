// The plans of this process: those of a loaded table, the planner's for every other problem, and each thread's cache of both.
#pragma once

#include <map>
#include <memory>

#include "planner.h"

namespace tc {

// Plans that were measured on one GPU model. They take the place of the planner's for exactly equal keys.
struct PlanTable {
  struct Less {
    bool operator()(const PlanKey& x, const PlanKey& y) const { return std::memcmp(&x, &y, sizeof(PlanKey)) < 0; }
  };
  std::string gpu;  // the driver's name
  int sm, num_sms;
  std::map<PlanKey, Scope, Less> plans;
};

// Replaces the process's table. Null removes it. Every thread's cache notices at its next call.
void set_plan_table(std::shared_ptr<const PlanTable> table);

// The table's plan if the table is of this GPU and the plan can run; otherwise the planner's. Its kernel is null if no candidate
// can run.
Candidate table_or_plan(const PlanKey& key, const DeviceSpec& device);

// The same from this thread's cache.
const Candidate& cached_plan(const PlanKey& key, const DeviceSpec& device);

// From now on cached_plan appends each problem that it plans to the file, as a line of text_of(key), unless the file has that
// line. "" ends the log.
void log_problems(const std::string& path);

}  // namespace tc
