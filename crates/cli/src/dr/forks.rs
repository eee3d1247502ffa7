//! `spindle dr fork`: what this site gave up of its DR groups, listed until it is dropped.

use super::{RemovedRow, confirm};
use crate::{console::Console, exit_status::ExitStatus, server::connection::ServerConnection};
use control::web::client::{DrForkList, DrForkRow, Method};
use report::Refusal;
use world::ByteCount;

const FORKS_PATH: &str = "/v1/dr/forks";

#[derive(Clone, Debug, clap::Subcommand)]
pub enum DrForkVerb {
    /// List the forks of this site: of which volume, since when, and how much is in them alone
    #[command(after_help = "Example:
  spindle dr fork list

A fork is what this site wrote of its own before the other site's writes took their place: a volume VOLUME-fork1, which \
is served to nobody. See 'spindle volume diff' for the blocks.")]
    List,
    /// Delete a fork: what this site once wrote of its own is gone for good
    #[command(after_help = "Example:
  spindle dr fork drop sg1-fork1 --yes sg1-fork1

Look first whether it has mail that the group lacks: 'spindle volume clone' it, and serve the clone.")]
    Drop {
        /// Name of the fork: VOLUME-fork1, or POOL/VOLUME-fork1
        #[arg(value_name = "NAME")]
        name: String,

        /// Its name again, where nobody can be asked
        #[arg(long, value_name = "NAME")]
        yes: Option<String>,
    },
}

pub async fn run(
    server: &ServerConnection,
    verb: &DrForkVerb,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let list: DrForkList = server.get(FORKS_PATH).await?;
    match verb {
        DrForkVerb::List => {
            if console.is_for_programs() {
                console.json_of(&list)?;
            }
            list.forks.iter().for_each(|fork| console.say(&line(fork)));
            if list.forks.is_empty() {
                console.say("no forks: this site has given up nothing, or it was dropped");
            }
            if list.is_incomplete {
                console.warn("a pool is not open: its forks are not shown");
            }
        }
        DrForkVerb::Drop { name, yes } => {
            let fork = find(&list, name)?;
            confirm(&fork.name, yes.as_deref(), "what this site wrote of its own is gone for good", console)?;
            let path = format!("{FORKS_PATH}/{}", fork.id);
            server.change(Method::DELETE, &path, None::<&()>).await?.checked()?;
            if console.is_for_programs() {
                console.json_of(&RemovedRow { name, done: "dropped" })?;
            }
            console.say(&format!("{}/{}: dropped", fork.pool, fork.name));
        }
    }
    console.finish(ExitStatus::Pass)
}

/// A fork by NAME or POOL/NAME.
fn find<'l>(list: &'l DrForkList, meant: &str) -> Result<&'l DrForkRow, Refusal> {
    let is_meant = |fork: &&DrForkRow| fork.name == meant || format!("{}/{}", fork.pool, fork.name) == meant;
    let found: Vec<&DrForkRow> = list.forks.iter().filter(is_meant).collect();
    match found[..] {
        [fork] => Ok(fork),
        [] => Err(Refusal::new(format!("there is no fork {meant:?} here"), "see 'spindle dr fork list'")),
        _ => Err(Refusal::new(format!("several pools have a fork {meant}"), "say POOL/NAME")),
    }
}

fn line(fork: &DrForkRow) -> String {
    let DrForkRow { name, pool, group_name, volume, kept, blocks, bytes, .. } = fork;
    let figures = match (kept, blocks, bytes) {
        (Some(kept), Some(blocks), Some(bytes)) => {
            format!(
                "kept {kept}, {} in {blocks} blocks that this site had changed of its own",
                ByteCount(*bytes)
            )
        }
        _ => "its beginning is not known any more".to_owned(),
    };
    format!("{pool}/{name}: of {pool}/{volume}, group {group_name}; {figures}")
}
