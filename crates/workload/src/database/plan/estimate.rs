//! Cost estimate of a planned run: time, space, memory and bytes written.

use crate::database::plan::{RunPlan, load::ProbePlan};
use maildb::PageStampMode;
use world::ByteCount;

/// Assumed speed of the storage, for estimates before any measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeedGuess {
    /// Throughput of large sequential transfers, all volumes together.
    pub sequential_bytes_per_second: u64,
    /// Random page reads and writes a second, all volumes together.
    pub random_iops: u64,
}

/// Memory of a session and its task (measured: 1,020 more sessions took 11 MiB).
const SESSION_BYTES: u64 = 16 << 10;

/// Estimated cost of a run. Space and memory are upper bounds; times are as good as the guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Maximum space of the databases, including growth and page stamps.
    pub database_space: ByteCount,
    /// Maximum space of the logs.
    pub log_space: ByteCount,
    /// Memory: caches, log buffers, one byte a record, 16 a page if stamps are kept, 16 KiB a session, and 64 MiB
    /// for the rest.
    pub memory: ByteCount,
    /// Bytes written while the databases are created, logs included.
    pub written_by_creation: ByteCount,
    /// Bytes written by search and measurement, logs included.
    pub written_by_run: ByteCount,
    /// Time to create the databases, in seconds.
    pub create_s: u64,
    /// Time to fill the cache, in seconds.
    pub fill_s: u64,
    /// Maximum time of the search, in seconds.
    pub search_s: u64,
    /// Maximum time of the holds after the first, in seconds.
    pub further_holds_s: u64,
    /// Measured time, in seconds.
    pub measure_s: u64,
    /// Time to verify every page, in seconds.
    pub verify_s: u64,
}

impl Estimate {
    /// Sum of all phases, in seconds.
    pub fn total_s(&self) -> u64 {
        self.create_s + self.fill_s + self.search_s + self.further_holds_s + self.measure_s + self.verify_s
    }
}

impl RunPlan {
    /// Estimates the cost of this plan on storage of speed `guess`.
    pub fn estimate(&self, guess: SpeedGuess) -> Estimate {
        let databases = self.database_count();
        let groups = u64::from(self.groups);
        let all_bytes = databases * self.database_bytes;
        let page = self.profile.page_size().bytes() as u64;
        let record = self.profile.record_bytes() as u64;
        let logged_at_creation = all_bytes;
        let written_by_creation = all_bytes + logged_at_creation;
        let run_iops = self.load.target_iops().map_or(guess.random_iops, |target| target.ceil() as u64);
        // An I/O stands for about one operation: half of them write a page, most log a record.
        let run_bytes_per_second = run_iops * (page / 2 + record + 512);
        let search_s = self.load.probe().map_or(0, ProbePlan::seconds_max);
        let further_holds_s = self.load.probe().map_or(0, |probe| probe.further_holds_s(self.duration_s));
        let loaded_s = search_s + further_holds_s + self.duration_s;
        let cache = groups * self.cache_bytes_per_group;
        let sequential = guess.sequential_bytes_per_second.max(1);
        // Logs that stay do so from one backup to the next, which may be late.
        let kept_s = self.protection.filter(|plan| plan.keeps_logs).map_or(0, |plan| 2 * plan.every_s);
        let logged_per_second = run_iops / groups.max(1) * (record + 512);
        let log_space_per_group = 2 * self.profile.checkpoint_depth().0
            + 10 * self.profile.log_file().0
            + logged_per_second.saturating_mul(kept_s);
        let kept = u64::from(self.profile.page_stamps() != PageStampMode::Off) * databases;
        let pages_max = self.database_bytes_max / page;
        let stamps_space = kept * maildb::stamps::space_max(pages_max).0;
        let stamps_memory = kept * pages_max * maildb::stamps::BYTES_A_PAGE;
        let log_buffers = groups * self.profile.log_buffer().0;
        let sessions = groups * u64::from(self.sessions()) * SESSION_BYTES;
        Estimate {
            database_space: ByteCount(databases * self.database_bytes_max + stamps_space),
            log_space: ByteCount(groups * log_space_per_group),
            memory: ByteCount(
                cache + log_buffers + sessions + all_bytes / record + stamps_memory + (64 << 20),
            ),
            written_by_creation: ByteCount(written_by_creation),
            written_by_run: ByteCount(run_bytes_per_second.saturating_mul(loaded_s)),
            create_s: written_by_creation / sequential + 1,
            fill_s: (cache / page / run_iops.max(1) + 1).min(self.fill_s_max),
            search_s,
            further_holds_s,
            measure_s: self.duration_s,
            verify_s: all_bytes / sequential + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::plan::{protection::ProtectionPlan, tests::sample_plan};

    #[test]
    fn an_estimate_bounds_space_and_memory() {
        let plan = sample_plan();
        let guess = SpeedGuess { sequential_bytes_per_second: 100_000_000, random_iops: 300 };
        let estimate = plan.estimate(guess);
        let of_stamps = estimate.database_space.0 - plan.database_bytes_max;
        assert!(of_stamps < plan.database_bytes_max / 100, "{of_stamps} bytes beside the database");
        assert!(estimate.memory.0 > 256 << 20 && estimate.memory.0 < 1200 << 20, "{}", estimate.memory);
        assert_eq!(estimate.measure_s, 7200);
        assert!(estimate.create_s > 2700, "277 GB at 100 MB/s: {}", estimate.create_s);
    }

    #[test]
    fn logs_that_stay_take_the_room_of_two_intervals() {
        let (mut plan, guess) =
            (sample_plan(), SpeedGuess { sequential_bytes_per_second: 100_000_000, random_iops: 300 });
        let circular = plan.estimate(guess).log_space;
        plan.protection = Some(ProtectionPlan { every_s: 10, keep: 3, keeps_logs: false });
        assert_eq!(plan.estimate(guess).log_space, circular);
        plan.protection = Some(ProtectionPlan { every_s: 10, keep: 3, keeps_logs: true });
        let record = plan.profile.record_bytes() as u64 + 512;
        let iops = plan.load.target_iops().map_or(300, |target| target.ceil() as u64);
        let groups = u64::from(plan.groups);
        let kept = iops / groups * record * 20 * groups;
        assert_eq!(plan.estimate(guess).log_space.0, circular.0 + kept);
    }

    #[test]
    fn a_search_counts_every_probe_and_hold_that_it_may_need() {
        let (mut plan, guess) =
            (sample_plan(), SpeedGuess { sequential_bytes_per_second: 100_000_000, random_iops: 300 });
        let given = plan.estimate(guess);
        let probe = ProbePlan { settle_s: 30, measure_s: 15, probes_max: 10, holds_max: 3 };
        plan.load = crate::database::plan::LoadPlan::Maximum { probe };
        let searched = plan.estimate(guess);
        assert_eq!(searched.search_s, 460);
        assert_eq!(searched.further_holds_s, 2 * 7201 + 3 * 30);
        assert!(searched.total_s() >= 3 * 7200 && given.total_s() < 3 * 7200 + given.create_s);
        assert!(searched.written_by_run.0 > 2 * given.written_by_run.0, "three holds, not one");
    }
}
