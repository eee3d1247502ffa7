//! DR groups: volumes that another site has a copy of, and the link to that site.
//!
//! ```text
//! a pool's thread    [`pool_groups`]: its groups, each led or followed by a `hosted_group`
//!    ▲ │ frames of each group                    │ views
//!    │ ▼                                         ▼
//! the link's thread  [`link_thread`]: pairings, sessions with other sites, a channel for each group
//!    ▲ orders and views
//! the API
//! ```
//!
//! Reading order: `thread_channel`, [`group_services`], `group_clients`, `remembered_clients`, `set_memory`, `kept_services`, `service_plan`, `could_serve`, `shared_targets`,
//! `pool_services`, [`group_view`], [`group_report`], `etcd_access`, `etcd_gateway`, `etcd_witness`, [`access`], `group_orders`, `hosted_group`, `snapshot_locks`, [`held_views`], `takeover`,
//! `host_withholding`, `pool_groups`, `pool_clients`, `group_clones`, [`rehearsal`], `joint_readers`, `replica_views`; [`mode`], `site_message`, `part_inbox`, `service_exchange`, `client_exchange`, `set_exchange`, `verdict_exchange`, `peer_session`, [`link_view`], [`link_thread`],
//! [`line_test`].

pub mod access;
mod client_exchange;
mod could_serve;
pub(crate) mod etcd_access;
mod etcd_gateway;
mod etcd_witness;
pub(crate) mod group_clients;
pub(crate) mod group_clones;
mod group_orders;
pub mod group_report;
pub mod group_services;
pub mod group_view;
mod half_made;
mod handing_over;
pub mod held_views;
mod host_withholding;
mod hosted_group;
mod joint_readers;
pub(crate) mod kept_services;
pub mod line_test;
pub mod link_thread;
pub mod link_view;
pub(crate) mod merge_turns;
pub mod mode;
mod mode_change;
mod mode_exchange;
mod part_inbox;
mod peer_session;
mod pool_clients;
pub(crate) mod pool_groups;
mod pool_services;
pub mod rehearsal;
pub(crate) mod remembered_clients;
pub(crate) mod replica_views;
mod service_exchange;
mod service_plan;
mod set_exchange;
pub(crate) mod set_memory;
pub(crate) mod shared_targets;
pub(crate) mod site_message;
mod snapshot_locks;
mod suspension;
mod takeover;
mod thread_channel;
mod verdict_exchange;
pub mod verification;

pub use link_thread::{LINK_PORT, LinkProtection, LinkThread, LinkThreadSetting};
pub use link_view::{LinkHandle, LinkView, PeerView};
