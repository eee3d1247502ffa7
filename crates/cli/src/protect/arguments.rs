//! Arguments of `spindle protect`.

use super::set_arguments::SetVerb;
use crate::server::place::ServerPlace;
use clap::{Args, Subcommand};

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect list
  spindle protect now mail --hold upgrade
  spindle protect list mail --server https://array:7780 --token-file token --json

docs/protect.md says how sets are described and what the labels of backups mean.

Ends with 0, and with 2 if it was refused.")]
pub struct ProtectArguments {
    #[command(subcommand)]
    pub verb: ProtectVerb,

    #[command(flatten)]
    pub place: ServerPlace,

    /// Print the answer as JSON on standard output; everything else goes to standard error
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ProtectVerb {
    #[command(flatten)]
    Set(SetVerb),
}
