//! The frame around each page; problems; the headers of all answers.

use crate::{
    assets,
    visit::{Visit, call, escaped},
};
use askama::Template;
use axum::{
    extract::{Request, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use control::web::{ApiProblem, CallerRole, client::CallerRow, page_setting::PageSetting};
use report::Refusal;

/// A page's answer.
pub(crate) type PageResult = Result<Response, PageProblem>;

/// A problem that is a page of its own.
#[derive(Clone, Debug)]
pub(crate) struct PageProblem(pub ApiProblem);

/// Everything around the contents of a page.
pub(crate) struct Frame {
    pub title: String,
    /// The entry of the navigation that the page belongs to.
    pub place: &'static str,
    caller: Option<CallerRow>,
    /// A key for the page's forms.
    pub key: String,
    /// The problem of the form that was sent.
    pub problem: Option<ApiProblem>,
    /// The change that was made, in words.
    pub done: Option<&'static str>,
    /// Number of the newest event that the page knows; `None` on pages that stay as they are.
    pub newest_event: Option<u64>,
}

/// Entries of the navigation: name and path.
const PLACES: [(&str, &str); 13] = [
    ("Overview", "/"),
    ("Pools", "/pools"),
    ("Volumes", "/volumes"),
    ("Targets", "/targets"),
    ("Sessions", "/sessions"),
    ("Schedules", "/schedules"),
    ("Backups", "/sets"),
    ("Replication", "/replication"),
    ("Jobs", "/jobs"),
    ("Events", "/events"),
    ("Site", "/site"),
    ("Reports", "/reports"),
    ("Access", "/access"),
];

/// Changes in words, by the names that `?done=` has.
const DONE: [(&str, &str); 49] = [
    ("acknowledged", "You have taken the condition on. It stays open until it has ended."),
    ("applied", "The site was applied."),
    ("backup", "The backup was made."),
    ("cloned", "This is the clone that was made."),
    ("connection-ended", "The session was ended. Its host may log in again."),
    ("created", "It was created."),
    ("deleted", "It was deleted."),
    ("hold", "The hold was set."),
    ("levelling", "The levelling has begun."),
    ("levelling-ended", "The levelling ends."),
    ("moving", "The move has begun. Hosts log in again once, when the volume changes pools."),
    ("released", "The hold was released."),
    ("renamed", "It was renamed."),
    ("resized", "The size was changed."),
    ("rolled-back", "The volume was rolled back. The state of before is a volume of its own."),
    ("scrub", "The scrub has begun."),
    ("scrub-ended", "The scrub ends."),
    ("set", "The settings were changed."),
    ("snapshot", "The snapshot was taken."),
    ("presented", "The snapshot is presented to the host."),
    ("withdrawn", "The snapshot is not presented to the host any more."),
    ("snapshot-deleted", "The snapshot was deleted."),
    ("target", "The target was created."),
    ("export", "The export was created."),
    ("schedule", "The schedule was created."),
    ("initiator", "The initiator was added."),
    ("drive-added", "The drive was added."),
    ("drive-leaves", "The drive is emptied, and leaves then."),
    ("drive-kept", "The drive stays."),
    ("drive-grown", "The pool uses all of the drive."),
    ("drive-readmitted", "The drive was taken back, as a new one."),
    ("drive-forgotten", "The drive is removed; copies that are missing are made first."),
    ("drive-replaced", "The new drive has joined, and the old one leaves."),
    ("switched-over", "The group was switched over."),
    (
        "taken-over",
        "This site is primary now. Hosts named below get their volumes when they have let go of what they cached.",
    ),
    ("alone", "This site serves the hosts without the other one."),
    ("gave-way", "The writes of the other site count. Those of this site become a fork."),
    ("suspended", "The group is suspended: the other site gets nothing until it is resumed."),
    ("resumed", "The group goes on."),
    ("mode", "The group has this mode. The other site follows once it is connected."),
    ("removed", "The group was removed here. Its volumes stay. Remove it at the other site, too."),
    ("fork-dropped", "The fork was dropped."),
    ("import", "The import was asked for. Its job says how far it is."),
    ("group-cloned", "Each volume of the group has a clone."),
    (
        "group-rolled-back",
        "The group was rolled back. The states of before are volumes of their own. A volume that was served is withheld from its hosts until they have let go of it.",
    ),
    ("rehearsing", "The clones are made, and served over NBD."),
    ("rehearsed", "The rehearsal has ended. Its clones are deleted."),
    ("paired", "The sites are paired. This one keeps a connection to the other from now on."),
    ("unpaired", "The pairing was ended here. End it at the other site, too."),
];

impl Frame {
    /// The frame of a page.
    ///
    /// # Errors
    ///
    /// The caller may not call.
    pub async fn new(
        visit: &Visit,
        title: impl Into<String>,
        place: &'static str,
    ) -> Result<Self, ApiProblem> {
        let caller = visit.caller().await?;
        let done = visit.asked("done").and_then(|done| DONE.iter().find(|(name, _)| *name == done));
        Ok(Self {
            title: title.into(),
            place,
            caller: Some(caller),
            key: visit.new_key(),
            problem: None,
            done: done.map(|(_, words)| *words),
            newest_event: None,
        })
    }

    /// A frame for those who may not call.
    pub fn bare(visit: &Visit, title: impl Into<String>) -> Self {
        let (title, key) = (title.into(), visit.new_key());
        Self { title, place: "", caller: None, key, problem: None, done: None, newest_event: None }
    }

    /// The same for a page that the script keeps up to date.
    pub async fn live(self, visit: &Visit) -> Result<Self, ApiProblem> {
        Ok(Self { newest_event: Some(visit.newest_event().await?), ..self })
    }

    /// The same with the problem of a form. It stays as it is: its address is the form's.
    pub fn with_problem(self, problem: Option<ApiProblem>) -> Self {
        match problem {
            None => self,
            Some(_) => Self { problem, done: None, newest_event: None, ..self },
        }
    }

    pub fn places(&self) -> &'static [(&'static str, &'static str)] {
        &PLACES
    }

    /// Entry of the navigation, and whether the page is below it.
    pub fn is_at(&self, place: &str) -> bool {
        self.place == place
    }

    pub fn caller_name(&self) -> Option<&str> {
        self.caller.as_ref().map(|caller| caller.name.as_str())
    }

    pub fn role(&self) -> &'static str {
        match self.caller.as_ref().map(|caller| caller.role) {
            Some(CallerRole::Admin) => "admin",
            Some(CallerRole::Operate) => "operate",
            Some(CallerRole::Read) => "read",
            None => "",
        }
    }

    /// Names of the pools that the caller is limited to; empty without a limit.
    pub fn pools(&self) -> String {
        self.caller.as_ref().map_or_else(String::new, |caller| caller.pools.join(", "))
    }

    /// Begun by a browser, which can end it.
    pub fn has_session(&self) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.ends_at.is_some())
    }

    pub fn may_operate(&self) -> bool {
        self.has_role(CallerRole::Operate)
    }

    pub fn may_administer(&self) -> bool {
        self.has_role(CallerRole::Admin)
    }

    /// Rows of the site are changed by those who see all pools.
    pub fn sees_all_pools(&self) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.pools.is_empty())
    }

    fn has_role(&self, role: CallerRole) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.role >= role)
    }

    pub fn style_path(&self) -> &'static str {
        assets::style_path()
    }

    pub fn script_path(&self) -> &'static str {
        assets::script_path()
    }
}

