//! Site files.

use control::site::{SiteChanges, SiteContext, WantedSite, changes::KnownSite};
use plan::site::{Site, template};

/// Whatever is read is written again as the same, and is wanted or refused.
pub fn check(text: &str) {
    let Ok(site) = Site::from_toml(text) else { return };
    assert_eq!(Site::from_toml(&site.to_toml()).as_ref(), Ok(&site));
    let context = SiteContext { folder: "/site".into(), state: "/state".into(), site: None };
    let Ok(wanted) = WantedSite::described(&site, &context) else { return };
    let changes = SiteChanges::between(&KnownSite::default(), &wanted, &[]);
    let changes = changes.expect("nothing is there that could be lost");
    changes.shown().iter().for_each(|change| assert!(!change.to_string().is_empty()));
}

/// A file with every key, without its comments.
pub fn seed() -> String {
    let lines = template().lines().filter(|line| !line.starts_with("# ")).map(str::to_owned).collect::<Vec<_>>();
    lines.join("\n").replace("\n#", "\n")
}
