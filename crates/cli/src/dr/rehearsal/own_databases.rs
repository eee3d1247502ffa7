//! Spindle's own databases on the clones: recovered as after a crash, then checked page by page.

use super::{Judgement, PublishedStep, Stopwatch};
use report::{Refusal, prose::counted};
use runs::crash_copies::{CopiedRun, DeviceCopy, find};
use workload::database::{Error, measure::recovery::GroupRecovery};
use world::World;

/// Finds, recovers and checks the databases.
///
/// # Errors
///
/// There are none, or the clones could not be read to the end.
pub(super) async fn judge(
    world: &World,
    copies: &[DeviceCopy],
    watch: &mut Stopwatch<'_>,
) -> Result<Judgement, Refusal> {
    let found = find(copies).await.map_err(|error| unread(&Error::Storage(error)))?;
    let groups = match found {
        CopiedRun::Groups(groups) => groups,
        CopiedRun::Incomplete(problems) => {
            watch.step("Find the databases", Some(PublishedStep::DATABASES));
            return Ok(failed(problems));
        }
        CopiedRun::NotOurs(found) => {
            let problem = format!("no database of ours was found on these volumes: {}", found.join(", "));
            return Err(Refusal::new(problem, "say ⟨check⟩ COMMAND to judge them by a check of your own"));
        }
    };
    let (mut problems, mut undone, mut replayed, mut is_clean) = (Vec::new(), 0, 0, true);
    for group in &groups {
        match group.recover(world).await.map_err(|error| unread(&error))? {
            GroupRecovery::Recovered(summary) => {
                is_clean &= summary.clean;
                replayed += summary.records_read;
                undone += u64::from(summary.transactions_undone);
            }
            GroupRecovery::Failed(found) => problems.extend(found),
        }
    }
    watch.step("Recover the databases", Some(PublishedStep::DATABASES));
    if !problems.is_empty() {
        return Ok(failed(problems));
    }
    let mut files = Vec::new();
    for group in &groups {
        files.extend(group.verify(world, &mut |_| {}).await.map_err(|error| unread(&error))?);
    }
    watch.step("Check every page and the log", None);
    let damage = files.iter().flat_map(|file| file.damaged.iter().map(|one| format!("{}: {one}", file.name)));
    let problems: Vec<String> = damage.collect();
    let databases: u64 = groups.iter().map(|group| group.databases.len() as u64).sum();
    let databases = counted(databases, "database");
    let headline = match (problems.is_empty(), is_clean) {
        (true, true) => {
            format!("{databases} shut down cleanly, nothing to recover, and every page is in order")
        }
        (true, false) => format!(
            "{databases} recovered ({} read, {} rolled back), and every page is in order",
            counted(replayed, "log record"),
            counted(undone, "transaction")
        ),
        (false, _) => {
            format!("{databases} recovered, and {} found", counted(problems.len() as u64, "damage"))
        }
    };
    Ok(Judgement { problems, headline, files, command_output: None })
}

fn failed(problems: Vec<String>) -> Judgement {
    let headline = format!("the databases cannot be recovered: {}", problems.join("; "));
    Judgement { problems, headline, files: Vec::new(), command_output: None }
}

fn unread(error: &Error) -> Refusal {
    Refusal::new(format!("the clones could not be read to the end: {error}"), "see the server's messages")
}
