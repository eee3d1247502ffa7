//! `spindle failover --all`: the groups that are primary at one site, one after the other, each whole.
//!
//! A group that has moved is not primary there any more, so the same command goes on after a kill, and does the rest.

use super::{GROUPS_PATH, arguments::FailoverArguments, failover_body, look, status, whole_groups};
use crate::{console::Console, exit_status::ExitStatus, server::connection::ServerConnection};
use control::{
    dr::group_view::DrRole,
    web::client::{DrGroupRow, DrSites, DrWithheldRow, FailoverAnswer, Method},
};
use report::Refusal;
use serde::Serialize;
use world::World;

/// The fate of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum GroupFate {
    Moved,
    Stayed,
    /// It would be moved: nothing was done.
    WouldMove,
}

#[derive(Debug, Serialize)]
struct MovedGroup {
    group: String,
    from: String,
    to: String,
    fate: GroupFate,
    seconds: f64,
    /// The reason for which it stayed, and the next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Something that its hosts were answered may be lost.
    may_have_lost: bool,
    /// Hosts from which its volumes are withheld.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    withheld: Vec<DrWithheldRow>,
}

/// Groups that are primary at a site, as this one knows it; in the order of `dr status`.
fn groups_of<'r>(
    sites: &DrSites,
    rows: &'r [DrGroupRow],
    from: &str,
) -> Result<Vec<(&'r DrGroupRow, String)>, Refusal> {
    if from == sites.name {
        let own = whole_groups(rows).filter(|row| row.role == DrRole::Primary);
        return Ok(own.map(|row| (row, row.peer.clone())).collect());
    }
    if !sites.peers.iter().any(|peer| peer.name == from) {
        let known: Vec<&str> = sites.peers.iter().map(|peer| peer.name.as_str()).collect();
        let next = format!("say {}, or a paired site: {}", sites.name, known.join(", "));
        return Err(Refusal::new(format!("there is no site {from:?}"), next));
    }
    let theirs = whole_groups(rows).filter(|row| row.role == DrRole::Secondary && row.peer == from);
    Ok(theirs.map(|row| (row, sites.name.clone())).collect())
}

pub async fn run(
    (world, server): (&World, &ServerConnection),
    arguments: &FailoverArguments,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let (sites, groups) = look(server, None).await?;
    let from = arguments.from.as_ref().unwrap_or(&sites.name);
    if arguments.unplanned && *from == sites.name {
        let next = "say ⟨from⟩ and the name of the site that is lost";
        return Err(Refusal::new("an unplanned failover is said at the site that takes over", next));
    }
    let chosen = groups_of(&sites, &groups.groups, from)?;
    if groups.is_incomplete {
        console.warn("a pool is not open: its groups are not known");
    }
    let mut moved = Vec::new();
    for (row, to) in chosen {
        let begun = world.now();
        let asked = match arguments.dry_run {
            true => Ok(None),
            false => {
                console.say_progress(&format!("{}: from {from} to {to}", row.name));
                fail_over(server, row, arguments).await
            }
        };
        let (fate, answer, refusal) = match asked {
            Ok(None) => (GroupFate::WouldMove, None, None),
            Ok(Some(answer)) => (GroupFate::Moved, Some(answer), None),
            Err(refusal) => (GroupFate::Stayed, None, Some(refusal)),
        };
        moved.push(MovedGroup {
            group: row.name.clone(),
            from: from.clone(),
            to,
            fate,
            seconds: world.now().since(begun).as_secs_f64(),
            problem: refusal.as_ref().map(|refusal| refusal.problem().to_owned()),
            next: refusal.as_ref().map(|refusal| refusal.remedy().to_owned()),
            may_have_lost: answer.as_ref().is_some_and(|answer| answer.may_have_lost),
            withheld: answer.map(|answer| answer.group.withheld).unwrap_or_default(),
        });
    }
    if console.is_for_programs() {
        console.json_of(&moved)?;
    }
    table(&moved).iter().for_each(|line| console.say(line));
    for one in moved.iter().filter(|one| one.may_have_lost) {
        let lines = status::steps_of_hosts(&one.group, &one.from, &one.withheld);
        lines.iter().for_each(|line| console.say(line));
    }
    if moved.is_empty() {
        console
            .say(&format!("no group is primary at {from}, as far as this site knows: nothing is left to do"));
    }
    let stayed = moved.iter().any(|one| one.fate == GroupFate::Stayed) || groups.is_incomplete;
    console.finish(if stayed { ExitStatus::Fail } else { ExitStatus::Pass })
}

async fn fail_over(
    server: &ServerConnection,
    row: &DrGroupRow,
    arguments: &FailoverArguments,
) -> Result<Option<FailoverAnswer>, Refusal> {
    let path = format!("{GROUPS_PATH}/{}/failover", row.group);
    let body = failover_body(arguments);
    server.change(Method::POST, &path, Some(&body)).await?.parsed().map(Some)
}

/// A line for each group, in columns.
fn table(moved: &[MovedGroup]) -> Vec<String> {
    let width = moved.iter().map(|one| one.group.chars().count()).max().unwrap_or(0);
    let line = |one: &MovedGroup| {
        let what = match one.fate {
            GroupFate::Moved => format!("moved to {} in {:.1} s", one.to, one.seconds),
            GroupFate::WouldMove => format!("would move from {} to {}", one.from, one.to),
            GroupFate::Stayed => {
                let problem = one.problem.as_deref().unwrap_or_default();
                let next = one.next.as_deref().filter(|next| !next.is_empty());
                let next = next.map(|next| format!("; {next}")).unwrap_or_default();
                format!("stayed at {} after {:.1} s: {problem}{next}", one.from, one.seconds)
            }
        };
        crate::console::in_options(&format!("{:width$}  {what}", one.group)).into_owned()
    };
    moved.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_what_happened_to_each_group() {
        let one = |group: &str, fate, problem: Option<&str>| MovedGroup {
            group: group.to_owned(),
            from: "boston".to_owned(),
            to: "denver".to_owned(),
            fate,
            seconds: 1.25,
            problem: problem.map(str::to_owned),
            next: problem.map(|_| "see the pool".to_owned()),
            may_have_lost: false,
            withheld: Vec::new(),
        };
        let lines = table(&[
            one("sg1", GroupFate::Moved, None),
            one("queue", GroupFate::Stayed, Some("it does not stream")),
            one("sg2", GroupFate::WouldMove, None),
        ]);
        assert_eq!(
            lines,
            [
                "sg1    moved to denver in 1.2 s",
                "queue  stayed at boston after 1.2 s: it does not stream; see the pool",
                "sg2    would move from boston to denver",
            ]
        );
    }
}
