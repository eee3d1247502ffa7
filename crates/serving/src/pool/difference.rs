//! Differences of two points of a volume, or of a volume and its clone: a summary for people, all ranges as JSON for programs.

use super::folder::{OpenPool, VolumePath};
use array::{
    error::Error,
    pool::{DifferenceRange, RangeChange, SnapshotKey, VolumeKey},
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use world::ByteCount;

/// Bytes of JSON written at a time.
const TEXT_BYTES: usize = 64 << 10;

/// Takes pieces of a JSON text.
pub type JsonSink<'a> = &'a mut dyn FnMut(&str) -> Result<(), Refusal>;

/// Two points of volumes of one pool, as a user names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DifferencePoints {
    folder: PathBuf,
    volume: String,
    from: String,
    /// The volume of the second point.
    to_volume: String,
    /// None is now.
    to: Option<String>,
}

/// Bytes and ranges of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeTotal {
    pub bytes: u64,
    pub ranges: u64,
}

/// The sums of a difference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeTotals {
    pub data: ChangeTotal,
    pub zeroes: ChangeTotal,
    pub discarded: ChangeTotal,
    pub beyond_size: ChangeTotal,
}

/// A difference without its ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DifferenceSummary {
    points: DifferencePoints,
    /// Size at both points.
    sizes_bytes: [u64; 2],
    pub totals: ChangeTotals,
}

impl DifferencePoints {
    /// Points by their paths: `from` is POOL/VOLUME@SNAPSHOT, `to` as well, or POOL/VOLUME for now. The second
    /// volume may be another one, such as a clone of the first.
    pub fn of(from: &Path, to: Option<&Path>) -> Result<Self, Refusal> {
        let parse = |path: &Path| {
            VolumePath::of(path).ok_or_else(|| {
                let problem = format!("{} names no volume of a pool", path.display());
                Refusal::new(problem, "say POOL/VOLUME@SNAPSHOT")
            })
        };
        let VolumePath { folder, volume, snapshot } = parse(from)?;
        let Some(earlier) = snapshot else {
            let problem = format!("{} names no snapshot to begin with", from.display());
            return Err(Refusal::new(problem, "say POOL/VOLUME@SNAPSHOT first, the older point"));
        };
        let mut points = Self { folder, to_volume: volume.clone(), volume, from: earlier, to: None };
        if let Some(path) = to {
            let to = parse(path)?;
            if to.folder != points.folder {
                let problem = format!("{} is in another pool than {}", path.display(), from.display());
                return Err(Refusal::new(problem, "compare points of one pool: only these share blocks"));
            }
            (points.to_volume, points.to) = (to.volume, to.snapshot);
        }
        Ok(points)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Volume and snapshot to begin with.
    pub fn from(&self) -> (&str, &str) {
        (&self.volume, &self.from)
    }

    /// Volume and snapshot of the second point; no snapshot is now.
    pub fn to(&self) -> (&str, Option<&str>) {
        (&self.to_volume, self.to.as_deref())
    }

    fn path(&self) -> PathBuf {
        self.folder.join(&self.volume)
    }

    /// The volume of the second point, unless it is that of the first.
    fn other_path(&self) -> Option<PathBuf> {
        (self.to_volume != self.volume).then(|| self.folder.join(&self.to_volume))
    }

    /// Compares the points of an open pool. With `json`, all ranges are written there as they are found, so
    /// that the size of the volume does not matter.
    pub async fn compare(
        self,
        open: &OpenPool,
        mut json: Option<JsonSink<'_>>,
    ) -> Result<DifferenceSummary, Refusal> {
        let refused = |error: Error| open.refusal(&error, &remedy_of(&error, &self.folder));
        let from = (VolumeKey::from(&self.volume), SnapshotKey::from(&self.from));
        let to = (VolumeKey::from(&self.to_volume), self.to.as_ref().map(SnapshotKey::from));
        let mut walk = open.pool.difference_between(from, to).await.map_err(refused)?;
        let mut writer = RangeWriter::new(self.clone(), walk.sizes_bytes());
        let mut done = writer.begin(&mut json);
        while done.is_ok() {
            match walk.next().await.map_err(refused) {
                Ok(Some(ranges)) => {
                    done = ranges.iter().try_for_each(|range| writer.add(&range.into(), &mut json))
                }
                Ok(None) => break,
                Err(refusal) => done = Err(refusal),
            }
        }
        let ended = walk.end().await.map_err(refused);
        done?;
        ended?;
        writer.end(&mut json)
    }
}

/// The remedy for a difference that is refused, of the pool of `place`.
pub fn remedy_of(error: &Error, place: &Path) -> String {
    match error {
        Error::NoVolume(_) | Error::NoSnapshot { .. } => {
            format!("see 'spindle pool show {}'", place.display())
        }
        Error::WrongOrder { .. } => String::new(),
        Error::NothingInCommon { .. } => "compare a volume with its own snapshots".to_owned(),
        _ => "check the drives".to_owned(),
    }
}

/// One range as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeLine {
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub length: u64,
    pub change: ChangeWord,
}

