//! The first saturated resource: the one that was short at the lightest load.
//!
//! Runs are examined from the lightest load to the heaviest. Signs, in order of precedence within a run:
//!
//! 1. **Processor**: Spindle uses 90 % of all processors, or one group's thread 90 % of one. It comes first
//!    because a busy thread inflates every latency.
//! 2. **A volume beyond its limit**, according to the verdict's latencies.
//! 3. **A volume that gives no more**: load grows by 25 %, IOPS by less than 5 %, and the operations under
//!    way on the volume grow; if several do, the one whose queue grew most.
//! 4. **Page cache**: page faults that found no free page, beyond their limit.
//! 5. **Log buffer**: more than 10 log appends a second that found no room (Dell BP1013 p. 23).
//!
//! Only a run with more load than the one before can show the third.

use crate::{
    database::{
        comparison::{
            RunComparison,
            settings::{is_same_kind_of_load, load},
        },
        results::figures::VolumeFigures,
    },
    meter::VolumeRole,
    verdict::{VerdictRow, limits::Measure},
};
use report::prose::{counted, number};

/// Processor share from which a processor counts as busy.
const BUSY_SHARE: f64 = 0.9;
/// Minimum growth of load before growth of IOPS is expected.
const LOAD_GROWTH: f64 = 1.25;
/// IOPS that grew by less have stopped growing.
const IO_GROWTH: f64 = 1.05;
/// A queue that grew by less has not grown.
const QUEUE_GROWTH: f64 = 1.1;
/// Maximum acceptable log record stalls a second (Dell BP1013 p. 23: below 10).
const LOG_STALLS_MAX: f64 = 10.0;

/// A resource that can saturate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// All processors of the machine, or that of one group's thread.
    Processor,
    DatabaseVolume(String),
    LogVolume(String),
    /// The engine's page cache.
    PageCache,
    /// The engine's log buffer.
    LogBuffer,
    /// IOPS stopped growing for no measured reason.
    Unknown,
}

impl Resource {
    pub fn title(&self) -> String {
        match self {
            Self::Processor => "the processor".to_owned(),
            Self::DatabaseVolume(name) => format!("database volume {name}"),
            Self::LogVolume(name) => format!("log volume {name}"),
            Self::PageCache => "the page cache".to_owned(),
            Self::LogBuffer => "the log buffer".to_owned(),
            Self::Unknown => "nothing that is measured".to_owned(),
        }
    }
}

/// Evidence that a resource was short.
#[derive(Clone, Debug, PartialEq)]
pub struct Sign {
    pub resource: Resource,
    /// Index of the run.
    pub run: usize,
    /// A clause: `its reads took 24.1 ms on average, limit 20 ms`.
    pub evidence: String,
}

/// All signs, from the lightest load on.
pub fn signs(comparison: &RunComparison) -> Vec<Sign> {
    by_load(comparison).into_iter().flat_map(|run| signs_of(comparison, run)).collect()
}

/// Runs from the lightest load to the heaviest; runs of equal load keep their order.
fn by_load(comparison: &RunComparison) -> Vec<usize> {
    let mut order: Vec<usize> = (0..comparison.runs.len()).collect();
    let of = |index: usize| load(&comparison.runs[index].results);
    let comparable =
        comparison.runs.iter().all(|run| is_same_kind_of_load(&run.results, &comparison.runs[0].results));
    if comparable && comparison.varied.is_load() {
        order.sort_by(|one, other| of(*one).total_cmp(&of(*other)));
    }
    order
}

fn signs_of(comparison: &RunComparison, run: usize) -> Vec<Sign> {
    let found = [
        processor(comparison, run),
        beyond_limit(comparison, run),
        no_more(comparison, run),
        page_cache(comparison, run),
        log_buffer(comparison, run),
    ];
    let mut signs: Vec<Sign> = Vec::new();
    for (resource, evidence) in found.into_iter().flatten() {
        if signs.iter().all(|sign| sign.resource != resource) {
            signs.push(Sign { resource, run, evidence });
        }
    }
    signs
}

/// A short resource, with the evidence.
type Shortage = (Resource, String);

fn processor(comparison: &RunComparison, run: usize) -> Option<Shortage> {
    let figures = &comparison.figures[run];
    if let (Some(used), count) = (figures.processors, f64::from(figures.processor_count))
        && count > 0.0
        && used >= BUSY_SHARE * count
    {
        return Some((
            Resource::Processor,
            format!("Spindle used {used:.1} of {}", counted(figures.processor_count.into(), "processor")),
        ));
    }
    let (share, group) = figures.busiest_thread.filter(|(share, _)| *share >= BUSY_SHARE)?;
    let percent = share * 100.0;
    Some((
        Resource::Processor,
        format!("the thread of group {group} was busy for {percent:.0} % of the time"),
    ))
}

fn beyond_limit(comparison: &RunComparison, run: usize) -> Option<Shortage> {
    let run = &comparison.runs[run];
    let row = run.verdict.broken().find(|row| role_of(row.measure).is_some())?;
    let role = role_of(row.measure).expect("it was looked for");
    let only = run.results.in_role(role).next().map(|volume| volume.volume.clone());
    let volume = row.place.clone().or(only)?;
    let is_shared = run.results.in_role(other(role)).any(|other| other.volume == volume);
    let shared = if is_shared { "; databases and logs share it" } else { "" };
    Some((volume_in(role, volume), format!("{}{shared}", beyond(row))))
}

fn other(role: VolumeRole) -> VolumeRole {
    match role {
        VolumeRole::Database => VolumeRole::Log,
        VolumeRole::Log => VolumeRole::Database,
    }
}