/// A page as the answer, with the status of the problem of its form.
pub(crate) fn shown(page: &impl Template, frame: &Frame) -> PageResult {
    let status = frame.problem.as_ref().map_or(StatusCode::OK, status_of);
    let html = page.render().map_err(|error| {
        let refusal =
            report::Refusal::new(format!("the page cannot be shown: {error}"), "see the server's log");
        PageProblem(ApiProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "console", &refusal))
    })?;
    Ok((status, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], html).into_response())
}

/// Sends the browser to another page, which it gets.
pub(crate) fn see(path: &str) -> Response {
    let place = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::SEE_OTHER, [(header::LOCATION, place)]).into_response()
}

fn status_of(problem: &ApiProblem) -> StatusCode {
    StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

impl From<ApiProblem> for PageProblem {
    fn from(problem: ApiProblem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for PageProblem {
    fn into_response(self) -> Response {
        let mut response = status_of(&self.0).into_response();
        response.extensions_mut().insert(self);
        response
    }
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    frame: &'a Frame,
}

/// Policy of all pages: everything from this server, nothing inline. `same-origin` as the referrer: without one, browsers name
/// no origin with a form, and the API refuses it.
const HEADERS: [(HeaderName, &str); 5] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
         frame-ancestors 'none'; base-uri 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Makes a page of a problem, sends those who have no session to the login, and adds the headers.
pub(crate) async fn finish(State(setting): State<PageSetting>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let visit = Visit::of(&parts, &setting);
    let is_read = parts.method.is_safe();
    let response = next.run(Request::from_parts(parts, body)).await;
    let problem = match response.extensions().get::<PageProblem>().cloned() {
        Some(PageProblem(problem)) => Some(problem),
        // A person who opens the address of a form.
        None if response.status() == StatusCode::METHOD_NOT_ALLOWED => Some(forms_alone(&visit.path)),
        None => None,
    };
    with_headers(match problem {
        Some(problem) => problem_page(&visit, problem, is_read).await,
        None => response,
    })
}

/// Answers all other paths by the API. A person who opens one that is not there gets a page that says so.
pub(crate) async fn elsewhere(State(setting): State<PageSetting>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let accepts =
        parts.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let person =
        (parts.method.is_safe() && accepts.contains("text/html")).then(|| Visit::of(&parts, &setting));
    let response = call(&setting.api, Request::from_parts(parts, body)).await;
    match person {
        Some(visit) if response.status() == StatusCode::NOT_FOUND => {
            let problem = ApiProblem::not_found(format!("there is nothing at {}", visit.path));
            let problem = ApiProblem { next: Some("go on from the overview".to_owned()), ..problem };
            with_headers(problem_page(&visit, problem, true).await)
        }
        _ => response,
    }
}

fn with_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn forms_alone(path: &str) -> ApiProblem {
    let refusal =
        Refusal::new(format!("{path} takes a form"), "go on from the overview, and send the form of a page");
    ApiProblem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", &refusal)
}

async fn problem_page(visit: &Visit, problem: ApiProblem, is_read: bool) -> Response {
    if problem.status == StatusCode::UNAUTHORIZED.as_u16() {
        let back = if is_read { visit.path.as_str() } else { "/" };
        return see(&format!("/login?next={}", escaped(back)));
    }
    let frame = Frame::new(visit, problem.title.clone(), "").await;
    let frame =
        frame.unwrap_or_else(|_| Frame::bare(visit, problem.title.clone())).with_problem(Some(problem));
    match shown(&ProblemPage { frame: &frame }, &frame) {
        Ok(response) => response,
        Err(PageProblem(problem)) => (status_of(&problem), problem.detail).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_allows_nothing_inline_and_nothing_from_elsewhere() {
        let (_, policy) = &HEADERS[0];
        assert!(!policy.contains("unsafe") && !policy.contains("http") && !policy.contains('*'), "{policy}");
        for (_, value) in &HEADERS {
            assert!(HeaderValue::from_str(value).is_ok(), "{value}");
        }
    }
}
