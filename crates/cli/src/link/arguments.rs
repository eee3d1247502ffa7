//! Arguments of `spindle link`.

use super::line_rate::parse_line_rate;
use crate::dr::arguments::DrCommon;
use clap::{Args, Subcommand};
use control::dr::line_test::{LINE_TEST_CONNECTIONS_MAX, LINE_TEST_SPAN};
use plan::units::MegabitsPerSecond;
use std::path::PathBuf;

/// More storage groups than any site has.
const GROUPS_MAX: u64 = 100_000;
/// Seconds of a test, and of a quick one.
pub const SECONDS: u64 = 10;
pub const QUICK_SECONDS: u64 = 3;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  spindle link test denver --line OC3 --groups 8 --needed 40Mb/s

Ends with 0 if the line carries replication, 1 if it does not, 2 if it was not measured.")]
pub struct LinkArguments {
    #[command(subcommand)]
    pub verb: LinkVerb,

    #[command(flatten)]
    pub common: DrCommon,
}

#[derive(Clone, Debug, Subcommand)]
pub enum LinkVerb {
    /// Measure the line to a paired site, and judge whether it carries replication
    #[command(after_help = "Examples:
  spindle link test denver                                          about 10 seconds
  spindle link test denver --line OC3 --groups 8 --needed 40Mb/s
  spindle link test denver --site site.toml                         what the site file says that it needs
  spindle link test denver --write site.toml                        and the measured figures into it
  spindle link test denver --quick --json

Measures round trips idle and under load, and rates each way with one connection and with several, for each address of the \
other site alone. Replication goes on, and shares the line with the test: what is measured beside it is what it leaves. The \
verdict is that of 'spindle advise': the round trip, 20 % over the needed rate, one path carries all, room for write history.

Say it at the site that connects to the other one. Ends with 0 if the line carries replication, 1 if it does not, 2 if it was \
not measured.")]
    Test(LinkTestArguments),
}

#[derive(Clone, Debug, Args)]
pub struct LinkTestArguments {
    /// The other site, as 'dr status' names it
    #[arg(value_name = "SITE")]
    pub peer: String,

    /// The line that was ordered, whose rate is shown beside the measured one: T3, OC3, 1GbE, 10GbE
    #[arg(long, value_name = "NAME", value_parser = line_name)]
    pub line: Option<String>,

    /// Storage groups that are replicated in sync: they decide the longest round trip
    /// [default: the site file's, or 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=GROUPS_MAX))]
    pub groups: Option<u64>,

    /// Peak rate of replication, such as 40Mb/s [default: the site file's; without one the rate is not judged]
    #[arg(long, value_name = "RATE", value_parser = parse_line_rate)]
    pub needed: Option<MegabitsPerSecond>,

    /// Connections of the measurements with several [default: as many as replication uses]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(LINE_TEST_CONNECTIONS_MAX)))]
    pub connections: Option<u16>,

    /// Time of all measurements together [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(LINE_TEST_SPAN.0.as_secs()..=LINE_TEST_SPAN.1.as_secs()))]
    pub seconds: Option<u64>,

    /// Measure for 3 seconds
    #[arg(long, conflicts_with = "seconds")]
    pub quick: bool,

    /// Site file that says what is needed
    #[arg(long, value_name = "FILE")]
    pub site: Option<String>,

    /// Write the measured figures into the link table of a site file, and change nothing else of it; without --site
    /// it also says what is needed
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
}

fn line_name(text: &str) -> Result<String, String> {
    plan::profile::line(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}
