//! The daemon's core: many pools in one process, each on a thread of its own, behind one portal
//! ([the decision](../../../docs/decisions/2026-11-26-threads-of-the-daemon.md)).
//!
//! ```text
//! portal's thread     NBD and iSCSI listeners, handshakes, discovery
//!    │ connections, once they have named an export or a target      ▲ clients that ask for another pool's export
//!    ▼                                                              │
//! a pool's thread     pool, its sessions, its ring
//!    ▲ orders, 64 at most, each with one answer                     │ views and figures, once a second if anything
//!    │                                                              ▼ changed; notices
//! events' thread      conditions from views, the journal of events, notifiers
//! the caller          [`Daemon`]: starts and ends all of them, and reads views
//! ```
//!
//! Only values that may be sent cross between threads. Everything is async flows over a [`World`](world::World), so the
//! simulated world runs it too.
//!
//! Reading order: [`order`], [`view`], [`session_view`], [`notice`], [`events`], [`pool_thread`], [`folder_pool`], [`folder_drives`],
//! [`pool_changes`], `pool_jobs`, [`pool_peers`], `pool_transfers`, [`pool_imports`], [`portal`], [`daemon`], [`heartbeats`]; beside them [`several_pools`], snapshots
//! and groups over several of them; [`job_keeper`], jobs over restarts; [`journal`], what the daemon remembers over a restart;
//! [`space_counter`]; [`history`], performance over time; [`metrics`], what
//! Prometheus sees; [`kinds`], [`conditions`] and [`notifying`], events for people; above them [`site`], from a site file to all of it, [`recovery`], the way back to it from its pools,
//! [`schedules`], its snapshots, [`presenting`], points for single hosts, [`sets`], its backups, [`dr`], its copies at other sites, and [`web`], the API.
//!
//! Invariants:
//!
//! 1. A pool's thread waits for no other thread: what it sends has room, or is counted and dropped. Only where pools do
//!    something together do they wait for one another, for bounded times ([`several_pools`]).
//! 2. A pool whose thread panics is stopped, and its clients disconnected; all other pools go on.
//! 3. Reading a view sends a pool nothing.

pub mod conditions;
pub mod daemon;
pub mod dr;
pub mod events;
pub mod folder_drives;
pub mod folder_pool;
pub mod heartbeats;
mod hexadecimal;
pub mod history;
pub mod job_keeper;
pub mod job_request;
pub mod journal;
pub mod kinds;
pub mod metrics;
pub mod notice;
pub mod notifying;
pub mod order;
mod page_lines;
#[doc(hidden)]
pub mod planted;
pub mod pool_changes;
pub mod pool_imports;
mod pool_jobs;
pub mod pool_peers;
pub mod pool_thread;
mod pool_transfers;
pub mod portal;
pub mod presenting;
pub mod recovery;
pub mod report_folder;
mod row_tag;
pub mod schedules;
pub mod session_view;
pub mod sets;
pub mod several_pools;
pub mod site;
pub mod space_counter;
pub mod view;
pub mod watched;
pub mod web;

pub use daemon::{Daemon, DaemonSetting};
pub use folder_pool::FolderPool;
pub use journal::{ApplyRecord, DaemonJournal, JournalError, JournalPool};
