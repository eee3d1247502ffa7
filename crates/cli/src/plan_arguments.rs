//! Arguments of `spindle plan`.

use clap::Args;
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Examples:
  spindle plan --users 5000 --quota 2GB --messages 150 --message-size 75KB --copies 2 --max-db-size 1024GB
  spindle plan --users 600 --quota 200MB --rules exchange-2007 --array StorTrends --raid raid10
  spindle plan --users 1500 --array spindle --site site.toml      pools for 'spindle serve'
  spindle plan profile.toml --html plan.html --site site.toml     users in tiers, from a file
  spindle plan --users 5000 --quota 2GB --explain DSU             one number: its formula, with its numbers
  spindle plan --users 5000 --quota 2GB --set retained_days=30    one figure of the rules changed

Sizes must have a unit. GB and GiB are the same here, 1024^3 bytes, as mail servers count; drives are sold in
units of 1000^3. --full shows every number with its formula, its source and its confidence (docs/planning.md).

Ends with 0 if a product of the catalogue carries the load, 1 if none does, 2 if no plan could be made.",
    max_term_width = 100
)]
pub struct PlanArguments {
    /// Profile with users in tiers (docs/planning.md); other options override it, except those for users
    #[arg(value_name = "PROFILE", conflicts_with_all = ["users", "quota", "messages", "message_size"])]
    pub profile: Option<PathBuf>,

    /// Number of mailboxes
    #[arg(long, visible_alias = "mailboxes", value_name = "N", allow_negative_numbers = true)]
    pub users: Option<String>,

    /// Largest mailbox, such as 2GB [default: 2GB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub quota: Option<String>,

    /// Messages that a user sends and receives in a day [default: 100]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub messages: Option<String>,

    /// Mean size of a message, such as 75KB [default: 75KB]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub message_size: Option<String>,

    /// Copies of every database, the active one included [default: 1, or 2 with --mode copies]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub copies: Option<String>,

    /// Protection of databases, which limits their size: stand-alone, copies, backup-window [default: by copies]
    #[arg(long, value_name = "MODE", allow_hyphen_values = true)]
    pub mode: Option<String>,

    /// Figures of the mail server: exchange-2003, exchange-2007, exchange-2010, exchange-2013, open-mail, or a file
    /// [default: exchange-2010]
    #[arg(long, visible_alias = "server", value_name = "NAME")]
    pub rules: Option<String>,

    /// Largest database, such as 1024GB [default: by mode]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub max_db_size: Option<String>,

    /// Growth to plan for, such as 20% [default: 0%]
    #[arg(long, value_name = "PERCENT", allow_hyphen_values = true)]
    pub growth: Option<String>,

    /// RAID level of the databases: raid10, raid50, raid5, raid6, ... [default: any that fits]
    #[arg(long, value_name = "LEVEL")]
    pub raid: Option<String>,

    /// Array, kind of drive or cloud volume to plan with; spindle for pools of 'spindle serve' [default: everything in the
    /// catalogue]
    #[arg(long, value_name = "NAME")]
    pub array: Option<String>,

    /// Link to another site that holds a copy: T3, OC3, 1GbE, 10GbE
    #[arg(long, value_name = "LINE")]
    pub link: Option<String>,

    /// Change one figure of the rules (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Explain one number, such as DSU, and print nothing else
    #[arg(long, value_name = "ID", conflicts_with_all = ["html", "site"])]
    pub explain: Option<String>,

    /// Write the plan as one HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write the first choice, laid out in groups and volumes, as a site for 'spindle prove --site' and 'spindle advise'
    #[arg(long, value_name = "FILE")]
    pub site: Option<PathBuf>,

    /// Print every number with its formula and source, all choices, and what was not taken
    #[arg(long, conflicts_with = "quiet")]
    pub full: bool,

    /// Print the plan as JSON, and nothing else
    #[arg(long)]
    pub json: bool,

    /// Print only the answer
    #[arg(long, short)]
    pub quiet: bool,
}
