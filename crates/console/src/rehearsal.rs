//! A rehearsal of a failover, begun and ended on the page of its DR group: clones that the server serves and does not judge.

use crate::{
    dr_group::page,
    fields::Fields,
    page::{PageResult, see},
    shown as show,
    visit::{FormChange, Visit, escaped},
};
use axum::{extract::Path, http::Method};
use control::web::{
    ApiProblem,
    client::{NewRehearsalBody, PastRehearsalRow, RehearsalOutcome, RehearsalRow},
};
use report::calendar::parse_time;

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 3600;

fn rehearsals_path(group: &str) -> String {
    format!("/v1/dr/groups/{}/rehearsals", escaped(group))
}

/// The rehearsals of a group that are under way here: one at most.
pub(crate) async fn under_way(visit: &Visit, group: &str) -> Result<Vec<RehearsalRow>, ApiProblem> {
    visit.get(&rehearsals_path(group)).await
}

/// The last answer of a rehearsal: class of a mark, and word.
pub(crate) fn outcome(past: &PastRehearsalRow) -> (&'static str, &'static str) {
    match past.outcome {
        RehearsalOutcome::Passed => ("good", "passed"),
        RehearsalOutcome::Failed => ("error", "failed"),
    }
}

/// The state that the clones show.
pub(crate) fn state(rehearsal: &RehearsalRow) -> String {
    match (&rehearsal.state, &rehearsal.complete_until) {
        (Some(state), _) => format!("as of the kept state {state}"),
        _ if rehearsal.is_merging => {
            "as of the beginning of the pass that was under way: a promotion then would have gone back there"
                .to_owned()
        }
        (None, Some(until)) => {
            format!(
                "as of the last write that had come: everything answered until {} is there",
                show::time(until)
            )
        }
        (None, None) => "as of the last write that had come".to_owned(),
    }
}

/// Begins a rehearsal of the group.
pub(crate) async fn begin(visit: Visit, Path(id): Path<String>, fields: Fields) -> PageResult {
    let begun = async {
        let body = NewRehearsalBody {
            idle_s: fields.number::<u64>("idle_minutes")?.saturating_mul(MINUTE_S),
            at_most_s: fields.number::<u64>("hours")?.saturating_mul(HOUR_S),
            at: Some(fields.text("state").to_owned()).filter(|state| !state.is_empty()),
        };
        visit.change::<RehearsalRow>((Method::POST, &rehearsals_path(&id)), &body, fields.change()).await
    };
    match begun.await {
        Ok(_) => Ok(see(&format!("/replication/{}?done=rehearsing#rehearsal", escaped(&id)))),
        Err(problem) => page(&visit, &id, Some(problem), &fields).await,
    }
}

/// Ends the rehearsal of the group whose name was typed, with the answer of the person who has checked its clones.
pub(crate) async fn end(
    visit: Visit,
    Path((id, rehearsal)): Path<(String, String)>,
    fields: Fields,
) -> PageResult {
    let ended = async {
        let rows = under_way(&visit, &id).await?;
        let row = rows.into_iter().find(|row| row.rehearsal == rehearsal);
        let gone = || ApiProblem::not_found("this rehearsal has ended: its clones are deleted");
        let row = row.ok_or_else(gone)?;
        fields.check_typed("group", &row.name)?;
        let path =
            format!("{}/{}{}", rehearsals_path(&id), escaped(&rehearsal), answer(&visit, &row, &fields)?);
        let change = FormChange { tag: None, ..fields.change() };
        visit.change::<()>((Method::DELETE, &path), &(), change).await
    };
    match ended.await {
        Ok(()) => Ok(see(&format!("/replication/{}?done=rehearsed#rehearsal", escaped(&id)))),
        Err(problem) => page(&visit, &id, Some(problem), &fields).await,
    }
}

/// The query that records the answer of the form, with the time that it took; empty without an answer.
fn answer(visit: &Visit, row: &RehearsalRow, fields: &Fields) -> Result<String, ApiProblem> {
    match fields.text("outcome") {
        "" => Ok(String::new()),
        outcome @ ("passed" | "failed") => {
            let began = parse_time(&row.began).unwrap_or_else(|| visit.unix_s());
            let seconds = (visit.unix_s() - began).max(0);
            Ok(format!("?outcome={outcome}&seconds={seconds}"))
        }
        other => Err(ApiProblem::bad_request(
            format!("{other:?} is no answer of a rehearsal"),
            "choose passed or failed, or leave it open",
        )),
    }
}
