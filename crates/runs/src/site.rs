//! A site as defaults for options the user left open.

use crate::{request::RunRequest, sweep::SweptSetting, text_file};
use ::plan::site::{Proving, Site};
use report::Refusal;
use std::path::PathBuf;
use world::ByteCount;

/// `request` with open options filled in from its site, if it names one, and the parts of the site that the
/// run leaves out.
pub fn filled_in(request: &RunRequest) -> Result<(RunRequest, Vec<String>), Refusal> {
    let Some(name) = &request.site else { return Ok((request.clone(), Vec::new())) };
    let site = read("⟨site⟩", name)?;
    let proving = site.proving();
    let mut filled = fill_in(request, &proving);
    filled.storage_cache = storage_cache(&site);
    Ok((filled, proving.left_out))
}

/// The site in the file `name`, which `flag` gives.
pub fn read(flag: &str, name: &str) -> Result<Site, Refusal> {
    let text = text_file::read_any(flag, name, "give a site file, as 'spindle plan' writes it")?;
    Site::from_toml(&text).map_err(|error| Refusal::new(format!("{name}: {error}"), ""))
}

/// `request` with open options filled in from `proving`. Sizes stay open: a run takes what is safe here.
///
/// Of mailboxes and their rate one may be given alone: the other is the site's.
fn fill_in(request: &RunRequest, proving: &Proving) -> RunRequest {
    let mut filled = request.clone();
    if filled.paths.is_empty() {
        filled.paths = proving.paths.iter().map(PathBuf::from).collect();
        if filled.logs.is_empty() {
            filled.logs = proving.logs.iter().map(PathBuf::from).collect();
        }
    }
    filled.groups = filled.groups.or(proving.groups);
    filled.databases = filled.databases.or(proving.databases);
    filled.profile = filled.profile.or_else(|| proving.profile.clone());
    filled.limits = filled.limits.or_else(|| proving.limits.clone());
    let is_swept = filled.sweep.as_ref().is_some_and(|sweep| sweep.setting == SweptSetting::Threads);
    if filled.threads.is_none() && !filled.max && !is_swept {
        filled.mailboxes = filled.mailboxes.or(proving.mailboxes);
        filled.iops = filled.iops.or(proving.iops_each);
    }
    filled
}

/// Cache of the arrays with active copies, if the site names any.
fn storage_cache(site: &Site) -> Option<ByteCount> {
    let mut arrays: Vec<(&str, f64)> = Vec::new();
    for volume in site.volumes.iter().filter(|volume| volume.role.has_databases() && volume.copy == 1) {
        let Some(group) = site.group(&volume.group) else { continue };
        let array = if group.array.is_empty() { &group.name } else { &group.array };
        if let Some(cache_gb) = group.cache_gb
            && !arrays.iter().any(|(known, _)| known == array)
        {
            arrays.push((array, cache_gb));
        }
    }
    let gib: f64 = arrays.iter().map(|(_, cache_gb)| cache_gb).sum();
    (gib > 0.0).then_some(ByteCount((gib * (1_u64 << 30) as f64) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{request::Threads, sweep::SweepSpec};

    const SITE: &str = r#"
        [users]
        mailboxes = 5000
        iops_each = 0.15
        rules = "exchange-2010"
        [databases]
        count = 12
        [demand]
        headroom_percent = 20
        [limits]
        set = "equallogic"
        [[group]]
        name = "mail"
        array = "EVA8000"
        cache_gb = 4
        [[volume]]
        name = "db1"
        group = "mail"
        path = "/mnt/db1"
    "#;

    #[track_caller]
    fn filled(given: RunRequest) -> RunRequest {
        fill_in(&given, &Site::from_toml(SITE).unwrap().proving())
    }

    #[test]
    fn a_site_fills_in_what_was_not_said() {
        let run = filled(RunRequest::default());
        assert_eq!((run.groups, run.databases, run.size), (Some(12), Some(1), None));
        assert_eq!((run.mailboxes, run.iops), (Some(5000), Some(0.18)));
        assert_eq!(
            (run.profile.as_deref(), run.limits.as_deref()),
            (Some("exchange-2010"), Some("equallogic"))
        );
        assert_eq!(run.paths, [PathBuf::from("/mnt/db1")]);
    }

    #[test]
    fn what_was_said_stands() {
        let run = filled(RunRequest {
            groups: Some(2),
            mailboxes: Some(9),
            paths: vec!["/mnt/other".into()],
            ..RunRequest::default()
        });
        assert_eq!((run.groups, run.mailboxes, run.iops), (Some(2), Some(9), Some(0.18)));
        assert_eq!(run.paths, [PathBuf::from("/mnt/other")]);
        assert_eq!(filled(RunRequest { max: true, ..RunRequest::default() }).mailboxes, None);
        let threads = filled(RunRequest { threads: Some(Threads::Count(4)), ..RunRequest::default() });
        assert_eq!((threads.threads, threads.mailboxes), (Some(Threads::Count(4)), None));
        let sweep = Some(SweepSpec::parse("threads=1,2").expect("a sweep"));
        assert_eq!(filled(RunRequest { sweep, ..RunRequest::default() }).mailboxes, None);
    }

    #[test]
    fn the_cache_of_an_array_is_counted_once() {
        let site = Site::from_toml(SITE).unwrap();
        assert_eq!(storage_cache(&site), Some(ByteCount::gib(4)));
        assert_eq!(storage_cache(&Site::default()), None);
    }
}