/// State of changed bytes at the later point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeWord {
    Data,
    Zeroes,
    Discarded,
    BeyondSize,
}

impl From<&DifferenceRange> for RangeLine {
    fn from(range: &DifferenceRange) -> Self {
        let change = match range.change {
            RangeChange::Data => ChangeWord::Data,
            RangeChange::Zeroes => ChangeWord::Zeroes,
            RangeChange::Discarded => ChangeWord::Discarded,
            RangeChange::BeyondSize => ChangeWord::BeyondSize,
        };
        Self { at: range.at_bytes, length: range.length_bytes, change }
    }
}

impl ChangeTotals {
    pub fn add(&mut self, range: &RangeLine) {
        let total = match range.change {
            ChangeWord::Data => &mut self.data,
            ChangeWord::Zeroes => &mut self.zeroes,
            ChangeWord::Discarded => &mut self.discarded,
            ChangeWord::BeyondSize => &mut self.beyond_size,
        };
        total.bytes += range.length;
        total.ranges += 1;
    }
}

/// Begin of the JSON text.
#[derive(Serialize)]
struct DifferenceHead<'a> {
    volume: &'a Path,
    from: &'a str,
    /// Unless both points are of one volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    to_volume: Option<PathBuf>,
    to: Option<&'a str>,
    from_bytes: u64,
    to_bytes: u64,
}

/// Writes ranges as JSON, and sums them up.
pub struct RangeWriter {
    summary: DifferenceSummary,
    text: String,
    count: u64,
}

impl RangeWriter {
    /// Of two points, with the sizes of the volume at both.
    pub fn new(points: DifferencePoints, sizes_bytes: [u64; 2]) -> Self {
        let summary = DifferenceSummary { points, sizes_bytes, totals: ChangeTotals::default() };
        Self { summary, text: String::new(), count: 0 }
    }

    /// # Errors
    ///
    /// Those of `json`, as for all of them.
    pub fn begin(&mut self, json: &mut Option<JsonSink<'_>>) -> Result<(), Refusal> {
        let DifferenceSummary { points, sizes_bytes: [from_bytes, to_bytes], .. } = &self.summary;
        let head = DifferenceHead {
            volume: &points.path(),
            from: &points.from,
            to_volume: points.other_path(),
            to: points.to.as_deref(),
            from_bytes: *from_bytes,
            to_bytes: *to_bytes,
        };
        let head = serde_json::to_string(&head).expect("plain fields");
        let open = head.strip_suffix('}').expect("an object");
        self.put(&format!("{open},\"ranges\":["), json)
    }

    pub fn add(&mut self, range: &RangeLine, json: &mut Option<JsonSink<'_>>) -> Result<(), Refusal> {
        self.summary.totals.add(range);
        if json.is_none() {
            return Ok(());
        }
        let line = serde_json::to_string(range).expect("plain fields");
        let comma = if self.count > 0 { "," } else { "" };
        self.count += 1;
        self.put(&format!("{comma}{line}"), json)
    }

    /// The end of ranges that were summed up elsewhere, and not all added here.
    pub fn end_with(
        self,
        totals: ChangeTotals,
        json: &mut Option<JsonSink<'_>>,
    ) -> Result<DifferenceSummary, Refusal> {
        Self { summary: DifferenceSummary { totals, ..self.summary }, ..self }.end(json)
    }

