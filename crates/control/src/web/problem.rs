//! Problems as RFC 9457 has them: the line that the command line would print, and the next step.

use crate::{
    journal::JournalError, order::OrderRefusal, pool_changes::ChangeRefusal, site::handle::RequestRefusal,
};
use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use report::{Refusal, RefusalCause, settings};
use serde::{Deserialize, Serialize};
use utoipa::{ToResponse, ToSchema};

/// A problem, as `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToResponse, ToSchema)]
#[response(description = "The problem, and what to do", content_type = "application/problem+json")]
pub struct ApiProblem {
    /// Stable name of its kind: `urn:spindle:` and a word.
    #[serde(rename = "type")]
    pub kind: String,
    /// HTTP status.
    pub status: u16,
    /// Name of the status.
    pub title: String,
    /// The problem, in a line.
    pub detail: String,
    /// The next step; left out if there is nothing to be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl ApiProblem {
    pub fn new(status: StatusCode, kind: &str, refusal: &Refusal) -> Self {
        let next = Some(refusal.remedy().to_owned()).filter(|next| !next.is_empty());
        Self {
            kind: format!("urn:spindle:{kind}"),
            status: status.as_u16(),
            title: status.canonical_reason().unwrap_or_default().to_owned(),
            detail: refusal.problem().to_owned(),
            next,
        }
    }

    /// Something that the path names is not there.
    pub fn not_found(what: impl Into<String>) -> Self {
        let refusal = Refusal::new(what, "list what there is with GET");
        Self::new(StatusCode::NOT_FOUND, "not-found", &refusal)
    }

    /// The request makes no sense.
    pub fn bad_request(problem: impl Into<String>, next: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad-request", &Refusal::new(problem, next))
    }

    /// The present state does not allow it.
    pub fn refused(refusal: &Refusal) -> Self {
        Self::new(StatusCode::CONFLICT, "refused", refusal)
    }

    /// True if its texts name settings, as ⟨name⟩.
    pub(super) fn has_settings(&self) -> bool {
        self.detail.contains('⟨') || self.next.as_ref().is_some_and(|next| next.contains('⟨'))
    }

    /// The same with settings by the names of their fields.
    pub(super) fn with_fields(self) -> Self {
        Self { detail: in_fields(&self.detail), next: self.next.as_deref().map(in_fields), ..self }
    }

    /// The problem as the command line shows it.
    pub fn refusal(&self) -> Refusal {
        Refusal::new(&self.detail, self.next.as_deref().unwrap_or_default())
    }
}

/// A text with settings by the names of their fields.
fn in_fields(text: &str) -> String {
    let field = |setting: &str| match setting {
        "shrink" => "may_shrink".to_owned(),
        setting => setting.replace('-', "_"),
    };
    settings::spelled(text, field).into_owned()
}

impl From<Refusal> for ApiProblem {
    fn from(refusal: Refusal) -> Self {
        match refusal.cause() {
            RefusalCause::Request => Self::refused(&refusal),
            RefusalCause::Storage => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "storage-failed", &refusal),
            RefusalCause::StoppedPool => Self::new(StatusCode::SERVICE_UNAVAILABLE, "pool-stopped", &refusal),
        }
    }
}

impl From<JournalError> for ApiProblem {
    fn from(error: JournalError) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "journal", &error.refusal())
    }
}

impl From<OrderRefusal> for ApiProblem {
    fn from(refusal: OrderRefusal) -> Self {
        let kind = match refusal {
            OrderRefusal::Full => "busy",
            OrderRefusal::Stopped => "pool-stopped",
        };
        let next = match refusal {
            OrderRefusal::Full => "try again",
            OrderRefusal::Stopped => "see the server's messages, and start it again",
        };
        Self::new(StatusCode::SERVICE_UNAVAILABLE, kind, &Refusal::new(refusal.to_string(), next))
    }
}

impl From<ChangeRefusal> for ApiProblem {
    fn from(refusal: ChangeRefusal) -> Self {
        match refusal {
            ChangeRefusal::NoFolder => Self::refused(&Refusal::new(refusal.to_string(), "")),
            ChangeRefusal::UnderWay(_) => {
                let refusal = Refusal::new(refusal.to_string(), "try again once it has ended");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", &refusal)
            }
        }
    }
}

impl From<RequestRefusal> for ApiProblem {
    fn from(refusal: RequestRefusal) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", &Refusal::new(refusal.to_string(), "try again"))
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(&self)).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"spindle\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
        }
        // The audit repeats it.
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_the_names_of_their_fields() {
        let refusal =
            Refusal::new("what lies behind 1 MiB would be lost", "say ⟨shrink⟩, or ⟨write-cache⟩ off");
        let problem = ApiProblem::refused(&refusal);
        assert!(problem.has_settings());
        assert_eq!(problem.with_fields().next.unwrap(), "say may_shrink, or write_cache off");
        assert!(!ApiProblem::not_found("nothing").has_settings());
    }
}
