//! `--sweep`: the setting that is varied, and the requests of its runs.

use crate::{
    layout::LayoutKind,
    request::{DATABASES_MAX, GROUPS_MAX, RunRequest, THREADS_MAX, Threads},
};
use std::path::{Path, PathBuf};

const RUNS_MAX: usize = 32;
const VOLUMES_MAX: u32 = 1_024;

/// The setting that a sweep varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweptSetting {
    /// Threads of each group.
    Threads,
    Groups,
    /// Databases of each group.
    Databases,
    /// Number of database paths used.
    Volumes,
    /// Layout of files over the paths.
    Layouts,
}

/// A setting and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweepSpec {
    pub setting: SweptSetting,
    values: Vec<SweptValue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SweptValue {
    Count(u32),
    Layout(LayoutKind),
}

impl SweptSetting {
    const ALL: [Self; 5] = [Self::Threads, Self::Groups, Self::Databases, Self::Volumes, Self::Layouts];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Groups => "groups",
            Self::Databases => "databases",
            Self::Volumes => "volumes",
            Self::Layouts => "layouts",
        }
    }

    fn most(self) -> u32 {
        match self {
            Self::Threads => THREADS_MAX,
            Self::Groups => GROUPS_MAX,
            Self::Databases => DATABASES_MAX,
            Self::Volumes | Self::Layouts => VOLUMES_MAX,
        }
    }

    /// True if all runs use the same databases.
    pub fn keeps_databases(self) -> bool {
        self == Self::Threads
    }

    fn value(self, text: &str) -> Result<SweptValue, String> {
        if self == Self::Layouts {
            return LayoutKind::parse(text)
                .map(SweptValue::Layout)
                .map_err(|known| format!("{text:?}: {known}"));
        }
        match text.parse::<u32>() {
            Ok(count) if (1..=self.most()).contains(&count) => Ok(SweptValue::Count(count)),
            _ => Err(format!("{text:?}: 1 to {} are possible", self.most())),
        }
    }
}

impl SweepSpec {
    /// Parses `threads=1,5,10`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let names = || SweptSetting::ALL.map(SweptSetting::name).join(", ");
        let Some((name, values)) = text.split_once('=') else {
            return Err(format!("write it as WHAT=VALUES; WHAT is one of {}", names()));
        };
        let setting =
            SweptSetting::ALL.into_iter().find(|setting| setting.name().eq_ignore_ascii_case(name.trim()));
        let setting =
            setting.ok_or_else(|| format!("{:?} cannot be swept; there are {}", name.trim(), names()))?;
        let values: Vec<SweptValue> =
            values.split(',').map(|one| setting.value(one.trim())).collect::<Result<_, _>>()?;
        if let Some(twice) = (1..values.len()).find(|&index| values[..index].contains(&values[index])) {
            return Err(format!("{} is given twice", values[twice].name()));
        }
        match values.len() {
            0 | 1 => Err("two values and more make a sweep".to_owned()),
            2..=RUNS_MAX => Ok(Self { setting, values }),
            count => Err(format!("{count} values, at most {RUNS_MAX} are possible")),
        }
    }

    pub fn run_count(&self) -> usize {
        self.values.len()
    }

    /// The value of run `index`, as written.
    pub fn value(&self, index: usize) -> String {
        self.values[index].name()
    }

    /// All values, as written.
    pub fn values(&self) -> String {
        self.values.iter().map(|value| value.name()).collect::<Vec<_>>().join(", ")
    }

    /// `request` of run `index`: with its value, and with a prefix of its own.
    pub fn request(&self, request: &RunRequest, prefix: &Path, index: usize) -> RunRequest {
        let mut own = RunRequest { sweep: None, report: Some(self.prefix(prefix, index)), ..request.clone() };
        match (self.setting, self.values[index]) {
            (SweptSetting::Threads, SweptValue::Count(count)) => own.threads = Some(Threads::Count(count)),
            (SweptSetting::Groups, SweptValue::Count(count)) => own.groups = Some(count),
            (SweptSetting::Databases, SweptValue::Count(count)) => own.databases = Some(count),
            (SweptSetting::Volumes, SweptValue::Count(count)) => own.volumes = Some(count),
            (SweptSetting::Layouts, SweptValue::Layout(kind)) => own.layout = Some(kind),
            (setting, value) => unreachable!("{setting:?} has no value {value:?}"),
        }
        own
    }

    /// Prefix of run `index`: `PREFIX-threads-5`.
    fn prefix(&self, prefix: &Path, index: usize) -> PathBuf {
        let mut name = prefix.as_os_str().to_owned();
        name.push(format!("-{}-{}", self.setting.name(), self.value(index)));
        name.into()
    }
}

impl SweptValue {
    fn name(self) -> String {
        match self {
            Self::Count(count) => count.to_string(),
            Self::Layout(kind) => kind.name().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_read_as_it_is_written() {
        let sweep = SweepSpec::parse("threads=1, 5,40").expect("a sweep");
        assert_eq!(
            (sweep.setting, sweep.run_count(), sweep.values().as_str()),
            (SweptSetting::Threads, 3, "1, 5, 40")
        );
        let sweep = SweepSpec::parse("layouts=one-volume,together").expect("a sweep");
        assert_eq!(sweep.prefix(Path::new("/r/night"), 1), Path::new("/r/night-layouts-together"));
    }

    #[test]
    fn what_is_no_sweep_is_refused_in_a_line() {
        let refused = |text: &str| SweepSpec::parse(text).expect_err("refused");
        assert_eq!(
            refused("threads"),
            "write it as WHAT=VALUES; WHAT is one of threads, groups, databases, volumes, layouts"
        );
        assert_eq!(
            refused("size=1,2"),
            "\"size\" cannot be swept; there are threads, groups, databases, volumes, layouts"
        );
        assert_eq!(refused("threads=1,x"), "\"x\": 1 to 1024 are possible");
        assert_eq!(refused("threads="), "\"\": 1 to 1024 are possible");
        assert_eq!(refused("groups=1,65"), "\"65\": 1 to 64 are possible");
        assert_eq!(refused("databases=1,2,1"), "1 is given twice");
        assert_eq!(refused("threads=4"), "two values and more make a sweep");
        assert_eq!(
            refused("layouts=together,raid"),
            "\"raid\": there are volume-per-database, together, half-the-volumes, one-volume"
        );
    }
}
