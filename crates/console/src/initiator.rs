//! An initiator: a host by its iSCSI name, with its rights and the forms that give and take them. Secrets come in and never out.

use crate::{
    fields::Fields,
    page::{Frame, PageResult, see, shown},
    shown as show,
    targets::{delete_row, list_of, list_page},
    visit::{FormChange, Visit, escaped},
};
use askama::Template;
use axum::{extract::Path, http::Method};
use control::web::{
    ApiProblem,
    client::{InitiatorPatchBody, InitiatorRow, NewInitiatorBody, RowChangeResult},
};

#[derive(Template)]
#[template(path = "initiator.html")]
struct InitiatorPage<'a> {
    frame: &'a Frame,
    initiator: InitiatorRow,
}

/// A field that was filled in.
fn filled(fields: &Fields, name: &str) -> Option<String> {
    Some(fields.text(name).to_owned()).filter(|text| !text.is_empty())
}

/// Makes a host known, from the page of targets.
pub(crate) async fn create(visit: Visit, fields: Fields) -> PageResult {
    let body = NewInitiatorBody {
        name: fields.text("initiator_name").to_owned(),
        user: filled(&fields, "user"),
        secret: filled(&fields, "secret"),
        secret_file: None,
        uses: fields.words("uses"),
        reads: fields.words("reads"),
    };
    match visit.change::<RowChangeResult>((Method::POST, "/v1/initiators"), &body, fields.change()).await {
        Ok(_) => Ok(see("/targets?done=initiator")),
        Err(problem) => list_page(&visit, Some(problem), &fields).await,
    }
}

pub(crate) async fn show(visit: Visit, Path(name): Path<String>) -> PageResult {
    page(&visit, &name, None).await
}

async fn page(visit: &Visit, name: &str, problem: Option<ApiProblem>) -> PageResult {
    let initiator: InitiatorRow = visit.get(&path_of(name)).await?;
    let frame = Frame::new(visit, format!("Initiator {}", initiator.name), "Targets").await?;
    let frame = frame.with_problem(problem);
    shown(&InitiatorPage { frame: &frame, initiator }, &frame)
}

fn path_of(name: &str) -> String {
    format!("/v1/initiators/{}", escaped(name))
}

/// A change of the host, as a form of its page asks for it: `rights` or `secret`.
pub(crate) async fn change(
    visit: Visit,
    Path((name, what)): Path<(String, String)>,
    fields: Fields,
) -> PageResult {
    let body = match what.as_str() {
        "rights" => InitiatorPatchBody {
            uses: Some(fields.words("uses")),
            reads: Some(fields.words("reads")),
            ..InitiatorPatchBody::default()
        },
        "secret" => InitiatorPatchBody {
            user: filled(&fields, "user"),
            secret: filled(&fields, "secret"),
            without_chap: fields.is_checked("without_chap"),
            ..InitiatorPatchBody::default()
        },
        _ => {
            return Err(ApiProblem::not_found(format!("no form of an initiator is called {what}")).into());
        }
    };
    let force = if fields.is_checked("force") { "?force=true" } else { "" };
    let path = format!("{}{force}", path_of(&name));
    let change = FormChange { tag: None, ..fields.change() };
    match visit.change::<RowChangeResult>((Method::PATCH, &path), &body, change).await {
        Ok(_) => Ok(see(&format!("/initiators/{}?done=set", escaped(&name)))),
        Err(problem) => page(&visit, &name, Some(problem)).await,
    }
}

/// Forgets the host whose name was typed, with its rights.
pub(crate) async fn delete(visit: Visit, Path(name): Path<String>, fields: Fields) -> PageResult {
    let end = async {
        fields.check_typed("initiator", &name)?;
        delete_row(&visit, &path_of(&name), &fields).await
    };
    match end.await {
        Ok(_) => Ok(see("/targets?done=deleted")),
        Err(problem) => page(&visit, &name, Some(problem)).await,
    }
}
