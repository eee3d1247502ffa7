//! `spindle dr suspend` and `spindle dr resume`: one group or all that are primary here, one after the other.

use super::{GROUPS_PATH, day_window::parse_day_window, find, status, whole_groups};
use crate::{
    console::Console, exit_status::ExitStatus, quantity::parse_size, server::connection::ServerConnection,
};
use control::{
    dr::group_view::DrRole,
    web::client::{DrGroupList, DrGroupRow, DrMergePlan, DrMergeStart, Method},
};
use report::Refusal;

/// Groups that merge at one time, if nothing else is said.
const STAGGERED: u8 = 1;

/// The groups that a verb is about.
#[derive(Clone, Debug, clap::Args)]
pub struct DrGroupChoice {
    /// Name of the group
    #[arg(value_name = "GROUP", required_unless_present = "all")]
    pub group: Option<String>,

    /// All groups that are primary here, in the order of 'dr status'
    #[arg(long, conflicts_with = "group")]
    pub all: bool,
}

/// Reads the word of --merge.
pub fn parse_merge(text: &str) -> Result<DrMergeStart, String> {
    match text.split_once('=') {
        None if text == "at-once" => Ok(DrMergeStart::AtOnce),
        Some(("staggered", groups)) => match groups.parse() {
            Ok(groups) if (1..=64).contains(&groups) => Ok(DrMergeStart::Staggered { groups }),
            _ => Err("staggered has a number of groups from 1 to 64".to_owned()),
        },
        Some(("window", times)) => {
            let (from, until) = parse_day_window(times)?;
            Ok(DrMergeStart::Window { from, until })
        }
        _ => Err("say at-once, staggered=N or window=HH:MM-HH:MM".to_owned()),
    }
}

/// Reads a rate: a size a second.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let size = text.strip_suffix("/s").ok_or("a rate is a size a second, such as 20MB/s")?;
    match parse_size(size)?.0 {
        0 => Err("a rate is above 0".to_owned()),
        rate => Ok(rate),
    }
}

/// Stops the groups from being sent.
pub async fn suspend(
    server: &ServerConnection,
    choice: &DrGroupChoice,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    for_each((server, "suspend"), choice, None, console).await
}

/// Goes on sending the groups.
pub async fn resume(
    server: &ServerConnection,
    choice: &DrGroupChoice,
    (merge, rate): (Option<&DrMergeStart>, Option<u64>),
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let start = merge.cloned().unwrap_or(DrMergeStart::Staggered { groups: STAGGERED });
    let plan = DrMergePlan { start, bytes_per_second: rate };
    for_each((server, "resume"), choice, Some(&plan), console).await
}

async fn for_each(
    (server, what): (&ServerConnection, &str),
    choice: &DrGroupChoice,
    plan: Option<&DrMergePlan>,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let change = async |row: &DrGroupRow| -> Result<DrGroupRow, Refusal> {
        let path = format!("{GROUPS_PATH}/{}/{what}", row.group);
        server.change(Method::POST, &path, plan).await?.parsed()
    };
    if let Some(group) = &choice.group {
        let row = find(server, group).await?;
        return status::show_change(&change(&row).await?, console);
    }
    let list: DrGroupList = server.get(GROUPS_PATH).await?;
    let wholes = whole_groups(&list.groups);
    let primaries: Vec<&DrGroupRow> = wholes.filter(|row| row.role == DrRole::Primary).collect();
    if primaries.is_empty() {
        return Err(Refusal::new("no DR group is primary here", "say it at the other site"));
    }
    let (mut changed, mut refused) = (Vec::new(), 0);
    for row in primaries {
        match change(row).await {
            Ok(row) => changed.push(row),
            Err(refusal) => {
                refused += 1;
                console.warn(&refusal.to_string());
            }
        }
    }
    if console.is_for_programs() {
        console.json_of(&changed)?;
    }
    changed.iter().for_each(|row| status::say_group(row, console));
    console.finish(if refused == 0 { ExitStatus::Pass } else { ExitStatus::Fail })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_and_rates_are_read_from_words() {
        let window = DrMergeStart::Window { from: "22:00".to_owned(), until: "05:00".to_owned() };
        assert_eq!(parse_merge("at-once"), Ok(DrMergeStart::AtOnce));
        assert_eq!(parse_merge("staggered=4"), Ok(DrMergeStart::Staggered { groups: 4 }));
        assert_eq!(parse_merge("window=22:00-05:00"), Ok(window));
        for wrong in ["", "staggered", "staggered=0", "staggered=65", "window=22:00", "at-once=1", "soon"] {
            assert!(parse_merge(wrong).is_err(), "{wrong}");
        }
        assert_eq!(parse_rate("20MB/s"), Ok(20_000_000));
        assert_eq!(parse_rate("64KiB/s"), Ok(65_536));
        for wrong in ["20MB", "0B/s", "/s", "fast"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
    }
}
