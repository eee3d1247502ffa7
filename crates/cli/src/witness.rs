//! `spindle witness`: the third party that decides which site is primary, and a look at what it keeps.

use crate::{console::Console, exit_status::ExitStatus};
use ::report::{Refusal, calendar::utc_time};
use clap::{Args, Subcommand};
use replication::witness::{
    client::{WITNESS_PORT, WitnessClient, WitnessStore},
    file::WitnessFile,
    group::WitnessCondition,
    ledger::WitnessView,
    server::WitnessServer,
    session::WitnessSecret,
};
use serde::Serialize;
use serving::export::read_secret;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{
    Address, Network, World,
    real::{
        self, HostStateFile, RealOptions, Sockets,
        host_files::{self, PathKind},
        signals::interrupted,
    },
    with_deadline,
};

const SECRET_REMEDY: &str = "make it with: head -c 32 /dev/urandom | base64 > FILE; chmod 600 FILE";

#[derive(Clone, Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  spindle witness 192.0.2.30 --state witness.db --secret-file witness.secret
  spindle witness 127.0.0.1:7790 --state witness.db      on loopback no secret is needed
  spindle witness show 192.0.2.30 --secret-file witness.secret

Run it on a third machine, which fails with neither site nor with the line between them. It serves until SIGINT or \
SIGTERM, and keeps its state over restarts; each change is on disk before it is answered. After a start it gives no \
group to another site before every lease that it may have given has ended.

Exits with 0 after SIGINT or SIGTERM, and with 2 if it cannot serve."
)]
pub struct WitnessArguments {
    #[command(subcommand)]
    pub verb: Option<WitnessVerb>,

    /// Address on which it serves: HOST or HOST:PORT [default port: 7790]
    #[arg(value_name = "ADDRESS", required = true)]
    pub address: Option<String>,

    /// File in which it keeps fences, holders, and who went on alone; created if missing
    #[arg(long, value_name = "FILE", required = true)]
    pub state: Option<PathBuf>,

    /// File with the secret that the sites share with it, at least 16 bytes, which only its owner can read
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,

    /// Print one line of JSON on standard output when it is ready; everything else goes to standard error
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum WitnessVerb {
    /// List the groups of a witness: holder, fence, lease left, and who went on alone
    Show(WitnessShowArguments),
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle witness show 192.0.2.30 --secret-file witness.secret
  spindle witness show --state witness.db       the file of a witness that does not run
  spindle witness show 127.0.0.1 --json

Exits with 0, and with 2 without an answer.")]
pub struct WitnessShowArguments {
    /// Address of a witness that runs: HOST or HOST:PORT [default port: 7790]
    #[arg(value_name = "ADDRESS", required_unless_present = "state", conflicts_with = "state")]
    pub address: Option<String>,

    /// The file of a witness that does not run
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,

    /// File with the secret that the sites share with it
    #[arg(long, value_name = "FILE", conflicts_with = "state")]
    pub secret_file: Option<PathBuf>,

    /// Print the groups as JSON on standard output; everything else goes to standard error
    #[arg(long)]
    pub json: bool,
}

/// A witness that is ready, as JSON.
#[derive(Serialize)]
struct ReadyWitness {
    address: String,
    groups: usize,
}

/// A group of a witness, as JSON.
#[derive(Serialize)]
struct WitnessGroupRow {
    group: String,
    holder: Option<String>,
    reserved: Option<String>,
    fence: u64,
    /// `None` of a file: no clock runs.
    lease_left_ms: Option<u32>,
    alone_since: Option<String>,
    last_words: BTreeMap<String, String>,
}

/// Runs the verb to its end.
pub fn witness(arguments: &WitnessArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, false);
    match (&arguments.verb, &arguments.address, &arguments.state) {
        (Some(WitnessVerb::Show(arguments)), ..) => show(arguments),
        (None, Some(address), Some(state)) => {
            let address = parse_address(address)?;
            let secret = secret_of(arguments.secret_file.as_deref())?;
            if secret.is_none() && !address.is_local() {
                return Err(Refusal::new(
                    format!("{address} is not loopback, and there would be no secret"),
                    format!("say ⟨secret-file⟩; {SECRET_REMEDY}"),
                ));
            }
            real::run(0, RealOptions::default(), async |world: World| {
                serve(&world, address, state, secret, &console).await
            })
        }
        _ => unreachable!("the arguments are required without a verb"),
    }
}

async fn serve(
    world: &World,
    address: Address,
    state: &Path,
    secret: Option<WitnessSecret>,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    // The address comes first: a port that is taken leaves no new file behind.
    let listener = Sockets.listen(&address).await;
    let listener = listener.map_err(|error| Refusal::new(error.to_string(), "say another ADDRESS"))?;
    let file = HostStateFile::open(state).map_err(|error| Refusal::new(error.to_string(), ""))?;
    let server = WitnessServer::open(world, Box::new(file), secret)
        .map_err(|error| Refusal::new(error.to_string(), "name a witness's file, or a new one"))?;
    let ended = interrupted();
    let ready = ReadyWitness { address: listener.address().to_string(), groups: server.group_count() };
    if console.is_for_programs() {
        console.json_of(&ready)?;
    }
    console.say(&format!("witness ready on {}, {} groups known", ready.address, ready.groups));
    let end = async {
        ended.await;
    };
    match with_deadline(end, Rc::clone(&server).serve(listener)).await {
        None => console.finish(ExitStatus::Pass),
        Some(error) => Err(Refusal::new(
            format!("the state could not be kept, so nothing more is answered: {error}"),
            "give the file another disk, and start again",
        )),
    }
}

fn show(arguments: &WitnessShowArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, false);
    let rows: Vec<WitnessGroupRow> = match (&arguments.state, &arguments.address) {
        (Some(state), _) => {
            if !matches!(host_files::kind(state), Ok(PathKind::File)) {
                return Err(Refusal::new(
                    format!("{}: no such file", state.display()),
                    "name the --state of a witness",
                ));
            }
            let file = HostStateFile::open(state).map_err(|error| Refusal::new(error.to_string(), ""))?;
            let groups = WitnessFile::examine(&file).map_err(|error| Refusal::new(error.to_string(), ""))?;
            let view = |(group, state)| row_of(&WitnessView { group, state, left_ms: 0 }, false);
            groups.into_iter().map(view).collect()
        }
        (None, Some(address)) => {
            let address = parse_address(address)?;
            let secret = secret_of(arguments.secret_file.as_deref())?;
            let listed = real::run(0, RealOptions::default(), async |world: World| {
                let client = WitnessClient::new(&world, Rc::new(Sockets), vec![address], secret);
                client.list().await
            });
            let views = listed.map_err(|silence| Refusal::new(silence.to_string(), ""))?;
            views.iter().map(|view| row_of(view, true)).collect()
        }
        (None, None) => unreachable!("one of them is required"),
    };
    if arguments.json {
        console.json_of(&rows)?;
    }
    if rows.is_empty() {
        console.say("no groups");
    }
    for row in &rows {
        say(row, &console);
    }
    console.finish(ExitStatus::Pass)
}

