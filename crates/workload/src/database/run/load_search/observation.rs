//! Observation of a trial: the samples of all groups combined.

use crate::{
    database::measure::sample::Sample,
    measure::windows::{WINDOW, mean_of_windows_ms, windows, worst_window_ms},
    meter::{IoTallies, IoTally, VolumeRole},
    verdict::limits::Measure,
};

/// The samples of all groups combined.
pub struct TrialObservation {
    roles: Vec<VolumeRole>,
    pub samples: Vec<Sample>,
    windows: Vec<Sample>,
}

impl TrialObservation {
    /// Combines the samples up to the slowest group.
    pub fn of(volumes: &[Vec<(VolumeRole, String)>], groups: &[&[Sample]]) -> Self {
        let mut names: Vec<(VolumeRole, String)> = volumes.iter().flatten().cloned().collect();
        names.sort();
        names.dedup();
        let place = |name: &(VolumeRole, String)| names.binary_search(name).expect("every name is listed");
        let length = groups.iter().map(|samples| samples.len()).min().unwrap_or(0);
        let merged = (0..length).map(|index| {
            let placed = groups.iter().zip(volumes).map(|(samples, volumes)| {
                let mut sample = samples[index].clone();
                let own = std::mem::replace(&mut sample.volumes, vec![Default::default(); names.len()]);
                for (tallies, name) in own.iter().zip(volumes) {
                    sample.volumes[place(name)].merge(tallies);
                }
                sample
            });
            placed.reduce(|mut one, other| {
                one.merge(&other);
                one
            })
        });
        let samples: Vec<Sample> = merged.flatten().collect();
        let windows = windows(&samples, WINDOW);
        Self { roles: names.into_iter().map(|(role, _)| role).collect(), samples, windows }
    }

    /// Measured time so far, in seconds.
    pub fn span_s(&self) -> f64 {
        self.samples.iter().map(|sample| sample.span_s).sum()
    }

    /// Operations waiting to start at the end.
    pub fn backlog(&self) -> u64 {
        self.samples.last().map_or(0, |sample| sample.backlog)
    }

    /// Finished operations a second.
    pub fn operations_per_second(&self) -> f64 {
        let count: u64 = self.samples.iter().map(|sample| sample.operations.count).sum();
        count as f64 / self.span_s().max(1e-9)
    }

    /// Database IOPS.
    pub fn achieved_iops(&self) -> f64 {
        let io = |sample: &Sample| -> u64 {
            let pairs = self.roles.iter().zip(&sample.volumes);
            pairs.filter(|(role, _)| **role == VolumeRole::Database).map(|(_, io)| io.transactional()).sum()
        };
        self.samples.iter().map(io).sum::<u64>() as f64 / self.span_s().max(1e-9)
    }

    /// Value to compare with a limit; None for metrics of whole runs.
    pub fn measure(&self, measure: Measure) -> Option<f64> {
        match measure {
            Measure::DatabaseReadAverageMs => self.average_ms(VolumeRole::Database, |io| io.read),
            Measure::DatabaseWriteAverageMs => self.average_ms(VolumeRole::Database, |io| io.write),
            Measure::LogWriteAverageMs => self.average_ms(VolumeRole::Log, |io| io.write),
            Measure::DatabaseReadWindowMaximumMs => self.worst_ms(VolumeRole::Database, |io| io.read),
            Measure::LogWriteWindowMaximumMs => self.worst_ms(VolumeRole::Log, |io| io.write),
            Measure::PageFaultStallsPerSecond => {
                let stalls: u64 = self.samples.iter().map(|sample| sample.page_fault_stalls).sum();
                (!self.samples.is_empty()).then(|| stalls as f64 / self.span_s().max(1e-9))
            }
            Measure::IoErrors => {
                let errors = self.samples.iter().flat_map(|sample| &sample.volumes).map(|io| io.errors);
                Some(errors.sum::<u64>() as f64)
            }
            _ => None,
        }
    }

    /// Median over seconds of the page-fault stalls a second. Stalls come in bursts, too rare for a probe to
    /// measure their rate: bad seconds count only if they are the majority.
    pub fn usual_stalls(&self) -> f64 {
        let mut seconds: Vec<f64> = self
            .samples
            .iter()
            .map(|sample| sample.page_fault_stalls as f64 / sample.span_s.max(1e-9))
            .collect();
        seconds.sort_by(f64::total_cmp);
        // The lower median: half of the seconds are no majority.
        seconds.get(seconds.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
    }

    fn average_ms(&self, role: VolumeRole, of: fn(&IoTallies) -> IoTally) -> Option<f64> {
        let of_volume = |place: usize| mean_of_windows_ms(&self.windows, |window| of(&window.volumes[place]));
        self.places(role).filter_map(of_volume).max_by(f64::total_cmp)
    }

    fn worst_ms(&self, role: VolumeRole, of: fn(&IoTallies) -> IoTally) -> Option<f64> {
        let of_volume =
            |place: usize| worst_window_ms(&self.samples, &self.windows, |window| of(&window.volumes[place]));
        self.places(role).filter_map(of_volume).max_by(f64::total_cmp)
    }

    fn places(&self, role: VolumeRole) -> impl Iterator<Item = usize> {
        self.roles.iter().enumerate().filter(move |(_, of)| **of == role).map(|(place, _)| place)
    }
}