/// The role whose latency a metric is.
fn role_of(measure: Measure) -> Option<VolumeRole> {
    match measure {
        Measure::DatabaseReadAverageMs
        | Measure::DatabaseReadWindowMaximumMs
        | Measure::DatabaseWriteAverageMs => Some(VolumeRole::Database),
        Measure::LogWriteAverageMs | Measure::LogWriteWindowMaximumMs => Some(VolumeRole::Log),
        _ => None,
    }
}

fn volume_in(role: VolumeRole, name: String) -> Resource {
    match role {
        VolumeRole::Database => Resource::DatabaseVolume(name),
        VolumeRole::Log => Resource::LogVolume(name),
    }
}

fn beyond(row: &VerdictRow) -> String {
    let title = row.measure.title();
    let measured = row.measured.unwrap_or(f64::NAN);
    let lower = title.chars().next().map(|first| first.to_lowercase().chain(title.chars().skip(1)));
    let title: String = lower.into_iter().flatten().collect();
    format!("{title} {} ms, limit {} ms", number(measured, 1), row.limit)
}

/// The next lighter run, if its load is so much lighter that IOPS should have grown since.
fn before(comparison: &RunComparison, run: usize) -> Option<usize> {
    if !comparison.varied.is_load() {
        return None;
    }
    let order = by_load(comparison);
    let place = order.iter().position(|&index| index == run)?;
    let earlier = *order.get(place.checked_sub(1)?)?;
    let of = |index: usize| &comparison.runs[index].results;
    let asked = load(of(run)) >= load(of(earlier)) * LOAD_GROWTH;
    (asked && is_same_kind_of_load(of(run), of(earlier))).then_some(earlier)
}

fn no_more(comparison: &RunComparison, run: usize) -> Option<Shortage> {
    let earlier = before(comparison, run)?;
    let (was, is) = (&comparison.figures[earlier], &comparison.figures[run]);
    let growth = is.iops? / was.iops.filter(|iops| *iops > 0.0)?;
    if growth >= IO_GROWTH {
        return None;
    }
    let grown = format!(
        "from {} to {} IOPS {}",
        comparison.varied.labels[earlier],
        comparison.varied.labels[run],
        in_percent(growth)
    );
    let queues = is.volumes.iter().filter_map(|volume| {
        let earlier = was.volumes.iter().find(|other| is_same(volume, other))?;
        let waits_longer = volume.waited_ms? > earlier.waited_ms?;
        (waits_longer && volume.queue > earlier.queue * QUEUE_GROWTH).then_some((volume, earlier))
    });
    let longest =
        queues.max_by(|one, other| (one.0.queue - one.1.queue).total_cmp(&(other.0.queue - other.1.queue)));
    Some(match longest {
        Some((volume, earlier)) => (
            volume_in(volume.role, volume.name.clone()),
            format!(
                "{grown}, while {} operations were under way there, after {}, and {} took {:.2} ms, \
                 after {:.2} ms",
                number(volume.queue, 1),
                number(earlier.queue, 1),
                if volume.role == VolumeRole::Database { "reads" } else { "writes" },
                volume.waited_ms.unwrap_or(f64::NAN),
                earlier.waited_ms.unwrap_or(f64::NAN),
            ),
        ),
        None => (Resource::Unknown, format!("{grown}, and no volume's queue did")),
    })
}

fn is_same(one: &VolumeFigures, other: &VolumeFigures) -> bool {
    one.name == other.name && one.role == other.role
}

/// `grew by 2 %`, `fell by 3 %`.
fn in_percent(growth: f64) -> String {
    let percent = (growth - 1.0) * 100.0;
    match percent {
        percent if percent >= 0.5 => format!("grew by {percent:.0} %"),
        percent if percent <= -0.5 => format!("fell by {:.0} %", -percent),
        _ => "did not grow".to_owned(),
    }
}

fn page_cache(comparison: &RunComparison, run: usize) -> Option<Shortage> {
    let mut broken = comparison.runs[run].verdict.broken();
    let row = broken.find(|row| row.measure == Measure::PageFaultStallsPerSecond)?;
    let stalls = row.measured.unwrap_or(f64::NAN);
    Some((
        Resource::PageCache,
        format!("{} page faults a second found no free page, limit {}", number(stalls, 1), row.limit),
    ))
}

fn log_buffer(comparison: &RunComparison, run: usize) -> Option<Shortage> {
    let stalls = comparison.figures[run].log_record_stalls.filter(|stalls| *stalls > LOG_STALLS_MAX)?;
    Some((
        Resource::LogBuffer,
        format!(
            "{} log appends a second found no room in the buffer, above {LOG_STALLS_MAX}",
            number(stalls, 0)
        ),
    ))
}

/// The conclusion in a sentence.
pub fn in_words(comparison: &RunComparison, signs: &[Sign]) -> String {
    let Some(first) = signs.first() else {
        let heaviest = *by_load(comparison).last().expect("there is a run");
        let growth = before(comparison, heaviest).and_then(|earlier| {
            let iops = |index: usize| comparison.figures[index].iops;
            Some((earlier, iops(heaviest)? / iops(earlier).filter(|iops| *iops > 0.0)?))
        });
        return match growth {
            Some((earlier, growth)) => format!(
                "Nothing saturated yet: from {} to {} IOPS {}, and no resource was at its limit.",
                comparison.varied.labels[earlier],
                comparison.varied.labels[heaviest],
                in_percent(growth)
            ),
            None => "Nothing saturated: no run shows a resource that was short.".to_owned(),
        };
    };
    let title = first.resource.title();
    let what = match first.resource {
        Resource::Unknown => "IOPS stopped growing first".to_owned(),
        _ => format!("{} saturated first", capitalised(&title)),
    };
    format!("{what}, at {}: {}.", comparison.title(first.run), first.evidence)
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
