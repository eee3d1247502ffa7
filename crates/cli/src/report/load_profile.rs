//! A profile of `spindle prove` from what hosts did.

use super::host_load::{busiest_hour, rate, read_share};
use control::history::IoSample;
use report::Refusal;
use std::path::Path;
use workload::database::plan::profile::{OperationMix, ServerProfile};

/// The load of the busiest hour, as `prove` puts it on storage.
pub struct LoadProfile {
    pub profile: ServerProfile,
    /// Database reads and writes a second of one mailbox.
    pub iops_per_mailbox: f64,
    pub mailboxes: u64,
    /// Of the volumes together.
    pub size_bytes: u64,
    /// Reads of the hour's operations, 0 to 1.
    pub read_share: f64,
    /// The reason for which the mix can be no nearer to it.
    pub limit: Option<&'static str>,
}

impl LoadProfile {
    /// The profile of samples that follow each other; `None` if there was no hour.
    ///
    /// # Errors
    ///
    /// The base profile is unknown.
    pub fn of(
        samples: &[Option<IoSample>],
        (base, name, period): (&str, &str, &str),
        (mailboxes, size_bytes): (u64, u64),
    ) -> Result<Option<Self>, Refusal> {
        let known = ServerProfile::load(base)
            .map_err(|error| Refusal::new(error.to_string(), "name one of these with ⟨base⟩"))?;
        let hour = busiest_hour(samples).and_then(|(_, hour)| Some((hour, read_share(&hour)?)));
        let Some((hour, share)) = hour else { return Ok(None) };
        let (mix, limit) = mix_of(share, known.mix());
        let summary = format!("the busiest hour of {period}, on {base}: {:.0} % reads", share * 100.0);
        let mut profile = known.named(name, &summary);
        let source = format!(
            "history of a server, {period}: {:.0} % of the operations of hosts were reads",
            share * 100.0
        );
        profile.set_mix(mix, &source);
        let iops_per_mailbox = f64::from(rate(&hour)) / mailboxes as f64;
        Ok(Some(Self { profile, iops_per_mailbox, mailboxes, size_bytes, read_share: share, limit }))
    }

    /// The command that runs it.
    pub fn command(&self, file: &Path) -> String {
        let size_mib = self.size_bytes.div_ceil(1 << 20).max(1);
        format!(
            "spindle prove PATH --server {} --mailboxes {} --iops {} --size {size_mib}MiB --duration 2h",
            file.display(),
            self.mailboxes,
            significant(self.iops_per_mailbox),
        )
    }
}

/// The mix of operations for a share of reads. Each operation reads its page, as a cache that is small beside the databases
/// seldom has it; changes write it later, and often several pages at once. Measured on databases of 8 times their cache, with 25, 48, 75 and
/// 100 % of changes: 85, 76, 62 and 54 % of the I/O were reads, so half of the changes count as writes. Inserts, replaces and
/// deletes keep their relation.
fn mix_of(share: f64, base: OperationMix) -> (OperationMix, Option<&'static str>) {
    let changes = (2.0 * (1.0 - share)).min(1.0);
    let limit = (share < 0.5).then_some(
        "a database engine reads a page before it writes it: with fewer reads than writes the mix has changes alone",
    );
    let changing = (base.insert + base.replace + base.delete) as f64;
    let percent = |part: u64| (changes * 100.0 * part as f64 / changing).round() as u64;
    let (insert, delete) = (percent(base.insert), percent(base.delete));
    let all = ((changes * 100.0).round() as u64).max(insert + delete);
    let replace = if base.replace == 0 && base.insert + base.delete > 0 { 0 } else { all - insert - delete };
    let read = 100 - (insert + replace + delete);
    (OperationMix { insert, replace, delete, read }, limit)
}

/// A number with three digits that count.
fn significant(value: f64) -> String {
    let decimals = (2 - value.max(1e-9).log10().floor() as i32).clamp(0, 9) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(reads: f32, writes: f32) -> IoSample {
        IoSample::of_figures([reads, reads * 8192.0, 0.004, 0.02, writes, writes * 4096.0, 0.001, 0.005])
    }

    #[test]
    fn the_mix_follows_the_share_of_reads_and_sums_to_100() {
        let base = ServerProfile::load("exchange-2007").unwrap().mix();
        for percent in 1..=100 {
            let share = f64::from(percent) / 100.0;
            let (mix, limit) = mix_of(share, base);
            assert_eq!(mix.insert + mix.replace + mix.delete + mix.read, 100, "{percent} %");
            assert_eq!(limit.is_some(), percent < 50, "{percent} %");
            let changes = (100 - mix.read) as f64 / 100.0;
            if percent >= 50 {
                assert!((1.0 - changes / 2.0 - share).abs() < 0.011, "{percent} %: {mix:?}");
            }
        }
        assert_eq!(mix_of(1.0, base).0.read, 100);
    }

    #[test]
    fn a_profile_is_a_file_that_prove_reads_with_the_rate_of_the_busiest_hour() {
        let mut samples = vec![Some(of(60.0, 20.0)); 30];
        samples.extend(vec![Some(of(300.0, 100.0)); 12]);
        let made = LoadProfile::of(&samples, ("exchange-2007", "last-year", "a week"), (2000, 3 << 30));
        let made = made.unwrap().unwrap();
        assert_eq!((made.iops_per_mailbox, made.read_share), (0.2, 0.75));
        let read = ServerProfile::parse(&made.profile.to_toml()).unwrap();
        assert_eq!(read, made.profile);
        assert_eq!((read.name.as_str(), read.mix().read), ("last-year", 50));
        assert_eq!(
            made.command(Path::new("week.toml")),
            "spindle prove PATH --server week.toml --mailboxes 2000 --iops 0.200 --size 3072MiB --duration 2h"
        );
        assert!(LoadProfile::of(&samples, ("exchange-2017", "a", "b"), (1, 1)).is_err());
        assert!(LoadProfile::of(&[None; 30], ("exchange-2007", "a", "b"), (1, 1)).unwrap().is_none());
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        assert_eq!([0.2, 0.01234, 12.345, 1234.5].map(significant), ["0.200", "0.0123", "12.3", "1234"]);
    }
}
