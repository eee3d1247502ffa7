//! A request of a browser, and the calls of the API that answer it: with the browser's own headers, so that the API knows its
//! caller, and refuses what pages of other servers send.

use crate::{page::PageProblem, shown::spelled};
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{FromRequestParts, Query},
    http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header, request::Parts},
    response::Response,
};
use control::web::{
    ApiPeer, ApiProblem,
    client::{CallerRow, EventPage, KEEPS_SETTINGS},
    page_setting::PageSetting,
};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use report::Refusal;
use serde::{Serialize, de::DeserializeOwned};
use std::{collections::BTreeMap, time::Duration};

/// Headers of a browser by which the API knows its caller and the page that it comes from.
const CALLERS_HEADERS: [HeaderName; 4] =
    [header::AUTHORIZATION, header::COOKIE, header::HOST, header::ORIGIN];
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The API's answers are in memory already; a page of 5,000 rows is less.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A request of a browser.
#[derive(Clone)]
pub(crate) struct Visit {
    setting: PageSetting,
    peer: ApiPeer,
    headers: HeaderMap,
    /// Path and query, to come back to.
    pub path: String,
    query: BTreeMap<String, String>,
}

/// A change as a form asks for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormChange<'a> {
    /// The form's own key: sent twice, it is done once.
    pub key: Option<&'a str>,
    /// The version that the form was made for.
    pub tag: Option<&'a str>,
}

/// An answer of the API.
pub(crate) struct ApiAnswer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: String,
}

impl FromRequestParts<PageSetting> for Visit {
    type Rejection = PageProblem;

    async fn from_request_parts(parts: &mut Parts, setting: &PageSetting) -> Result<Self, PageProblem> {
        Ok(Self::of(parts, setting))
    }
}

impl Visit {
    pub fn of(parts: &Parts, setting: &PageSetting) -> Self {
        let peer = parts.extensions.get::<ApiPeer>().expect("each connection has a peer").clone();
        let mut headers = HeaderMap::new();
        for name in CALLERS_HEADERS.into_iter().chain([FETCH_SITE]) {
            for value in parts.headers.get_all(&name) {
                headers.append(&name, value.clone());
            }
        }
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let query = Query::try_from_uri(&parts.uri).map_or_else(|_| BTreeMap::new(), |Query(query)| query);
        Self { setting: setting.clone(), peer, headers, path, query }
    }

