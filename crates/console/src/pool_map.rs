//! The map of a pool: its drives as bars, by failure domain or failure set.

use crate::shown;
use control::web::health_rows::{DriveRow, DriveState};
use std::{collections::BTreeMap, fmt::Write};

/// Bars of a line.
const ACROSS: usize = 6;
const STEP_X: usize = 180;
const STEP_Y: usize = 52;
const BAR_WIDTH: f64 = 164.0;
const TITLE_HEIGHT: usize = 22;
/// Characters of a name below a bar.
const NAME_CHARS: usize = 24;

/// A picture of the drives, for those who see it: a table has the same.
pub(crate) fn pool_map(drives: &[DriveRow]) -> String {
    let mut groups: BTreeMap<String, Vec<&DriveRow>> = BTreeMap::new();
    for drive in drives {
        let group = match (&drive.domain, drive.set) {
            (Some(domain), _) => format!("Domain {domain}"),
            (None, Some(set)) => format!("Failure set {set}"),
            (None, None) => String::new(),
        };
        groups.entry(group).or_default().push(drive);
    }
    let mut bars = String::new();
    let mut y = 4;
    for (group, drives) in &groups {
        if !group.is_empty() {
            let _ = write!(bars, "<text x=\"4\" y=\"{}\">{}</text>", y + 14, in_html(group));
            y += TITLE_HEIGHT;
        }
        for (index, drive) in drives.iter().enumerate() {
            bar(&mut bars, drive, 4 + index % ACROSS * STEP_X, y + index / ACROSS * STEP_Y);
        }
        y += drives.len().div_ceil(ACROSS) * STEP_Y + 6;
    }
    let width = ACROSS * STEP_X;
    format!(
        "<svg class=\"map\" viewBox=\"0 0 {width} {y}\" role=\"img\" aria-label=\"Map of {} drives; the table below has the same\">\
         {bars}</svg>",
        drives.len()
    )
}

fn bar(out: &mut String, drive: &DriveRow, x: usize, y: usize) {
    let size = drive.size_bytes.unwrap_or(0);
    let name = drive.bay.as_deref().or(drive.serial.as_deref()).unwrap_or_else(|| file_name(&drive.path));
    let name: String = name.chars().take(NAME_CHARS).collect();
    let _ = write!(out, "<g><title>{}</title>", in_html(&drive.name));
    match drive.state {
        DriveState::InUse | DriveState::Leaving => {
            let share = if size == 0 { 0.0 } else { (drive.used_bytes as f64 / size as f64).clamp(0.0, 1.0) };
            let state = match share {
                share if share >= 0.95 => " full",
                share if share >= 0.8 => " high",
                _ => "",
            };
            let used = share * BAR_WIDTH;
            let _ = write!(
                out,
                "<rect class=\"whole\" x=\"{x}\" y=\"{y}\" width=\"{BAR_WIDTH}\" height=\"16\" rx=\"2\"/>\
                 <rect class=\"used{state}\" x=\"{x}\" y=\"{y}\" width=\"{used:.1}\" height=\"16\" rx=\"2\"/>"
            );
        }
        DriveState::Unused | DriveState::Missing => {
            let _ = write!(
                out,
                "<rect class=\"absent\" x=\"{x}\" y=\"{y}\" width=\"{BAR_WIDTH}\" height=\"16\" rx=\"2\"/>"
            );
        }
    }
    let words = match drive.state {
        DriveState::InUse => shown::percent(&drive.used_bytes, &size),
        DriveState::Leaving => "leaving".to_owned(),
        DriveState::Unused => "not in use".to_owned(),
        DriveState::Missing => "missing".to_owned(),
    };
    let end = x as f64 + BAR_WIDTH;
    let _ = write!(
        out,
        "<text x=\"{x}\" y=\"{}\">{}</text><text class=\"soft\" x=\"{end}\" y=\"{}\" text-anchor=\"end\">{words}</text></g>",
        y + 30,
        in_html(&name),
        y + 30
    );
}

pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A text with the signs of HTML escaped.
pub(crate) fn in_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(name: &str, state: DriveState, domain: Option<&str>) -> DriveRow {
        DriveRow {
            id: Some(name.to_owned()),
            name: name.to_owned(),
            path: format!("/pools/mail/{name}"),
            recorded_path: String::new(),
            has_left: false,
            state,
            reason: None,
            serial: None,
            model: None,
            bay: None,
            size_bytes: Some(1000),
            whole_bytes: None,
            used_bytes: 250,
            domain: domain.map(str::to_owned),
            set: None,
            unused_bytes: 0,
            only_copy_bytes: 0,
            leaving: None,
        }
    }

    #[test]
    fn each_drive_is_a_bar_in_its_domain_and_names_are_escaped() {
        let drives =
            [drive("a<b", DriveState::InUse, Some("left")), drive("c", DriveState::Missing, Some("right"))];
        let map = pool_map(&drives);
        assert_eq!(map.matches("<g>").count(), 2);
        assert!(map.contains("Domain left") && map.contains("Domain right"));
        assert!(map.contains("a&lt;b") && !map.contains("a<b"), "{map}");
        assert!(map.contains("width=\"41.0\"") && map.contains("25.0 %"), "a quarter is used: {map}");
        assert!(map.contains("class=\"absent\"") && map.contains("missing"));
        assert!(!map.contains("style="), "the policy forbids it");
    }
}
