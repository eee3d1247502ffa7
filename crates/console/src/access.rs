//! Tokens: who may call the server, listed, made and deleted. The secret of a new one is on the page that answers its form, once.

use crate::{
    fields::Fields,
    page::{Frame, PageResult, see, shown},
    shown as show,
    visit::{FormChange, Visit, escaped},
};
use askama::Template;
use axum::{extract::Path, http::Method};
use control::web::{ApiProblem, CallerRole, MadeToken, NewToken, TokenRow};

const TOKENS_PATH: &str = "/v1/tokens";

#[derive(Template)]
#[template(path = "access.html")]
struct AccessPage<'a> {
    frame: &'a Frame,
    /// A problem if the caller may not see them.
    tokens: Result<Vec<TokenRow>, ApiProblem>,
    /// The token that was just made.
    made: Option<MadeToken>,
    sent: &'a Fields,
}

#[derive(Template)]
#[template(path = "token.html")]
struct TokenPage<'a> {
    frame: &'a Frame,
    token: TokenRow,
}

fn role(role: &CallerRole) -> &'static str {
    match role {
        CallerRole::Read => "read",
        CallerRole::Operate => "operate",
        CallerRole::Admin => "admin",
    }
}

/// Pools of a token in words.
fn pools(token: &TokenRow) -> String {
    if token.pools.is_empty() { "all".to_owned() } else { token.pools.join(", ") }
}

pub(crate) async fn list(visit: Visit) -> PageResult {
    page(&visit, None, None, &Fields::default()).await
}

async fn page(
    visit: &Visit,
    problem: Option<ApiProblem>,
    made: Option<MadeToken>,
    sent: &Fields,
) -> PageResult {
    let frame = Frame::new(visit, "Access", "Access").await?.with_problem(problem);
    let tokens = visit.get(TOKENS_PATH).await;
    shown(&AccessPage { frame: &frame, tokens, made, sent }, &frame)
}

/// Makes a token. The answer has its secret: a redirection would need to keep it.
pub(crate) async fn create(visit: Visit, fields: Fields) -> PageResult {
    let made = async {
        let body = new_token(&fields)?;
        visit.change::<MadeToken>((Method::POST, TOKENS_PATH), &body, fields.change()).await
    };
    match made.await {
        Ok(made) => page(&visit, None, Some(made), &Fields::default()).await,
        Err(problem) => page(&visit, Some(problem), None, &fields).await,
    }
}

fn new_token(fields: &Fields) -> Result<NewToken, ApiProblem> {
    let role = match fields.text("role") {
        "read" => CallerRole::Read,
        "operate" => CallerRole::Operate,
        "admin" => CallerRole::Admin,
        other => {
            let next = "choose read, operate or admin";
            return Err(ApiProblem::bad_request(format!("{other:?} is no role"), next));
        }
    };
    let days = match fields.text("days") {
        "" => None,
        _ => Some(fields.number("days")?),
    };
    Ok(NewToken { name: fields.text("name").to_owned(), role, pools: fields.words("pools"), days })
}

pub(crate) async fn show(visit: Visit, Path(name): Path<String>) -> PageResult {
    token_page(&visit, &name, None).await
}

async fn token_page(visit: &Visit, name: &str, problem: Option<ApiProblem>) -> PageResult {
    let tokens: Vec<TokenRow> = visit.get(TOKENS_PATH).await?;
    let token = tokens.into_iter().find(|token| token.name == name);
    let token = token.ok_or_else(|| ApiProblem::not_found(format!("there is no token {name:?}")))?;
    let frame = Frame::new(visit, format!("Token {name}"), "Access").await?.with_problem(problem);
    shown(&TokenPage { frame: &frame, token }, &frame)
}

/// Deletes the token whose name was typed.
pub(crate) async fn delete(visit: Visit, Path(name): Path<String>, fields: Fields) -> PageResult {
    let end = async {
        fields.check_typed("token", &name)?;
        let path = format!("{TOKENS_PATH}/{}", escaped(&name));
        let change = FormChange { tag: None, ..fields.change() };
        visit.change::<()>((Method::DELETE, &path), &(), change).await
    };
    match end.await {
        Ok(()) => Ok(see("/access?done=deleted")),
        Err(problem) => token_page(&visit, &name, Some(problem)).await,
    }
}
