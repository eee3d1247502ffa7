//! Sets that are backed up together, their backups, and where each was proven.

use crate::{
    fields::Fields,
    page::{Frame, PageResult, see, shown},
    shown as show,
    visit::{Visit, escaped},
};
use askama::Template;
use axum::{extract::Path, http::Method};
use control::web::{
    ApiProblem,
    client::{NewBackupBody, SetBackupRow, SetKeeperName, SetRow},
};

/// Rows of a page.
const ROWS: usize = 100;

#[derive(Template)]
#[template(path = "sets.html")]
struct SetsPage<'a> {
    frame: &'a Frame,
    sets: Vec<SetRow>,
}

#[derive(Template)]
#[template(path = "set.html")]
struct SetPage<'a> {
    frame: &'a Frame,
    set: SetRow,
    /// Index of the first backup of the table.
    from: usize,
}

#[derive(Template)]
#[template(path = "backup.html")]
struct BackupPage<'a> {
    frame: &'a Frame,
    set: String,
    backup: SetBackupRow,
}

impl SetPage<'_> {
    fn rows(&self) -> &[SetBackupRow] {
        let (from, all) = (self.from.min(self.set.backups.len()), &self.set.backups);
        &all[from..all.len().min(from + ROWS)]
    }

    fn next_from(&self) -> Option<usize> {
        Some(self.from + ROWS).filter(|next| *next < self.set.backups.len())
    }

    fn earlier_from(&self) -> Option<usize> {
        (self.from > 0).then(|| self.from.saturating_sub(ROWS))
    }
}

/// The server knows the backups of the set, and makes them.
fn is_kept_here(set: &SetRow) -> bool {
    set.kept_by == SetKeeperName::Server
}

fn keeper(keeper: &SetKeeperName) -> &'static str {
    match keeper {
        SetKeeperName::Server => "this server",
        SetKeeperName::Agent => "an agent on the mail host",
    }
}

/// The proof of a backup: class of its mark, and word.
fn proof(backup: &SetBackupRow) -> (&'static str, &str) {
    let class = match backup.proof.as_str() {
        "proven" => "good",
        "damaged" => "error",
        _ => "",
    };
    (class, &backup.proof)
}

/// Time, level and place of its last verification.
fn proven(backup: &SetBackupRow) -> String {
    let Some(at) = &backup.verified_at else { return "–".to_owned() };
    let level = backup.verified_level.as_ref().map_or_else(String::new, |level| format!(", {level}"));
    let by = backup.verified_by.as_ref().map_or_else(String::new, |by| format!(", by {by}"));
    format!("{}{level}{by}", show::time(at))
}

fn newest_proven(set: &SetRow) -> Option<&SetBackupRow> {
    set.backups.iter().find(|backup| backup.proof == "proven")
}

/// Sites and vaults that have it.
fn copies(backup: &SetBackupRow) -> String {
    let all: Vec<&str> = backup.sites.iter().chain(&backup.copies).map(String::as_str).collect();
    if all.is_empty() { "–".to_owned() } else { all.join(", ") }
}

/// In words.
fn holds_and_lock(backup: &SetBackupRow) -> String {
    let lock = backup.locked_for_seconds.filter(|seconds| *seconds > 0);
    let lock = lock.map(|seconds| format!("locked for {}", show::seconds(&(seconds as u64))));
    let holds = backup.holds.iter().map(|hold| format!("hold {hold}"));
    let all: Vec<String> = holds.chain(lock).collect();
    if all.is_empty() { "–".to_owned() } else { all.join(", ") }
}

pub(crate) async fn list(visit: Visit) -> PageResult {
    let frame = Frame::new(&visit, "Backups", "Backups").await?.live(&visit).await?;
    let sets = visit.get("/v1/sets").await?;
    shown(&SetsPage { frame: &frame, sets }, &frame)
}

pub(crate) async fn show(visit: Visit, Path(name): Path<String>) -> PageResult {
    set_page(&visit, &name, None).await
}

async fn set_page(visit: &Visit, name: &str, problem: Option<ApiProblem>) -> PageResult {
    let set: SetRow = visit.get(&format!("/v1/sets/{}", escaped(name))).await?;
    let frame = Frame::new(visit, format!("Set {}", set.name), "Backups").await?;
    let frame = frame.live(visit).await?.with_problem(problem);
    let from = visit.asked("from").and_then(|from| from.parse().ok()).unwrap_or(0);
    shown(&SetPage { frame: &frame, set, from }, &frame)
}

/// Makes a backup now.
pub(crate) async fn back_up(visit: Visit, Path(name): Path<String>, fields: Fields) -> PageResult {
    let body = NewBackupBody { hold: Some(fields.text("hold").to_owned()).filter(|hold| !hold.is_empty()) };
    let path = format!("/v1/sets/{}/backups", escaped(&name));
    match visit.change::<serde_json::Value>((Method::POST, &path), &body, fields.change()).await {
        Ok(_) => Ok(see(&format!("/sets/{}?done=backup", escaped(&name)))),
        Err(problem) => set_page(&visit, &name, Some(problem)).await,
    }
}

pub(crate) async fn show_backup(visit: Visit, Path((name, number)): Path<(String, u64)>) -> PageResult {
    backup_page(&visit, (&name, number), None).await
}

async fn found(visit: &Visit, (name, number): (&str, u64)) -> Result<SetBackupRow, ApiProblem> {
    let set: SetRow = visit.get(&format!("/v1/sets/{}", escaped(name))).await?;
    let backup = set.backups.into_iter().find(|backup| backup.number == number);
    backup.ok_or_else(|| ApiProblem::not_found(format!("set {name} has no backup {number}")))
}

async fn backup_page(visit: &Visit, (name, number): (&str, u64), problem: Option<ApiProblem>) -> PageResult {
    let backup = found(visit, (name, number)).await?;
    let frame = Frame::new(visit, format!("Backup {} of {name}", backup.name), "Backups").await?;
    let frame = frame.with_problem(problem);
    shown(&BackupPage { frame: &frame, set: name.to_owned(), backup }, &frame)
}

/// Sets or releases a hold.
pub(crate) async fn hold(
    visit: Visit,
    Path((name, number)): Path<(String, u64)>,
    fields: Fields,
) -> PageResult {
    let (method, done) = match fields.is_checked("release") {
        true => (Method::DELETE, "released"),
        false => (Method::PUT, "hold"),
    };
    let path = format!("/v1/sets/{}/backups/{number}/holds/{}", escaped(&name), escaped(fields.text("hold")));
    match visit.change::<serde_json::Value>((method, &path), &(), fields.change()).await {
        Ok(_) => Ok(see(&format!("/sets/{}/backups/{number}?done={done}", escaped(&name)))),
        Err(problem) => backup_page(&visit, (&name, number), Some(problem)).await,
    }
}

/// Deletes the backup whose name was typed.
pub(crate) async fn delete(
    visit: Visit,
    Path((name, number)): Path<(String, u64)>,
    fields: Fields,
) -> PageResult {
    let end = async {
        let backup = found(&visit, (&name, number)).await?;
        fields.check_typed("backup", &backup.name)?;
        let last = if fields.is_checked("last") { "?last=true" } else { "" };
        let path = format!("/v1/sets/{}/backups/{number}{last}", escaped(&name));
        visit.change::<serde_json::Value>((Method::DELETE, &path), &(), fields.change()).await
    };
    match end.await {
        Ok(_) => Ok(see(&format!("/sets/{}?done=deleted", escaped(&name)))),
        Err(problem) => backup_page(&visit, (&name, number), Some(problem)).await,
    }
}
