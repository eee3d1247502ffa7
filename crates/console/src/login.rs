//! Login with a token, and its end.

use crate::{
    fields::Fields,
    page::{Frame, PageResult, see, shown},
    visit::{FormChange, Visit},
};
use askama::Template;
use axum::http::{Method, header};
use control::web::client::{CallerRow, LoginBody};

const SESSION_PATH: &str = "/v1/session";

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage<'a> {
    frame: &'a Frame,
    /// The page to go on to.
    next: &'a str,
}

pub(crate) async fn show(visit: Visit) -> PageResult {
    let frame = Frame::bare(&visit, "Log in");
    shown(&LoginPage { frame: &frame, next: own_path(visit.asked("next").unwrap_or("/")) }, &frame)
}

/// Begins a session, and goes on to the page that was wanted.
pub(crate) async fn begin(visit: Visit, fields: Fields) -> PageResult {
    let next = own_path(fields.text("next"));
    let body = LoginBody { token: fields.text("token").to_owned() };
    let body = serde_json::to_string(&serde_json::json!({ "token": body.token })).expect("plain fields");
    let answer = visit.send((Method::POST, SESSION_PATH), Some(body), FormChange::default()).await;
    let cookie = answer.headers.get(header::SET_COOKIE).cloned();
    match answer.read::<CallerRow>() {
        Ok(_) => {
            let mut response = see(next);
            if let Some(cookie) = cookie {
                response.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            Ok(response)
        }
        Err(mut problem) => {
            // The API's advice is for programs.
            if problem.status == 401 {
                problem.next =
                    Some("'spindle token create NAME --role read' on the server makes one".to_owned());
            }
            let frame = Frame::bare(&visit, "Log in").with_problem(Some(problem));
            shown(&LoginPage { frame: &frame, next }, &frame)
        }
    }
}

pub(crate) async fn end(visit: Visit) -> PageResult {
    let answer = visit.send((Method::DELETE, SESSION_PATH), None, FormChange::default()).await;
    let cookie = answer.headers.get(header::SET_COOKIE).cloned();
    answer.read::<()>()?;
    let mut response = see("/login");
    if let Some(cookie) = cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// A path of this server: a link must not lead elsewhere after the login.
fn own_path(path: &str) -> &str {
    let is_own = path.starts_with('/')
        && !path[1..].starts_with(['/', '\\'])
        && !path.starts_with("/log")
        && path.bytes().all(|byte| byte.is_ascii_graphic());
    if is_own { path } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_no_other_server() {
        assert_eq!(own_path("/volumes?search=a&after=b"), "/volumes?search=a&after=b");
        for path in [
            "",
            "//evil.example",
            "/\\evil.example",
            "https://evil.example",
            "javascript:x",
            "/a b",
            "/logout",
        ] {
            assert_eq!(own_path(path), "/", "{path}");
        }
    }
}
