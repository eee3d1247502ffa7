//! `spindle dr verify`: both sites of a group compared as of one cut, by the server that is primary.

use super::{GROUPS_PATH, look};
use crate::{console::Console, exit_status::ExitStatus, server::connection::ServerConnection};
use control::web::client::{DrGroupRow, DrVerificationRow, DrVerifyOutcome, Method};
use report::{Refusal, duration::show_estimate};
use std::time::Duration;
use world::{ByteCount, World, real::signals::interrupted, with_deadline};

/// Interval of asking how far it is, and of saying so.
const ASK_EVERY: Duration = Duration::from_millis(250);
const SAY_EVERY: u32 = 20;

pub async fn verify(
    (world, server): (&World, &ServerConnection),
    group: &str,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    // Parts of a group with volumes in several pools are compared one after the other.
    let (_, list) = look(server, Some(group)).await?;
    let mut status = ExitStatus::Pass;
    for row in &list.groups {
        let ended = verify_part((world, server), row, console).await?;
        if ended != ExitStatus::Pass {
            status = ended;
        }
    }
    console.finish(status)
}

async fn verify_part(
    (world, server): (&World, &ServerConnection),
    group: &DrGroupRow,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let path = format!("{GROUPS_PATH}/{}/verifications", group.group);
    let begun: DrVerificationRow = server.change(Method::POST, &path, None::<&()>).await?.parsed()?;
    let compared = async {
        let mut asked = 0_u32;
        loop {
            let row: DrVerificationRow = server.get(&path).await?;
            if row.verification != begun.verification {
                let problem = format!("{}: another comparison began", group.name);
                return Err(Refusal::new(problem, "see that one"));
            }
            if row.outcome != DrVerifyOutcome::Running {
                return Ok(row);
            }
            asked += 1;
            if asked.is_multiple_of(SAY_EVERY) {
                console.say_progress(&progress(&row));
            }
            world.sleep(ASK_EVERY).await;
        }
    };
    let stop = interrupted();
    let stopped = async {
        let _ = stop.await;
    };
    let Some(row) = with_deadline(stopped, compared).await else {
        server.change(Method::DELETE, &path, None::<&()>).await?.checked()?;
        return Err(Refusal::new(
            format!("{}: interrupted, and given up", group.name),
            "nothing was changed",
        ));
    };
    show(&row?, console)
}

fn progress(row: &DrVerificationRow) -> String {
    let (done, all) = (ByteCount(row.compared_bytes), ByteCount(row.total_bytes));
    let left = row.seconds_left.map(|left| format!(", {}", show_estimate(Duration::from_secs(left))));
    format!("{}: {done} of {all} compared{}", row.name, left.unwrap_or_default())
}

fn show(row: &DrVerificationRow, console: &Console) -> Result<ExitStatus, Refusal> {
    let (name, compared) = (&row.name, ByteCount(row.compared_bytes));
    if console.is_for_programs() {
        console.json_of(row)?;
    }
    for range in &row.different {
        console.say(&format!("{}: {} bytes at {} differ", range.volume, range.length, range.offset));
    }
    let status = match row.outcome {
        DrVerifyOutcome::Equal => {
            console.say(&format!("{name}: both sites are alike, {compared} compared as of one cut"));
            ExitStatus::Pass
        }
        DrVerifyOutcome::Different => {
            let more = if row.problem.is_some() { ", and not all was compared" } else { "" };
            console.say(&format!("{name}: {} blocks differ in {compared}{more}", row.different_blocks));
            ExitStatus::Fail
        }
        DrVerifyOutcome::Failed | DrVerifyOutcome::Running => {
            let why = row.problem.as_deref().unwrap_or("it has not ended");
            return Err(Refusal::new(
                format!("{name} was not compared to the end: {why}"),
                "say it again once 'spindle dr status' says streaming",
            ));
        }
    };
    console.finish(status)
}
