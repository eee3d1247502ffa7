//! `--logs`, `--to-time` and `--to-log`.

use clap::Args;
use maildb::{format::header::LogTime, log::JoinEnd};
use protect::backup_schedule::moment_ms;
use report::Refusal;

#[derive(Clone, Debug, Default, Args)]
pub struct LogArguments {
    /// Logs that bring databases of Spindle forward: all, up to the live volume's; none; those of the backups up to one, by its
    /// number or name; or those of a volume that a restore left, such as log~1 [default: all]
    #[arg(long, value_name = "all|none|BACKUP|VOLUME")]
    pub logs: Option<String>,

    /// Bring them forward no further than to this time, such as 2026-11-29T10:00:00Z
    #[arg(long, value_name = "TIME", value_parser = log_time, conflicts_with = "to_log")]
    pub to_time: Option<LogTime>,

    /// Bring them forward no further than to the end of this log generation, the number in the name of its file
    #[arg(long, value_name = "GENERATION", value_parser = log_generation)]
    pub to_log: Option<u32>,
}

/// The newest copy of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogSource {
    /// That on the live volume.
    Live,
    /// That of a backup, by its number or name.
    Backup(String),
    /// That of a volume which a restore left, by its name.
    Left(String),
}

/// The wanted end.
#[derive(Clone, Debug)]
pub struct LogWish {
    pub newest: LogSource,
    pub end: JoinEnd,
    /// A person said so: that there are no such logs is refused.
    pub is_said: bool,
}

impl LogArguments {
    /// The wanted logs; `None` if nothing is to be brought forward.
    ///
    /// # Errors
    ///
    /// Two of them contradict each other.
    pub fn wish(&self) -> Result<Option<LogWish>, Refusal> {
        let end = match (self.to_time, self.to_log) {
            (Some(time), _) => JoinEnd::Time(time),
            (None, Some(generation)) => JoinEnd::Generation(generation),
            (None, None) => JoinEnd::Newest,
        };
        let newest = match self.logs.as_deref() {
            None | Some("all") => LogSource::Live,
            Some("none") if end == JoinEnd::Newest => return Ok(None),
            Some("none") => {
                let problem = "⟨logs⟩ none goes no further than the backup, so it has no end";
                return Err(Refusal::new(problem, "leave out ⟨to-time⟩ and ⟨to-log⟩, or ⟨logs⟩"));
            }
            Some(volume) if volume.contains('~') => LogSource::Left(volume.to_owned()),
            Some(backup) => LogSource::Backup(backup.to_owned()),
        };
        let is_said = self.logs.is_some() || end != JoinEnd::Newest;
        Ok(Some(LogWish { newest, end, is_said }))
    }
}

fn log_time(text: &str) -> Result<LogTime, String> {
    let ms = moment_ms(text).and_then(|ms| u64::try_from(ms).ok()).filter(|&ms| ms < LATEST_MS);
    ms.map(LogTime::from_unix_ms).ok_or_else(|| {
        format!("{text:?} is no time; write it as 2026-11-29T10:00:00Z, or with +01:00 in place of Z")
    })
}

/// 2155-01-01: log times end in that year.
const LATEST_MS: u64 = 5_838_048_000_000;

fn log_generation(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    match u32::from_str_radix(digits, 16) {
        Ok(generation @ 1..) => Ok(generation),
        _ => Err(format!(
            "{text:?} is no log generation; write the hexadecimal number in the name of its file, such as 1A"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_read_and_contradictions_refused() {
        let wish = |logs: Option<&str>, to_log| {
            LogArguments { logs: logs.map(str::to_owned), to_time: None, to_log }.wish()
        };
        let plain = wish(None, None).unwrap().unwrap();
        assert_eq!((plain.newest, plain.end, plain.is_said), (LogSource::Live, JoinEnd::Newest, false));
        let said = wish(Some("17"), Some(3)).unwrap().unwrap();
        assert_eq!(said.newest, LogSource::Backup("17".to_owned()));
        assert_eq!((said.end, said.is_said), (JoinEnd::Generation(3), true));
        assert_eq!(wish(Some("log~1"), None).unwrap().unwrap().newest, LogSource::Left("log~1".to_owned()));
        assert!(wish(Some("none"), None).unwrap().is_none());
        assert!(wish(Some("none"), Some(3)).is_err());
    }

    #[test]
    fn times_and_generations_are_read() {
        let time = log_time("2026-11-29T11:00:00.5+01:00").unwrap();
        assert_eq!(time.to_string(), "2026-11-29 10:00:00.500 UTC");
        for text in ["2026-11-29", "10:00", "1950-01-01T00:00:00Z", "2200-01-01T00:00:00Z"] {
            assert!(log_time(text).is_err(), "{text}");
        }
        assert_eq!((log_generation("1A"), log_generation("0x1a")), (Ok(26), Ok(26)));
        assert!(["0", "G", "-1", "100000000"].iter().all(|text| log_generation(text).is_err()));
    }
}
