//! `spindle audit`: the changes that callers of the API asked for, printed and checked.

use super::{
    arguments::{AuditArguments, AuditVerb},
    connection::ServerConnection,
    place::ServerPlace,
};
use crate::{console::Console, exit_status::ExitStatus};
use control::{
    journal::audit::{AuditLine, BrokenChain, check_audit},
    web::client::AuditRow,
};
use report::Refusal;
use serde::{Serialize, de::DeserializeOwned};
use std::path::Path;
use world::{
    World,
    real::{self, RealOptions, host_files},
};

/// Lines of a request.
const PAGE_LINES: usize = 1000;
/// 400 days of a busy server, many times over.
const FILE_BYTES_MAX: u64 = 4 << 30;

/// The answer of a check as JSON.
#[derive(Default, Serialize)]
struct AuditCheck {
    lines: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    broken: Option<BrokenLine>,
    #[serde(skip)]
    last_line: Option<AuditLine>,
}

/// The first line that does not fit.
#[derive(Serialize)]
struct BrokenLine {
    number: u64,
    problem: String,
}

/// Runs the verb to its end.
pub fn audit(arguments: &AuditArguments) -> Result<ExitStatus, Refusal> {
    let place = &arguments.place;
    real::run(0, RealOptions::default(), async |world: World| match &arguments.verb {
        AuditVerb::Export { after } => export(&place.connection(&world)?, *after).await,
        AuditVerb::Check { file, json } => check(&world, place, file.as_deref(), *json).await,
    })
}

async fn export(server: &ServerConnection, after: u64) -> Result<ExitStatus, Refusal> {
    let console = Console::new(true, false);
    let mut after = after;
    loop {
        let rows: Vec<AuditRow> = page(server, after).await?;
        for row in &rows {
            console.json_of(row)?;
        }
        match rows.last() {
            Some(last) => after = last.number,
            None => return console.finish(ExitStatus::Pass),
        }
    }
}

/// The lines after a number; none if there are no more.
async fn page<T: DeserializeOwned>(server: &ServerConnection, after: u64) -> Result<Vec<T>, Refusal> {
    server.get(&format!("/v1/audit?after={after}&limit={PAGE_LINES}")).await
}

async fn check(
    world: &World,
    place: &ServerPlace,
    file: Option<&Path>,
    json: bool,
) -> Result<ExitStatus, Refusal> {
    let console = Console::new(json, false);
    let mut checked = AuditCheck::default();
    let source = match file {
        Some(path) => {
            checked.add_file(path)?;
            path.display().to_string()
        }
        None => {
            let server = place.connection(world)?;
            while checked.broken.is_none() {
                let lines: Vec<AuditLine> = page(&server, checked.last.unwrap_or_default()).await?;
                if lines.is_empty() {
                    break;
                }
                checked.add(lines);
            }
            format!("the audit of the server at {}", server.address())
        }
    };
    if json {
        console.json_of(&checked)?;
    }
    match (&checked.broken, checked.first, checked.last) {
        (Some(BrokenLine { number, problem }), ..) => {
            console.say(&format!("{source}: line {number}: {problem}"));
            return console.finish(ExitStatus::Fail);
        }
        (None, Some(first), Some(last)) => {
            console.say(&format!("{source}: lines {first} to {last} are whole and in order"));
        }
        _ => console.say(&format!("{source}: no lines")),
    }
    console.finish(ExitStatus::Pass)
}

impl AuditCheck {
    fn add_file(&mut self, path: &Path) -> Result<(), Refusal> {
        let bytes = host_files::read_at_most(path, FILE_BYTES_MAX)
            .map_err(|error| Refusal::new(error.to_string(), "'spindle audit export' makes such a file"))?;
        let lines = bytes.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
        for (index, line) in lines.enumerate() {
            match serde_json::from_slice::<AuditLine>(line) {
                Ok(line) => self.add(vec![line]),
                Err(error) if index == 0 => {
                    let problem =
                        format!("{}: its first line is no line of an audit: {error}", path.display());
                    return Err(Refusal::new(problem, "'spindle audit export' makes such a file"));
                }
                Err(error) => {
                    let number = self.last.map_or(1, |last| last + 1);
                    self.broken =
                        Some(BrokenLine { number, problem: format!("it is no line of an audit: {error}") });
                }
            }
            if self.broken.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Checks the next lines.
    fn add(&mut self, lines: Vec<AuditLine>) {
        let mut chain: Vec<AuditLine> = self.last_line.take().into_iter().collect();
        self.lines += lines.len();
        chain.extend(lines);
        if let Err(BrokenChain { number, problem }) = check_audit(&chain) {
            self.broken = Some(BrokenLine { number, problem: problem.to_owned() });
        }
        self.first = self.first.or(chain.first().map(|line| line.number));
        self.last = chain.last().map(|line| line.number);
        self.last_line = chain.pop();
    }
}
