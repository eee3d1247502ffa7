//! Versions of rows in requests and answers: `ETag`, and what `If-Match` and repeated requests expect of them.

use super::{
    changing::{ChangeIdentity, FirstSeen},
    problem::ApiProblem,
};
use axum::{
    Json,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use report::Refusal;
use serde::Serialize;

/// A row with its version.
pub(super) fn tagged(status: StatusCode, tag: &str, body: impl Serialize) -> Response {
    let tag = HeaderValue::from_str(tag).expect("hexadecimal digits");
    (status, [(header::ETAG, tag)], Json(body)).into_response()
}

/// Lists of versions: a row must be in each of them.
#[derive(Clone, Debug, Default)]
pub(super) struct ExpectedTags(Vec<Vec<String>>);

impl ExpectedTags {
    /// As `If-Match` says; and a request that is repeated finds the row as the first one did.
    ///
    /// # Errors
    ///
    /// An `If-Match` is no list of tags.
    pub fn of(
        headers: &HeaderMap,
        (identity, FirstSeen(first)): (ChangeIdentity, &FirstSeen),
    ) -> Result<Self, ApiProblem> {
        let mut lists = Vec::new();
        for given in headers.get_all(header::IF_MATCH) {
            let given = given
                .to_str()
                .map_err(|_| ApiProblem::bad_request("If-Match is not ASCII", "send an ETag"))?;
            if given.trim() != "*" {
                lists.push(given.split(',').map(|tag| tag.trim().to_owned()).collect());
            }
        }
        if let Some(first) = first.as_ref().filter(|_| identity.may_be_done) {
            lists.push(vec![first.tag.clone()]);
        }
        Ok(Self(lists))
    }

    /// Refuses a row that has another version, or is gone; `what` names it.
    pub fn check(&self, what: &str, now: impl FnOnce() -> Option<String>) -> Result<(), ApiProblem> {
        if self.0.is_empty() {
            return Ok(());
        }
        let now = now();
        if self.0.iter().all(|list| now.as_ref().is_some_and(|now| list.contains(now))) {
            return Ok(());
        }
        let problem = format!("the {what} has changed since it was read");
        let refusal = Refusal::new(problem, "read it again, and decide again");
        Err(ApiProblem::new(StatusCode::PRECONDITION_FAILED, "changed", &refusal))
    }
}