    /// A value of the query, without spaces around it; `None` if it is empty.
    pub fn asked(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// A key for a form.
    pub fn new_key(&self) -> String {
        self.setting.random_uuid().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Gets a resource that the page can do without; `None` if it does not come within a time.
    pub async fn get_within<T: DeserializeOwned>(
        &self,
        time: Duration,
        path: &str,
    ) -> Option<Result<T, ApiProblem>> {
        self.setting.within(time, self.get(path)).await
    }

    pub fn unix_s(&self) -> i64 {
        self.setting.unix_s()
    }

    /// Sends a request to the API, with a body as JSON if there is one.
    pub async fn send(
        &self,
        (method, path): (Method, &str),
        body: Option<String>,
        change: FormChange<'_>,
    ) -> ApiAnswer {
        let request = match self.request((method, path), body, change) {
            Ok(request) => request,
            Err(_) => return unreadable(format!("{path:?} is no path of the API")),
        };
        let response = call(&self.setting.api, request).await;
        let (parts, body) = response.into_parts();
        match to_bytes(body, ANSWER_BYTES_MAX).await {
            Ok(body) => ApiAnswer {
                status: parts.status,
                headers: parts.headers,
                body: String::from_utf8_lossy(&body).into_owned(),
            },
            Err(error) => unreadable(format!("the answer of the API cannot be read: {error}")),
        }
    }

    fn request(
        &self,
        (method, path): (Method, &str),
        body: Option<String>,
        FormChange { key, tag }: FormChange<'_>,
    ) -> Result<Request<Body>, axum::http::Error> {
        let mut request = Request::builder().method(method).uri(path).header(KEEPS_SETTINGS, "yes");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(key) = key {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        if let Some(tag) = tag {
            request = request.header(header::IF_MATCH, tag);
        }
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        request.extension(self.peer.clone()).body(body.map_or_else(Body::empty, Body::from))
    }

    /// Gets a resource.
    ///
    /// # Errors
    ///
    /// The API's problem.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiProblem> {
        self.send((Method::GET, path), None, FormChange::default()).await.read()
    }

    /// Gets a text.
    ///
    /// # Errors
    ///
    /// The API's problem.
    pub async fn get_text(&self, path: &str) -> Result<ApiAnswer, ApiProblem> {
        self.send((Method::GET, path), None, FormChange::default()).await.checked()
    }

    /// Asks for a change. An answer without a body is read as `null`.
    ///
    /// # Errors
    ///
    /// The API's problem.
    pub async fn change<T: DeserializeOwned>(
        &self,
        way: (Method, &str),
        body: &impl Serialize,
        change: FormChange<'_>,
    ) -> Result<T, ApiProblem> {
        let body = serde_json::to_string(body).expect("bodies can be written as JSON");
        let body = Some(body).filter(|body| body != "null");
        self.send(way, body, change).await.read()
    }

    /// The caller, as the API knows it.
    ///
    /// # Errors
    ///
    /// It may not call.
    pub async fn caller(&self) -> Result<CallerRow, ApiProblem> {
        self.get("/v1/session").await
    }

    /// Number of the newest event.
    pub async fn newest_event(&self) -> Result<u64, ApiProblem> {
        Ok(self.get::<EventPage>("/v1/events?before=1&limit=1").await?.newest)
    }
}

impl ApiAnswer {
    /// The answer to a request that was done.
    fn checked(self) -> Result<Self, ApiProblem> {
        if self.status.is_success() {
            return Ok(self);
        }
        let problem = serde_json::from_str::<ApiProblem>(&self.body);
        Err(problem.map_or_else(|_| unreadable_problem(self.body), in_words))
    }

    pub fn read<T: DeserializeOwned>(self) -> Result<T, ApiProblem> {
        let answer = self.checked()?;
        let body = if answer.body.is_empty() { "null" } else { &answer.body };
        serde_json::from_str(body)
            .map_err(|error| unreadable_problem(format!("the answer of the API cannot be read: {error}")))
    }
}

/// The API's answer to a request.
pub(crate) async fn call(api: &Router, request: Request<Body>) -> Response {
    match TowerToHyperService::new(api.clone()).call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn unreadable(problem: String) -> ApiAnswer {
    let problem = unreadable_problem(problem);
    let body = serde_json::to_string(&problem).expect("plain fields");
    ApiAnswer { status: StatusCode::INTERNAL_SERVER_ERROR, headers: HeaderMap::new(), body }
}

fn unreadable_problem(problem: String) -> ApiProblem {
    let refusal = Refusal::new(problem, "see the server's log");
    ApiProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "console", &refusal)
}

/// The settings in a problem, as forms name them.
fn in_words(problem: ApiProblem) -> ApiProblem {
    ApiProblem { detail: spelled(&problem.detail), next: problem.next.as_deref().map(spelled), ..problem }
}

/// A part of a path, with what has a meaning there escaped.
pub(crate) fn escaped(part: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    part.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths_are_escaped() {
        for (part, path) in [("a-b", "a-b"), ("a/b c", "a%2Fb%20c"), ("ü", "%C3%BC"), ("a?b#c", "a%3Fb%23c")]
        {
            assert_eq!(escaped(part), path);
        }
    }

    #[test]
    fn settings_in_problems_are_words() {
        let problem = ApiProblem::bad_request("say ⟨may-shrink⟩", "or ⟨write-cache⟩ off");
        let shown = in_words(problem);
        assert_eq!(
            (shown.detail.as_str(), shown.next.as_deref()),
            ("say may shrink", Some("or write cache off"))
        );
    }
}