    pub fn end(mut self, json: &mut Option<JsonSink<'_>>) -> Result<DifferenceSummary, Refusal> {
        let totals = serde_json::to_string(&self.summary.totals).expect("plain fields");
        self.put(&format!("],\"totals\":{totals}}}\n"), json)?;
        if let Some(json) = json {
            json(&self.text)?;
        }
        Ok(self.summary)
    }

    fn put(&mut self, text: &str, json: &mut Option<JsonSink<'_>>) -> Result<(), Refusal> {
        let Some(json) = json else { return Ok(()) };
        self.text.push_str(text);
        if self.text.len() >= TEXT_BYTES {
            json(&self.text)?;
            self.text.clear();
        }
        Ok(())
    }
}

impl DifferenceSummary {
    /// For people: a line for all, and one for each kind that occurs.
    pub fn lines(&self) -> Vec<String> {
        let Self { points, sizes_bytes: [before, after], totals } = self;
        let kinds = [
            ("data", totals.data),
            ("zeroes", totals.zeroes),
            ("discarded", totals.discarded),
            ("beyond size", totals.beyond_size),
        ];
        let bytes: u64 = kinds.iter().map(|(_, total)| total.bytes).sum();
        let size = *before.max(after);
        let other = points.other_path().map(|path| path.display().to_string());
        let until = match (other, &points.to) {
            (other, Some(to)) => format!("{}@{to}", other.unwrap_or_default()),
            (Some(other), None) => format!("{other} now"),
            (None, None) => "now".to_owned(),
        };
        let mut lines = vec![format!(
            "{}, from @{} to {until}: {} of {} changed ({})",
            points.path().display(),
            points.from,
            ByteCount(bytes),
            ByteCount(size),
            percent(bytes, size)
        )];
        for (kind, ChangeTotal { bytes, ranges }) in kinds.iter().filter(|(_, total)| total.ranges > 0) {
            let noun = if *ranges == 1 { "range" } else { "ranges" };
            lines.push(format!(
                "  {kind:<12}{:>10} {ranges:>8} {noun:<7}{:>8}",
                ByteCount(*bytes).to_string(),
                percent(*bytes, size)
            ));
        }
        if before != after {
            lines.push(format!("  the size was {} and is {}", ByteCount(*before), ByteCount(*after)));
        }
        lines
    }
}

/// A share of a size.
fn percent(bytes: u64, size: u64) -> String {
    let share = bytes as f64 * 100.0 / size.max(1) as f64;
    if bytes > 0 && share < 0.1 { "< 0.1 %".to_owned() } else { format!("{share:.1} %") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_of_one_pool_and_begin_with_a_snapshot() {
        let of = |from: &str, to: Option<&str>| DifferencePoints::of(Path::new(from), to.map(Path::new));
        let found = of("mail/store@a", Some("mail/store@b")).unwrap();
        assert_eq!((found.from.as_str(), found.to.as_deref()), ("a", Some("b")));
        for to in [None, Some("mail/store")] {
            assert_eq!(of("mail/store@a", to).unwrap().to, None, "now");
        }
        let of_clone = of("mail/store@a", Some("mail/try")).unwrap();
        assert_eq!(of_clone.other_path(), Some(PathBuf::from("mail/try")));
        for (from, to, story) in [
            ("mail/store", None, "names no snapshot to begin with"),
            ("store@a", None, "names no volume of a pool"),
            ("mail/store@a", Some("other/store@b"), "is in another pool than mail/store@a"),
        ] {
            let refused = of(from, to).unwrap_err().to_string();
            assert!(refused.contains(story), "{refused}");
        }
    }

    #[test]
    fn a_share_that_is_not_zero_is_not_shown_as_zero() {
        let shown = [(0, 100), (1, 1 << 40), (1, 3), (5, 5)].map(|(bytes, size)| percent(bytes, size));
        assert_eq!(shown, ["0.0 %", "< 0.1 %", "33.3 %", "100.0 %"]);
    }
}