fn say(row: &WitnessGroupRow, console: &Console) {
    let holder = match (&row.holder, &row.reserved) {
        (Some(holder), _) => format!("held by {holder}"),
        (None, Some(site)) => format!("released to {site}"),
        (None, None) => "not held".to_owned(),
    };
    let left = match row.lease_left_ms {
        None => String::new(),
        Some(0) => ", lease ended".to_owned(),
        Some(ms) => format!(", lease ends in {ms} ms"),
    };
    let condition = match &row.alone_since {
        None => "in sync".to_owned(),
        Some(since) => format!("alone since {since}"),
    };
    console.say(&format!("group {}: {holder}, fence {}{left}, {condition}", row.group, row.fence));
    for (site, word) in &row.last_words {
        console.say(&format!("  last word of {site}: {word}"));
    }
}

fn row_of(view: &WitnessView, runs: bool) -> WitnessGroupRow {
    let state = &view.state;
    let alone_since = match state.condition {
        WitnessCondition::InSync => None,
        WitnessCondition::Alone { since } => Some(utc_time(since.seconds)),
    };
    WitnessGroupRow {
        group: view.group.to_string(),
        holder: state.holder.map(|site| site.to_string()),
        reserved: state.reserved.map(|site| site.to_string()),
        fence: state.fence.0,
        lease_left_ms: runs.then_some(view.left_ms),
        alone_since,
        last_words: state
            .words
            .iter()
            .map(|(site, word)| (site.to_string(), utc_time(word.seconds)))
            .collect(),
    }
}

fn parse_address(text: &str) -> Result<Address, Refusal> {
    Address::parse(text, WITNESS_PORT).map_err(|error| Refusal::new(error.to_string(), ""))
}

fn secret_of(path: Option<&Path>) -> Result<Option<WitnessSecret>, Refusal> {
    let Some(path) = path else { return Ok(None) };
    let bytes = read_secret(path, SECRET_REMEDY)?;
    let secret = WitnessSecret::new(&bytes);
    let refuse =
        || Refusal::new(format!("{}: a secret has at least 16 bytes", path.display()), SECRET_REMEDY);
    secret.ok_or_else(refuse).map(Some)
}
