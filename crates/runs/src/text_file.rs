//! Small text files that a caller names: profiles and set-ups.

use report::Refusal;
use std::path::Path;
use world::real::host_files::{self, PathKind};

/// Built-in ones have 4 to 12 KiB. A database given by mistake is not read to its end.
const BYTES_MAX: u64 = 1 << 20;

/// The text of the file `name`, given with `setting`; a refusal lists the `known` names.
pub fn read(setting: &str, name: &str, known: &[&str]) -> Result<String, Refusal> {
    read_any(setting, name, &format!("give a file, or one of {}", known.join(", ")))
}

/// The text of the file `name`, given with `setting`; a refusal ends with `remedy`.
pub fn read_any(setting: &str, name: &str, remedy: &str) -> Result<String, Refusal> {
    let refuse = |problem: String| Refusal::new(format!("{setting}: {problem}"), remedy);
    let path = Path::new(name);
    match host_files::kind(path) {
        Ok(PathKind::File) => {}
        Ok(PathKind::Missing) => return Err(refuse(format!("{name} does not exist"))),
        Ok(_) => return Err(refuse(format!("{name} is not a file"))),
        Err(error) => return Err(refuse(error.to_string())),
    }
    let bytes = host_files::read_at_most(path, BYTES_MAX).map_err(|error| refuse(error.to_string()))?;
    String::from_utf8(bytes).map_err(|_| refuse(format!("{name} is not UTF-8 text")))
}
