//! `spindle power`: the power of the machine, for NUT's NOTIFYCMD.

use super::place::ServerPlace;
use crate::{console::Console, exit_status::ExitStatus};
use clap::{Args, ValueEnum};
use control::{
    site::power::SitePower,
    web::client::{Method, PowerBody},
};
use report::Refusal;
use world::{
    World,
    real::{self, RealOptions},
};

const PATH: &str = "/v1/power";

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle power on-battery     write caches off, and what was acknowledged flushed
  spindle power low            hosts logged out, all pools closed; the server goes on, and waits
  spindle power on-line        as before
  spindle power                what was told last

For NUT, in upsmon.conf: NOTIFYCMD with a script that calls 'spindle power on-battery' for ONBATT, 'spindle power low' for \
LOWBATT and FSD, and 'spindle power on-line' for ONLINE. NUT calls it as its own user, who needs --server and a token with \
the role operate. A server that starts takes the power as being there.

Ends with 0, with 1 if a part was not done, and with 2 if there is no answer.")]
pub struct PowerArguments {
    /// The power as it is now [default: only show what was told last]
    #[arg(value_name = "POWER", ignore_case = true)]
    pub power: Option<PowerArgument>,

    /// Print the answer as JSON on standard output; everything else goes to standard error
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub place: ServerPlace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PowerArgument {
    /// The machine runs on its battery
    OnBattery,
    /// The battery ends soon
    Low,
    /// The power is back
    OnLine,
}

impl PowerArgument {
    fn power(self) -> SitePower {
        match self {
            Self::OnBattery => SitePower::OnBattery,
            Self::Low => SitePower::Low,
            Self::OnLine => SitePower::OnLine,
        }
    }
}

/// Runs the verb to its end.
pub fn power(arguments: &PowerArguments) -> Result<ExitStatus, Refusal> {
    let console = Console::new(arguments.json, false);
    real::run(0, RealOptions::default(), async |world: World| {
        let server = arguments.place.connection(&world)?;
        let answer = match arguments.power {
            None => server.get(PATH).await?,
            Some(power) => {
                let body = PowerBody { power: power.power(), notes: Vec::new() };
                // Pools may take a while to close.
                server.change_to_its_end(Method::POST, PATH, Some(&body)).await?.parsed()?
            }
        };
        let PowerBody { power, notes } = &answer;
        if arguments.json {
            console.json_of(&answer)?;
        }
        console.say(&format!("power {}: {}", power.word(), effect_of(*power)));
        notes.iter().for_each(|note| console.warn(&format!("not done: {note}")));
        console.finish(if notes.is_empty() { ExitStatus::Pass } else { ExitStatus::Fail })
    })
}

fn effect_of(power: SitePower) -> &'static str {
    match power {
        SitePower::OnLine => "served as usual",
        SitePower::OnBattery => "write caches are off, and flushed; hosts are served on",
        SitePower::Low => {
            "hosts are logged out, and all pools are closed; 'spindle power on-line' serves them again"
        }
    }
}
