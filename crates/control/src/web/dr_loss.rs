//! Losses of an unplanned failover, which its caller accepts or not.

use super::{ApiState, dr_groups::FailoverBody, problem::ApiProblem};
use crate::dr::group_view::DrGroupView;
use replication::secondary::KeptState;
use report::{Refusal, calendar::utc_time};

/// Refuses an unplanned failover that may lose more than its caller accepts, or that need not be one.
pub(super) fn check_loss(
    api: &ApiState,
    view: &DrGroupView,
    body: &FailoverBody,
    at: Option<&KeptState>,
) -> Result<(), ApiProblem> {
    if let (Some(_), Some(state)) = (view.connected_since, at) {
        let refusal = Refusal::new(
            format!("the primary of {} is connected, and has what is newer than {}", view.name, state.name),
            "stop its server first; or move the group here as it is, and roll its volumes back",
        );
        return Err(ApiProblem::refused(&refusal));
    }
    if view.connected_since.is_some() {
        let refusal = Refusal::new(
            format!("the primary of {} is connected: nothing has to be lost", view.name),
            format!("'spindle failover {}' without ⟨unplanned⟩ moves its hosts here", view.name),
        );
        return Err(ApiProblem::refused(&refusal));
    }
    if body.accept_any_loss {
        return Ok(());
    }
    if let Some(state) = at {
        return check_loss_since(api, view, body, state);
    }
    let Some((since, was_in_sync)) = view.complete_until else {
        let refusal = Refusal::new(
            format!(
                "the primary of {} has said nothing since this server was started, so what may be lost is not known",
                view.name
            ),
            "say ⟨accept-loss⟩ all, if that site is lost",
        );
        return Err(ApiProblem::refused(&refusal));
    };
    let seconds = (api.world.unix_s() - since.seconds).max(0) + 1;
    if body.accept_loss_s.is_some_and(|accepted| accepted >= seconds as f64) {
        return Ok(());
    }
    let in_sync = match was_in_sync {
        true => "; it was in sync, so nothing is lost unless it has gone on alone since",
        false => "",
    };
    let refusal = Refusal::new(
        format!(
            "everything that hosts of {} were answered since {} may be lost: {seconds} s{in_sync}",
            view.name,
            utc_time(since.seconds)
        ),
        format!(
            "make sure that the other site serves no host any more, then say ⟨accept-loss⟩ {}s, or all",
            seconds + 60
        ),
    );
    Err(ApiProblem::refused(&refusal))
}

/// Refuses a failover to a kept state if its caller does not accept that everything newer is lost.
fn check_loss_since(
    api: &ApiState,
    view: &DrGroupView,
    body: &FailoverBody,
    state: &KeptState,
) -> Result<(), ApiProblem> {
    let since = (state.time.0 / 1_000_000_000) as i64;
    let seconds = (api.world.unix_s() - since).max(0) + 1;
    if body.accept_loss_s.is_some_and(|accepted| accepted >= seconds as f64) {
        return Ok(());
    }
    let refusal = Refusal::new(
        format!(
            "everything that hosts of {} were answered since {}, the time of {}, is lost: {seconds} s",
            view.name,
            utc_time(since),
            state.name
        ),
        format!(
            "make sure that the other site serves no host any more, then say ⟨accept-loss⟩ {}s, or all",
            seconds + 60
        ),
    );
    Err(ApiProblem::refused(&refusal))
}
