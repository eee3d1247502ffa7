//! Arguments of `spindle job`.

use crate::server::place::ServerPlace;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle job list                                    what is under way in all pools of the server
  spindle job show mail/scrub
  spindle job wait mail/empty                         until no drive leaves any more
  spindle job cancel mail/scrub
  spindle job cancel fast/move                        the same 'volume move' goes on from there

A pool that 'spindle serve' has open has one job of each kind: rebuild makes missing copies, empty empties drives that \
leave, level moves data until drives are equally full, scrub checks every copy, destage moves blocks of raid0 volumes out \
of the mirrored log, reclaim frees what was deleted, fill copies what clones share with their sources, copy, refresh and move bring volumes of other pools here. POOL is the name of a \
pool at the server, or its folder.

A job that was asked for goes on when the server is started again, also after a crash or a power failure. Ends with 0 on \
success, 1 if data is lost, 2 if it was refused, or the job is not over.")]
pub struct JobArguments {
    #[command(subcommand)]
    pub verb: JobVerb,

    #[command(flatten)]
    pub place: ServerPlace,

    /// Print the answer as JSON on standard output; everything else goes to standard error
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub enum JobVerb {
    /// List the jobs that are under way, and the last ones that were asked for
    #[command(after_help = "Example:
  spindle job list --json                             all jobs of all pools, also idle ones")]
    List {
        /// Name of a pool [default: all]
        #[arg(value_name = "POOL")]
        pool: Option<String>,
    },
    /// Show a job: progress, rate, time left
    #[command(after_help = "Example:
  spindle job show mail/scrub")]
    Show {
        /// The pool, and the kind of job
        #[arg(value_name = "POOL/JOB")]
        job: PathBuf,
    },
    /// Wait until a job has ended, and print its result
    #[command(after_help = "Example:
  spindle job wait mail/scrub                         prints what 'spindle pool scrub' prints

Of a job that has ended, the result is printed again. Ctrl-C ends the wait alone.")]
    Wait {
        /// The pool, and the kind of job
        #[arg(value_name = "POOL/JOB")]
        job: PathBuf,
    },
    /// End a scrub, a levelling, a copy, a refresh or a move early; what it has done counts
    #[command(after_help = "Example:
  spindle job cancel mail/scrub

A drive that leaves is kept with 'spindle pool retire --keep', and the filling of a clone is given up with \
'spindle volume fill --cancel'. The other jobs keep data safe or free its space, and are not cancelled.")]
    Cancel {
        /// The pool, and the kind of job
        #[arg(value_name = "POOL/JOB")]
        job: PathBuf,
    },
}
