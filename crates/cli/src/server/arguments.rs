//! Arguments of `spindle token` and `spindle audit`; those of `spindle event` are in [`super::event_arguments`].

use super::place::ServerPlace;
use clap::{Args, Subcommand, ValueEnum};
use control::web::CallerRole;
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle token create backup --role operate --days 90 > backup.token
  spindle token create shop --role read --pool mail     sees the pool mail alone
  spindle token list
  spindle token delete backup

Programs, and people on other machines, call the API of 'spindle serve' with a token: '--server HOST:PORT --token-file FILE' \
here, 'Authorization: Bearer TOKEN' over HTTP. On the server itself, root and the server's own user need none.

Ends with 0, or 2 if it was refused.")]
pub struct TokenArguments {
    #[command(subcommand)]
    pub verb: TokenVerb,

    #[command(flatten)]
    pub place: ServerPlace,

    /// Print the answer as JSON on standard output; everything else goes to standard error
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum TokenVerb {
    /// Make a token, and print it once
    #[command(after_help = "Examples:
  (umask 077; spindle token create backup --role operate > backup.token)
  spindle token create shop --role read --pool mail --days 30

Standard output has the token alone, or with --json all about it. The server keeps only its hash.")]
    Create {
        /// Name of the token: letters, digits, '.', '-' and '_'
        #[arg(value_name = "NAME")]
        name: String,

        /// Rights of its owner
        #[arg(long, value_name = "ROLE", ignore_case = true)]
        role: RoleArgument,

        /// A pool that it may see and change (repeatable) [default: all, and the site itself]
        #[arg(long = "pool", value_name = "POOL")]
        pools: Vec<String>,

        /// Days for which it is valid [default: until it is deleted]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=3650))]
        days: Option<u32>,
    },
    /// List the tokens, without their secrets
    #[command(after_help = "Example:
  spindle token list --json")]
    List,
    /// Delete a token: it is refused from then on
    #[command(after_help = "Example:
  spindle token delete backup")]
    Delete {
        /// Name of the token
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// Rights of a token; each has those of the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleArgument {
    /// Looks at everything but tokens and audit
    Read,
    /// Makes and changes; loses no data
    Operate,
    /// Deletes and rolls back, applies site files, makes tokens, reads the audit
    Admin,
}

impl RoleArgument {
    pub fn role(self) -> CallerRole {
        match self {
            Self::Read => CallerRole::Read,
            Self::Operate => CallerRole::Operate,
            Self::Admin => CallerRole::Admin,
        }
    }
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle audit export > audit.jsonl                  every change that was asked for, a JSON object on each line
  spindle audit export --after 1200 >> audit.jsonl    those after line 1200
  spindle audit check audit.jsonl
  spindle audit check                                 the server's own lines

Each line has a hash of itself and of the line before it. The server keeps lines for 400 days: export them to \
another machine, where whoever owns the server cannot change them.

Ends with 0, with 1 if a line was changed or is missing, and with 2 if there is no answer.")]
pub struct AuditArguments {
    #[command(subcommand)]
    pub verb: AuditVerb,

    #[command(flatten)]
    pub place: ServerPlace,
}

#[derive(Clone, Debug, Subcommand)]
pub enum AuditVerb {
    /// Print the audit, oldest line first
    #[command(after_help = "Examples:
  spindle audit export > audit.jsonl
  spindle audit export --after 1200 >> audit.jsonl

A line has \"number\", \"at\" and \"unix_s\" (time), \"who\", \"whence\", \"what\" (method and path), \"wanted\" (the \
request), \"outcome\" (begun, or the HTTP status), \"of\" (of an outcome: the line that announced it), \"before_hash\" \
and \"hash\".")]
    Export {
        /// Only the lines after this number
        #[arg(long, value_name = "N", default_value_t = 0)]
        after: u64,
    },
    /// Check that no line was changed or taken out
    #[command(after_help = "Examples:
  spindle audit check audit.jsonl
  spindle audit check --json

Lines may be missing before the first one; lines taken away from the end are not noticed. --json prints {\"lines\", \
\"first\", \"last\", \"broken\": {\"number\", \"problem\"}}.")]
    Check {
        /// File that 'spindle audit export' wrote [default: the server's own lines]
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,

        /// Print the answer as JSON on standard output; everything else goes to standard error
        #[arg(long)]
        json: bool,
    },
}
