//! The two averages of a latency, and findings where they differ.

use crate::{
    database::results::{RunResults, VolumeResults},
    meter::VolumeRole,
};
use report::{Document, Severity};

/// Ratio of the averages from which a finding is added.
const RATIO_WARNED: f64 = 1.5;

/// Adds a warning for each volume whose averages over time and over operations differ by half.
pub fn add_findings(document: &mut Document, results: &RunResults) {
    for (role, title) in [(VolumeRole::Database, "Database"), (VolumeRole::Log, "Log")] {
        for volume in results.in_role(role) {
            for text in differences(title, volume) {
                document.finding(
                    Severity::Warning,
                    text,
                    "Jetstress judges averages of samples of equal length",
                );
            }
        }
    }
}

fn differences(title: &str, volume: &VolumeResults) -> impl Iterator<Item = String> {
    let reads = ("reads", volume.read_mean_of_windows_ms, volume.read.average_ms);
    let writes = ("writes", volume.write_mean_of_windows_ms, volume.write.average_ms);
    [reads, writes].into_iter().filter_map(move |(what, over_time, over_operations)| {
        let (over_time, over_operations) = (over_time?, over_operations?);
        let why = if over_time > over_operations * RATIO_WARNED {
            "fewer were issued while they were slow"
        } else if over_operations > over_time * RATIO_WARNED {
            "more were under way while they were slow"
        } else {
            return None;
        };
        Some(format!(
            "{title} {what} on {} took {over_time:.2} ms on the average of 15-second samples, which is judged, and \
             {over_operations:.2} ms on the average of all: {why}.",
            volume.volume
        ))
    })
}
