//! `spindle top`: what a running server does, in rates.
//!
//! Reading order: `reading` (the server's counters), `rates` (between two readings), `table` (rates as words), `screen`.

mod rates;
mod reading;
mod screen;
mod table;

use crate::{
    console::Console,
    exit_status::ExitStatus,
    server::{connection::ServerConnection, place::ServerPlace},
};
use clap::Args;
use ratatui::crossterm::event;
use rates::{ServerRates, SortKey};
use reading::ServerReading;
use report::Refusal;
use screen::{Screen, ScreenAnswer};
use serde::Serialize;
use std::{
    io::{self, IsTerminal},
    time::Duration,
};
use table::WordTable;
use world::{
    Moment, World,
    real::{self, RealOptions},
};

/// Between two looks for a key.
const KEYS_EVERY: Duration = Duration::from_millis(50);

/// Arguments of the verb.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle top                                  the server on this machine
  spindle top --server 127.0.0.1:7780 --token-file FILE
  spindle top --once --interval 10 --json      rates over ten seconds, for a program

Rates and mean latencies between two readings. Volumes count what hosts ask for, drives what the pool does; caches, copies and \
cleaning lie between them. The stages of a pool's commands are queue (limits, locks, room, map), log, device and reply. NO_COLOR \
is kept. --json prints {\"seconds\", \"pools\": [...], \"volumes\": [...], \"drives\": [...]}.")]
pub struct TopArguments {
    /// Print the rates between two readings as plain text, and end
    #[arg(long)]
    once: bool,

    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=3600))]
    interval: u16,

    /// With --once, print the rates as JSON on standard output; everything else goes to standard error
    #[arg(long, requires = "once")]
    json: bool,

    /// The server.
    #[command(flatten)]
    place: ServerPlace,
}

/// The answer as JSON.
#[derive(Serialize)]
struct TopAnswer {
    /// Between the readings.
    seconds: f64,
    #[serde(flatten)]
    rates: ServerRates,
}

/// Runs the verb to its end.
pub fn top(arguments: &TopArguments) -> Result<ExitStatus, Refusal> {
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if !arguments.once && !is_terminal {
        return Err(Refusal::new(
            "'spindle top' needs a terminal",
            "say ⟨once⟩ for plain text, or ⟨once⟩ ⟨json⟩",
        ));
    }
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(arguments.json, false);
        let server = arguments.place.connection(&world)?;
        let interval = Duration::from_secs(arguments.interval.into());
        let mut sampler = Sampler::begin(&world, &server).await?;
        if arguments.once {
            world.sleep(interval).await;
            print(sampler.next().await?, &console)?;
            return console.finish(ExitStatus::Pass);
        }
        let mut terminal = ratatui::try_init().map_err(|error| {
            Refusal::new(format!("the terminal cannot be used: {error}"), "say ⟨once⟩ for plain text")
        })?;
        let screen = Screen::new(&server.address().to_string(), console.colour);
        let done = run(&world, (screen, &mut terminal), &mut sampler, interval).await;
        ratatui::restore();
        done.map_err(|error| Refusal::new(format!("the terminal: {error}"), "say ⟨once⟩ for plain text"))?;
        console.finish(ExitStatus::Pass)
    })
}

/// Shows rates until somebody quits. A server that does not answer may come back.
async fn run(
    world: &World,
    (mut screen, terminal): (Screen, &mut ratatui::DefaultTerminal),
    sampler: &mut Sampler<'_>,
    interval: Duration,
) -> io::Result<()> {
    // The first rates are soon there.
    let mut due = world.now() + Duration::from_secs(1).min(interval);
    loop {
        terminal.draw(|frame| screen.draw(frame))?;
        loop {
            let mut is_new = false;
            while event::poll(Duration::ZERO)? {
                match screen.take(&event::read()?) {
                    ScreenAnswer::Quit => return Ok(()),
                    ScreenAnswer::Draw => is_new = true,
                    ScreenAnswer::Nothing => {}
                }
            }
            if world.now() >= due {
                due = world.now() + interval;
                match sampler.next().await {
                    Ok((_, rates)) => screen.show(rates),
                    Err(refusal) => {
                        screen.show_problem(crate::console::in_options(&refusal.to_string()).into_owned())
                    }
                }
                is_new = true;
            }
            if is_new {
                break;
            }
            world.sleep(KEYS_EVERY).await;
        }
    }
}

/// Reads a server's counters, and makes rates of them.
struct Sampler<'s> {
    world: &'s World,
    server: &'s ServerConnection,
    last: (Moment, ServerReading),
}

impl<'s> Sampler<'s> {
    async fn begin(world: &'s World, server: &'s ServerConnection) -> Result<Self, Refusal> {
        let last = read(world, server).await?;
        Ok(Self { world, server, last })
    }

    /// The rates since the last reading, with the seconds since then.
    async fn next(&mut self) -> Result<(f64, ServerRates), Refusal> {
        let now = read(self.world, self.server).await?;
        let seconds = now.0.since(self.last.0).as_secs_f64();
        let rates = ServerRates::between(&self.last.1, &now.1, seconds);
        self.last = now;
        Ok((seconds, rates))
    }
}

async fn read(world: &World, server: &ServerConnection) -> Result<(Moment, ServerReading), Refusal> {
    let reply = server.get_text("/metrics").await?;
    Ok((world.now(), ServerReading::parse(&reply.body)))
}

fn print((seconds, mut rates): (f64, ServerRates), console: &Console) -> Result<(), Refusal> {
    rates.sort(SortKey::Operations);
    if console.is_for_programs() {
        return console.json_of(&TopAnswer { seconds, rates });
    }
    let tables = [WordTable::of_pools(&rates), WordTable::of_volumes(&rates), WordTable::of_drives(&rates)];
    for (index, table) in tables.iter().enumerate() {
        if index > 0 {
            console.say("");
        }
        table.lines().iter().for_each(|line| console.say(line));
    }
    Ok(())
}
